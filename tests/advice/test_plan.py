"""The choice of a plan follows the question: a value of each image, or a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.advice.pilot import Candidate, Level
from robaudit.advice.plan import SPARE, TOLERATED, Plan, best, confirmed, plans
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.registry import Chosen
from robaudit.estimators.taylor import Taylor

PASS = 0.001
"""Seconds."""


def candidate(chosen: Chosen, draws: Sequence[int], fixed: float, each: float, level: Level) -> Candidate:
    options = [(n, chosen.estimator.with_draws(n) or chosen.estimator) for n in draws]
    return Candidate(chosen, options, fixed, each, [level])


def chosen(estimator: MonteCarlo | LogitGaussian | Taylor, name: str) -> Chosen:
    return Chosen(name, name, estimator)


MC = candidate(
    chosen(MonteCarlo(), "mc"), [16 * 2**i for i in range(16)], PASS, PASS, Level(spread=0.1, systematic=0.0, bias=0.0, between=0.04)
)
GAUSSIAN = candidate(
    chosen(LogitGaussian(), "logit_gaussian"),
    [16 * 2**i for i in range(8)],
    3 * PASS,
    PASS,
    Level(spread=0.03, systematic=0.003**2, bias=0.002, between=0.04),
)
TAYLOR = candidate(chosen(Taylor(), "taylor"), [0], 10 * PASS, 0.0, Level(spread=0.0, systematic=0.1**2, bias=0.08, between=0.04))
CANDIDATES = [GAUSSIAN, MC, TAYLOR]


def everything(images: int, budget: float, start: float = 0.0) -> list[Plan]:
    return [plan for one in CANDIDATES for plan in plans(one, images, budget, start)]


def test_a_mean_over_a_thousand_images_needs_few_draws_each() -> None:
    """16 draws do, where a decision about each image takes many more; and the rest of the budget is left."""
    mean, images = (best(everything(1000, 600.0), question, 1000) for question in ("mean", "images"))
    assert mean is not None
    assert images is not None
    assert mean.images == images.images == 1000
    assert mean.draws <= 16 < 100 < images.draws
    assert mean.seconds < 30
    assert mean.error_of_mean < 1.1 * math.sqrt(0.04 / 1000)


def test_enough_time_goes_to_mc_and_little_to_the_approximation() -> None:
    """With little time the normal fit errs less; with much, its own error is left and mc passes it."""
    short, long = best(everything(100, 20.0), "images", 100), best(everything(100, 3600.0), "images", 100)
    assert short is not None
    assert long is not None
    assert (short.estimator, long.estimator) == ("logit_gaussian", "mc")


def test_a_biased_estimator_is_not_taken_for_a_mean() -> None:
    found = best(everything(1000, 600.0), "mean", 1000)
    assert found is not None
    assert found.estimator != "taylor"


def test_where_not_all_images_fit_fewer_are_taken() -> None:
    found = best(everything(10_000, 10.0), "images", 10_000)
    assert found is not None
    assert 100 < found.images < 10_000
    assert best([], "mean", 10) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 20_000), st.floats(1.0, 1e5), st.floats(0, 0.5))
def test_what_is_offered_fits_and_what_is_taken_is_good_enough(images: int, budget: float, start: float) -> None:
    offers = everything(images, budget, start)
    assert all(plan.seconds <= SPARE * budget * (1 + 1e-9) for plan in offers)
    assert all(2 <= plan.images <= images for plan in offers)
    found = best(offers, "mean", images)
    if offers:
        assert found is not None
        assert found.error_of_mean <= TOLERATED * min(plan.error_of_mean for plan in offers)


def test_errors_and_times_follow_their_laws() -> None:
    (plan,) = (plan for plan in plans(MC, 50, 600.0, 2.0) if plan.draws == 1024)
    assert plan.options == {"samples": 1024}
    assert plan.error == pytest.approx(math.sqrt(0.1 / 1024))
    assert plan.noise_of_mean == pytest.approx(math.sqrt(0.1 / 1024 / 50))
    assert plan.error_of_mean == pytest.approx(math.sqrt((0.04 + 0.1 / 1024) / 50))
    assert plan.seconds == pytest.approx(2 + 50 * 1.025)
    fit = plans(GAUSSIAN, 50, 600.0, 0.0)[0]
    assert fit.error == pytest.approx(math.sqrt(0.003**2 + 0.03 / 16))
    assert fit.noise_of_mean == pytest.approx(math.sqrt(0.03 / 16 / 50 + 0.002**2))
    (fixed,) = plans(TAYLOR, 50, 600.0, 0.0)
    assert (fixed.draws, fixed.options) == (0, {})
    assert fixed.error == pytest.approx(0.1)


def test_times_are_corrected_until_the_chosen_setting_was_tried() -> None:
    """logit_gaussian is said to be three times as fast as it is: after a trial mc is chosen, and tried, too."""
    level = Level(spread=0.1, systematic=0.0, bias=0.0, between=0.04)
    truth = {
        "logit_gaussian": replace(GAUSSIAN, fixed=0.0, each=0.003, levels=[level]),
        "mc": replace(MC, fixed=0.0, each=0.002, levels=[level]),
    }
    said = [replace(one, each=0.001 if name != "mc" else 0.002) for name, one in truth.items()]
    tried = []

    def choose(found: Sequence[Candidate]) -> Plan | None:
        return best([plan for one in found for plan in plans(one, 100, 60.0, 1.0)], "images", 100)

    def measure(_: Candidate, plan: Plan) -> float:
        tried.append(plan.estimator)
        return truth[plan.estimator].seconds(plan.draws)

    found = confirmed(said, choose, measure)
    assert tried == ["logit_gaussian", "mc"]
    assert [one.each for one in found] == pytest.approx([0.003, 0.002])
    taken = choose(found)
    assert taken is not None
    assert taken.estimator == "mc"
