"""Poisson quantiles against scipy: the counts, their moments, order, and rates and draws without
limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri, pdtr, pdtrc
from torch import Tensor

from robaudit.numerics.poisson_counts import SWITCH, poisson_quantile

N = 40_000
# every quantile of the normal distribution, evenly
STRATA = torch.from_numpy(ndtri((np.arange(N) + 0.5) / N))[:, None]
RATES = [1e-9, 0.1, 3.0, 9.999, 10.0, 13.0, 50.0, 1e4, 1e9]


def between(rate: Tensor, z: Tensor, count: Tensor, slack: int = 0) -> np.ndarray:
    """Whether P[N <= count - 1 - slack] < Phi(z) <= P[N <= count + slack] by scipy, in the smaller
    tail: the quantile, without slack."""
    mean = rate.numpy()
    u = z.double().numpy()
    k = count.numpy()
    low = np.maximum(k - 1 - slack, -1)
    high = k + slack
    lower = (low < 0) | np.where(
        u > 0, pdtrc(np.maximum(low, 0), mean) > ndtr(-u), pdtr(np.maximum(low, 0), mean) < ndtr(u)
    )
    upper = np.where(u > 0, pdtrc(high, mean) <= ndtr(-u), pdtr(high, mean) >= ndtr(u))
    found: np.ndarray = lower & upper
    return found


@pytest.mark.parametrize("rate", RATES)
def test_counts_are_quantiles(rate: float) -> None:
    """All of them below the switch; above it, 1e-4 of the counts may be off, by one."""
    rates = torch.tensor([[rate]], dtype=torch.float64)
    found = poisson_quantile(rates, STRATA)
    assert between(rates, STRATA, found, slack=1).all()
    assert 1 - between(rates, STRATA, found).mean() <= (0 if rate < SWITCH else 1e-4)


@given(
    st.floats(0.0, 1e5) | st.floats(0.0, 20.0),  # far out, scipy's tails are off by .4 % at 4e6
    st.lists(st.floats(-6.0, 6.0), min_size=2, max_size=20),
)
def test_any_rate_within_six_standard_deviations(rate: float, values: list[float]) -> None:
    """At most one off, and in the order of z."""
    z = torch.tensor(sorted(values), dtype=torch.float64)[None]
    rates = torch.full_like(z, rate)
    found = poisson_quantile(rates, z)
    assert (found.diff() >= 0).all()
    assert (found == found.round()).all()
    assert between(rates, z, found, slack=1).all()


@pytest.mark.parametrize("rate", [0.0, 0.5, 9.0, 10.0, 30.0, 1e5])
def test_no_draw_is_too_far(rate: float) -> None:
    """Up to 40 standard deviations, where searches for rare failures go, counts are ordered and
    never absurdly large."""
    z = torch.linspace(-40.0, 40.0, 161, dtype=torch.float64)[None]
    found = poisson_quantile(torch.full_like(z, rate), z)[0]
    assert (found.diff() >= 0).all()
    assert 0 <= found[0] <= found[-1] <= 60 + rate * 4 + 40 * rate**0.5
    assert rate > 0 or not found.any()


def test_golden_values() -> None:
    """Mean 2: P[N <= k] = .1353, .4060, .6767, .8571, .9473 for k = 0 to 4, which is Phi(-1.1015,
    -.2378, .4585, 1.0675, 1.6196)."""
    z = torch.tensor(
        [[-1.102, -1.101, -0.238, -0.237, 0.458, 0.459, 1.067, 1.068, 1.619, 1.62]],
        dtype=torch.float64,
    )
    found = poisson_quantile(torch.full_like(z, 2.0), z)
    assert found[0].tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
