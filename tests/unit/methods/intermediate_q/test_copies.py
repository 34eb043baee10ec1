"""Copies of a mixture: E[l^t] without bias wherever its parts are, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.methods.intermediate_q.adaptive_copies import adapted
from robaudit.methods.intermediate_q.copies import AT_ONCE, Copies, shifted, starts
from robaudit.methods.intermediate_q.path_sampling import copies_estimates, temperature_grid

IMAGES = 200


def linear(_: Tensor, z: Tensor) -> Tensor:
    """log l = z_1: log E[l^t] = t^2 / 2."""
    return z[:, 0].double()


def curved(_: Tensor, z: Tensor) -> Tensor:
    """log l = z_1 - z_2^2 / 4: log E[l^t] = t^2 / 2 - log(1 + t / 2) / 2."""
    return z[:, 0].double() - z[:, 1].double().square() / 4


def about(centre: tuple[float, ...] | None, at: float, function: object = linear) -> Copies:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor(centre or (0.0, 0.0)).expand(1, IMAGES, 2)[: 1 if centre else 0]
    values = curved if function is curved else linear
    return shifted(
        values,
        lambda: torch.randn(IMAGES * AT_ONCE, 2, generator=generator),
        500,
        500,
        centres,
        [at][: len(centres)],
    )


def at(t: float) -> Tensor:
    return torch.full((IMAGES,), t, dtype=torch.float64)


@pytest.mark.parametrize("centre", [(2.0, 0.0), (-1.0, 3.0), None])
def test_masses_are_unbiased_and_errors_are_what_they_say(
    centre: tuple[float, float] | None,
) -> None:
    copies = about(centre, 1.0, curved)
    for t in (0.5, 1.0, 1.5):
        log_mass, std_error, _ = copies.log_mass(at(t))
        relative = log_mass.exp() / math.exp(t * t / 2 - math.log1p(t / 2) / 2) - 1
        assert abs(float(relative.mean())) < 4 * float(relative.std()) / math.sqrt(IMAGES)
        assert float(std_error.square().mean().sqrt()) == pytest.approx(
            float(relative.std()), rel=0.25
        )


def test_a_linear_log_loss_about_its_own_centre_has_no_error() -> None:
    """l^t is a density of the mixture then, up to a factor; so it is at t = 0."""
    copies = about((2.0, 0.0), 2.0)
    for t in (0.0, 2.0):
        log_mass, std_error, _ = copies.log_mass(at(t))
        assert torch.allclose(log_mass, at(t * t / 2), atol=1e-6)
        assert (std_error < 1e-5).all()


def test_copies_reach_as_far_as_they_are_enough() -> None:
    """Those about the tilted distribution at t = 4 reach it; plain ones do not."""
    for centre, reaches in (((4.0, 0.0), True), (None, False)):
        (start,) = starts(about(centre, 4.0), (0.0, 1.0, 2.0), (4.0,))
        assert ((start.temperature == 4) == reaches).all()


def test_copies_about_a_centre_tell_of_the_orders_next_to_it() -> None:
    """Where l^q leaves next to none of them with a weight, they do not."""
    near, far = starts(about((4.0, 0.0), 4.0), (0.0, 1.0), (4.0, 12.0))
    assert near.known.all()
    assert not far.known.any()


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
    reached = starts(copies, grid, orders)
    for q, start, found in zip(orders, reached, copies_estimates(orders, reached), strict=True):
        truth = d / q * (math.log1p(q) / -2 - q / (1 + q) / 2)
        assert (start.temperature == q).double().mean() > 0.9
        assert ((found.value - truth).abs() <= found.half_width)[
            start.temperature == q
        ].double().mean() >= 0.85
        assert (found.gap == 0).all()
