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

# By how much a correlation may leave [-1, 1], and the diagonal 1: products in float32 do.
_ROUNDING = 1e-4
_LOWEST = -37.0  # Phi below it is not a normal float64
# Tolerated error relative to the value, and the smallest tolerance: below p = 2e-6 the relative
# error grows.
_RELATIVE = 0.05
_SMALLEST = 1e-7
# Probabilities above the first and tolerances from the second on are computed in single precision,
# which takes a third of the time.
_COMMON = 1e-2
_FINE = 1e-4
_ROUNDED = 1e-5  # relative error of single precision; 1.2e-6 at most in 1,800 problems
_FIRST = 64  # points per shift in the first round
_HALF_STEPS = 128  # points per shift from which they no longer double in one step
# Rows with a larger slope nearly jump, perhaps between two points: they take more points before
# their error is believed.
_STEEP = 6.0
_FIRST_STEEP = 128
_MOST_ENTRIES = 1 << 24  # correlation entries factored at once: 128 MiB
# Limits of an operation: 512 KiB on the CPU; more on CUDA, where a call costs more than its work.
_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points
_POINTS = {"cpu": 1 << 8, "other": 1 << 12}  # points of a shift
_ALIKE = 0.75  # smallest rank in an operation, relative to the largest, to which all are padded


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
    :func:`~robaudit.methods.average_case.separation.ordered_factor`. On the CPU the integrand is
    computed in float32, with its rounding included in the error, except for p below about .01 and
    tolerances below 1e-4; it is summed in float64. All rows see the same random points, so the
    errors of different rows are *not* independent. On the CPU a row's bits do not depend on the
    other rows or their number.

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
    if isinstance(tolerance, Tensor):
        tolerances = tolerance.to(value)
    else:
        tolerances = torch.full_like(value, tolerance)
    broken = z.isnan().any(-1) | r.isnan().flatten(1).any(-1)
    impossible = (z <= _LOWEST).any(-1)
    # Broken rows become the easiest problem, P = 1, and get their NaN at the end.
    z = torch.where(broken.unsqueeze(-1), torch.inf, z)
    z = z.clamp_min(_LOWEST).contiguous()
    identity = torch.eye(k, dtype=z.dtype, device=z.device)
    r = torch.where(broken[:, None, None], identity, r).contiguous()
    rows_at_once = max(1, _MOST_ENTRIES // (k * k))
    for part in torch.arange(rows, device=z.device).split(rows_at_once):
        factor = ordered_factor(z[part], r[part], truncation)
        value[part], error[part] = _integrate(factor, points, seed, tolerances[part])
    value = value.masked_fill(impossible, 0.0).masked_fill(broken, torch.nan)
    error = error.masked_fill(impossible, 0.0).masked_fill(broken, torch.nan)
    return value, error


def _check(upper: Tensor, correlation: Tensor) -> None:
    if upper.ndim != 2 or correlation.shape != (*upper.shape, upper.shape[1]):
        raise ValueError(
            "mvn_cdf: upper should be (B, k) and correlation (B, k, k), not "
            f"{tuple(upper.shape)} and {tuple(correlation.shape)}"
        )
    values = correlation.detach()
    diagonal = torch.diagonal(values, dim1=1, dim2=2)
    wrong_diagonal = ((diagonal - 1.0).abs() > _ROUNDING).any()
    too_large = (values.abs() > 1.0 + _ROUNDING).any()
    # One number leaves the device, and the host waits once.
    if bool(wrong_diagonal | too_large):
        raise ValueError(
            "mvn_cdf: correlation has a diagonal that is not 1 or an entry beyond +-1; divide by "
            "the standard deviations"
        )


def _integrate(
    factor: OrderedFactor, points: int, seed: int, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """P and its error. Half of the omitted mass shifts the value and widens the error.

    Args:
        factor: the problems, a row each.
        points: most points of a row.
        seed: of the shifts.
        tolerance: of each row (rows,).

    Returns:
        (rows,) each.
    """
    # Rows of rank 0 and 1 keep the estimate, which is exact for them.
    value = factor.estimate.clone()
    error = torch.zeros_like(factor.estimate)
    single = (factor.estimate > _COMMON) & (tolerance >= _FINE)
    # Products of float32 may be rounded to TF32 on CUDA, and float64 is fast there.
    single &= single.device.type == "cpu"
    by_rank = factor.rank.argsort(descending=True, stable=True)  # similar rows are adjacent
    by_rank = by_rank[factor.rank[by_rank] > 1]
    for kind, of_kind in ((torch.float32, single), (torch.float64, ~single)):
        rows = by_rank[of_kind[by_rank]]
        value[rows], error[rows] = _refined(factor, rows, kind, points, seed, tolerance[rows])
    # The omitted limits lower P by at most their mass (Boole): take the middle, half to each side.
    half = 0.5 * factor.omitted
    value = (value - half).clamp(0.0, 1.0)
    error = (error + half).clamp_max(1.0)
    return value, error


def _refined(
    factor: OrderedFactor,
    rows: Tensor,
    kind: torch.dtype,
    points: int,
    seed: int,
    tolerance: Tensor,
) -> tuple[Tensor, Tensor]:
    """The integral of some rows and its error: a row takes more points until it is precise.

    Args:
        factor: the problems.
        rows: indices of rows of rank 2 and more, the widest first.
        kind: dtype of the integrand.
        points: most points of a row.
        seed: of the shifts.
        tolerance: of each of ``rows``.

    Returns:
        (len(rows),) each.
    """
    most = max(points // SHIFTS, 1)
    absolute = 0.99 * tolerance  # the rest is for the omitted mass
    rounding = _ROUNDED if kind == torch.float32 else 0.0
    steep = factor.slope[rows].abs().amax((1, 2)) > _STEEP
    value = factor.estimate[rows]
    error = torch.zeros_like(value)
    unfinished = torch.arange(len(rows), device=rows.device)
    sums = value.new_zeros(len(rows), SHIFTS)
    start = 0
    stop = min(_FIRST, most)
    while len(unfinished) and start < stop:
        sums += _sums(factor, rows[unfinished], kind, seed, start, stop)
        mean, spread = mean_and_error(sums, stop)
        # In a steep row failures may hide between two points: at most the mass of all variables but
        # the first, and at most the share of one point.
        hidden_share = factor.rest[rows[unfinished]].clamp_max(1.0 / (SHIFTS * stop))
        unseen = hidden_share * mean * steep[unfinished]
        spread = WIDENED_THREE * spread + rounding * mean + unseen
        value[unfinished] = mean
        error[unfinished] = spread
        tolerated = torch.minimum(_RELATIVE * mean, absolute[unfinished]).clamp_min(_SMALLEST)
        too_early = steep[unfinished] & (stop < _FIRST_STEEP)
        remaining = ((spread > tolerated) | too_early).nonzero().squeeze(-1)
        unfinished = unfinished[remaining]
        sums = sums[remaining]
        start = stop
        stop = min(_next_stop(stop), most)
    return value, error


def _next_stop(points: int) -> int:
    """Points per shift at the next look: twice as many, and from 128 on half a step at a time."""
    is_power_of_two = points & (points - 1) == 0
    if points < _HALF_STEPS:
        return 2 * points
    # 128, 192, 256, 384, ...: with many variables the error falls slowly, and half a step is often
    # enough.
    return points * 3 // 2 if is_power_of_two else points * 4 // 3


def _sums(
    factor: OrderedFactor, rows: Tensor, kind: torch.dtype, seed: int, start: int, stop: int
) -> Tensor:
    """Sum of the integrand of some rows over points `start` to `stop` of every shift, (rows,
    SHIFTS)."""
    device = "cpu" if rows.device.type == "cpu" else "other"
    sums = factor.estimate.new_zeros(len(rows), SHIFTS)
    for low in range(start, stop, _POINTS[device]):
        high = min(low + _POINTS[device], stop)
        rows_at_once = _ELEMENTS[device] // (SHIFTS * (high - low))
        for piece, width in _pieces(factor.rank[rows].tolist(), rows_at_once):
            chosen = rows[piece]
            u = lattice_points(width, low, high, seed, rows.device).to(kind)
            limit = factor.limit[chosen, :width]
            slope = factor.slope[chosen, :width, :width]
            values, _ = separated_values(limit, slope, u)
            sums[piece] += values.unflatten(1, (SHIFTS, high - low)).sum(-1)
    return sums


def _pieces(ranks: Sequence[int], most: int) -> list[tuple[slice, int]]:
    """Cut rows into pieces of similar rank, each with the rank of its widest row.

    Args:
        ranks: of the rows, descending.
        most: rows of a piece.
    """
    pieces = []
    first = 0
    while first < len(ranks):
        last = first + 1
        end = min(len(ranks), first + most)
        while last < end and ranks[last] >= _ALIKE * ranks[first]:
            last += 1
        pieces.append((slice(first, last), ranks[first]))
        first = last
    return pieces
