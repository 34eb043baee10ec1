"""Sums, products and linear solves that make the bits of a row independent of the rest of the
batch.

On the CPU, libraries pick their kernels by the number of rows, alignment and position, and each
kernel sums in a different order. Here the numbers of a row depend only on the row, on library
versions and on the number of threads: additions happen in a fixed order, between elements (which
round the same everywhere), and each matrix goes to BLAS or LAPACK in a call of its own. Elementary
functions of torch treat every element the same way, except `pow`, `sigmoid`, `logaddexp` and
`hypot`, whose last bits depend on the position. On CUDA, where a call costs more than the work,
batches stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Bytes of a cache line: the order in which BLAS sums may depend on the offset of a matrix in its
# line.
_LINE = 64


def total(x: Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> Tensor:
    """Sum over a non-empty dimension from the first element to the last, in a dtype: zeros at the
    end change nothing."""
    # A cumulative sum has this order by its definition; sum() may take any.
    return x.cumsum(dim, dtype=dtype).select(dim, -1)


def sums(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Sum over the last of two or more dimensions, in a dtype.

    On the CPU torch sums each contiguous row separately, in an order that depends only on its
    length (given several threads, with at least two rows). Faster than :func:`total`, but zeros at
    the end may change the last bits.
    """
    return x.sum(-1, dtype=dtype)


def lengths(x: Tensor) -> Tensor:
    """The Euclidean norm of each row (rows, *shape): (rows,), float64."""
    return total(x.flatten(1).double().square()).sqrt()


def first_rows(chosen: Tensor, at: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """The first chosen row of each place; an arbitrary row if no row is chosen.

    Args:
        chosen: whether each row is chosen (n,), bool, n >= 1.
        at: the place of each row (n,), ascending.
        places: number of places.

    Returns:
        The rows (places,), int64, and whether the place has a chosen row (places,), bool.
    """
    place = torch.arange(places, device=at.device)
    # Chosen rows up to and including each row. The first row with a given number is chosen.
    chosen_so_far = chosen.cumsum(0)
    begin = torch.searchsorted(at, place)
    chosen_before = torch.where(begin > 0, chosen_so_far[(begin - 1).clamp_min(0)], 0)
    row = torch.searchsorted(chosen_so_far, chosen_before + 1).clamp_max(len(at) - 1)
    # The next chosen row may belong to a later place.
    has_chosen = chosen[row] & (at[row] == place)
    return row, has_chosen


def fold(x: Tensor) -> Tensor:
    """Sum over the non-empty first dimension by adding its second half to its first until one
    element is left; overwrites x."""
    # Halves are added as wholes, so every column has the same order; the rounding error grows with
    # log n only.
    n = x.shape[0]
    while n > 1:
        half = (n + 1) // 2
        x[: n - half].add_(x[half:n])
        n = half
    return x[0]


def mean_over(x: Tensor, dim: int) -> Tensor:
    """Mean over a dimension."""
    return fold(_first(x, dim)) / x.shape[dim]


def variance_over(x: Tensor, dim: int) -> Tensor:
    """Variance over a dimension of n >= 2, with n - 1 degrees of freedom."""
    parts = _first(x, dim)
    mean = fold(parts.clone()) / len(parts)
    centred = parts - mean
    return fold(centred.square_()) / (len(parts) - 1)


def _first(x: Tensor, dim: int) -> Tensor:
    """A copy with this dimension first."""
    return x.movedim(dim, 0).clone(memory_format=torch.contiguous_format)


def hypot(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(a^2 + b^2) without underflow, for a, b >= 0."""
    # Not torch.hypot, whose last bits depend on the position.
    larger = torch.maximum(a, b)
    ratio = torch.where(larger > 0, torch.minimum(a, b) / larger, 0.0)
    return larger * (1.0 + ratio * ratio).sqrt()


def product(a: Tensor, b: Tensor) -> Tensor:
    """a_i b_i of every row i.

    The bits of a row also depend on the shapes: a matrix must have the same zero padding in every
    batch. Differentiable.

    Args:
        a: (rows, n, m), or (n, m) for all rows.
        b: (rows, m, p), of the same type.

    Returns:
        (rows, n, p).
    """
    if a.device.type != "cpu":
        return torch.matmul(a, b)
    rows, _, p = b.shape
    first: Sequence[Tensor]
    if a.ndim == 2:
        # A new tensor starts a cache line.
        first = [a.clone(memory_format=torch.contiguous_format)] * rows
    else:
        first = _aligned_rows(a)
    second = _aligned_rows(b)
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        # Autograd cannot follow products that are written into a tensor.
        return torch.stack([torch.mm(x, y) for x, y in zip(first, second, strict=True)])
    products = _aligned(rows, a.shape[-2], p, b)
    for x, y, z in zip(first, second, products.unbind(), strict=True):
        torch.mm(x, y, out=z)
    return products


def gram(a: Tensor) -> Tensor:
    """a_i a_i' of every row i: (rows, n, m) -> (rows, n, n)."""
    if a.device.type != "cpu":
        return a @ a.transpose(1, 2)
    products = _aligned(len(a), a.shape[1], a.shape[1], a)
    for x, z in zip(_aligned_rows(a), products.unbind(), strict=True):
        torch.mm(x, x.T, out=z)
    return products


def cholesky(a: Tensor) -> tuple[Tensor, Tensor]:
    """Lower factors (rows, n, n) of symmetric matrices, and a code (rows,), not zero where the
    factorisation failed."""
    if a.device.type != "cpu":
        lower, failed = torch.linalg.cholesky_ex(a)
        return lower, failed
    factors = []
    codes = []
    for matrix in a.unbind():
        factor, code = torch.linalg.cholesky_ex(matrix)
        factors.append(factor)
        codes.append(code)
    return torch.stack(factors), torch.stack(codes)


def scaled(rows: Tensor, factors: Tensor) -> Tensor:
    """Every row (rows, ...) times its own factor (rows,), in the dtype of the rows."""
    column = factors.to(rows.dtype).view(-1, *[1] * (rows.ndim - 1))
    multiples: Tensor = rows * column
    return multiples


def cholesky_solve(b: Tensor, lower: Tensor) -> Tensor:
    """x with L_i L_i' x_i = b_i of every row i: (rows, n) and (rows, n, n) -> (rows, n)."""
    column = b.unsqueeze(-1)
    if b.device.type != "cpu":
        solved: Tensor = torch.cholesky_solve(column, lower)
        return solved.squeeze(-1)
    solutions: list[Tensor] = [
        torch.cholesky_solve(x, factor)
        for x, factor in zip(column.unbind(), lower.unbind(), strict=True)
    ]
    return torch.stack(solutions).squeeze(-1)


def diagonal_gram(gradients: Tensor, deviations: Tensor | None = None) -> Tensor:
    """u_i^T diag(d^2) u_j of the gradients u of every image, without a (pixels, pixels) matrix.

    Args:
        gradients: (n, margins, pixels), of any floating dtype.
        deviations: the standard deviations d, (n, pixels) or (1, pixels) for all images. Default:
            1 everywhere.

    Returns:
        (n, margins, margins), float64; on the CPU an image's bits do not depend on the other
        images.
    """
    n, margins, _ = gradients.shape
    grams = gradients.new_empty(n, margins, margins, dtype=torch.float64)
    # On the CPU one image at a time, which bounds the float64 copies.
    step = 1 if gradients.device.type == "cpu" else max(1, n)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        u = gradients[rows].double()
        if deviations is not None:
            d = deviations if len(deviations) == 1 else deviations[rows]
            u = u * d.to(u).unsqueeze(1)
        grams[rows] = gram(u)
    return grams


def _aligned(rows: int, n: int, m: int, like: Tensor) -> Tensor:
    """An empty (rows, n, m) tensor; every row is contiguous and starts a cache line."""
    values_in_line = _LINE // like.element_size()
    lines = -(-n * m // values_in_line)
    padded = like.new_empty(rows, lines * values_in_line)
    matrices: Tensor = padded[:, : n * m].unflatten(1, (n, m))
    return matrices


def _aligned_rows(a: Tensor) -> tuple[Tensor, ...]:
    """The matrices of (rows, n, m), copied unless each is contiguous and starts a cache line."""
    distance = a.stride(0) * a.element_size() if a.shape[0] > 1 else 0
    # Strictly contiguous: even the strides of dimensions of size 1 must match.
    is_contiguous = a.stride()[1:] == (a.shape[2], 1)
    # Both numbers are multiples of a power of two if their bitwise or is.
    starts_lines = (distance | a.data_ptr()) % _LINE == 0
    if not (is_contiguous and starts_lines):
        rows, n, m = a.shape
        a = _aligned(rows, n, m, a).copy_(a)
    return a.unbind()
