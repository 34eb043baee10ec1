"""How many lattice points does each ordered normal probability need, and what do they give?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.factor import NO_TIE, OrderedFactor
from robaudit.numerics.lattice import SHIFTS, mean_and_error
from robaudit.numerics.rowwise import hypot
from robaudit.numerics.summation import some_rows, sorting, sums
from robaudit.numerics.tilting import minimax_tilt

WIDENED_THREE = 3.586  # Student's t for 16 shifts at the level of three standard deviations
_FIRST = 16  # points a shift in the first round
_STEEP, _FIRST_STEEP = 6.0, 64  # rows with a slope beyond this nearly jump somewhere, and need more to see it
_COMMON = 0.05  # below this probability a row is always tilted
_WORSE = 2.0  # a tilt with this many times the relative error of no tilt is dropped
_SEEN = 1e-3  # above it the plain transformation can be trusted to show its own spread
_ROUNDED = 1e-5  # relative error of single precision, counted as three standard errors


def integrate(
    factor: OrderedFactor, estimate: Tensor, correction: Tensor, *, points: int, seed: int, absolute: float, relative: float
) -> tuple[Tensor, Tensor]:
    """Randomised lattice estimate of P[C y <= limits], refined row by row until it is good enough.

    Every row sees the same points in the same order and stops by its own values alone. Rows that look common start with
    `SHIFTS` x 16 points of the plain transformation. A row that is rare or not yet precise starts (again) with the
    minimax tilt, doubling the points until `WIDENED_THREE` standard errors are at most min(absolute, relative * value)
    or `points` are used. Where limits nearly meet or jump a tilt can be worse than none, so such a row is tried without
    first, and a tilt that proves worse is dropped.

    Args:
        factor: ordered problems.
        estimate: rough probabilities, (rows,); they decide the way, not the value.
        correction: what is going to be subtracted and its standard error, (rows, 2); precision is of the difference.
        points: largest number of points of a row, over all shifts.
        seed: seed of the shifts.
        absolute: wanted error (`WIDENED_THREE` standard errors).
        relative: the same relative to the value.

    Returns:
        The difference and its standard error, (rows,) each.
    """
    most = max(points // SHIFTS, 1)
    order = sorting(factor)
    factor, correction, estimate = some_rows(factor, order), correction[order], estimate[order]
    steep = _steep(factor)
    open_ = factor.rank > 0
    value, error = (~open_).to(estimate.dtype) - correction[:, 0], correction[:, 1].clone()
    plain = torch.zeros(len(order), SHIFTS, dtype=torch.float64, device=value.device)  # zero has infinite doubt
    tied = (factor.tie_level < NO_TIE).any(-1)
    tried = (open_ & (steep | tied | (estimate > _COMMON))).nonzero().squeeze(-1)
    stop = min(_FIRST, most)
    if len(tried):
        plain[tried] = sums(some_rows(factor, tried), None, seed, 0, stop)
        now, spread = _summarise(plain[tried], stop, correction[tried], factor.single[tried])
        value[tried], error[tried] = now, spread
        good = _precise(now, spread, absolute, relative) & (now > _COMMON) & ~steep[tried]
        open_[tried[good]] = False
    left = open_.nonzero().squeeze(-1)
    tilt, total, start = torch.empty(0), torch.empty(0), 0
    while left.numel() and start < stop:
        part = some_rows(factor, left)
        if start == 0:
            tilt = minimax_tilt(part)
            total = torch.zeros_like(plain[left])
        total = total + sums(part, tilt, seed, start, stop)
        if start == 0:
            worse = (value[left] > _SEEN) & (_doubt(total, stop) > _WORSE * _doubt(plain[left], stop))
            worse = worse.nonzero().squeeze(-1)
            if len(worse):
                tilt[worse], total[worse] = 0.0, plain[left[worse]]
        now, spread = _summarise(total, stop, correction[left], part.single)
        value[left], error[left] = now, spread
        keep = ~_precise(now, spread, absolute, relative) | (steep[left] & (stop < _FIRST_STEEP))
        left, tilt, total = left[keep], tilt[keep], total[keep]
        start, stop = stop, min((4 if start == 0 else 2) * stop, most)
    back = order.argsort()
    return value[back], error[back]


def _doubt(total: Tensor, points: int) -> Tensor:
    """Relative standard error; infinite where nothing was found."""
    value, error = mean_and_error(total, points)
    return torch.where(value > 0, error / value, torch.inf)


def _steep(factor: OrderedFactor) -> Tensor:
    steepest = torch.zeros(len(factor.limit), dtype=factor.limit.dtype, device=factor.limit.device)
    for slope in (factor.slope, factor.tie_slope):
        if slope.shape[1]:
            steepest = torch.maximum(steepest, torch.linalg.vector_norm(slope, math.inf, dim=(1, 2)))
    return steepest > _STEEP


def _summarise(total: Tensor, points: int, correction: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
    value, error = mean_and_error(total, points)
    rounding = single * value * (_ROUNDED / WIDENED_THREE)
    return value - correction[:, 0], hypot(error, correction[:, 1]) + rounding


def _precise(value: Tensor, error: Tensor, absolute: float, relative: float) -> Tensor:
    return WIDENED_THREE * error <= torch.clamp_max(relative * value, absolute)
