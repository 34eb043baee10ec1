"""limit, sample, one shape for all, class names: what the audit sees of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robaudit.datasets import open_dataset
from robaudit.datasets.dataset import Labels, Sample
from robaudit.datasets.digits import DigitsSpec
from robaudit.datasets.select import Selected, choose, random_subset
from robaudit.errors import DataError, SampleError
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.model import BaseDatasetSpec, SampleSpec
from tests.golden import Golden


class Fake:
    """Images of the given side lengths; a side of 0 is unreadable."""

    where = "fake"
    class_names: tuple[str, ...] | None = None

    def __init__(self, sides: list[int], labels: list[int] | None = None) -> None:
        self.sides = sides
        self.given = labels

    def __len__(self) -> int:
        return len(self.sides)

    def sample_id(self, index: int) -> str:
        return f"s{index}"

    def labels(self) -> Labels | None:
        return None

    def __getitem__(self, index: int) -> Sample:
        if not self.sides[index]:
            raise SampleError(f"fake, s{index}", "is damaged")
        return Sample(
            f"s{index}",
            torch.zeros(1, self.sides[index], 4),
            None if self.given is None else self.given[index],
        )


@given(total=st.integers(1, 300), share=st.floats(0, 1), seed=st.integers(-(2**70), 2**70))
def test_subsets_are_increasing_distinct_and_nested(total: int, share: float, seed: int) -> None:
    size = max(1, int(share * total))
    subset = random_subset(total, size, seed)
    assert len(subset) == size
    assert list(subset) == sorted(set(subset))
    assert subset[0] >= 0
    assert subset[-1] < total
    assert set(subset) <= set(random_subset(total, min(total, size + 7), seed))


def test_a_seed_chooses_the_same_samples_in_every_version() -> None:
    assert list(random_subset(100, 5, 0)) == [0, 42, 59, 76, 82]


@given(total=st.integers(1, 50), limit=st.integers(1, 100))
def test_limit_is_the_first_n(total: int, limit: int) -> None:
    assert list(choose(Fake([4] * total), BaseDatasetSpec(kind="npz", limit=limit))) == list(
        range(min(total, limit))
    )


def test_ids_and_labels_are_those_of_the_whole_set(tmp_path: Path) -> None:
    whole = open_dataset(DigitsSpec(kind="digits", split="all"), base_dir=tmp_path, trust=False)
    part = open_dataset(
        DigitsSpec(kind="digits", split="all", sample=SampleSpec(size=30, seed=4)),
        base_dir=tmp_path,
        trust=False,
    )
    labels = part.labels()
    assert labels is not None
    for index in range(30):
        sample = part[index]
        same = whole[int(part.sample_id(index))]
        assert sample.id == part.sample_id(index) == same.id
        assert sample.label == labels[index] == same.label
        assert sample.pixels.equal(same.pixels)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [-1, 2], [2, 1]])
def test_the_first_readable_sample_sets_the_shape_whatever_is_read_first(
    order: list[int], golden: Golden
) -> None:
    selected = Selected(Fake([0, 4, 5, 4]), range(4))
    for index in order:
        if index in (0, 2):
            with pytest.raises(SampleError) as caught:
                selected[index]
            golden(caught.value)
        else:
            assert selected[index].pixels.shape == (1, 4, 4)


def test_labels_beyond_the_class_names(golden: Golden) -> None:
    selected = Selected(Fake([4, 4], [0, 2]), range(2), ("cat", "dog"))
    assert selected.class_names == ("cat", "dog")
    assert selected[0].label == 0
    with pytest.raises(SampleError) as caught:
        selected[1]
    golden(caught.value)


def test_ids_choose_in_the_order_of_the_data(tmp_path: Path, golden: Golden) -> None:
    data = Fake([2, 2, 2, 2])
    assert choose(data, BaseDatasetSpec(kind="any", ids=("s3", "s1"))) == [1, 3]
    with pytest.raises(DataError) as caught:
        choose(data, BaseDatasetSpec(kind="any", ids=("s1", "s9", "s8")))
    golden(caught.value)
    (tmp_path / "some.txt").write_text("7\n\n12\n")
    read = DigitsSpec.model_validate(
        {"kind": "digits", "ids": "some.txt"}, context={BASE_DIR: tmp_path}
    )
    assert (
        read.ids
        == ("7", "12")
        == DigitsSpec.model_validate({"kind": "digits", "ids": [7, "12"]}).ids
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ids": ["a", "a"]}, "lists 'a' twice"),
        ({"ids": ["a"], "limit": 3}, "limit and ids cannot be combined"),
    ],
)
def test_ids_that_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DigitsSpec.model_validate({"kind": "digits", **given})
