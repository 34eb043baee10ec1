"""Mistakes that cost accuracy are named in one line: labels that count from 1 or are permuted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import robaudit
from robaudit.errors import DataError
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
