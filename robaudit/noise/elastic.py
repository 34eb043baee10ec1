"""Elastic distortions: a random affine map, then a smooth random displacement of every pixel."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.noise.filters import gaussian_blur
from robaudit.noise.warp import Mirror, sample, unit

# Standard deviations at which the blur of the displacements ends, as in the benchmarks' code.
_TRUNCATE = 3.0

# Smallest determinant of an affine map. Below it the points are nearly in line, and the map has no
# useful inverse.
_LEAST_DETERMINANT = 1e-3


def stretched(x: Tensor, u: Tensor, strength: float, smoothness: float, jitter: float) -> Tensor:
    """The images distorted twice, each time by bilinear resampling.

    First three points of a square about the middle, a third of the image from it, move by up to
    ``jitter``, and everything else with them affinely. Then a pixel reads the place that is
    ``strength`` times a blurred uniform variable away, for rows and columns each.

    Args:
        x: (n, channels, height, width), or (1, ...) for all displacements.
        u: uniform on [-1, 1], (n, 6 + 2 * height * width): the points, then the displacements of
            columns and of rows.
        strength: of the displacement, in pixels; 0: none.
        smoothness: standard deviation of its Gaussian blur, in pixels.
        jitter: of the points, in pixels.

    Returns:
        (n, channels, height, width).

    Source: Simard, Steinkraus and Platt 2003, Best practices for convolutional neural networks;
        the affine map and both borders as in Hendrycks & Dietterich 2019.
    """
    height, width = x.shape[2:]
    point_moves = u[:, :6].double() * jitter
    grid = affine_grid(point_moves, height, width).to(x.dtype)
    moved = sample(x, grid, Mirror.REFLECT)
    if not strength:
        return moved
    uniform = u[:, 6:].unflatten(1, (2, height, width))
    displacement = gaussian_blur(uniform, smoothness, truncate=_TRUNCATE, edge="symmetric")
    displacement = displacement.mul_(strength)  # (n, 2, height, width), in pixels
    columns = torch.arange(width).to(x)
    rows = torch.arange(height).to(x)
    from_column = unit(displacement[:, 0] + columns, width, Mirror.SYMMETRIC)
    from_row = unit(displacement[:, 1] + rows[:, None], height, Mirror.SYMMETRIC)
    return sample(moved, torch.stack((from_column, from_row), 1), Mirror.SYMMETRIC)


def affine_grid(moves: Tensor, height: int, width: int) -> Tensor:
    """The source position of every pixel of the moved image, in the units of :func:`unit`: (n, 6)
    -> (n, 2, height, width).

    The points are a = c + (s, s), b = c + (s, -s), d = c + (-s, -s), with c the middle in whole
    pixels and s a third of the shorter side; their columns and rows move by ``moves``.
    """
    middle_x = float(width // 2)
    middle_y = float(height // 2)
    # Half of the side of the square; its corners are moved.
    reach = float(max(min(height, width) // 3, 1))
    a, b, d = moves.view(-1, 3, 2).unbind(1)  # (n, 2)
    # Where a step to the right and a step down lead: (1, 0) and (0, 1) if no point moves.
    across = (b - d) / (2 * reach) + moves.new_tensor([1.0, 0.0])
    down = (a - b) / (2 * reach) + moves.new_tensor([0.0, 1.0])
    # The new place of b.
    start = b + moves.new_tensor([middle_x + reach, middle_y - reach])
    determinant = across[:, 0] * down[:, 1] - across[:, 1] * down[:, 0]
    is_singular = determinant.abs() < _LEAST_DETERMINANT
    determinant = torch.where(is_singular, _LEAST_DETERMINANT, determinant)[:, None]
    # Distances of the new pixels from b.
    rows = torch.arange(height, dtype=moves.dtype, device=moves.device) - start[:, 1:]
    columns = torch.arange(width, dtype=moves.dtype, device=moves.device) - start[:, :1]
    # The inverse of the 2 x 2 matrix (across, down), applied to (column, row), from b on.
    from_x = (
        (columns * down[:, 1:] / determinant)[:, None, :]
        - (rows * down[:, :1] / determinant)[:, :, None]
        + (middle_x + reach)
    )
    from_y = (
        (rows * across[:, :1] / determinant)[:, :, None]
        - (columns * across[:, 1:] / determinant)[:, None, :]
        + (middle_y - reach)
    )
    grid_x = unit(from_x, width, Mirror.REFLECT)
    grid_y = unit(from_y, height, Mirror.REFLECT)
    return torch.stack((grid_x, grid_y), 1)
