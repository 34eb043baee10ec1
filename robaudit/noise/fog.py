"""Fog: a plasma fractal laid over the image."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def map_side(height: int, width: int) -> int:
    """The side of the fractal: the smallest power of two that covers the image, at least 2."""
    return max(2, 1 << (max(height, width) - 1).bit_length())


def plasma(u: Tensor, decay: float) -> Tensor:
    """Plasma fractals by the diamond-square algorithm on a torus, from 0 to 1.

    The corner is 0. Step by step the grid doubles: a point in the middle of a square is the mean of
    its corners, then a point in the middle of an edge the mean of its four neighbours, and each is
    moved by a uniform variable whose range shrinks by decay^2 a step.

    Args:
        u: uniform on [-1, 1], (n, side^2 - 1) for a power of two ``side``.
        decay: the larger, the smoother.

    Returns:
        (n, side, side).

    Source: Fournier, Fussell and Carpenter 1982, Computer rendering of stochastic models; the
        shrinkage is the one of Hendrycks & Dietterich 2019 (fog).
    """
    n, variables = u.shape
    side = math.isqrt(variables + 1)
    is_power_of_two = side & (side - 1) == 0
    if side * side != variables + 1 or not is_power_of_two:
        raise ValueError(f"{variables} variables are not a side^2 - 1 of a power of two")
    grid = u.new_zeros(n, 1, 1)
    used = 0
    reach = 1.0
    coarse = 1
    while coarse < side:
        # A middle, and two middles of edges, for each point of the grid.
        new_points = 3 * coarse * coarse
        moves = u[:, used : used + new_points].mul(reach).unflatten(1, (3, coarse, coarse))
        # Rolling goes round the torus.
        right = grid.roll(-1, 2)
        below = grid.roll(-1, 1)
        middles = (grid + right + below + below.roll(-1, 2)) * 0.25 + moves[:, 0]
        finer = u.new_empty(n, 2 * coarse, 2 * coarse)
        finer[:, ::2, ::2] = grid
        finer[:, 1::2, 1::2] = middles
        # The middles of horizontal edges, then of vertical ones, between two points of the grid and
        # two middles of squares.
        finer[:, ::2, 1::2] = (grid + right + middles + middles.roll(1, 1)) * 0.25 + moves[:, 1]
        finer[:, 1::2, ::2] = (grid + below + middles + middles.roll(1, 2)) * 0.25 + moves[:, 2]
        grid = finer
        used = used + new_points
        reach = reach / decay**2
        coarse = 2 * coarse
    grid -= grid.amin((1, 2), keepdim=True)
    # A fractal without relief stays 0.
    largest = grid.amax((1, 2), keepdim=True).clamp_min_(torch.finfo(u.dtype).tiny)
    return grid.div_(largest)


def fogged(x: Tensor, u: Tensor, density: float, decay: float) -> Tensor:
    """(x + density * plasma) * m / (m + density), m the image's largest value: the brightest pixel
    stays about as bright.

    Args:
        x: (n, channels, height, width), or (1, ...) for all maps.
        u: as for :func:`plasma`.
        density, decay: of the fog.

    Returns:
        (n, channels, height, width), not clipped.
    """
    height, width = x.shape[2:]
    fog = plasma(u, decay)[:, None, :height, :width].mul(density)
    largest = x.amax((1, 2, 3), keepdim=True)
    return (x + fog).mul_(largest / (largest + density))
