"""Confidence sequences: what they are by definition, and exact coverage when one looks after every
draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robaudit.numerics.sequences import (
    JEFFREYS,
    Prior,
    confidence_sequence,
    deciding_sequence,
    log_marginal,
    prior_around,
)
from tests.golden import Golden
from tests.unit.numerics.martingales import deciding_log_martingale, log_martingale

PROBABILITIES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
PRIORS = {
    "jeffreys": JEFFREYS,
    "around .9": prior_around(0.9),
    "around .5": prior_around(0.5),
    "lopsided": Prior((1.0,), (40.5,), (3.0,)),
}
counts = st.integers(0, 20_000)
priors = st.sampled_from(sorted(PRIORS))


@settings(max_examples=50, deadline=None)
@given(s=counts, f=counts, name=priors, confidence=st.sampled_from([0.5, 0.8, 0.95, 0.999]))
@example(s=8367, f=1, name="around .5", confidence=0.999)
@example(s=1, f=419, name="lopsided", confidence=0.8)
@example(s=2636, f=1, name="lopsided", confidence=0.999)
def test_the_interval_is_where_the_martingale_is_small(
    s: int, f: int, name: str, confidence: float
) -> None:
    prior = PRIORS[name]
    lower, upper = (float(end) for end in confidence_sequence(s, f, confidence, prior))
    assert 0.0 <= lower <= upper <= 1.0
    if s + f:
        assert lower <= s / (s + f) <= upper
    limit = -math.log1p(-confidence)
    p = np.concatenate((np.linspace(0, 1, 201), np.linspace(lower, upper, 11)))
    inside = log_martingale(s, f, p, prior) < limit
    # An end is rounded outwards by one float, over which the martingale may move by more than 1e-6
    # near 0 and 1.
    above = np.stack(
        [
            log_martingale(s, f, q, prior) - limit
            for q in (np.nextafter(p, 0.0), p, np.nextafter(p, 1.0))
        ]
    )
    clear = (above > 1e-6).all(0) | (above < -1e-6).all(0)
    np.testing.assert_array_equal(((lower <= p) & (p <= upper))[clear], inside[clear])


@settings(max_examples=50, deadline=None)
@given(s=counts, f=counts, name=priors)
def test_the_ends_are_exact(s: int, f: int, name: str) -> None:
    prior = PRIORS[name]
    lower, upper = (float(end) for end in confidence_sequence(s, f, prior=prior))
    if (
        s == 0 or lower == 0.0
    ):  # with a success only where a prior far from the truth leaves hardly anything out
        assert lower == 0.0
        assert s == 0 or log_martingale(s, f, 1e-60, prior) < math.log(20)
    assert (upper == 1.0) >= (f == 0)
    for end, inner in ((lower, lower * (1 + 1e-6)), (upper, upper - 1e-6 * (1 - upper))):
        if 1e-9 < end < 1 - 1e-9:
            assert log_martingale(s, f, end, prior) >= math.log(20) - 1e-5
            assert log_martingale(s, f, inner, prior) <= math.log(20) + 1e-5


@settings(max_examples=50, deadline=None)
@given(s=counts, f=counts, name=priors)
def test_the_martingale_is_one(s: int, f: int, name: str) -> None:
    """The probability of a sequence is that of its two continuations together, and so E_p[M_{t+1}]
    = M_t for every p."""
    prior = PRIORS[name]
    on = np.logaddexp(log_marginal(s + 1, f, prior), log_marginal(s, f + 1, prior))
    assert log_marginal(s, f, prior) == pytest.approx(float(on), abs=1e-7)
    assert log_marginal(0, 0, prior) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", sorted(PRIORS))
def test_a_row_has_the_same_bits_in_any_company(name: str) -> None:
    generator = np.random.default_rng(5)
    s = generator.integers(0, 3000, 37)
    f = generator.integers(0, 300, 37)
    prior = PRIORS[name]
    lower, upper = confidence_sequence(s, f, prior=prior)
    deciding = deciding_sequence(s, f, 0.9)
    for i in range(37):
        assert (lower[i], upper[i]) == confidence_sequence(s[i], f[i], prior=prior)
        assert (deciding[0][i], deciding[1][i]) == deciding_sequence(s[i], f[i], 0.9)
    assert np.array_equal(confidence_sequence(s[::-2], f[::-2], prior=prior)[0], lower[::-2])


@pytest.mark.parametrize(("s", "f"), [(-1, 3), (3, -1), (math.nan, 3)])
def test_refuses_counts_that_are_none(s: float, f: float, golden: Golden) -> None:
    with golden.raises(ValueError):
        confidence_sequence(s, f)


@settings(max_examples=25, deadline=None)
@given(
    s=st.integers(0, 3000),
    f=st.integers(0, 3000),
    threshold=st.sampled_from([0.05, 0.5, 0.9, 0.99]),
)
def test_a_deciding_interval_is_what_is_not_rejected(s: int, f: int, threshold: float) -> None:
    lower, upper = (float(end) for end in deciding_sequence(s, f, threshold))
    assert 0.0 <= lower <= upper <= 1.0
    if s + f:
        assert lower <= s / (s + f) <= upper
    limit = math.log(20)
    for p in np.concatenate(
        (
            np.linspace(0, 1, 101),
            np.linspace(max(0, threshold - 0.02), min(1, threshold + 0.02), 41),
        )
    ):
        if float(deciding_log_martingale(s, f, float(p), threshold)) < limit - 1e-6:
            assert lower <= p <= upper
    for end in (lower - 1e-4, upper + 1e-4):  # beyond an end all is rejected
        if 0.0 < end < 1.0 and min(s, f) > 0:
            assert deciding_log_martingale(s, f, end, threshold) > limit - 1e-6


def test_deciding_takes_fewer_draws_than_other_sequences() -> None:
    """93 of a hundred against .9: the counts at which each is wholly above."""
    n = np.arange(100, 4000, 100)
    s = 0.93 * n
    f = 0.07 * n
    ends = (
        confidence_sequence(s, f),
        confidence_sequence(s, f, prior=prior_around(0.9)),
        deciding_sequence(s, f, 0.9),
    )
    jeffreys, around, deciding = (n[np.argmax(lower >= 0.9)] for lower, _ in ends)
    assert deciding < around < jeffreys


@pytest.mark.parametrize("threshold", [0.1, 0.9])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.8999, 0.99])
def test_a_decision_covers_whoever_looks_after_every_draw(p: float, threshold: float) -> None:
    inside = np.ones(1)
    for t in range(1, 160):
        inside = np.append(inside * (1 - p), 0.0) + np.insert(inside * p, 0, 0.0)
        s = np.arange(t + 1)
        inside[deciding_log_martingale(s, t - s, p, threshold) >= math.log(20)] = 0.0
    assert inside.sum() >= 0.95


def ever_outside(p: float, draws: int, prior: Prior, confidence: float = 0.95) -> float:
    """The exact probability that the interval has lost p at some time up to so many draws: the
    paths still inside, counted forward."""
    inside = np.ones(1)
    limit = -math.log1p(-confidence)
    for t in range(1, draws + 1):
        inside = np.append(inside * (1 - p), 0.0) + np.insert(inside * p, 0, 0.0)
        s = np.arange(t + 1)
        inside[log_martingale(s, t - s, p, prior) >= limit] = 0.0
    return 1.0 - float(inside.sum())


@pytest.mark.parametrize("name", sorted(PRIORS))
@pytest.mark.parametrize("p", PROBABILITIES)
def test_covers_whoever_looks_after_every_draw(p: float, name: str) -> None:
    assert ever_outside(p, 400, PRIORS[name]) <= 0.05
