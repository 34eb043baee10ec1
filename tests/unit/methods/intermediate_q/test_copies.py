"""Copies of a mixture: E[l^t] without bias wherever its parts are, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.methods.intermediate_q.adaptive_copies import adapted
from robaudit.methods.intermediate_q.copies import (
    AT_ONCE,
    ENOUGH,
    Copies,
    effective_sample_size,
    tilted,
)
from robaudit.methods.intermediate_q.metropolis import Values
from robaudit.methods.intermediate_q.path_sampling import copies_estimate, temperature_grid
from robaudit.methods.intermediate_q.tilts import NormalTilts, Tilts, UniformTilts

IMAGES = 200


def linear(_: Tensor, z: Tensor) -> Tensor:
    """log l = z_1: log E[l^t] = t^2 / 2."""
    return z[:, 0].double()


def curved(_: Tensor, z: Tensor) -> Tensor:
    """log l = z_1 - z_2^2 / 4: log E[l^t] = t^2 / 2 - log(1 + t / 2) / 2."""
    return z[:, 0].double() - z[:, 1].double().square() / 4


def uniform(_: Tensor, z: Tensor) -> Tensor:
    """log l = sqrt(3) (2 Phi(z_1) - 1): log E[l^t] = log(sinh a / a), a = sqrt(3) t."""
    return UniformTilts().statistic(z)[:, 0]


def about(
    parameters: tuple[float, ...] | None, function: Values = linear, tilts: Tilts | None = None
) -> Copies:
    generator = torch.Generator().manual_seed(0)
    number = 1 if parameters else 0
    given = torch.tensor(parameters or (0.0, 0.0)).expand(1, IMAGES, 2)[:number]
    return tilted(
        function,
        lambda: torch.randn(IMAGES * AT_ONCE, 2, generator=generator),
        500,
        500,
        tilts or NormalTilts(),
        given,
    )


def at(t: float) -> Tensor:
    return torch.full((IMAGES,), t, dtype=torch.float64)


@pytest.mark.parametrize("tilt", [(2.0, 0.0), (-1.0, 3.0), None])
def test_masses_are_unbiased_and_errors_are_what_they_say(
    tilt: tuple[float, float] | None,
) -> None:
    copies = about(tilt, curved)
    for t in (0.5, 1.0, 1.5):
        log_mass, std_error, _ = copies.log_mass(at(t))
        relative = log_mass.exp() / math.exp(t * t / 2 - math.log1p(t / 2) / 2) - 1
        assert abs(float(relative.mean())) < 4 * float(relative.std()) / math.sqrt(IMAGES)
        assert float(std_error.square().mean().sqrt()) == pytest.approx(
            float(relative.std()), rel=0.25
        )


@pytest.mark.parametrize("tilt", [1.0, 4.0])
def test_masses_of_tilted_uniform_variables_are_unbiased(tilt: float) -> None:
    copies = about((tilt, 0.5), uniform, UniformTilts())
    for t in (1.0, 3.0):
        log_mass, _, _ = copies.log_mass(at(t))
        a = math.sqrt(3) * t
        relative = (log_mass - math.log(math.sinh(a) / a)).exp() - 1
        assert abs(float(relative.mean())) < 4 * float(relative.std()) / math.sqrt(IMAGES)


@pytest.mark.parametrize(
    ("function", "tilts", "log_mass"),
    [
        (linear, NormalTilts(), 2.0),
        (uniform, UniformTilts(), math.log(math.sinh(12**0.5) / 12**0.5)),
    ],
)
def test_a_log_loss_that_is_linear_in_its_statistic_has_no_error(
    function: Values, tilts: Tilts, log_mass: float
) -> None:
    """l^t N is a tilt then, up to a factor; so it is at t = 0."""
    copies = about((2.0, 0.0), function, tilts)
    for t, truth in ((0.0, 0.0), (2.0, log_mass)):
        found, std_error, _ = copies.log_mass(at(t))
        assert torch.allclose(found, at(truth), atol=1e-6)
        assert (std_error < 1e-5).all()


def test_tilted_copies_suffice_where_plain_ones_do_not() -> None:
    for tilt, enough in (((4.0, 0.0), True), (None, False)):
        copies = about(tilt)
        weights, _ = copies.weights(4.0, copies.log_density)
        assert ((effective_sample_size(weights) >= ENOUGH) == enough).all()


def test_the_upper_end_leaves_room_for_two_more_copies() -> None:
    """As large as the largest: a share of .1 of the sum moves the upper end by log 1.2."""
    mass = at(1.0)
    error = at(0.1)
    degrees = at(100.0)
    nothing = at(0.0)
    without, with_room = (
        copies_estimate(2.0, mass, error, degrees, largest, mass, mass > 0)
        for largest in (nothing, at(0.1))
    )
    assert torch.allclose(with_room.upper - without.upper, at(math.log(1.2) / 2))
    assert torch.equal(with_room.lower, without.lower)
    assert torch.allclose(without.upper - without.log_norm, without.log_norm - without.lower)


@pytest.mark.parametrize(("d", "orders"), [(2, (1.0, 30.0, 1000.0)), (5, (1.0, 30.0))])
def test_adapted_copies_cover(d: int, orders: tuple[float, ...]) -> None:
    """log l = -|z - 1|^2 / 2, whose tilted distributions become narrow."""
    generator = torch.Generator().manual_seed(d)
    images = 30
    grid = temperature_grid(1000.0, 80)

    def values(_: Tensor, z: Tensor) -> Tensor:
        return (z.double() - 1).square().sum(1) / -2

    copies = adapted(
        values,
        lambda: torch.randn(images * AT_ONCE, d, generator=generator),
        lambda: torch.rand(images * AT_ONCE, generator=generator, dtype=torch.float64),
        78,
        grid,
    )
    assert sum(copies.sizes) <= 78 * AT_ONCE
    log_density = copies.log_density
    for q in orders:
        weights, _ = copies.weights(q, log_density)
        ess = effective_sample_size(weights)
        order = torch.full_like(ess, q)
        largest = weights.amax(1) / weights.sum(1)
        found = copies_estimate(q, *copies.log_mass(order), largest, ess, ess >= ENOUGH)
        truth = d / q * (math.log1p(q) / -2 - q / (1 + q) / 2)
        held = (found.lower <= truth) & (truth <= found.upper)
        assert found.by_copies.double().mean() > 0.9
        assert held[found.by_copies].double().mean() >= 0.85
        assert (found.gap == 0).all()
