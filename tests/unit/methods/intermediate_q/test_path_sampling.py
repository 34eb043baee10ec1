"""Temperatures and weights of path sampling."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.methods.intermediate_q.annealing import Records
from robaudit.methods.intermediate_q.path_sampling import (
    controlled,
    integration_weights,
    temperature_grid,
)


@settings(deadline=None, max_examples=50)
@given(st.floats(1000, 1e6), st.integers(12, 200))
def test_the_grid(highest: float, temperatures: int) -> None:
    grid = temperature_grid(highest, temperatures)
    assert len(grid) == temperatures
    assert (grid[0], grid[-1]) == (0.0, highest)
    steps = [high - low for low, high in pairwise(grid)]
    assert all(0 < less < more for less, more in pairwise(steps))


@settings(deadline=None, max_examples=50)
@given(st.integers(12, 100), st.floats(1e-6, 1000), st.floats(0, 1))
def test_weights_of_a_mean(temperatures: int, q: float, share: float) -> None:
    """From a temperature to q they sum to the share of the way, are exact for straight lines, and
    hardly amplify noise (2.21 at most)."""
    grid = temperature_grid(1000.0, temperatures)
    begin = share * q
    weights = np.array(integration_weights(grid, begin, q))
    assert weights.sum() == pytest.approx(1 - share, abs=1e-9)
    assert weights @ np.array(grid) == pytest.approx(
        q * (1 - share * share) / 2, rel=1e-6, abs=1e-9
    )
    assert np.abs(weights).sum() < 2.25


@pytest.mark.parametrize("temperatures", [80, 200])
def test_the_spline_meets_a_smooth_curve(temperatures: int) -> None:
    """E_t[log l] of a quadratic log l falls as 1 / (1 + t): what 80 temperatures leave of its
    integral is nothing."""
    grid = temperature_grid(1000.0, temperatures)
    for q in (1.0, 10.0, 30.0, 100.0, 1000.0):
        found = sum(
            weight / (1 + t)
            for weight, t in zip(integration_weights(grid, 0.0, q), grid, strict=True)
        )
        assert found == pytest.approx(math.log1p(q) / q, rel=2e-3 if temperatures == 80 else 1e-5)


def test_a_chain_apart_from_the_others_is_not_corrected_by_them() -> None:
    """Three chains on a plain where the controls are all but 0, one in a narrow peak where they are
    not."""
    generator = torch.Generator().manual_seed(0)
    controls = torch.randn(3, 16, 2, 4, generator=generator, dtype=torch.float64)
    controls[:, :, 0, :3] *= 1e-4
    log_loss = torch.randn(16, 2, 4, generator=generator, dtype=torch.float64)
    found = controlled(Records(log_loss, controls, torch.ones(16, 2, dtype=torch.float64)))
    assert torch.equal(found[:, 0], log_loss[:, 0])
    assert not torch.equal(found[:, 1], log_loss[:, 1])
    assert (found[:, 1] - log_loss[:, 1]).abs().max() < 5
