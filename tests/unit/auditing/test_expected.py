"""The expected time of an audit."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit.auditing import audit as run_module
from robaudit.auditing.expected import Expected, Speed, measure_speed
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.engine.registry import tasks_of
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec
from tests.conftest import RunCli
from tests.specs import digits, write

BOTH: list[Any] = [{"mc": {"draws": 2000}}, {"logit_gaussian": {"draws": 160}}, "taylor"]


def spec_of(**sections: Any) -> AuditSpec:
    return AuditSpec.model_validate(digits(**{"estimators": BOTH, **sections}))


def ready(noise: Any) -> PreparedAudit:
    spec = AuditSpec.model_validate(digits(noise=noise, estimators=[{"mc": {"draws": 10}}]))
    return prepare(Request(spec), torch.device("cpu"), Listener())


def test_the_speed_is_that_of_the_timed_passes() -> None:
    """A full pass of 8 x 8 pixels has 128 rows; every look at this clock is half a second later."""
    for noise in ({"sigma": [0.1, 0.2]}, [{"sigma": 0.1}, {"kind": "uniform", "eps": 0.1}]):
        clock = count(step=0.5)
        speed = measure_speed(ready(noise), lambda clock=clock: next(clock))  # type: ignore[misc]
        assert speed == Speed(256.0, 10)


def test_the_line() -> None:
    assert (
        Expected(500, 1025, 176.7, 2912.0).text
        == "about 2.9 min on this machine: 500 images x 1,025 passes at 2,900 passes/s"
    )
    assert (
        Expected(1, 20, 40.0, 0.512).text
        == "about 40 s on this machine: 1 image x 20 passes at 0.51 passes/s"
    )


def test_each_task_counts_for_the_images_that_lack_it() -> None:
    tasks = tasks_of(spec_of(noise={"sigma": [0.1]}))
    found = Speed(100.0, 10).expected(tasks, [0, 4, 2])
    forwards, backwards = tasks[2].estimator.passes(10)
    total = 4 * 161 + 2 * (forwards + 2 * backwards)
    assert (found.images, found.passes, found.seconds) == (4, round(total / 4), total / 100)


def test_a_complete_run_times_nothing(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, digits(limit=3))
    timed: list[PreparedAudit] = []

    def measured(audit: PreparedAudit) -> Speed:
        timed.append(audit)
        return Speed(1e6, 10)

    monkeypatch.setattr(run_module, "measure_speed", measured)
    assert [run_cli("estimate", "spec.yaml", "--out", "run").code for _ in range(2)] == [0, 0]
    assert len(timed) == 1
