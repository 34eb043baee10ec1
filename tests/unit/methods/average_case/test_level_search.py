"""The search for the level of a crossing: order statistics of the levels at which draws flip, and
what holds where they flip back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm

from robaudit.methods.average_case.level_search import (
    KEPT,
    DrawRequest,
    SearchPlan,
    Tolerance,
    critical_counts,
    find_tolerance,
    run_all,
)

Levels = NDArray[np.float64]
Flips = Callable[[float, NDArray[np.int64]], NDArray[np.bool_]]
DRAWS = 40_000


def normal_flips(seed: int, margin: float) -> Levels:
    """The levels at which the draws of a linear model flip: margin / Z where Z > 0, never where
    not."""
    z = np.random.default_rng(seed).standard_normal(DRAWS)
    return np.where(z > 0, margin / np.maximum(z, 1e-12), np.inf)


def once(flip_levels: Levels) -> Flips:
    """Draws that flip at a level and stay flipped."""
    return lambda level, draws: flip_levels[draws] <= level


def search(plan: SearchPlan, flips: Flips) -> tuple[Tolerance, list[DrawRequest]]:
    """The result, and what was asked for."""
    asked: list[DrawRequest] = []

    def answer(_: Sequence[int], asks: Sequence[DrawRequest]) -> list[NDArray[np.int64]]:
        asked.extend(asks)
        return [np.where(flips(ask.level, ask.draws), 3, KEPT) for ask in asks]

    (found,) = run_all([find_tolerance(plan)], answer)
    return found, asked


@pytest.mark.parametrize(
    ("draws", "share", "tail"),
    [(160, 0.05, 0.001), (5000, 0.05, 0.018), (40, 0.4, 0.1), (10, 0.01, 0.01), (8, 0.5, 1e-9)],
)
def test_critical_counts(draws: int, share: float, tail: float) -> None:
    few, many = critical_counts(draws, share, tail)
    assert binom.cdf(few, draws, share) <= tail < binom.cdf(few + 1, draws, share)
    assert binom.sf(many - 1, draws, share) <= tail < binom.sf(many - 2, draws, share)


@pytest.mark.parametrize(
    "plan",
    [
        SearchPlan(0.95, 0.1, 50_000, 1.0),
        SearchPlan(0.6, 0.5, 10**6, 1.0),
        SearchPlan(0.999, 0.3, 500, 1.0),
        SearchPlan(0.95, 1.0, 500, 1.0),
    ],
)
def test_the_looks_are_wrong_in_5_percent_together(plan: SearchPlan) -> None:
    draws = [look.draws for look in plan.looks]
    assert sum(look.alpha for look in plan.looks) < 0.05
    assert draws == sorted(set(draws))
    assert all(n % 8 == 0 for n in draws)
    assert any(look.main for look in plan.looks)
    for look in plan.looks:
        inside = binom.cdf(look.many - 1, look.draws, plan.flips) - binom.cdf(
            look.few, look.draws, plan.flips
        )
        assert 1 - inside <= look.alpha


@pytest.mark.parametrize("seed", range(5))
def test_the_ends_are_order_statistics(seed: int) -> None:
    plan = SearchPlan(0.95, 0.2, 50_000, 1.0)
    levels = normal_flips(seed, 0.03)
    found, asked = search(plan, once(levels))
    look = next(look for look in plan.looks if look.draws == found.samples)
    ordered = np.sort(levels[: look.draws])
    slack = 1 + plan.tolerance / 16
    assert found.lower < ordered[look.few] <= found.lower * slack
    assert found.upper / slack < ordered[look.many - 1] <= found.upper
    assert found.value == pytest.approx(ordered[math.ceil(look.draws * 0.05) - 1], rel=slack - 1)
    assert found.upper <= found.lower * 1.2
    assert (found.reached, found.censored, found.reversals, found.flips_to) == (True, False, 0, 3)
    assert found.passes == sum(len(ask.draws) for ask in asked)
    assert all(len(ask.draws) % 8 == 0 and (np.diff(ask.draws) > 0).all() for ask in asked)
    assert found.passes < 2.5 * look.draws


def test_coverage() -> None:
    """Intervals that miss the closed form are fewer than 5 %, up to chance."""
    plan = SearchPlan(0.9, 0.3, 50_000, 1.0)
    searches = 100
    found = [search(plan, once(normal_flips(1000 + seed, 0.02)))[0] for seed in range(searches)]
    truth = 0.02 / norm.ppf(0.9)
    missed = sum(not one.lower <= truth <= one.upper for one in found)
    assert missed <= binom.ppf(0.999, searches, 0.05)
    z = [(one.value - truth) / (one.std_error or 0.0) for one in found]
    assert np.mean(np.abs(z) < 1.96) == pytest.approx(
        0.95, abs=4 * math.sqrt(0.05 * 0.95 / searches)
    )


def test_without_flips_it_is_censored() -> None:
    found, _ = search(SearchPlan(0.95, 0.1, 50_000, 0.7), once(np.full(DRAWS, np.inf)))
    assert (found.value, found.lower, found.upper, found.censored, found.reached) == (
        0.7,
        0.7,
        math.inf,
        True,
        True,
    )
    assert (found.flips_to, found.std_error) == (None, None)
    assert found.passes < 700


def test_failing_at_the_smallest_level_gives_0() -> None:
    plan = SearchPlan(0.95, 0.1, 50_000, 1.0)
    found, _ = search(plan, once(np.zeros(DRAWS)))
    assert (found.value, found.lower, found.upper, found.censored, found.reached) == (
        0.0,
        0.0,
        plan.floor,
        False,
        True,
    )
    assert found.passes < 600


def flipping_back(levels: Levels, share: float, width: float) -> Flips:
    """A share of the draws flips back a little further up, and again at twice the level."""
    back = np.random.default_rng(9).random(len(levels)) < share

    def flips(level: float, draws: NDArray[np.int64]) -> NDArray[np.bool_]:
        t = levels[draws]
        return (level >= t) & ~(back[draws] & (level >= t * width) & (level < 2 * t))

    return flips


def test_draws_that_flip_back_are_noticed_and_the_ends_hold_what_they_say() -> None:
    """The ends are where all draws say so."""
    plan = SearchPlan(0.95, 0.2, 200_000, 1.0)
    for seed in range(5):
        flips = flipping_back(normal_flips(seed, 0.05), 0.5, 1.02)
        found, _ = search(plan, flips)
        look = next(look for look in plan.looks if look.draws == found.samples)
        draws = np.arange(look.draws)
        every = np.arange(DRAWS)
        assert found.reversals > 0
        assert flips(found.lower, draws).sum() <= look.few
        assert flips(found.upper, draws).sum() >= look.many
        assert (
            flips(found.lower * 0.95, every).mean() < 0.05 < flips(found.upper * 1.05, every).mean()
        )


def test_the_first_crossing() -> None:
    """Beyond .2 the class is the same again: with much noise a network sees one class
    everywhere."""
    levels = normal_flips(3, 0.01)
    found, _ = search(
        SearchPlan(0.95, 0.2, 50_000, 1.0),
        lambda level, draws: (levels[draws] <= level) & (level < 0.2),
    )
    assert found.lower < 0.01 / norm.ppf(0.95) < found.upper


def test_a_search_depends_on_no_other() -> None:
    plan = SearchPlan(0.95, 0.3, 50_000, 1.0)
    many = [once(normal_flips(seed, 0.001 * 2**seed)) for seed in range(6)]

    def answer(searches: Sequence[int], asks: Sequence[DrawRequest]) -> list[NDArray[np.int64]]:
        return [
            np.where(many[i](ask.level, ask.draws), 3, KEPT)
            for i, ask in zip(searches, asks, strict=True)
        ]

    together = run_all([find_tolerance(plan) for _ in many], answer)
    assert together == [search(plan, flips)[0] for flips in many]
