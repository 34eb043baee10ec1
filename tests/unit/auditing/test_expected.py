"""The expected time of an audit, and the draws and images that fit a budget."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.auditing import audit as run_module
from robaudit.auditing.expected import (
    FEWEST_DRAWS,
    Expected,
    Speed,
    as_begun,
    lowered,
    measure_speed,
)
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.engine import registry
from robaudit.engine.registry import tasks_of
from robaudit.errors import RobauditError
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec, identity
from tests.conftest import RunCli
from tests.specs import digits, read_info, write

BOTH: list[Any] = [{"mc": {"draws": 2000}}, {"logit_gaussian": {"draws": 160}}, "taylor"]


def spec_of(**sections: Any) -> AuditSpec:
    return AuditSpec.model_validate(digits(**{"estimators": BOTH, **sections}))


def ready(noise: Any) -> PreparedAudit:
    spec = AuditSpec.model_validate(digits(noise=noise, estimators=[{"mc": {"draws": 10}}]))
    return prepare(Request(spec), torch.device("cpu"), Listener())


def seconds(spec: AuditSpec, images: int, rate: float) -> float:
    """By the estimators' own passes."""
    forwards, backwards = map(
        sum, zip(*(one.passes(10) for one in registry.build(spec.estimators).values()), strict=True)
    )
    return images * len(spec.levels) * (forwards + 2 * backwards) / rate


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


@settings(max_examples=60, deadline=None)
@given(st.floats(1.0, 1e5), st.integers(1, 2000), st.integers(1, 20_000), st.booleans())
def test_what_is_lowered_fits(budget: float, images: int, samples: int, limited: bool) -> None:
    chosen = {"limit": images} if limited else {"sample": {"size": images, "seed": 3}}
    spec = spec_of(
        estimators=[{"mc": {"draws": samples}}, *BOTH[1:]], dataset={"kind": "digits", **chosen}
    )
    speed = Speed(1000.0, 10)
    try:
        found, lines = lowered(spec, images, budget, speed)
    except RobauditError:
        assert (
            seconds(
                spec_of(estimators=[{"mc": {"draws": min(samples, FEWEST_DRAWS)}}, *BOTH[1:]]),
                1,
                1000.0,
            )
            > 0.8 * budget
        )
        return
    sample = found.dataset.sample
    left = found.dataset.limit if sample is None else sample.size
    assert left is not None
    assert limited == (sample is None)
    assert seconds(found, left, 1000.0) <= budget * 1.0001
    draws = [entry.options.get("draws", 0) for entry in found.estimators]
    assert draws[0] <= samples
    assert draws[0] >= min(samples, FEWEST_DRAWS)
    if seconds(spec, images, 1000.0) <= budget:
        assert (found, lines) == (spec, [])
    if left < images:
        assert draws[0] == min(samples, FEWEST_DRAWS)
        assert lines[-1].startswith(f"{images:,} -> {left:,} image")
    assert identity(as_begun(spec, found.document()).document()) == identity(found.document())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the measured speed of the machine."""

    def set_rate(rate: float) -> None:
        monkeypatch.setattr(run_module, "measure_speed", lambda _: Speed(rate, 10))

    return set_rate


@pytest.mark.parametrize("entry", ["mc", {"mc": {"draws": 50}}, {"mc": {"samples": 50}}])
def test_a_run_that_was_not_lowered_is_found_again(
    entry: Any,
    tmp_path: Path,
    run_cli: RunCli,
    slow: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, digits(limit=3, estimators=[entry], noise={"sigma": [0.2]}))
    slow(1e9)
    command = ("estimate", "spec.yaml", "--budget", "10h")
    assert run_cli(*command).code == 0
    again = run_cli(*command)
    assert again.code == 0, again.err
    assert "nothing was recomputed" in again.err


def test_a_run_is_lowered_once(
    tmp_path: Path, run_cli: RunCli, slow: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, digits(limit=20, estimators=[{"mc": {"draws": 400}}], noise={"sigma": [0.2]}))
    slow(0.02)  # ten hours are 640 passes or so
    command = ("estimate", "spec.yaml", "--budget", "10h")
    first = run_cli(*command)
    assert first.code == 0, first.err
    assert "--budget: mc: 400 -> 100 draws" in first.err
    assert "--budget: 20 -> 6 images" in first.err
    assert "6 images x 101 passes at 0.02 passes/s" in first.err
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("spec-36000s-")
    info = read_info(folder)
    assert (info["spec"]["estimators"][0]["options"], info["spec"]["dataset"]["limit"]) == (
        {"draws": 100},
        6,
    )
    slow(1e9)
    again = run_cli(*command)
    assert again.code == 0, again.err
    assert "is continued with the draws and images it was begun with" in again.err
    assert "nothing was recomputed" in again.err
    assert read_info(folder)["spec"] == info["spec"]
    other = run_cli(*command, "--sigma", "0.3", "--out", folder)
    assert (other.code, "holds a run with other noise levels" in other.err) == (2, True)
    plain = run_cli("estimate", "spec.yaml")
    assert (plain.code, len(list(Path("runs").iterdir()))) == (0, 2)


def test_what_fits_is_left_alone(
    tmp_path: Path, run_cli: RunCli, slow: Callable[[float], None]
) -> None:
    write(tmp_path, digits(limit=3, estimators=[{"mc": {"draws": 50}}]))
    slow(1e6)
    done = run_cli("estimate", "spec.yaml", "--budget", "1h", "--out", "run")
    assert done.code == 0
    assert "--budget" not in done.err
    assert read_info(tmp_path / "run")["totals"]["samples"] == 3


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--budget", "soon"), "--budget soon: is not a duration"),
        (("--budget", "9m", "--extend"), "--budget: cannot be combined with --extend"),
        (
            ("--budget", "9m", "--gate", "mean >= 0.9"),
            "--budget: cannot be combined with sampling until gates are decided",
        ),
        (("--budget", "1m"), "--budget: is too short: one image takes about"),
    ],
)
def test_refusals(
    options: tuple[str, ...],
    says: str,
    tmp_path: Path,
    run_cli: RunCli,
    slow: Callable[[float], None],
) -> None:
    write(tmp_path, digits(limit=3))
    slow(0.001)
    done = run_cli("estimate", "spec.yaml", "--out", "run", *options)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not (tmp_path / "run" / "run.json").exists()
