"""Upper bounds on how far single layers can stretch a perturbation, in l2 and linf.

Each bound is computed in float64 and then raised by :func:`rounded_up` beyond its own rounding
error, so that it is never below the exact norm of the layer. Power iteration and the norm of a
reshaped kernel are lower bounds, and not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps
# Times the worst case of rounding, (operations) x eps.
_CAUTION = 4.0
# Complex numbers in the symbols of a convolution held at once: 64 MiB.
_ENTRIES = 1 << 22

GELU = 1.1289041452
"""sup |d/dx x Phi(x)| = Phi(sqrt 2) + sqrt(2) phi(sqrt 2) = 1.12890414518..., rounded up; at x =
sqrt 2."""
GELU_TANH = 1.1289930687
"""The same for its tanh approximation, 1.12899306866... at x = 1.41850."""
SILU = 1.0998393202
"""sup |d/dx x / (1 + exp(-x))| = 1.09983932013... at x = 2.39936."""
MISH = 1.0884981613
"""sup |d/dx x tanh(log(1 + exp x))| = 1.08849816125... at x = 1.49058."""


class Norms(NamedTuple):
    """Upper bounds on how far a layer f stretches perturbations.

    Attributes:
        l2: sup |f(x) - f(y)|_2 / |x - y|_2.
        linf: sup |f(x) - f(y)|_inf / |x - y|_inf.
        rows: sup |f(x) - f(y)|_inf / |x - y|_2; for a matrix, the largest l2 norm of a row.
    """

    l2: float
    linf: float
    rows: float

    def times(self, factor: float) -> Norms:
        """The norms of the layer scaled by a factor."""
        size = abs(factor)
        return Norms(size * self.l2, size * self.linf, size * self.rows)


def rounded_up(value: float, operations: float) -> float:
    """An upper bound for the exact value of a number computed in float64 from sums and products
    without cancellation.

    A sum of n products of non-negative numbers has a relative error of at most n eps, and the
    largest singular value of an m x n matrix an error of at most m n eps, also through the Gram
    matrix (|fl(A A^T) - A A^T|_2 <= n eps |A|_F^2 <= n min(m, n) eps |A|_2^2). Four times this
    error is added.

    Args:
        value: at least 0.
        operations: number of terms, or of matrix entries, behind the value.
    """
    return value * (1.0 + _CAUTION * operations * _EPS)


def dense(matrix: Tensor) -> Norms:
    """The norms of y = A x: the largest singular value, and the largest l1 and l2 norm of a row.

    Args:
        matrix: A (..., outputs, inputs); for several matrices, the largest norms.
    """
    a = matrix.detach().double()
    if a.numel() == 0:
        return Norms(0.0, 0.0, 0.0)
    entries = a.shape[-1] * a.shape[-2]
    largest_l1 = float(a.abs().sum(-1).amax())
    largest_l2 = float(a.square().sum(-1).amax().sqrt())
    return Norms(
        l2=rounded_up(_spectral(a), entries),
        linf=rounded_up(largest_l1, entries),
        rows=rounded_up(largest_l2, entries),
    )


def _spectral(a: Tensor) -> float:
    """The largest singular value of matrices (..., m, n), through the smaller Gram matrix."""
    is_wide = a.shape[-2] <= a.shape[-1]
    gram = a @ a.mH if is_wide else a.mH @ a
    eigenvalues = torch.linalg.eigvalsh(gram)  # ascending
    largest = float(eigenvalues[..., -1].amax())
    # That of a zero matrix may be a little below 0 by rounding.
    return math.sqrt(max(0.0, largest))


def convolution(
    weight: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    groups: int = 1,
    transposed: bool = False,
) -> Norms:
    """The norms of a convolution with zero padding in any number of dimensions.

    l2: with zero padding y_o = sum_t w_t x_{s o + t - p} is, on the s^d grids that the stride
    splits its input into (the polyphase components x'_b[m] = x[s m + b - p], each of M = floor((n -
    1 + p) / s) - floor(p / s) + 1 places), an ordinary convolution of stride 1 with ceil(k / s)
    taps. It consists of rows and columns of a circular convolution on M + ceil(k / s) - 1 places,
    which the Fourier transform makes block diagonal: the bound is the largest singular value of a
    block. Without stride there are n + k - 1 places. It is an upper bound for any padding, and
    exact up to border effects.

    Args:
        weight: (out, in / groups, *kernel); for a transposed convolution (in, out / groups,
            *kernel), as in torch.
        size: height and width of the input; for a transposed convolution, of the output.
        stride, padding, dilation: a number for each dimension, or a number for all.
        groups: number of independent blocks of channels.
        transposed: use the adjoint of the convolution with this weight, from its output to its
            input.

    Source: Sedghi, Gupta and Long 2019, The singular values of convolutional layers, for circular
        convolutions; polyphase components: Vaidyanathan 1993, Multirate Systems and Filter Banks,
        chapter 4.
    """
    dims = weight.dim() - 2
    strides = _of_each_dimension(stride, dims)
    paddings = _of_each_dimension(padding, dims)
    dilations = _of_each_dimension(dilation, dims)
    kernel = weight.detach().double()
    entries = float(weight[0].numel() * weight.shape[0])
    phases = _phases(kernel, strides, dilations)
    # Each entry of a symbol is itself a sum over the taps.
    taps_of_phase = max(1, phases[0, 0].numel())
    largest_symbol = _largest_symbol(phases, size, strides, paddings, groups)
    if transposed:
        # A row of the adjoint: an output pixel depends on the taps of one phase, and on all
        # channels of its group.
        channels = weight.shape[0] // groups
        taps = phases.reshape(groups, channels, phases.shape[1], -1)
        sums = taps.abs().sum((1, 3))
        squares = taps.square().sum((1, 3))
    else:
        # A row of the convolution: an output pixel depends on all taps of its channel.
        sums = kernel.flatten(1).abs().sum(1)
        squares = kernel.flatten(1).square().sum(1)
    return Norms(
        l2=rounded_up(largest_symbol, entries * taps_of_phase),
        linf=rounded_up(float(sums.amax()), entries),
        rows=rounded_up(float(squares.amax().sqrt()), entries),
    )


def _of_each_dimension(value: Sequence[int] | int, dims: int) -> list[int]:
    """A number for each dimension, as torch's convolutions take it."""
    return list(value) if isinstance(value, Sequence) else [value] * dims


def _phases(weight: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """The kernel of the stride-1 convolution on the polyphase grids of the input.

    Args:
        weight: (out, in / groups, *kernel).
        stride, dilation: of each dimension.

    Returns:
        (out, in / groups * prod(stride), *taps), taps = ceil(reach / stride).
    """
    channels = weight.shape[:2]
    kernel = weight.shape[2:]
    # Pixels from the first to the last tap.
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    taps = [-(-r // s) for r, s in zip(reach, stride, strict=True)]
    # The kernel with its gaps, and with zeros up to a whole number of strides.
    sides = [t * s for t, s in zip(taps, stride, strict=True)]
    wide = weight.new_zeros(*channels, *sides)
    places = [slice(0, r, d) for r, d in zip(reach, dilation, strict=True)]
    wide[(slice(None), slice(None), *places)] = weight
    # Tap t = s m + b belongs to place m of phase b: each dimension becomes (m, b).
    place_and_phase: list[int] = []
    for t, s in zip(taps, stride, strict=True):
        place_and_phase += [t, s]
    split = wide.reshape(*channels, *place_and_phase)
    # All phases before all places: phases become channels of the input.
    dims = len(kernel)
    phase_dims = [3 + 2 * j for j in range(dims)]
    place_dims = [2 + 2 * j for j in range(dims)]
    phases = split.permute([0, 1, *phase_dims, *place_dims])
    return phases.reshape(weight.shape[0], -1, *taps)


def _largest_symbol(
    phases: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
) -> float:
    """The largest singular value of a stride-1 convolution, made circular.

    It is the largest of its symbols sum_t w_t exp(-i t . frequency), (out, in) matrices.

    Source: Sedghi, Gupta and Long 2019, theorem 6.
    """
    taps = phases.shape[2:]
    # M + ceil(k / s) - 1 places along each dimension, M as in :func:`convolution`: circular
    # convolution then contains the zero-padded one.
    places = [
        (n - 1 + p) // s - p // s + t
        for n, p, s, t in zip(size, padding, stride, taps, strict=True)
    ]
    # (groups, out, in, taps)
    channels = phases.shape[0] // groups
    blocks = phases.reshape(groups, channels, phases.shape[1], -1)
    if math.prod(taps) == 1:
        return _spectral(blocks[..., 0])
    tap_ranges = [torch.arange(t, dtype=torch.float64) for t in taps]
    tap = torch.cartesian_prod(*tap_ranges).reshape(-1, len(taps))  # (taps, dimensions)
    at_once = max(1, _ENTRIES // blocks[..., 0].numel())
    largest = 0.0
    for part in _frequencies(places, at_once):
        phase = part @ tap.T  # (frequencies, taps), in radians
        wave = torch.complex(phase.cos(), -phase.sin()).to(blocks.device)
        symbols = torch.einsum("ft,goit->fgoi", wave, blocks.to(wave.dtype))
        largest = max(largest, _spectral(symbols))
    return largest


def _frequencies(places: Sequence[int], at_once: int) -> Iterator[Tensor]:
    """2 pi j / N of each dimension (frequencies, dimensions), ``at_once`` at a time.

    The kernel is real, so the symbols at a frequency and at its negative are conjugate, with the
    same singular values. Half of the frequencies of the last dimension are enough, therefore.
    """
    counts = [*places[:-1], places[-1] // 2 + 1]
    axes = [
        2 * math.pi * torch.arange(c, dtype=torch.float64) / n
        for c, n in zip(counts, places, strict=True)
    ]
    yield from torch.cartesian_prod(*axes).reshape(-1, len(places)).split(at_once)


def average_windows(
    size: int,
    kernel: int,
    stride: int,
    padding: int,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The matrix of average pooling along one dimension (outputs, size).

    In more dimensions it is the Kronecker product of these. The arguments are torch's.
    """
    # Pooling the unit vectors gives the columns of the matrix.
    unit_vectors = torch.eye(size, dtype=torch.float64).unsqueeze(1)
    columns = F.avg_pool1d(unit_vectors, kernel, stride, padding, ceil_mode, count_include_pad)
    return columns[:, 0].T


def adaptive_windows(size: int, outputs: int) -> Tensor:
    """The matrix of adaptive average pooling along one dimension (outputs, size)."""
    unit_vectors = torch.eye(size, dtype=torch.float64).unsqueeze(1)
    columns = F.adaptive_avg_pool1d(unit_vectors, outputs)
    return columns[:, 0].T


def separable(factors: Sequence[Tensor]) -> Norms:
    """The norms of the Kronecker product of matrices: the product of their norms."""
    norms = [dense(factor) for factor in factors]
    return Norms(
        l2=math.prod(norm.l2 for norm in norms),
        linf=math.prod(norm.linf for norm in norms),
        rows=math.prod(norm.rows for norm in norms),
    )


def largest_of_windows(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Norms:
    """The norms of max pooling: in l2 the square root of the most windows that share a pixel.

    Along a dimension they correspond to the taps t < k with d t = i mod s: at most ceil(k / (s /
    gcd(s, d))), which is ceil(k / s) without dilation. A maximum moves by no more than the largest
    change in its window, which is at most the l2 norm of the changes there.
    """
    windows = []
    for k, s, d in zip(kernel, stride, dilation, strict=True):
        period = s // math.gcd(s, d)
        windows.append(-(-k // period))
    return _of_shared_windows(windows)


def largest_of_adaptive_windows(size: Sequence[int], outputs: Sequence[int]) -> Norms:
    """The norms of adaptive max pooling, by the most windows that share a pixel."""
    windows = []
    for n, o in zip(size, outputs, strict=True):
        in_window = adaptive_windows(n, o) > 0  # (outputs, size)
        windows.append(int(in_window.sum(0).max()))
    return _of_shared_windows(windows)


def _of_shared_windows(windows: Sequence[int]) -> Norms:
    """The norms of max pooling, from the most windows that share a pixel along each dimension."""
    most = math.prod(windows)
    # Without overlap pooling does not stretch at all: exactly 1, without rounding.
    l2 = 1.0 if most == 1 else rounded_up(math.sqrt(most), 1)
    return Norms(l2, 1.0, 1.0)


def differences(matrix: Tensor, order: float) -> Tensor:
    """|a_i - a_j| of the rows of a matrix in l1 or l2 (rows, rows), rounded up.

    Args:
        matrix: (rows, columns), float64.
        order: 1 or 2.
    """
    # By differences of entries: products of matrices would cancel for rows that are nearly equal.
    distances = torch.cdist(matrix, matrix, p=order, compute_mode="donot_use_mm_for_euclid_dist")
    return distances * (1.0 + _CAUTION * matrix.shape[1] * _EPS)
