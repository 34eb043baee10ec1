"""Projected gradient ascent where the maximum is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from robaudit.numerics.attack import Ball, ascend
from robaudit.numerics.rowwise import total

SHAPE = (2, 3, 4)
Norm = Literal["linf", "l2"]


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def linear(slopes: Tensor) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """log l = g . x, another g for each image."""
    return lambda image, x: (total((slopes[image] * x).flatten(1).double()), slopes[image])


def starts(x: Tensor, restarts: int, radius: float, seed: int) -> Tensor:
    """The image, and corners of the box about it."""
    found = x[:, None].repeat(1, restarts, 1, 1, 1)
    found[:, 1:] += radius * (2 * random(*found[:, 1:].shape, seed=seed, dtype=x.dtype) - 1).sign()
    return found


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_stays_within_pixels_where_the_noise_clips(norm: Norm) -> None:
    x = random(4, *SHAPE, seed=4).round()
    g = random(4, *SHAPE, seed=5) - 0.5
    radius = 0.3
    seen = []

    def watched(image: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((image, pixels))
        return linear(g)(image, pixels)

    found = ascend(watched, x, starts(x, 4, 1.0, 6), Ball(norm, radius, clipped=True), 20)
    for image, pixels in seen:
        moved = (pixels - x[image]).flatten(1)
        assert ((pixels >= 0) & (pixels <= 1)).all()
        assert (
            (moved.abs().amax(1) if norm == "linf" else moved.norm(dim=1)) <= radius * (1 + 1e-12)
        ).all()
    assert len(seen) == 21
    if norm == "linf":
        best = (
            (torch.where(g > 0, (x + radius).clamp_max(1), (x - radius).clamp_min(0)) * g)
            .flatten(1)
            .sum(1)
        )
        assert torch.allclose(found.log_l, best, rtol=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_gradient_no_step(norm: Norm) -> None:
    x = random(2, *SHAPE, seed=8)
    found = ascend(
        lambda _, pixels: (
            torch.full((len(pixels),), -3.0, dtype=torch.float64),
            torch.zeros_like(pixels),
        ),
        x,
        x[:, None],
        Ball(norm, 0.1),
        5,
    )
    assert torch.equal(found.points, x)
    assert (found.log_l == -3).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_best_point_on_the_way_is_kept(norm: Norm) -> None:
    """The loss falls as the points leave the image, wherever the gradient leads."""
    x = random(2, *SHAPE, seed=8)
    found = ascend(
        lambda image, pixels: (
            -total((pixels - x[image]).flatten(1).abs()),
            torch.ones_like(pixels),
        ),
        x,
        x[:, None],
        Ball(norm, 0.1),
        5,
    )
    assert torch.equal(found.points, x)
    assert (found.log_l == 0).all()
