"""Elastic distortions: a random affine map, then a smooth random displacement of every pixel."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.noise.filters import gaussian_blur
from robaudit.noise.warp import Mirror, sample, unit

_TRUNCATE = 3.0  # standard deviations at which the blur of the displacements ends


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
    """
    height, width = x.shape[2:]
    moved = sample(
        x, affine_grid(u[:, :6].double() * jitter, height, width).to(x.dtype), Mirror.REFLECT
    )
    if not strength:
        return moved
    away = gaussian_blur(
        u[:, 6:].unflatten(1, (2, height, width)), smoothness, truncate=_TRUNCATE, edge="symmetric"
    ).mul_(strength)
    columns = torch.arange(width).to(x)
    rows = torch.arange(height).to(x)
    grid = torch.stack(
        (
            unit(away[:, 0] + columns, width, Mirror.SYMMETRIC),
            unit(away[:, 1] + rows[:, None], height, Mirror.SYMMETRIC),
        ),
        1,
    )
    return sample(moved, grid, Mirror.SYMMETRIC)


def affine_grid(moves: Tensor, height: int, width: int) -> Tensor:
    """The source position of every pixel of the moved image, in the units of :func:`unit`: (n, 6)
    -> (n, 2, height, width).

    The points are a = c + (s, s), b = c + (s, -s), d = c + (-s, -s), with c the middle in whole
    pixels and s a third of the shorter side; their columns and rows move by ``moves``.
    """
    middle_x = float(width // 2)
    middle_y = float(height // 2)
    reach = float(max(min(height, width) // 3, 1))
    a, b, d = moves.view(-1, 3, 2).unbind(1)  # (n, 2)
    # where a step of one column leads to
    across = (b - d) / (2 * reach) + moves.new_tensor([1.0, 0.0])
    down = (a - b) / (2 * reach) + moves.new_tensor([0.0, 1.0])
    start = b + moves.new_tensor([middle_x + reach, middle_y - reach])  # where b is now
    determinant = across[:, 0] * down[:, 1] - across[:, 1] * down[:, 0]
    # three points nearly in line
    determinant = torch.where(determinant.abs() < 1e-3, 1e-3, determinant)[:, None]
    # (n, height)
    rows = torch.arange(height, dtype=moves.dtype, device=moves.device) - start[:, 1:]
    # (n, width)
    columns = torch.arange(width, dtype=moves.dtype, device=moves.device) - start[:, :1]
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
    return torch.stack(
        (unit(from_x, width, Mirror.REFLECT), unit(from_y, height, Mirror.REFLECT)), 1
    )
