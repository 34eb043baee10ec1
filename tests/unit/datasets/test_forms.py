"""Every form of data on disk keeps the contract of a data set: the same images, ids and labels,
also from a pickle."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from robaudit.datasets.dataset import Dataset
from robaudit.errors import RobauditError, SampleError
from robaudit.spec.model import DatasetSpec
from tests.golden import Golden
from tests.unit.datasets.forms import BAD, COUNT, LABELS, NAMES, PIXELS, write_all
from tests.unit.datasets.reading import opened

Forms = tuple[Path, dict[str, dict[str, object]]]
FORMS = (
    "hf, arrow",
    "hf, a split",
    "hf, parquet",
    "parquet",
    "webdataset",
    "webdataset, shards",
    "csv, metadata",
    "json lines, metadata",
    "csv, tabs",
)
UNNAMED = ("parquet", "webdataset", "csv, tabs")
"""Forms whose labels are class indices without names."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Forms:
    folder = tmp_path_factory.mktemp("good")
    return folder, write_all(folder)


def check(dataset: Dataset, order: list[int]) -> None:
    for index in order:
        sample = dataset[index]
        assert sample.id == dataset.sample_id(index)
        assert sample.label == LABELS[index]
        assert np.array_equal(
            sample.pixels.numpy().transpose(1, 2, 0) * 255, PIXELS[index].astype(float)
        )


@pytest.mark.parametrize("form", FORMS)
def test_the_contract(good: Forms, form: str) -> None:
    folder, specs = good
    dataset = opened(folder, **specs[form])
    assert len(dataset) == COUNT
    labels = dataset.labels()
    assert labels is not None
    assert labels.dtype == np.int64
    assert labels.tolist() == LABELS
    assert dataset.class_names == (None if form in UNNAMED else NAMES)
    assert len({dataset.sample_id(index) for index in range(COUNT)}) == COUNT
    with pytest.raises(IndexError):
        dataset[COUNT]
    check(dataset, [0, COUNT - 1, 3, 2, 5, 1, *range(COUNT)])
    check(pickle.loads(pickle.dumps(dataset)), [7, 2])
    # as run.json has it
    stored = TypeAdapter(DatasetSpec).validate_python(specs[form]).model_dump(mode="json")
    check(opened(folder, **stored), [3])


@pytest.mark.parametrize("form", ["hf, arrow", "parquet", "json lines, metadata", "csv, tabs"])
def test_one_bad_image(tmp_path: Path, form: str, golden: Golden) -> None:
    dataset = opened(tmp_path, **write_all(tmp_path, bad=True)[form])
    with pytest.raises(SampleError) as caught:
        dataset[BAD]
    golden(caught.value)
    check(dataset, [BAD - 1, BAD + 1])


def test_a_missing_library(good: Forms, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RobauditError) as caught:
        opened(good[0], **good[1]["parquet"])
    golden(caught.value)
