"""How many lattice points does each ordered normal probability need, and what do they give?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.lattice import random_shifts, shifted_lattice
from robaudit.numerics.separation import separated_values
from robaudit.numerics.tilting import minimax_tilt

SHIFTS = 16  # independent randomisations; the standard error comes from their spread
WIDENED_THREE = 3.586  # Student's t for 16 shifts at the level of three standard deviations
_FIRST = 16  # points a shift in the first, untilted round
_STEEP, _FIRST_STEEP = 6.0, 64  # rows with a slope beyond this nearly jump somewhere, and need more to see it
_COMMON = 0.05  # below this probability a row is always tilted
_WORSE = 2.0  # a tilt with this many times the relative error of no tilt is dropped
_SEEN = 1e-3  # above it the plain transformation can be trusted to show its own spread
_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points of one operation
_HELD = 64  # at most this many times as many values of y are kept


def integrate(
    factor: OrderedFactor, correction: Tensor, *, points: int, seed: int, absolute: float, relative: float
) -> tuple[Tensor, Tensor]:
    """Randomised lattice estimate of P[C y <= limits], refined row by row until it is good enough.

    Every row sees the same points in the same order and stops by its own values alone: first `SHIFTS` x 16 points of
    the plain transformation; a row that is rare or not yet precise starts again with the minimax tilt (unless that
    proves worse, as it can where opposite limits nearly meet), doubling the points until `WIDENED_THREE` standard
    errors are at most min(absolute, relative * value) or `points` are used.

    Args:
        factor: ordered problems.
        correction: what is going to be subtracted and its standard error, (rows, 2); precision is of the difference.
        points: largest number of points of a row, over all shifts.
        seed: seed of the shifts.
        absolute: wanted error (`WIDENED_THREE` standard errors).
        relative: the same relative to the value.

    Returns:
        The difference and its standard error, (rows,) each.
    """
    width = factor.limit.shape[1]
    shifts = random_shifts(width, SHIFTS, seed, factor.limit.device)
    most = max(points // SHIFTS, 1)
    order = factor.rank.argsort(descending=True, stable=True)  # rows of like rank share a chunk
    sorted_factor = _rows(factor, order)
    correction = correction[order]
    # Only a row whose value is not small keeps this round, so the tails need no care.
    plain = _sums(sorted_factor, torch.zeros_like(sorted_factor.limit), shifts, 0, min(_FIRST, most), tails=False)
    value, error = _summarise(plain, min(_FIRST, most), correction)
    done = _precise(value, error, absolute, relative) & (value > _COMMON) & ~_steep(sorted_factor)
    left = (~done & (sorted_factor.rank > 0)).nonzero().squeeze(-1)
    tilt, total = torch.empty(0), torch.empty(0)
    start, stop = 0, min(_FIRST, most)
    while left.numel() and start < stop:
        part = _rows(sorted_factor, left)
        if start == 0:
            tilt = torch.cat([_pad(minimax_tilt(piece), width) for piece in _chunks(part, 1)])
            total = torch.zeros(len(left), SHIFTS, dtype=value.dtype, device=value.device)
        total = total + _sums(part, tilt, shifts, start, stop)
        if start == 0:
            worse = (value[left] > _SEEN) & (_doubt(total, stop) > _WORSE * _doubt(plain[left], stop))
            worse = worse.nonzero().squeeze(-1)
            if len(worse):
                tilt[worse] = 0.0
                total[worse] = _sums(_rows(part, worse), tilt[worse], shifts, start, stop)
        now, spread = _summarise(total, stop, correction[left])
        value[left], error[left] = now, spread
        keep = ~_precise(now, spread, absolute, relative) | (_steep(part) & (stop < _FIRST_STEEP))
        left, tilt, total = left[keep], tilt[keep], total[keep]
        start, stop = stop, min(2 * stop, most)
    back = order.argsort()
    return value[back], error[back]


def _sums(factor: OrderedFactor, tilt: Tensor, shifts: Tensor, start: int, stop: int, *, tails: bool = True) -> Tensor:
    """Sum of the integrand over points `start` to `stop` of every shift: (rows, shifts)."""
    budget = _ELEMENTS["cpu" if factor.limit.device.type == "cpu" else "other"]
    width = factor.limit.shape[1]
    slice_points = max(1, min(stop - start, budget // SHIFTS, budget * _HELD // (SHIFTS * max(width, 1))))
    total = torch.zeros(len(factor.limit), SHIFTS, dtype=factor.limit.dtype, device=factor.limit.device)
    for low in range(start, stop, slice_points):
        high = min(low + slice_points, stop)
        u = shifted_lattice(width, low, high, shifts).flatten(1)  # (width, shifts * points)
        row = 0
        for piece in _chunks(factor, u.shape[1]):
            count, rank = piece.limit.shape
            values = separated_values(piece, tilt[row : row + count, :rank], u, tails=tails)
            total[row : row + count] += values.unflatten(1, (SHIFTS, high - low)).sum(-1)
            row += count
    return total


def _chunks(factor: OrderedFactor, points: int) -> list[OrderedFactor]:
    """Cut a factor sorted by falling rank into pieces of bounded size, each as narrow as its widest row."""
    budget = _ELEMENTS["cpu" if factor.limit.device.type == "cpu" else "other"]
    rank = factor.rank.tolist()
    pieces, first = [], 0
    while first < len(rank):
        width = max(rank[first], 1)
        last = first + max(1, min(budget // points, budget * _HELD // (points * width)))
        piece = _rows(factor, slice(first, last))
        pieces.append(
            piece._replace(
                limit=piece.limit[:, :width],
                slope=piece.slope[:, :width, :width],
                tie_slope=piece.tie_slope[:, :, :width],
            )
        )
        first = last
    return pieces


def _doubt(total: Tensor, points: int) -> Tensor:
    """Relative standard error; infinite where nothing was found."""
    value, error = _summarise(total, points, torch.zeros(len(total), 2, dtype=total.dtype, device=total.device))
    return torch.where(value > 0, error / value, torch.inf)


def _steep(factor: OrderedFactor) -> Tensor:
    steepest = torch.cat([factor.slope, factor.tie_slope], dim=1).abs().flatten(1)
    return torch.nn.functional.pad(steepest, (0, 1)).amax(-1) > _STEEP


def _rows(factor: OrderedFactor, index: Tensor | slice) -> OrderedFactor:
    return OrderedFactor(*(field[index] for field in factor))


def _pad(tilt: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(tilt, (0, width - tilt.shape[1]))


def _summarise(total: Tensor, points: int, correction: Tensor) -> tuple[Tensor, Tensor]:
    means = total / points
    return means.mean(-1) - correction[:, 0], torch.hypot(means.std(-1) / SHIFTS**0.5, correction[:, 1])


def _precise(value: Tensor, error: Tensor, absolute: float, relative: float) -> Tensor:
    return WIDENED_THREE * error <= torch.clamp_max(relative * value, absolute)
