"""Mistakes that cost accuracy are named in one line: labels that count from 1 or are permuted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import robaudit
from robaudit.auditing.checks import InputCheck, check_input
from robaudit.datasets.dataset import Labels, Sample
from robaudit.errors import DataError
from robaudit.models import from_module
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write
from tests.unit.api.nets import arrays, network

CLEAN = "clean accuracy is "


def warnings_of(
    net: nn.Module,
    labels: Tensor | np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    images: object = None,
) -> list[str]:
    """Those of an audit of digits in memory."""
    data = arrays(len(labels))[0] if images is None else images
    return list(robaudit.audit(net, (data, labels), sigma=0.1, estimators="softmax").info.warnings)


@pytest.mark.filterwarnings("ignore::robaudit.RobauditWarning")
class TestLabels:
    """Of 120 digits."""

    labels = arrays(120)[1]

    def test_right(self) -> None:
        assert warnings_of(network(), self.labels) == []

    @pytest.mark.parametrize(
        ("order", "shown"),
        [
            ([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], "0->9, 1->0, 2->1, ..."),
            ([1, 0, 2, 3, 4, 5, 6, 7, 8, 9], "0->1, 1->0"),
        ],
        ids=["shifted", "two swapped"],
    )
    def test_permuted(self, order: list[int], shown: str) -> None:
        (line,) = warnings_of(network(), np.array(order)[self.labels])
        assert CLEAN in line
        assert line.endswith(
            f"% with the labels permuted ({shown}): check the order of the classes"
        )

    def test_few_of_many_classes_that_count_from_1(self) -> None:
        """With more classes than images, no permutation can be fitted."""
        wide = nn.Sequential(network(), nn.ConstantPad1d((0, 990), -100.0))
        (line,) = warnings_of(wide, self.labels + 1)
        assert line.endswith("% with 1 subtracted from each label: they count from 1")

    def test_images_of_a_single_class_show_no_permutation(self) -> None:
        (line,) = warnings_of(
            network(),
            np.full(120, 3),
            arrays(600)[0][arrays(600)[1] == 5][:120][np.arange(120) % 40],
        )
        assert line.endswith("no better than chance; check labels, head, mean and std")

    def test_random_labels(self) -> None:
        (line,) = warnings_of(network(), np.random.default_rng(0).integers(0, 10, 120))
        assert line.endswith("no better than chance; check labels, head, mean and std")

    def test_a_head_with_more_classes_in_another_order(self) -> None:
        class Spread(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = network()

            def forward(self, x: Tensor) -> Tensor:
                found = torch.full((len(x), 100), -100.0)
                found[:, 7::10] = self.net(x)
                return found

        (line,) = warnings_of(Spread(), self.labels)
        assert line.endswith(
            "% with the labels permuted (0->7, 1->17, 2->27, ...): check the order of the classes"
        )

    def test_a_subset_of_the_classes_is_no_mistake(self) -> None:
        wide = nn.Sequential(network(), nn.ConstantPad1d((0, 90), -100.0))
        assert warnings_of(wide, self.labels) == []


def halves(count: int, right: float, gained: float, lost: float) -> tuple[Tensor, Tensor]:
    """Images of three values, and their labels: the share ``right`` is classified as labelled by
    :class:`Halves`; inverted, some are gained and some are lost."""
    random = np.random.default_rng(4)
    labels = random.integers(0, 2, count)
    u = random.random(count)
    is_right = u < right
    is_right_inverted = (u < right - lost) | ((u >= right) & (u < right + gained))
    values = np.stack(
        [
            np.full(count, 0.9),
            np.where(is_right, labels, 1 - labels) * 0.8 + 0.1,
            np.where(is_right_inverted, 1 - labels, labels) * 0.8 + 0.1,
        ],
        axis=1,
    )
    return torch.tensor(values).float()[:, :, None, None], torch.tensor(labels)


class Halves(nn.Module):
    """Two classes by the second value of an image, or by the third if the first is dark."""

    def forward(self, x: Tensor) -> Tensor:
        values = x.flatten(1)
        score = torch.where(values[:, 0] > 0.5, values[:, 1], values[:, 2]) - 0.5
        return torch.stack([-score, score], 1)


class Counting:
    """Samples in memory, which count how many are read."""

    where = "counted"
    class_names = None

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images = images
        self._labels = labels
        self.read = 0

    def __len__(self) -> int:
        return len(self._images)

    def sample_id(self, index: int) -> str:
        return str(index)

    def labels(self) -> Labels:
        labels: Labels = self._labels.numpy()
        return labels

    def __getitem__(self, index: int) -> Sample:
        self.read += 1
        return Sample(str(index), self._images[index].double(), int(self._labels[index]))


def checked(images: Tensor, labels: Tensor) -> tuple[InputCheck, int]:
    """The check of these images, and how many were read."""
    data = Counting(images, labels)
    found = check_input(from_module(Halves()), data, gradients=False, skip_bad=False)
    return found, data.read


class TestFurtherImages:
    """A gain that 256 images leave open is looked for in all of them."""

    def test_a_gain_of_a_few_percent_is_found(self) -> None:
        images, labels = halves(5000, 0.83, 0.08, 0.035)
        assert checked(images[256:512], labels[256:512])[0].warnings == ()
        (line,) = checked(images, labels)[0].warnings
        assert line.endswith("% with inverted pixels (1 - x)")
        assert "% on 256 images" not in line

    def test_without_a_gain_there_is_no_warning(self) -> None:
        assert checked(*halves(3000, 0.83, 0.08, 0.08))[0].warnings == ()

    def test_no_more_images_are_read_than_needed(self) -> None:
        _, read = checked(*halves(3000, 0.83, 0.03, 0.08))
        assert read < 1000


def test_the_checked_images_are_a_random_part() -> None:
    """The first ones of a folder are those of its first classes, and may be the easy ones."""
    images, labels = halves(2000, 1.0, 0.0, 0.0)
    images[1000:, 1] = 1 - images[1000:, 1]  # always wrong
    found, _ = checked(images, labels)
    assert (found.part, found.labelled) == (True, 256)
    # Half of them are right, with a standard deviation of 8.
    assert abs(found.correct - 128) < 5 * 8


def test_labels_up_to_the_number_of_classes(
    tmp_path: Path, run_cli: RunCli, golden: Golden
) -> None:
    images, labels = arrays(60)
    np.savez(tmp_path / "x.npz", images=images, labels=labels + 1)
    path = write(tmp_path, digits(dataset={"kind": "npz", "path": "x.npz"}, estimators=["softmax"]))
    code, out, err = run_cli("estimate", path)
    assert (code, out) == (2, "")
    assert err.startswith("error: x.npz: the labels run from 1 to 10, but ")
    assert err.endswith(" counts its 10 classes from 0; subtract 1 from each label\n")
    with pytest.raises(DataError) as caught:
        robaudit.audit(network(), (images, labels + 1), sigma=0.1)
    golden(caught.value)
    # Not all classes need be there.
    some = labels > 2
    with pytest.raises(DataError, match=r"run from 4 to 10, .* counts its 10 classes from 0"):
        robaudit.audit(network(), (images[some], labels[some] + 1), sigma=0.1)
    with pytest.raises(DataError) as caught:
        robaudit.audit(network(), (images, np.where(np.arange(60) == 7, 10, labels)), sigma=0.1)
    golden(caught.value)
