"""Does the choice know what is asked: each image, or a mean?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.planning.chance import KNOWN_ERROR, beyond, doubted, honest, significant
from robaudit.planning.choice import ENOUGH, SPARE, Plan, best, plans
from robaudit.planning.confirm import confirmed
from robaudit.planning.families import Family, Law, by_tolerance, doubling, fixed

PASS = 0.001
"""Seconds."""
MC = Law(fixed=PASS, each=PASS, spread=0.1, systematic=0.0, bias=0.0, between=0.04)
GAUSSIAN = Law(fixed=3 * PASS, each=PASS, spread=0.03, systematic=0.003**2, bias=0.002, between=0.04)
TAYLOR = Law(fixed=10 * PASS, each=0.0, spread=0.0, systematic=0.1**2, bias=0.08, between=0.04)
FAMILIES = [
    doubling("logit_gaussian", {0.1: GAUSSIAN}, 16, 4096, 16),
    doubling("mc", {0.1: MC}, 16, 10**6, 1),
    fixed("taylor", "taylor", {0.1: TAYLOR}, {}),
]


def everything(images: int, budget: float) -> list[Plan]:
    return [plan for family in FAMILIES for plan in plans(family, images, budget, 0.0)]


def test_a_mean_over_a_thousand_images_needs_few_draws_each() -> None:
    """The issue's example: 16 do, where a decision about each image takes many more; and the rest of the budget is left."""
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
    offers = [plan for family in FAMILIES for plan in plans(family, images, budget, start)]
    assert all(plan.seconds <= SPARE * budget * (1 + 1e-9) for plan in offers)
    assert all(2 <= plan.images <= images for plan in offers)
    found = best(offers, "mean", images)
    if offers:
        assert found is not None
        assert found.error_of_mean <= ENOUGH * min(plan.error_of_mean for plan in offers)


def test_errors_follow_their_laws() -> None:
    family = FAMILIES[1]
    index = next(i for i, setting in enumerate(family.settings) if setting.n == 1024)
    assert family.error(index) == pytest.approx(math.sqrt(0.1 / 1024))
    assert family.noise_of_mean(index, 50) == pytest.approx(math.sqrt(0.1 / 1024 / 50))
    assert family.error_of_mean(index, 50) == pytest.approx(math.sqrt((0.04 + 0.1 / 1024) / 50))
    assert family.seconds(index) == pytest.approx(1.025)


def test_a_tolerance_gives_draws_where_they_are_needed() -> None:
    """Half of the images scatter not at all: they take 32 draws, the others ten standard deviations over the tolerance."""
    family = by_tolerance({0.1: GAUSSIAN}, {0.1: np.array([0.0, 0.0256])}, {0.1: 0.5})
    index = next(i for i, setting in enumerate(family.settings) if setting.options["tolerance"] == 0.025)
    assert family.passes(index, 0.1) == (32 + 64) / 2
    assert family.error(index) == pytest.approx(math.sqrt(0.003**2 + 0.5 * (0.0256 / 64) / 2))
    assert family.seconds(index) == pytest.approx((3 + 48 + 3) * PASS), "one more round on average costs what is fixed again"


def test_what_chance_explains_is_not_taken_for_bias() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.1, 400)
    assert significant(noise - noise.mean(), 0.002) == 0.002
    assert significant(noise + 0.1, 0.002) == pytest.approx(0.1, abs=4 * 0.1 / 20)
    assert beyond(noise**2, 0.01, 9e-6) == 9e-6
    assert beyond((noise + 0.1) ** 2, 0.01, 9e-6) == pytest.approx(0.01, abs=4 * 0.1 * 0.1 * 2.5 / 20)


def test_an_approximation_is_doubted() -> None:
    """Its error is never nothing, and larger than what a few images show."""
    assert doubted(np.zeros(8), 0.001) == KNOWN_ERROR**2
    squares = np.array([0.0, 0.01, 0.04, 0.01])
    assert doubted(squares, 0.0) == pytest.approx(0.015 + squares.std(ddof=1) / 2)


def test_few_images_do_not_overrule_what_is_known() -> None:
    assert honest(0.43, 10) == pytest.approx(0.43)
    assert 0.43 < honest(1.5, 10) < 0.9
    assert honest(1.2, 10_000) == pytest.approx(1.2, abs=0.01)
    assert (honest(0.0, 10_000), honest(9.0, 10_000)) == (0.25, 1.5)


def test_times_are_corrected_until_the_chosen_setting_was_tried() -> None:
    """logit_gaussian is said to be three times as fast as it is: after a trial mc is chosen, and tried, too."""
    truth = {"a": Law(0.0, 0.003, 0.1, 0.0, 0.0, 0.04), "b": Law(0.0, 0.002, 0.1, 0.0, 0.0, 0.04)}
    said = {**truth, "a": replace(truth["a"], each=0.001)}
    families = [doubling(name, {0.1: law}, 16, 4096, 16) for name, law in said.items()]
    tried = []

    def choose(found: Sequence[Family]) -> Plan | None:
        return best([plan for family in found for plan in plans(family, 100, 60.0, 1.0)], "images", 100)

    def measure(plan: Plan) -> float:
        tried.append(plan.estimator)
        return truth[plan.estimator].seconds(plan.draws)

    found = confirmed(families, choose, measure, 1.0)
    assert tried == ["a", "b"]
    assert [family.laws[0.1].each for family in found] == pytest.approx([0.003, 0.002])
    chosen = choose(found)
    assert chosen is not None
    assert chosen.estimator == "b"
