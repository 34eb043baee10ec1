"""`auto`: each image by the estimator it deserves, and its row says which."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.estimators.auto import Auto
from robaudit.estimators.base import Estimate
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from tests.estimators.test_logit_gaussian import skewed
from tests.estimators.tools import build, linear, work_on


def by(estimates: list[Estimate]) -> list[str]:
    """Which estimator each row names first in its note."""
    return [one.note.split(";")[0].removeprefix("by ") for one in estimates]


def half_space(x: Tensor) -> Tensor:
    """Two classes; under noise of sigma their margin is normal with that standard deviation."""
    flat = x.flatten(1)
    return torch.stack([1.0 + 0 * flat[:, 0], (0.5 - flat).mean(1) * math.sqrt(flat.shape[1])], dim=1)


def test_easy_images_stop_and_those_near_the_threshold_get_mc() -> None:
    work = work_on(linear(3), sigma=0.5, images=60)
    auto, first = Auto(decide=0.9, max_samples=400), LogitGaussian(samples=64).estimate(work)
    found = list(auto.estimate(work))
    exact = [one.value for one in build("taylor").estimate(work)]
    for one, pilot, p, name in zip(found, first, exact, by(found), strict=True):
        assert pilot.lower is not None
        assert pilot.upper is not None
        straddles = pilot.lower < 0.9 <= pilot.upper
        assert name == ("mc" if straddles else "logit_gaussian")
        if straddles:
            assert one.interval.text == "confidence-sequence"
            assert one.forwards > 65
        else:
            assert (one.value, one.lower, one.upper, one.forwards) == (pilot.value, pilot.lower, pilot.upper, 65)
            assert (one.value >= 0.9) == (p >= 0.9) or abs(p - 0.9) < 0.02
    assert {"mc", "logit_gaussian"} == set(by(found))


def test_mc_draws_afresh() -> None:
    """Its rows are those of mc by itself: the first look does not enter its interval."""
    work = work_on(linear(3), sigma=0.5, images=60)
    alone = MonteCarlo(decide=0.9, max_samples=400).estimate(work)
    for one, mc, name in zip(found := list(Auto(decide=0.9, max_samples=400).estimate(work)), alone, by(found), strict=False):
        if name == "mc":
            assert (one.value, one.lower, one.upper, one.votes) == (mc.value, mc.lower, mc.upper, mc.votes)
            assert one.forwards == mc.forwards + 64


def test_what_is_too_robust_to_see_is_measured_when_asked_for() -> None:
    """The margin of a half-space is normal: p_fail = Phi(-margin / sigma)."""
    work = work_on(half_space, sigma=0.2, images=3, gradients=False)
    exact = [float(torch.special.log_ndtr(m / 0.2)) / math.log(10) for m in -work.clean.margins[:, 0]]
    plain = list(Auto().estimate(work))
    assert by(plain) == ["logit_gaussian"] * 3
    found = list(Auto(rare=True).estimate(work))
    assert by(found) == ["splitting"] * 3
    for one, log_p in zip(found, exact, strict=True):
        assert one.details is not None
        assert one.value == 1 - 10 ** one.details["log10_p_fail"]
        assert one.lower is not None
        assert one.upper is not None
        assert one.lower <= 1 - 10**log_p <= one.upper
        assert one.forwards > 10_000
        assert one.std_error is not None
        assert 0 < one.std_error < 1 - one.value


def test_a_failure_that_is_only_bounded() -> None:
    found = list(Auto(rare=True, p_min=1e-2).estimate(work_on(half_space, sigma=0.1, images=2, gradients=False)))
    for one in found:
        assert (one.value, one.lower, one.upper) == (1 - 1e-2, 1 - 1e-2, 1.0)
        assert one.interval.text == "lower bound"
        assert one.interval.text == "lower bound"
        assert one.note.startswith("by splitting; p < 0.01")
        assert "the value is a lower bound" in one.note
        assert "the value is a lower bound" in one.note


def test_nothing_easy_is_undecided_whatever_its_interval_is() -> None:
    """Margins that are not normal are decided by votes; where those leave it open, by mc."""
    found = list(Auto(decide=0.82, max_samples=2000).estimate(work_on(skewed, sigma=0.3, images=20, gradients=False)))
    assert any("decided by votes" in one.note for one in found) or "mc" in by(found)
    for one, name in zip(found, by(found), strict=True):
        assert one.lower is not None
        assert one.upper is not None
        assert name == "mc" or not one.lower < 0.82 <= one.upper


def test_its_review_looks_at_the_first_looks_alone() -> None:
    assert Auto().review().warnings() == []
