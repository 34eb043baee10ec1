"""Tilts of normal and of uniform variables: densities, maps and divergences against numerical
integrals."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robaudit.methods.intermediate_q.tilts import NormalTilts, Tilts, UniformTilts, tilts_of
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.uniform import Uniform

FAMILIES = (NormalTilts(), UniformTilts())
GRID = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
"""Values of one normal variable, for integrals."""
TILTS = st.floats(-25, 25)


def integral(values: Tensor) -> float:
    """The mean over N(0, 1)."""
    step = float(GRID[1] - GRID[0])
    density = torch.exp(GRID.square() / -2) / math.sqrt(2 * math.pi)
    return float((values * density).sum()) * step


def one(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def density(tilts: Tilts, t: float) -> Tensor:
    """p_t / N(0, 1) on the grid."""
    return torch.exp(t * tilts.statistic(GRID[:, None])[:, 0] - tilts.log_mass(one(t)))


@pytest.mark.parametrize("tilts", FAMILIES)
def test_statistics_have_mean_0_and_variance_1(tilts: Tilts) -> None:
    statistic = tilts.statistic(GRID[:, None])[:, 0]
    assert integral(statistic) == pytest.approx(0, abs=1e-9)
    assert integral(statistic.square()) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("tilts", FAMILIES)
@settings(deadline=None, max_examples=30)
@given(t=st.floats(-4, 4))
def test_masses_and_divergences(tilts: Tilts, t: float) -> None:
    relative = density(tilts, t)
    assert integral(relative) == pytest.approx(1, rel=1e-6)
    divergence = integral(relative * relative.log())
    assert float(tilts.divergence(one(t))) == pytest.approx(divergence, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("tilts", FAMILIES)
@settings(deadline=None, max_examples=30)
@given(t=TILTS, e=st.floats(-4, 4))
def test_the_map_keeps_probabilities(tilts: Tilts, t: float, e: float) -> None:
    """p_t below z is Phi(e): the density of z is that of e over dz/de, and ds/dz times it ds/de."""
    normal = one(e).requires_grad_(True)
    z = tilts.moved(one(t), normal)
    to_z, to_statistic = tilts.rates(one(t), normal.detach(), z.detach())
    log_ratio = t * tilts.statistic(z) - tilts.log_mass(one(t))
    # N(z) p_t/N(z) dz/de = N(e)
    log_density = log_ratio - z.square() / 2 + to_z.log()
    assert float(log_density.detach()) == pytest.approx(-e * e / 2, abs=1e-6)
    shift = 1e-5
    moved = [tilts.moved(one(t), one(e + side * shift)) for side in (-1, 1)]
    assert float(to_z) == pytest.approx(float(moved[1] - moved[0]) / (2 * shift), rel=1e-4)
    ends = [tilts.statistic(z) for z in moved]
    assert float(to_statistic) == pytest.approx(
        float(ends[1] - ends[0]) / (2 * shift), rel=1e-4, abs=1e-9
    )


@pytest.mark.parametrize("tilts", FAMILIES)
def test_no_tilt_changes_nothing(tilts: Tilts) -> None:
    normal = torch.linspace(-5, 5, 101)
    none = torch.zeros(101)
    assert torch.allclose(tilts.moved(none, normal), normal, atol=1e-5)
    assert float(tilts.log_mass(none)) == pytest.approx(0, abs=1e-9)
    assert float(tilts.divergence(none)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("tilts", FAMILIES)
def test_the_slope_is_with_respect_to_the_statistic(tilts: Tilts) -> None:
    z = torch.linspace(-3, 3, 25, dtype=torch.float64).requires_grad_(True)
    (slope,) = torch.autograd.grad((2 * tilts.statistic(z)).sum(), z)
    assert torch.allclose(tilts.slope(z.detach(), slope), torch.full((25,), 2.0).double())


def test_copies_crowd_at_the_edge_without_reaching_infinity() -> None:
    z = UniformTilts().moved(torch.full((1000,), 1e4), torch.linspace(-6, 6, 1000))
    assert z.isfinite().all()
    assert (z > 3).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t", [-1e4, -30.0, 30.0, 1e4])
@pytest.mark.parametrize("e", [-1e10, -50.0, -20.0, 20.0, 50.0, 1e10])
def test_rates_are_finite_wherever_a_chain_may_overshoot(
    t: float, e: float, dtype: torch.dtype
) -> None:
    tilt = torch.tensor([t], dtype=dtype)
    normal = torch.tensor([e], dtype=dtype)
    z = UniformTilts().moved(tilt, normal)
    for rate in UniformTilts().rates(tilt, normal, z):
        assert rate.dtype == dtype
        assert bool(rate.isfinite().all())


def test_noise_names_its_tilts() -> None:
    assert isinstance(tilts_of(Uniform()), UniformTilts)
    assert isinstance(tilts_of(Uniform(norm="l2")), NormalTilts)
    assert isinstance(tilts_of(Gaussian()), NormalTilts)
