"""Intervals by resampling blocks and pairs are those of a mean, and cover it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, t

from robaudit.camera.blocks import Floats
from robaudit.camera.sums import Sums, Totals, joined

GROUPS = 40
PAIRS = 12
ERRORS = 5  # standard errors
REPLICATES = 400


def mean(totals: Totals) -> Floats:
    return (totals["value"] / totals["number"])[:, None]


def sums(values: Floats) -> Sums:
    """Sums of values (pairs, groups)."""
    number = np.ones_like(values)
    return Sums(
        {"value": values.sum(0), "number": number.sum(0)},
        {"value": values.sum(1), "number": number.sum(1)},
    )


def drawn(seed: int, of_group: float = 0.0, of_pair: float = 0.0) -> Floats:
    """Normal values of mean 3, which share parts."""
    random = np.random.default_rng(seed)
    values: Floats = 3 + random.standard_normal((PAIRS, GROUPS))
    values += of_group * random.standard_normal(GROUPS)
    values += of_pair * random.standard_normal((PAIRS, 1))
    return values


@pytest.mark.parametrize(("of_group", "of_pair"), [(1.0, 0.0), (0.0, 1.0)])
def test_the_interval_of_a_mean(of_group: float, of_pair: float) -> None:
    values = drawn(0, of_group, of_pair)
    found = sums(values)
    assert found.value(mean)[0] == pytest.approx(values.mean())
    expected = [
        t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
        for means in (values.mean(0), values.mean(1))
    ]
    # A standard deviation of 400 replicates has a relative error of 1 / sqrt 800.
    tolerance = ERRORS / math.sqrt(2 * REPLICATES)
    assert found.half_widths(mean)[0] == pytest.approx(max(expected), rel=tolerance)


@pytest.mark.parametrize(("of_group", "of_pair"), [(1.0, 0.0), (0.0, 1.0)])
def test_intervals_cover(of_group: float, of_pair: float) -> None:
    times = 200
    covered = 0
    for seed in range(times):
        (estimate,) = sums(drawn(seed, of_group, of_pair)).estimates(mean)
        lower, upper = estimate.bounds or (math.inf, -math.inf)
        covered += lower <= 3 <= upper
    # Of intervals that cover in 95 % of cases, fewer are as rare as one in a million.
    assert covered >= binom.ppf(1e-6, times, 0.95)


def test_few_pairs_are_not_resampled() -> None:
    values = drawn(0, of_pair=3.0)
    few = sums(values[:7])
    by_groups = t.ppf(0.975, GROUPS - 1) * values[:7].mean(0).std(ddof=1) / math.sqrt(GROUPS)
    tolerance = ERRORS / math.sqrt(2 * REPLICATES)
    assert few.half_widths(mean)[0] == pytest.approx(by_groups, rel=tolerance)


def test_a_single_group_has_no_interval() -> None:
    (estimate,) = sums(drawn(0)[:1, :1]).estimates(mean)
    assert estimate.bounds == (-math.inf, math.inf)


def test_positive_numbers() -> None:
    values = np.exp(drawn(0))
    (estimate,) = sums(values).positive(mean)
    assert estimate.value == pytest.approx(values.mean())
    lower, upper = estimate.bounds or (0.0, 0.0)
    assert 0 < lower < upper
    # symmetrical in the logarithm
    assert lower * upper == pytest.approx(estimate.value**2)
    (nothing,) = sums(np.zeros((PAIRS, GROUPS))).positive(mean)
    assert nothing.value == 0
    assert nothing.bounds is None


def test_scenes_are_joined() -> None:
    first = drawn(0)
    second = drawn(1)
    both = joined([sums(first), sums(second)])
    assert both.groups == 2 * GROUPS
    assert both.pairs == 2 * PAIRS
    assert both.value(mean)[0] == pytest.approx((first.mean() + second.mean()) / 2)
