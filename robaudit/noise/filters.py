"""Linear filters of images: Gaussian, disk-shaped and motion blur, and box resampling, with the
same bits in any batch."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.numerics.rowwise import product

Floats = NDArray[np.float64]
Edge = Literal["edge", "symmetric", "reflect"]
"""Padding modes by NumPy's names: repeat the outermost pixel; reflect with, or without, repeating
it."""

_NEGLIGIBLE = 1e-9  # of a kernel that sums to 1: below the resolution of float32


def gaussian_kernel(sigma: float, truncate: float) -> Floats:
    """Weights exp(-i^2 / (2 sigma^2)) for |i| <= round(truncate * sigma), which sum to 1; sigma 0
    is the identity."""
    reach = int(truncate * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1, dtype=np.float64)
    weights: Floats = np.exp(-0.5 * (offsets / sigma) ** 2) if reach else np.ones(1)
    weights /= weights.sum()
    return weights


def disk_kernel(radius: float, alias_sigma: float) -> Floats:
    """A disk of this radius in pixels with softened rim, as a square of odd side that sums to 1.

    The pixels whose centres are in the disk weigh the same; then a Gaussian of three taps a side
    (five for radius > 8) softens it.
    """
    reach = max(8, math.ceil(radius))
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    taps = 1 if radius <= 8 else 2
    soft = np.exp(-0.5 * (np.arange(-taps, taps + 1) / alias_sigma) ** 2)
    soften = banded(soft / soft.sum(), len(disk), "reflect")
    softened: Floats = soften @ (disk / disk.sum()) @ soften.T
    softened /= softened.sum()
    return softened


def motion_kernel(radius: int, sigma: float) -> Floats:
    """Weights of the 2 radius + 1 positions of a motion that begins at the pixel: half of a
    Gaussian, without negligible weights."""
    weights = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    large: Floats = weights[weights > _NEGLIGIBLE * weights.sum()]
    large /= large.sum()
    return large


def banded(kernel: Floats, side: int, edge: Edge) -> Floats:
    """The correlation of ``side`` values with a kernel of odd length as a matrix, the border
    included."""
    reach = len(kernel) // 2
    beyond = np.pad(np.arange(side), reach, mode=edge)
    matrix = np.zeros((side, side))
    for k, weight in enumerate(kernel):
        np.add.at(matrix, (np.arange(side), beyond[k : k + side]), weight)
    return matrix


@lru_cache(maxsize=32)
def _gaussian_matrix(side: int, sigma: float, truncate: float, edge: Edge) -> Tensor:
    return torch.from_numpy(banded(gaussian_kernel(sigma, truncate), side, edge))


@lru_cache(maxsize=32)
def _pixelated_matrix(side: int, share: float) -> Tensor:
    coarse = max(1, int(side * share))
    return torch.from_numpy(box_matrix(coarse, side) @ box_matrix(side, coarse))


def box_matrix(inputs: int, outputs: int) -> Floats:
    """Resampling from ``inputs`` to ``outputs`` values with a box filter, as Pillow does it:
    (outputs, inputs), rows sum to 1.

    An output is the mean of the inputs whose centres are in its box, which is at least as wide as
    one input.
    """
    scale = inputs / outputs
    width = max(scale, 1.0)
    centres = (np.arange(outputs) + 0.5) * scale
    apart = (np.arange(inputs) + 0.5 - centres[:, None]) / width
    weights: Floats = ((apart > -0.5) & (apart <= 0.5)).astype(np.float64)
    weights /= weights.sum(1, keepdims=True)
    return weights


def separable(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """down X across^T of every channel X.

    Args:
        x: (n, channels, height, width).
        down: (height', height).
        across: (width', width).

    Returns:
        (n, channels, height', width').
    """
    n, channels, height, width = x.shape
    # float32 products may be rounded on CUDA (TF32)
    work = x if x.device.type == "cpu" else x.double()
    columns = product(down.to(work), work.reshape(n * channels, height, width))
    rows = product(across.to(work), columns.transpose(1, 2))
    return rows.transpose(1, 2).reshape(n, channels, len(down), len(across)).to(x.dtype)


def gaussian_blur(x: Tensor, sigma: float, *, truncate: float = 4.0, edge: Edge = "edge") -> Tensor:
    """Gaussian blur of standard deviation ``sigma`` pixels, cut off at ``truncate`` of them; (n,
    channels, height, width)."""
    height, width = x.shape[2:]
    return separable(
        x,
        _gaussian_matrix(height, sigma, truncate, edge),
        _gaussian_matrix(width, sigma, truncate, edge),
    )


def pixelated(x: Tensor, share: float) -> Tensor:
    """The images reduced to int(share * side) pixels a side, and back, both with box filters."""
    height, width = x.shape[2:]
    return separable(x, _pixelated_matrix(height, share), _pixelated_matrix(width, share))


def correlated(x: Tensor, kernel: Floats) -> Tensor:
    """Correlation with a square kernel of odd side, reflected beyond the border (outermost pixels
    not repeated)."""
    reach = len(kernel) // 2
    wide = _padded(x, reach, reach, reach, "reflect")
    height, width = x.shape[2:]
    total = torch.zeros_like(x)
    for i, j in zip(*np.nonzero(np.abs(kernel) > _NEGLIGIBLE), strict=True):
        total.add_(wide[:, :, i : i + height, j : j + width], alpha=float(kernel[i, j]))
    return total


def motion_blur(x: Tensor, degrees: Tensor, kernel: Floats) -> Tensor:
    """Mean over the positions of a motion: sum_i k_i x[row + ceil(i sin - 1/2), column + ceil(i cos
    - 1/2)], the border repeated.

    Args:
        x: (n, channels, height, width), or (1, ...) for all angles.
        degrees: between -90 and 90, (n,), float64.
        kernel: k_0 ... k_{m-1}.

    Returns:
        (n, channels, height, width).
    """
    steps = torch.arange(len(kernel), dtype=torch.float64, device=x.device)
    angles = torch.deg2rad(degrees)[:, None]
    offsets = torch.stack(
        (torch.ceil(steps * torch.sin(angles) - 0.5), torch.ceil(steps * torch.cos(angles) - 0.5)),
        1,
    ).long()  # (n, 2, m)
    if len(x) == 1:  # few paths differ in whole pixels
        paths, path_of = torch.unique(offsets, dim=0, return_inverse=True)
        return _along(x, paths, kernel)[path_of]
    return _along(x, offsets, kernel)


def _along(x: Tensor, offsets: Tensor, kernel: Floats) -> Tensor:
    """sum_i k_i of the pixels at these offsets (n, 2, m) in rows and columns."""
    height, width = x.shape[2:]
    reach = len(kernel)
    wide = _padded(x, reach, 0, reach, "edge").flatten(2)  # (n, channels, pixels)
    stride = width + reach
    rows, columns = (torch.arange(side, device=x.device) for side in (height, width))
    places = (rows[:, None] * stride + columns).flatten()  # (pixels,)
    starts = (offsets[:, 0] + reach) * stride + offsets[:, 1]  # (n, m)
    wide = wide.expand(len(starts), -1, -1)
    total: Tensor = x.new_zeros(len(starts), x.shape[1], height * width)
    for i, weight in enumerate(kernel):
        at = (places + starts[:, i, None])[:, None].expand_as(total)
        total.add_(wide.gather(2, at), alpha=float(weight))
    return total.view(len(starts), x.shape[1], height, width)


def _padded(x: Tensor, vertical: int, left: int, right: int, edge: Edge) -> Tensor:
    """The images with a border of any width, on CUDA as on the CPU."""
    rows = np.pad(np.arange(x.shape[2]), vertical, mode=edge)
    columns = np.pad(np.arange(x.shape[3]), (left, right), mode=edge)
    picked: Tensor = x[
        :, :, torch.from_numpy(rows).to(x.device)[:, None], torch.from_numpy(columns).to(x.device)
    ]
    return picked
