"""The probability that correlated standard normals all stay below their limits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robaudit.methods.average_case.lattice import (
    SHIFTS,
    WIDENED_THREE,
    lattice_points,
    mean_and_error,
)
from robaudit.methods.average_case.separation import OrderedFactor, ordered_factor, separated_values

_ROUNDING = (
    1e-4  # a correlation may leave [-1, 1], and the diagonal 1, by this much (float32 products)
)
_LOWEST = -37.0  # Phi below it is not a normal float64
# tolerated error relative to the value, and the smallest tolerance
_RELATIVE = 0.05
_SMALLEST = 1e-7
_FIRST = 64  # points per shift in the first round
# rows with a larger slope nearly jump, perhaps between two points; points per shift of their first
# rounds
_STEEP = 6.0
_FIRST_STEEP = 128
_MOST_ENTRIES = 1 << 24  # correlation entries factored at once
_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points of an operation
_POINTS = {"cpu": 1 << 8, "other": 1 << 12}  # most points of a shift in an operation
_ALIKE = 0.75  # rows of an operation have at least this share of the variables of the widest row


def mvn_cdf(
    upper: Tensor,
    correlation: Tensor,
    *,
    points: int = 1 << 15,
    seed: int = 0,
    tolerance: float | Tensor = 1e-3,
    truncation: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Phi_R(z) = P[Z_1 <= z_1, ..., Z_k <= z_k] for Z ~ N(0, R), a problem per row.

    k = 0 and k = 1 are exact. From k = 2 on, Genz's separation of variables, with the smallest
    limit first, is integrated by a randomly shifted lattice rule. Very high limits, which hardly
    ever fail, are left out and bounded by sum Phi(-z_i). The matrix may be singular, with duplicate
    (+1) and opposite (-1) rows: see
    :func:`~robaudit.methods.average_case.separation.ordered_factor`. All rows see the same random
    points, so the errors of different rows are *not* independent. On the CPU a row's bits do not
    depend on the other rows or their number.

    Args:
        upper: limits z, (B, k), floating point, in standard deviations; +-inf allowed.
        correlation: R, (B, k, k), positive semi-definite with unit diagonal (not checked for
            definiteness).
        points: most lattice points per row; rows stop earlier once they are precise.
        seed: seed of the random shifts. The global generator is never used.
        tolerance: tolerated error, a number or a number per row (B,); a row also aims at 5 % of its
            value if that is less.
        truncation: relative to p, the mass sum Phi(-z_i) that may be left out and bounded.

    Returns:
        value (B,) in [0, 1] and error (B,), float64 on the device of `upper`. The error is three
        standard errors (widened to Student's t for the small number of shifts) plus the bound on
        the omitted limits: [value - error, value + error] covers p with about 99.7 %. Rows with a
        NaN give NaN for both.

    Raises:
        ValueError: wrong shapes, or an invalid correlation matrix.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1; Genz and Bretz (2009), Computation of Multivariate
        Normal and t Probabilities.
    """
    _check(upper, correlation)
    z = upper.detach().double()
    r = correlation.detach().double()
    rows, k = z.shape
    value = torch.ones(rows, dtype=z.dtype, device=z.device)
    error = torch.zeros(rows, dtype=z.dtype, device=z.device)
    if k == 0 or rows == 0:
        return value, error
    tolerances = (
        tolerance.to(value) if isinstance(tolerance, Tensor) else torch.full_like(value, tolerance)
    )
    broken = z.isnan().any(-1) | r.isnan().flatten(1).any(-1)
    impossible = (z <= _LOWEST).any(-1)
    z = torch.where(broken.unsqueeze(-1), torch.inf, z).clamp_min(_LOWEST).contiguous()
    r = torch.where(
        broken[:, None, None], torch.eye(k, dtype=z.dtype, device=z.device), r
    ).contiguous()
    for part in torch.arange(rows, device=z.device).split(max(1, _MOST_ENTRIES // (k * k))):
        factor = ordered_factor(z[part], r[part], truncation)
        value[part], error[part] = _integrate(factor, points, seed, tolerances[part])
    value, error = (
        x.masked_fill(impossible, 0.0).masked_fill(broken, torch.nan) for x in (value, error)
    )
    return value, error


def _check(upper: Tensor, correlation: Tensor) -> None:
    if upper.ndim != 2 or correlation.shape != (*upper.shape, upper.shape[1]):
        raise ValueError(
            "mvn_cdf: upper should be (B, k) and correlation (B, k, k), not "
            f"{tuple(upper.shape)} and {tuple(correlation.shape)}"
        )
    diagonal = torch.diagonal(correlation.detach(), dim1=1, dim2=2)
    if bool(
        ((diagonal - 1.0).abs() > _ROUNDING).any()
        | (correlation.detach().abs() > 1.0 + _ROUNDING).any()
    ):
        raise ValueError(
            "mvn_cdf: correlation has a diagonal that is not 1 or an entry beyond +-1; divide by "
            "the standard deviations"
        )


def _integrate(
    factor: OrderedFactor, points: int, seed: int, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """P and its error: a row doubles its points until it is precise. Half of the omitted mass
    shifts the value and widens the error."""
    most = max(points // SHIFTS, 1)
    absolute = 0.99 * tolerance
    steep = factor.slope.abs().amax((1, 2)) > _STEEP
    value = factor.estimate.clone()
    error = torch.zeros_like(factor.estimate)
    left = factor.rank.argsort(descending=True, stable=True)  # similar rows are adjacent
    left = left[factor.rank[left] > 1]
    sums = value.new_zeros(len(left), SHIFTS)
    start = 0
    stop = min(_FIRST, most)
    while len(left) and start < stop:
        sums += _sums(factor, left, seed, start, stop)
        now, spread = mean_and_error(sums, stop)
        unseen = factor.rest[left].clamp_max(1.0 / (SHIFTS * stop)) * now * steep[left]
        spread = WIDENED_THREE * spread + unseen
        value[left] = now
        error[left] = spread
        more = spread > torch.minimum(_RELATIVE * now, absolute[left]).clamp_min(_SMALLEST)
        more = (more | (steep[left] & (stop < _FIRST_STEEP))).nonzero().squeeze(-1)
        left = left[more]
        sums = sums[more]
        start = stop
        stop = min(2 * stop, most)
    half = 0.5 * factor.omitted
    return (value - half).clamp(0.0, 1.0), (error + half).clamp_max(1.0)


def _sums(factor: OrderedFactor, rows: Tensor, seed: int, start: int, stop: int) -> Tensor:
    """Sum of the integrand of some rows over points `start` to `stop` of every shift, (rows,
    SHIFTS)."""
    device = "cpu" if rows.device.type == "cpu" else "other"
    sums = factor.estimate.new_zeros(len(rows), SHIFTS)
    for low in range(start, stop, _POINTS[device]):
        high = min(low + _POINTS[device], stop)
        for piece, width in _pieces(
            factor.rank[rows].tolist(), _ELEMENTS[device] // (SHIFTS * (high - low))
        ):
            chosen = rows[piece]
            u = lattice_points(width, low, high, seed, rows.device)
            values = separated_values(
                factor.limit[chosen, :width], factor.slope[chosen, :width, :width], u
            )
            sums[piece] += values.unflatten(1, (SHIFTS, high - low)).sum(-1)
    return sums


def _pieces(ranks: Sequence[int], most: int) -> list[tuple[slice, int]]:
    """Cut rows sorted by rank into pieces of bounded size and similar rank, each with the rank of
    its widest row."""
    pieces = []
    first = 0
    while first < len(ranks):
        last = first + 1
        while last < min(len(ranks), first + most) and ranks[last] >= _ALIKE * ranks[first]:
            last += 1
        pieces.append((slice(first, last), ranks[first]))
        first = last
    return pieces
