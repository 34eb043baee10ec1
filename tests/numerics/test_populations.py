"""Tempered populations: masses without bias, against closed forms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.populations import evaluations_of, population_estimates, temper
from robaudit.numerics.shifted_copies import Start

ORDERS = (1.0, 4.0)
TEMPERATURES = (0.0, 0.5, 1.0, 2.0, 4.0)


def linear(_: Tensor, z: Tensor) -> Tensor:
    """log l = .5 z_1: log E[l^q] = q^2 / 8, so that log Z_q = q / 8."""
    return 0.5 * z[:, 0].double()


def test_masses_are_unbiased_and_intervals_cover() -> None:
    generator, images, runs, particles = torch.Generator().manual_seed(0), 200, 4, 50
    rows, calls = images * runs * particles, 0

    def values(image: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return linear(image, z)

    found = temper(
        values,
        lambda: torch.randn(rows, 3, generator=generator),
        lambda: torch.randn(rows, generator=generator, dtype=torch.float64),
        runs,
        particles,
        TEMPERATURES,
        2,
    )
    assert found.evaluations == evaluations_of(runs, particles, len(TEMPERATURES), 2) == runs * particles * calls
    zeros = torch.zeros(images, dtype=torch.float64)
    nothing = Start(zeros.long(), zeros, zeros, zeros, zeros, zeros == 0)  # no copies: all from t = 0
    for q, one in zip(ORDERS, population_estimates(found, TEMPERATURES, ORDERS, [nothing] * len(ORDERS)), strict=True):
        mass = found.log_mass[TEMPERATURES.index(q)].exp()
        assert abs(float(mass.mean()) - math.exp(q * q / 8)) < 4 * float(mass.std()) / math.sqrt(mass.numel())
        covered = ((one.value - q / 8).abs() <= one.half_width).double().mean()
        assert covered >= 0.9
        assert (one.ess > runs).all()
        assert (one.gap >= -1e-12).all()
    assert (found.highest <= 0.5 * 6).all()


def test_runs_do_not_mix() -> None:
    """A run whose particles all have no loss has no mass, whatever the others have."""
    z = torch.zeros(6, 1)
    z[3:] = 1.0

    def values(_: Tensor, points: Tensor) -> Tensor:
        return torch.where(points[:, 0] > 0.5, 0.0, -math.inf).double()

    found = temper(values, lambda: z, lambda: torch.zeros(6, dtype=torch.float64), 2, 3, (0.0, 1.0), 1)
    assert found.log_mass[1, 0, 0] < -1e200
    assert found.log_mass[1, 0, 1] == 0
