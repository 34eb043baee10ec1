"""Confidence sequences: what they are by definition, and exact coverage when one looks after every
draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.numerics.sequences import deciding_marginals, deciding_sequence
from tests.golden import Golden
from tests.unit.numerics.martingales import deciding_log_martingale

counts = st.integers(0, 20_000)


@settings(max_examples=50, deadline=None)
@given(s=counts, f=counts, threshold=st.sampled_from([0.05, 0.5, 0.9]))
def test_the_martingale_is_one(s: int, f: int, threshold: float) -> None:
    """The probability of a sequence is the sum of those of its two continuations, and so
    E_p[M_{t+1}] = M_t for every p."""

    def marginals(successes: int, failures: int) -> tuple[float, float]:
        low, high = deciding_marginals(
            np.asarray(float(successes)), np.asarray(float(failures)), threshold
        )
        return float(low), float(high)

    nexts = zip(marginals(s + 1, f), marginals(s, f + 1), strict=True)
    for now, (success, failure) in zip(marginals(s, f), nexts, strict=True):
        # Parts of the prior below 1e-300 count as nothing.
        if now > -300.0:
            assert now == pytest.approx(float(np.logaddexp(success, failure)), abs=1e-7)
    assert marginals(0, 0) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_a_row_has_the_same_bits_in_any_company() -> None:
    generator = np.random.default_rng(5)
    s = generator.integers(0, 3000, 37)
    f = generator.integers(0, 300, 37)
    lower, upper = deciding_sequence(s, f, 0.9)
    for i in range(37):
        assert (lower[i], upper[i]) == deciding_sequence(s[i], f[i], 0.9)
    assert np.array_equal(deciding_sequence(s[::-2], f[::-2], 0.9)[0], lower[::-2])


@pytest.mark.parametrize(("s", "f"), [(-1, 3), (3, -1), (math.nan, 3)])
def test_refuses_counts_that_are_none(s: float, f: float, golden: Golden) -> None:
    with golden.raises(ValueError):
        deciding_sequence(s, f, 0.5)


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


@pytest.mark.parametrize("threshold", [0.1, 0.9])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.8999, 0.99])
def test_a_decision_covers_whoever_looks_after_every_draw(p: float, threshold: float) -> None:
    inside = np.ones(1)
    for t in range(1, 160):
        inside = np.append(inside * (1 - p), 0.0) + np.insert(inside * p, 0, 0.0)
        s = np.arange(t + 1)
        inside[deciding_log_martingale(s, t - s, p, threshold) >= math.log(20)] = 0.0
    assert inside.sum() >= 0.95
