"""Two real networks on the same real images, compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from robaudit import audit
from robaudit.compare.difference import compare
from robaudit.store.run import Run, read_run
from tests.shared import document, needs_shared
from tests.specs import located

pytestmark = [needs_shared, pytest.mark.slow]


def run_of(folder: Path, model: str) -> Run:
    values = document(model, limit=60, noise={"sigma": [0.25]}, estimators=[{"mc": {"samples": 400}}])
    return read_run(audit(located(values, folder, model), out=folder / model).path, kept=True)


def test_a_network_trained_for_it_is_clearly_more_robust(tmp_path: Path) -> None:
    ordinary, trained = (run_of(tmp_path, model) for model in ("mnist_conv_small_nat", "mnist_cnn_a_adv"))
    found = compare(ordinary, trained)
    (group,) = found.groups
    assert group.how == "common random numbers"
    assert group.variance_saved is not None
    assert -0.1 < group.variance_saved < 0.5
    assert group.mean.measured is not None
    unpaired = compare(read_run(ordinary.path), trained).groups[0].mean.measured
    assert unpaired is not None
    width = group.mean.measured.upper - group.mean.measured.lower
    assert width < 1.05 * (unpaired.upper - unpaired.lower)
    back = compare(trained, ordinary).groups[0]
    assert back.mean.value == -group.mean.value
    assert not back.mean.measured or back.mean.measured.lower <= back.mean.value <= back.mean.measured.upper
