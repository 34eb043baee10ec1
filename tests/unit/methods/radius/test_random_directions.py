"""The least flip on random rays: the same as by every ray alone, for fewer passes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.methods.radius.minimal_norm import Flips
from robaudit.methods.radius.norm_steps import Norm, size
from robaudit.methods.radius.random_directions import Rays, least_flip
from robaudit.numerics.rowwise import total

NORMS: tuple[Norm, ...] = ("l2", "linf")
BLOCKS = 6
SIZE = 50
PIXELS = 12


def draws_of(norm: Norm, numbers: Tensor, block: int) -> Tensor:
    """The same for an image wherever it is in a batch."""
    found = []
    for number in numbers.tolist():
        generator = torch.Generator().manual_seed(1000 * number + block)
        shape = (SIZE, PIXELS)
        found.append(
            torch.randn(shape, generator=generator)
            if norm == "l2"
            else 2 * torch.rand(shape, generator=generator) - 1
        )
    return torch.stack(found).double()


def half_space(_: Tensor, pixels: Tensor) -> Tensor:
    """Class 1 where a sum over the pixels exceeds a limit."""
    weights = torch.linspace(-1.0, 1.0, PIXELS, dtype=torch.float64)
    far = total(pixels * weights) - 0.7
    return torch.stack([torch.zeros_like(far), far], dim=1)


def shells(_: Tensor, pixels: Tensor) -> Tensor:
    """Class 1 in a shell about the origin, and outside of a larger one: rays flip, flip back and
    flip."""
    far = total(pixels.square()).sqrt()
    inside = ((far > 1.0) & (far < 1.5)) | (far > 3.0)
    return torch.stack([torch.zeros_like(far), torch.where(inside, 1.0, -1.0)], dim=1)


def images(count: int) -> Tensor:
    return 0.1 * torch.rand(
        count, PIXELS, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )


def look(norm: Norm, numbers: Tensor, rays: Rays) -> Flips:
    x = images(8)[numbers]
    y = torch.zeros(len(numbers), dtype=torch.int64)
    found = least_flip(half_space, x, y, lambda block: draws_of(norm, numbers, block), rays)
    flips = half_space(numbers, found.pixels).argmax(1) != y
    assert torch.equal(flips, found.radius.isfinite())
    return found


@pytest.mark.parametrize("norm", NORMS)
def test_as_by_every_ray_alone(norm: Norm) -> None:
    """On a half-space the radius of a direction u is (0.7 - w . x) / w . u: the least of all,
    within the tolerance, for few passes."""
    numbers = torch.arange(8)
    rays = Rays(norm, cap=50.0, blocks=BLOCKS)
    found = look(norm, numbers, rays)
    weights = torch.linspace(-1.0, 1.0, PIXELS, dtype=torch.float64)
    directions = torch.cat([draws_of(norm, numbers, block) for block in range(BLOCKS)], dim=1)
    directions /= size(directions.flatten(0, 1), norm).view(8, -1, 1)
    slope = directions @ weights
    alone = torch.where(slope > 0, (0.7 - images(8) @ weights)[:, None] / slope, math.inf)
    least = alone.amin(1)
    assert (found.radius >= least * (1 - 1e-12)).all()
    assert (found.radius <= least / (1 - rays.tolerance)).all()
    assert (found.forwards < 3 * BLOCKS * SIZE).all()


def test_rays_that_flip_back() -> None:
    """From the centre of the shells every ray flips at 1: doubling may pass over the first shell,
    and so may the grid of later blocks."""
    x = torch.zeros(1, PIXELS, dtype=torch.float64)
    y = torch.tensor([0])

    def found(cap: float) -> float:
        rays = Rays("l2", cap=cap, blocks=2)
        return float(
            least_flip(
                shells, x, y, lambda block: draws_of("l2", torch.tensor([0]), block), rays
            ).radius[0]
        )

    assert found(1.4 * 4) == pytest.approx(1.0, rel=0.01)
    assert found(1.8 * 4) == pytest.approx(3.0, rel=0.01)


def test_pixels_stay_in_the_box() -> None:
    found = look("l2", torch.arange(8), Rays("l2", cap=50.0, blocks=3, clipped=True))
    assert ((found.pixels >= 0) & (found.pixels <= 1)).all()
    assert torch.equal(found.radius, size(found.pixels - images(8), "l2"))
