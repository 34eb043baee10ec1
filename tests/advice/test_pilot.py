"""The pilot keeps its time however expensive the spec's estimators are, and its errors are possible and cautious."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import robaudit
from robaudit.advice import pilot as pilots
from robaudit.advice.pilot import SHORT, Candidate, TooLongError, Trial, errors_at, pilot, run_on, within
from robaudit.auditing.prepare import Ready, prepare
from robaudit.errors import RobauditError
from robaudit.estimators.base import Estimator
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.registry import Chosen
from robaudit.estimators.taylor import Taylor
from robaudit.progress import Silent
from tests.advice.test_comparison import ROW
from tests.specs import digits, save_npz, write

SIGMA = ROW.at


class Slow(nn.Module):
    """A pass takes a hundredth of a second, and noise touches some images."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(-1, 1, 64 * 10).reshape(10, 64))

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01)
        return x.flatten(1) @ self.weights.T


def ready(tmp_path: Path, estimators: list[object], model: nn.Module | None = None, **sections: object) -> Ready:
    spec = robaudit.load_spec(write(tmp_path, digits(limit=40, estimators=estimators, **sections)))
    return prepare(spec, None, "", model, None, torch.device("cpu"), Silent(), trust=False, skip_bad=True)


def names(found: pilots.Pilot) -> set[str]:
    return {one.chosen.name for one in found.candidates}


@pytest.mark.slow
def test_what_is_too_expensive_is_left_out_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that passes 30,000 copies of an image, eight at a time: half a minute. Taylor is still tried."""

    def dear(audit: Ready, count: int, estimator: Estimator, stream: str, *, skip_bad: bool) -> tuple[pilots.Rows, float]:
        return run_on(audit, count, MonteCarlo(samples=30_000) if stream == "mmse" else estimator, stream, skip_bad=skip_bad)

    monkeypatch.setattr(pilots, "run_on", dear)
    audit = ready(tmp_path, [{"mmse": {"label": "expensive"}}, "taylor"], Slow(), run={"batch_size": 8})
    started = time.perf_counter()
    found = pilot(audit, 0.5)
    assert time.perf_counter() - started < 30
    assert "taylor" in names(found)
    assert "mmse" not in names(found)
    (text,) = found.notes
    assert text.startswith("expensive is left out: ")


def test_what_is_tried_on_fewer_than_four_images_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single image that noise does not touch says of any estimator that it is exact."""

    def slower(audit: Ready, count: int, estimator: Estimator, stream: str, *, skip_bad: bool) -> tuple[pilots.Rows, float]:
        found = run_on(audit, count, estimator, stream, skip_bad=skip_bad)
        time.sleep(0.6 if stream == "taylor" else 0.0)  # longer than half of the second that there is at least
        return found

    monkeypatch.setattr(pilots, "run_on", slower)
    found = pilot(ready(tmp_path, ["taylor"]), 0.2)
    assert names(found) == {"logit_gaussian", "mc"}
    assert found.notes == ["taylor is left out: only 1 of 4 images could be tried in the available time, too few to judge it by"]


@pytest.mark.slow
def test_draws_are_chosen_for_every_estimator_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the spec stay, rules to stop by do not: a plan has a fixed number of draws."""
    monkeypatch.setattr(pilots, "_LEAST_OTHERS", 60.0)
    estimators = [{"mc": {"decide": 0.9}}, {"logit_gaussian": {"tolerance": 0.01}}, {"mmse": {"pairs": False}}, "taylor"]
    found = pilot(ready(tmp_path, estimators, noise={"sigma": [0.1, 0.3]}), 0.5)
    first = {one.chosen.name: one.settings[0] for one in found.candidates}
    assert {name: (n, one.model_dump(exclude_unset=True)) for name, (n, one) in first.items()} == {
        "mc": (16, {"samples": 16}),
        "logit_gaussian": (16, {"samples": 16}),
        "mmse": (16, {"pairs": False, "samples": 16}),
        "taylor": (0, {}),
    }
    assert all(len(one.levels) == 2 for one in found.candidates)
    assert 2 <= found.affected <= found.images <= 40


def test_an_attempt_is_interrupted_and_networks_are_left_as_they_were() -> None:
    model = nn.Identity()

    def endless() -> None:
        while True:
            model(torch.zeros(1))

    with pytest.raises(TooLongError), within(0.05):
        endless()
    assert not model._forward_pre_hooks
    with pytest.raises(TooLongError), within(-1.0):
        model(torch.zeros(1))
    model(torch.zeros(1))


def trial(estimator: Estimator, values: list[float], std_error: float | None = None) -> Trial:
    ids = [str(i) for i in range(len(values))]
    rows = {(name, SIGMA): replace(ROW, sample_id=name, value=value, std_error=std_error) for name, value in zip(ids, values, strict=True)}
    return Trial(Candidate(Chosen("x", "x", estimator), [], 0.001, 0.001), ids, rows, SHORT if estimator.with_draws(SHORT) else 0)


shares = st.lists(st.tuples(st.integers(0, SHORT), st.floats(0, 1)), min_size=2, max_size=20)


@settings(max_examples=60, deadline=None)
@given(shares, st.one_of(st.none(), st.floats(0, 0.5)))
def test_no_image_errs_less_than_the_mean_and_no_error_is_nothing(images: list[tuple[int, float]], std_error: float | None) -> None:
    votes = trial(MonteCarlo(), [kept / SHORT for kept, _ in images])
    estimator = Taylor() if std_error is None else LogitGaussian()
    level = errors_at(trial(estimator, [value for _, value in images], std_error), votes, SIGMA)
    assert level.systematic >= level.bias**2 > 0
    mc = errors_at(votes, votes, SIGMA)
    assert (mc.systematic, mc.bias) == (0, 0)
    assert mc.spread > 0


def test_a_bias_that_the_images_show_counts() -> None:
    """Thirty values are .25 too high."""
    n = 30
    votes = trial(MonteCarlo(), [0.5] * n)
    level = errors_at(trial(LogitGaussian(), [0.75] * n, 0.01), votes, SIGMA)
    assert level.bias == pytest.approx(0.25)
    assert level.systematic == pytest.approx(0.25**2)
    assert level.spread == pytest.approx(SHORT * 0.01**2)


def test_a_bias_that_so_few_images_would_not_show_is_not_ruled_out() -> None:
    n = 30
    votes = trial(MonteCarlo(), [0.5] * n)
    for estimator, std_error in ((LogitGaussian(), 0.01), (Taylor(), None)):
        level = errors_at(trial(estimator, [0.5] * n, std_error), votes, SIGMA)
        assert level.bias == pytest.approx(math.sqrt(0.25 / (SHORT - 1) / n))


def test_one_usable_image_is_refused(tmp_path: Path) -> None:
    save_npz(tmp_path / "x.npz", count=2, labels=[0, 99])
    audit = ready(tmp_path, ["taylor"], dataset={"kind": "npz", "path": "x.npz"})
    with pytest.raises(RobauditError, match="a plan needs 2 usable images, and there is 1; give it more"):
        pilot(audit, 0.2, skip_bad=True)
