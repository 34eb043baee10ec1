"""Intervals: golden values, limits, and coverage, exact where it can be enumerated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, t

from robaudit.numerics.intervals import (
    clopper_pearson,
    mean_interval,
    pooled_measurement_interval,
    quantile_ranks,
    weighted_share,
)
from tests.golden import Golden

SAMPLES = 100


@settings(max_examples=40)
@given(n=st.integers(1, 20_000), data=st.data(), confidence=st.sampled_from([0.8, 0.95, 0.999]))
def test_clopper_pearson_is_scipys(n: int, data: st.DataObject, confidence: float) -> None:
    k = data.draw(st.integers(0, n))
    lower, upper = clopper_pearson(k, n, confidence)
    expected = binomtest(k, n).proportion_ci(confidence, method="exact")
    np.testing.assert_allclose([lower, upper], [expected.low, expected.high], rtol=1e-8, atol=1e-12)
    assert 0.0 <= lower <= k / n <= upper <= 1.0


@pytest.mark.parametrize("n", [1, 48])
def test_clopper_pearson_never_covers_less_than_nominal(n: int) -> None:
    lower, upper = clopper_pearson(np.arange(n + 1), n)
    for p in np.linspace(0.001, 0.999, 400):
        assert binom.pmf(np.arange(n + 1), n, p)[(lower <= p) & (p <= upper)].sum() >= 0.95 - 1e-12


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (float("nan"), 3)])
def test_clopper_pearson_refuses_counts_that_are_none(k: float, n: int, golden: Golden) -> None:
    with golden.raises(ValueError):
        clopper_pearson(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_probability(confidence: float, golden: Golden) -> None:
    with golden.raises(ValueError):
        mean_interval([0.5, 0.6], 0.0, 1.0, confidence)


def test_unbounded_values_have_the_plain_t_interval() -> None:
    x = np.array([1.0, 2.0, 4.0, 7.0])
    half = t.ppf(0.95, 3) * x.std(ddof=1) / 2
    assert mean_interval(x, -math.inf, math.inf, 0.9) == pytest.approx((3.5 - half, 3.5 + half))


@pytest.mark.parametrize("values", [[], [math.nan], [0.5, math.inf]])
def test_mean_interval_refuses_what_has_no_mean(values: list[float], golden: Golden) -> None:
    with golden.raises(ValueError):
        mean_interval(values, 0.0, 1.0)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_mean_interval_holds_the_mean_and_has_a_width(values: list[float]) -> None:
    lower, upper = mean_interval(values, 0.0, 1.0)
    assert 0.0 <= lower <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= upper <= 1.0
    assert lower < upper
    mirrored = mean_interval([1.0 - v for v in values], 0.0, 1.0)
    np.testing.assert_allclose(mirrored, (1 - upper, 1 - lower), atol=1e-9)
    alone = mean_interval(values[:1], 0.0, 1.0)  # weights D and 1 - D, D uniform
    assert alone == pytest.approx((0.025 * values[0], 1 - 0.025 * (1 - values[0])), abs=1e-9)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_for_zeros_and_ones_it_is_clopper_and_pearson_s(n: int) -> None:
    k = np.unique(np.linspace(0, n, 9).round().astype(np.int64))
    for confidence in (0.9, 0.9995):
        ends = np.array(
            [mean_interval(np.repeat([1.0, 0.0], [i, n - i]), 0.0, 1.0, confidence) for i in k]
        )
        np.testing.assert_allclose(ends.T, clopper_pearson(k, n, confidence), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(("n", "usual"), [(5, 0.1), (20, 0.5), (48, 0.9)])
def test_each_end_misses_as_rarely_as_it_says_where_a_rare_value_carries_the_mean(
    n: int, usual: float
) -> None:
    """Two values: the chance to miss is a sum over the binomial distribution. It is largest just
    beyond an end."""
    k = np.arange(n + 1)
    for rare in (0.0, 1.0):
        ends = np.array([mean_interval(np.repeat([rare, usual], [i, n - i]), 0.0, 1.0) for i in k])
        for mean in np.concatenate([ends.ravel() + 1e-9, ends.ravel() - 1e-9]):
            if 0.0 < (p := (mean - usual) / (rare - usual)) < 1.0:
                chances = binom.pmf(k, n, p)
                assert (
                    max(chances[ends[:, 0] > mean].sum(), chances[ends[:, 1] < mean].sum())
                    <= 0.025 + 1e-6
                )


@pytest.mark.parametrize(("n", "ones", "a", "b"), [(5, 0.0, 0.3, 0.3), (48, 0.9, 1, 4)])
def test_coverage_for_beta_and_mixtures_with_ones(n: int, ones: float, a: float, b: float) -> None:
    generator = np.random.default_rng([n, round(100 * ones), round(10 * a)])
    x = np.where(generator.random((SAMPLES, n)) < ones, 1.0, generator.beta(a, b, (SAMPLES, n)))
    mean = ones + (1 - ones) * a / (a + b)
    ends = np.array([mean_interval(row, 0.0, 1.0) for row in x])
    for missed in (ends[:, 0] > mean, ends[:, 1] < mean):
        assert missed.mean() <= 0.025 + 4 * math.sqrt(0.025 * 0.975 / SAMPLES)


def test_measurement_interval_covers_the_mean_of_the_images() -> None:
    generator = np.random.default_rng(3)
    p = np.concatenate((generator.beta(8, 1, 10), np.full(10, 0.9999)))
    values = generator.binomial(200, p, (SAMPLES, 20))
    lowers, uppers = clopper_pearson(values, 200)
    ends = np.array(
        [
            pooled_measurement_interval(v / 200, lo, up)
            for v, lo, up in zip(values, lowers, uppers, strict=True)
        ]
    )
    covered = np.mean((ends[:, 0] <= p.mean()) & (p.mean() <= ends[:, 1]))
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / SAMPLES)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("n", [1, 5, 48, 1000])
def test_quantile_ranks_are_the_tightest_that_cover(n: int, q: float) -> None:
    r, s = quantile_ranks(n, q)
    below = binom(n, q)  # how many of n continuous values lie below the quantile
    assert 0 <= r < s <= n + 1
    assert below.cdf(r - 1) <= 0.025 < below.cdf(r)
    assert s == n + 1 or below.sf(s - 1) <= 0.025
    assert below.sf(s - 2) > 0.025


# --- weighted votes


@given(
    trials=st.lists(st.integers(1, 500), min_size=1, max_size=3),
    data=st.data(),
    confidence=st.sampled_from([0.8, 0.95, 0.999]),
)
def test_trials_of_one_weight_have_clopper_pearsons_interval(
    trials: list[int], data: st.DataObject, confidence: float
) -> None:
    successes = [data.draw(st.integers(0, n)) for n in trials]
    found = weighted_share(successes, trials, np.full(len(trials), 0.3), confidence)
    expected = clopper_pearson(sum(successes), sum(trials), confidence)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(data=st.data(), confidence=st.sampled_from([0.5, 0.95, 0.999]))
def test_a_weighted_share_lies_in_its_interval_and_mirrors(
    data: st.DataObject, confidence: float
) -> None:
    draws = np.array(data.draw(st.lists(st.integers(1, 1000), min_size=1, max_size=4)))
    images = np.array([data.draw(st.integers(1, 500)) for _ in draws])
    trials = images * draws
    successes = np.array([data.draw(st.integers(0, n)) for n in trials.tolist()])
    share = float((successes / draws).sum() / images.sum())
    lower, upper = weighted_share(successes, trials, 1 / draws, confidence)
    assert 0 <= lower <= share + 1e-12
    assert share - 1e-12 <= upper <= 1
    mirrored = weighted_share(trials - successes, trials, 1 / draws, confidence)
    np.testing.assert_allclose(mirrored, (1 - upper, 1 - lower), atol=1e-9)


@pytest.mark.parametrize("confidence", [0.95, 0.993])
@pytest.mark.parametrize("groups", [((5, 8), (5, 16)), ((1, 1), (1, 8)), ((9, 8), (1, 16))])
def test_a_weighted_share_is_missed_on_no_side_more_often_than_stated(
    groups: tuple[tuple[int, int], tuple[int, int]], confidence: float
) -> None:
    """All counts of two groups of (images, draws each), with equal and very different p."""
    images, draws = np.array(groups).T
    trials = images * draws
    counts = [(k, m) for k in range(trials[0] + 1) for m in range(trials[1] + 1)]
    ends = np.array([weighted_share(pair, trials, 1 / draws, confidence) for pair in counts])
    k, m = np.array(counts).T
    failing = np.geomspace(1e-3, 0.5, 25)
    worst = 0.0
    for p in [*failing, *(1 - failing)]:
        for other in (p, p / 3, p / 100, 0.0, min(1.0, 3 * p), 1 - p):
            truth = (images[0] * p + images[1] * other) / images.sum()
            chance = binom.pmf(k, trials[0], p) * binom.pmf(m, trials[1], other)
            below = float(chance[ends[:, 1] < truth - 1e-12].sum())
            above = float(chance[ends[:, 0] > truth + 1e-12].sum())
            worst = max(worst, below, above)
    tail = (1 - confidence) / 2
    assert 0.5 * tail < worst <= tail
