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

# Weights up to this are left out of a kernel, which sums to 1: float32 resolves 6e-8.
_NEGLIGIBLE = 1e-9


def gaussian_kernel(sigma: float, truncate: float) -> Floats:
    """Weights exp(-i^2 / (2 sigma^2)) for |i| <= round(truncate * sigma), which sum to 1; sigma 0
    is the identity."""
    # The radius of SciPy's gaussian_filter, which the benchmarks use.
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return np.ones(1)
    offsets = np.arange(-reach, reach + 1, dtype=np.float64)
    weights: Floats = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    return weights


def disk_kernel(radius: float, alias_sigma: float) -> Floats:
    """A disk of this radius in pixels with softened rim, as a square of odd side that sums to 1.

    The pixels whose centres are in the disk weigh the same; then a Gaussian of three taps a side
    (five for radius > 8) softens it.

    Source: Hendrycks & Dietterich 2019, the published code of the benchmarks (defocus blur).
    """
    reach = max(8, math.ceil(radius))
    offsets = np.arange(-reach, reach + 1)
    squared_distance = offsets[:, None] ** 2 + offsets**2
    disk = (squared_distance <= radius**2).astype(np.float64)
    taps = 1 if radius <= 8 else 2
    tap_offsets = np.arange(-taps, taps + 1)
    gaussian = np.exp(-0.5 * (tap_offsets / alias_sigma) ** 2)
    # Separable: the same matrix along rows and columns.
    soften = banded(gaussian / gaussian.sum(), len(disk), "reflect")
    softened: Floats = soften @ (disk / disk.sum()) @ soften.T
    softened /= softened.sum()
    return softened


def motion_kernel(radius: int, sigma: float) -> Floats:
    """Weights of the 2 radius + 1 positions of a motion that begins at the pixel: half of a
    Gaussian, without negligible weights."""
    positions = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (positions / sigma) ** 2)
    large: Floats = weights[weights > _NEGLIGIBLE * weights.sum()]
    large /= large.sum()
    return large


def banded(kernel: Floats, side: int, edge: Edge) -> Floats:
    """The correlation of ``side`` values with a kernel of odd length as a matrix, the border
    included."""
    reach = len(kernel) // 2
    index = np.arange(side)
    # The pixel that each place shows, also beyond the border.
    source = np.pad(index, reach, mode=edge)
    matrix = np.zeros((side, side))
    for k, weight in enumerate(kernel):
        # Beyond the border a pixel may get several weights, which add up.
        np.add.at(matrix, (index, source[k : k + side]), weight)
    return matrix


@lru_cache(maxsize=32)
def _gaussian_matrix(side: int, sigma: float, truncate: float, edge: Edge) -> Tensor:
    """The Gaussian blur of ``side`` values in a line, (side, side)."""
    kernel = gaussian_kernel(sigma, truncate)
    return torch.from_numpy(banded(kernel, side, edge))


@lru_cache(maxsize=32)
def _pixelated_matrix(side: int, share: float) -> Tensor:
    """The reduction of ``side`` values to a share of them, and back, (side, side)."""
    coarse = max(1, int(side * share))
    reduce = box_matrix(side, coarse)
    enlarge = box_matrix(coarse, side)
    return torch.from_numpy(enlarge @ reduce)


def box_matrix(inputs: int, outputs: int) -> Floats:
    """Resampling from ``inputs`` to ``outputs`` values with a box filter, as Pillow does it:
    (outputs, inputs), rows sum to 1.

    An output is the mean of the inputs whose centres are in its box, which is at least as wide as
    one input.
    """
    scale = inputs / outputs
    width = max(scale, 1.0)
    # In units of an input, whose own centres are at 0.5, 1.5, ...
    centres = (np.arange(outputs) + 0.5) * scale
    distance = (np.arange(inputs) + 0.5 - centres[:, None]) / width  # (outputs, inputs)
    weights: Floats = ((distance > -0.5) & (distance <= 0.5)).astype(np.float64)
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
    # On CUDA float32 products may be rounded to TF32.
    work = x if x.device.type == "cpu" else x.double()
    planes = work.reshape(n * channels, height, width)
    columns = product(down.to(work), planes)
    # (down X across^T)^T = across (down X)^T, so that the shared matrix is the left factor again.
    rows = product(across.to(work), columns.transpose(1, 2))
    filtered = rows.transpose(1, 2).reshape(n, channels, len(down), len(across))
    return filtered.to(x.dtype)


def gaussian_blur(x: Tensor, sigma: float, *, truncate: float = 4.0, edge: Edge = "edge") -> Tensor:
    """Gaussian blur of standard deviation ``sigma`` pixels, cut off at ``truncate`` standard
    deviations; (n, channels, height, width)."""
    height, width = x.shape[2:]
    down = _gaussian_matrix(height, sigma, truncate, edge)
    across = _gaussian_matrix(width, sigma, truncate, edge)
    return separable(x, down, across)


def pixelated(x: Tensor, share: float) -> Tensor:
    """The images reduced to int(share * side) pixels a side, and back, both with box filters."""
    height, width = x.shape[2:]
    return separable(x, _pixelated_matrix(height, share), _pixelated_matrix(width, share))


def correlated(x: Tensor, kernel: Floats) -> Tensor:
    """Correlation with a square kernel of odd side, reflected beyond the border (outermost pixels
    not repeated)."""
    reach = len(kernel) // 2
    padded = _padded(x, reach, reach, reach, "reflect")
    height, width = x.shape[2:]
    total = torch.zeros_like(x)
    # Shifted images, added in a fixed order: the bits of a row depend on nothing else in the batch,
    # as those of a convolution may.
    rows, columns = np.nonzero(np.abs(kernel) > _NEGLIGIBLE)
    for i, j in zip(rows, columns, strict=True):
        shifted = padded[:, :, i : i + height, j : j + width]
        total.add_(shifted, alpha=float(kernel[i, j]))
    return total


def motion_blur(x: Tensor, degrees: Tensor, kernel: Floats) -> Tensor:
    """Mean over the positions of a motion, the border repeated:

        sum_i k_i x[row + ceil(i sin - 1/2), column + ceil(i cos - 1/2)].

    Args:
        x: (n, channels, height, width), or (1, ...) for all angles.
        degrees: between -90 and 90, (n,), float64.
        kernel: k_0 ... k_{m-1}.

    Returns:
        (n, channels, height, width).
    """
    steps = torch.arange(len(kernel), dtype=torch.float64, device=x.device)
    angles = torch.deg2rad(degrees)[:, None]
    row_offsets = torch.ceil(steps * torch.sin(angles) - 0.5)
    column_offsets = torch.ceil(steps * torch.cos(angles) - 0.5)
    offsets = torch.stack((row_offsets, column_offsets), 1).long()  # (n, 2, m)
    if len(x) == 1:
        # Few paths differ in whole pixels, so many draws of one image share theirs.
        paths, path_of_draw = torch.unique(offsets, dim=0, return_inverse=True)
        return _along(x, paths, kernel)[path_of_draw]
    return _along(x, offsets, kernel)


def _along(x: Tensor, offsets: Tensor, kernel: Floats) -> Tensor:
    """sum_i k_i of the pixels at these offsets (n, 2, m) in rows and columns."""
    height, width = x.shape[2:]
    channels = x.shape[1]
    draws = len(offsets)
    # Angles are within +-90 degrees: columns move to the right only, rows both ways.
    reach = len(kernel)
    padded = _padded(x, reach, 0, reach, "edge").flatten(2)  # (n, channels, padded pixels)
    stride = width + reach
    rows = torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device)
    places = (rows[:, None] * stride + columns).flatten()  # (pixels,)
    starts = (offsets[:, 0] + reach) * stride + offsets[:, 1]  # (n, m)
    padded = padded.expand(draws, -1, -1)
    total: Tensor = x.new_zeros(draws, channels, height * width)
    for i, weight in enumerate(kernel):
        index = (places + starts[:, i, None])[:, None].expand_as(total)
        total.add_(padded.gather(2, index), alpha=float(weight))
    return total.view(draws, channels, height, width)


def _padded(x: Tensor, vertical: int, left: int, right: int, edge: Edge) -> Tensor:
    """The images with a border of any width, on CUDA as on the CPU."""
    # torch's own padding refuses reflections wider than the image.
    rows = np.pad(np.arange(x.shape[2]), vertical, mode=edge)
    columns = np.pad(np.arange(x.shape[3]), (left, right), mode=edge)
    row_index = torch.from_numpy(rows).to(x.device)[:, None]
    column_index = torch.from_numpy(columns).to(x.device)
    padded: Tensor = x[:, :, row_index, column_index]
    return padded
