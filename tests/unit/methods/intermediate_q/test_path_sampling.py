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
    NormEstimate,
    controlled,
    in_order,
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
@given(st.integers(12, 100))
def test_weights_of_an_integral(temperatures: int) -> None:
    """They sum to the length of the way, are exact for cubics, and hardly amplify noise."""
    grid = tuple(i / (temperatures - 1) for i in range(temperatures))
    weights = np.array(integration_weights(grid))
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ np.array(grid) ** 3 == pytest.approx(0.25)
    assert np.abs(weights).sum() < 1.01


@pytest.mark.parametrize("q", [1.0, 10.0, 100.0])
def test_twelve_temperatures_meet_a_smooth_curve(q: float) -> None:
    """E_b[r] of a quadratic log ratio in one dimension falls as 1 / (1 + q b)."""
    grid = tuple(i / 11 for i in range(12))
    weights = integration_weights(grid)
    found = sum(weight * q / (1 + q * b) for weight, b in zip(weights, grid, strict=True))
    assert found == pytest.approx(math.log1p(q), abs={1.0: 1e-5, 10.0: 0.03, 100.0: 2.0}[q])


def norm(value: float, lower: float, upper: float, *, usable: bool = True) -> NormEstimate:
    one = torch.ones(1, dtype=torch.float64)
    given = torch.tensor([usable])
    return NormEstimate(value * one, lower * one, upper * one, one, 0 * one, one, given, given)


def test_values_and_ends_rise_with_the_order() -> None:
    """The lower end of a small order holds at larger ones, and the upper end the other way."""
    found = in_order([norm(1.0, 0.8, 1.2), norm(0.9, 0.7, 1.1), norm(2.0, 1.5, 2.5)])
    assert [float(one.log_norm) for one in found] == [1.0, 1.0, 2.0]
    assert [float(one.lower) for one in found] == [0.8, 0.8, 1.5]
    assert [float(one.upper) for one in found] == [1.1, 1.1, 2.5]


def test_chains_that_have_not_settled_count_for_no_other_order() -> None:
    found = in_order([norm(1.0, 0.8, 1.2), norm(9.0, 8.0, 10.0, usable=False), norm(2.0, 1.5, 2.5)])
    assert [float(one.log_norm) for one in found] == [1.0, 9.0, 2.0]
    assert [float(one.lower) for one in (found[0], found[2])] == [0.8, 1.5]
    assert [float(one.upper) for one in (found[0], found[2])] == [1.2, 2.5]


def test_copies_that_show_a_larger_norm_move_the_value_and_widen_the_interval() -> None:
    near = norm(1.0, 0.95, 1.05)
    least = torch.tensor([1.1], dtype=torch.float64)
    moved = near.at_least(least)
    assert [float(end) for end in (moved.lower, moved.log_norm, moved.upper)] == pytest.approx(
        [0.95, 1.1, 1.2]
    )
    assert moved.usable.all()
    assert torch.equal(near.at_least(least - 0.06).upper, near.upper)
    assert not near.at_least(least + 0.3).usable.any()


def test_ends_that_contradict_each_other_hold_the_value() -> None:
    found = in_order([norm(1.0, 0.9, 1.1), norm(0.5, 0.4, 0.6)])
    for one in found:
        assert one.lower <= one.log_norm <= one.upper


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
