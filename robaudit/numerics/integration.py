"""Randomised lattice integration of ordered normal probabilities, refined row by row until each is precise enough."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from robaudit.numerics.ordering import NO_TIE, OrderedFactor
from robaudit.numerics.rowwise import hypot, total
from robaudit.numerics.separation import separated_values
from robaudit.numerics.tilting import minimax_tilt

SHIFTS = 16  # independent randomisations; the standard error comes from their spread

_CACHED = 1 << 16  # most numbers of a set of points kept for the next call

# Generating vector for 2^4 to 2^13 points, found component by component: each entry minimises the largest ratio, over
# the sizes, of the worst-case error to the best one in the Korobov space with product weights 1/j (Cools, Kuo and
# Nuyens 2006, SIAM J. Sci. Comput. 28). Later coordinates continue with odd numbers from the golden ratio.
_BITS = 13
_GENERATOR = (
    1, 3367, 327, 535, 3461, 3331, 2217, 51, 643, 1695, 793, 2771, 2069, 3057, 3155, 3955, 3395, 2957, 3523, 2435, 3831, 417, 1569, 3739,
    1163, 3121, 3587, 1507, 669, 2497, 577, 3089, 4051, 883, 3337, 2993, 2155, 4079, 111, 3893, 761, 1225, 2869, 3275, 2251, 3179, 3861,
    355, 2093, 1689, 1783, 1379, 2031, 1349, 1289, 2931, 3117, 449, 3551, 79, 821, 387, 945, 2313,
)  # fmt: skip
_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points of one operation
_KEPT = 64  # at most this many times as many values of y are kept
_STARTING = {"cpu": 1 << 12, "other": 1 << 18}  # padded elements that cost as much as a variable of another piece
_POINTS = {"cpu": 1 << 8, "other": 1 << 12}  # most points of a shift in one operation
_BELOW_ONE = 1.0 - 2.0**-24  # the largest number below one in single precision
WIDENED_THREE = 3.586  # Student's t for 16 shifts at the level of three standard deviations
_FIRST = 16  # points a shift in the first round
_STEEP, _FIRST_STEEP = 6.0, 64  # rows with a slope beyond this nearly jump somewhere, and need more to see it
_COMMON = 0.05  # below this probability a row is always tilted
_WORSE = 2.0  # a tilt with this many times the relative error of no tilt is dropped
_SEEN = 1e-3  # above it, the plain transformation reliably shows its own spread
_ROUNDED = 1e-5  # relative error of single precision, counted as three standard errors


def shifted_lattice(dimension: int, start: int, stop: int, shifts: Tensor) -> Tensor:
    """Points `start` to `stop` of the lattice sequence under each shift, folded by the baker's transformation.

    The first 2^m points of the sequence are a lattice, for every m, so a run is continued by asking for the next ones.

    Args:
        dimension: number of coordinates d.
        start: index of the first point.
        stop: index after the last one.
        shifts: (shifts, d or more) in [0, 1), float64.

    Returns:
        (d, shifts, stop - start), strictly inside (0, 1), on the device of `shifts`.

    Source:
        Hickernell (2002), in Monte Carlo and Quasi-Monte Carlo Methods 2000, for 1 - |2 x - 1|.
    """
    device = shifts.device
    bits = max(_BITS, (stop - 1).bit_length())
    multiple = (_reversed_bits(bits, device)[start:stop] * _generator(dimension, device).unsqueeze(-1)) & ((1 << bits) - 1)  # (d, points)
    x = multiple.unsqueeze(1).to(shifts.dtype) / (1 << bits) + shifts[:, :dimension].T.unsqueeze(-1)
    return (1.0 - (2.0 * x.frac() - 1.0).abs()).clamp(1e-15, 1.0 - 1e-15)


def lattice_points(dimension: int, start: int, stop: int, seed: int, device: torch.device) -> Tensor:
    """Points `start` to `stop` of each of the `SHIFTS` shifts of a seed, (d, shifts * points); not to be changed."""
    small = dimension * (stop - start) * SHIFTS <= _CACHED
    return _kept_points(dimension, start, stop, seed, device) if small else _points(dimension, start, stop, seed, device)


def _points(dimension: int, start: int, stop: int, seed: int, device: torch.device) -> Tensor:
    return shifted_lattice(dimension, start, stop, random_shifts(dimension, SHIFTS, seed, device)).flatten(1)


_kept_points = lru_cache(maxsize=16)(_points)


def mean_and_error(sums: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Mean over the points of each shift and over the shifts, and its standard error: (rows, shifts) -> (rows,) each."""
    means = sums / points
    value = total(means) / SHIFTS
    spread = total((means - value.unsqueeze(-1)).square()) / (SHIFTS - 1)
    return value, (spread / SHIFTS).sqrt()


def random_shifts(dimension: int, count: int, seed: int, device: torch.device) -> Tensor:
    """`count` uniform shifts (count, dimension) from a separate generator; a prefix does not depend on `dimension`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(dimension, count, generator=generator, dtype=torch.float64).T.to(device)


@lru_cache(maxsize=8)
def _reversed_bits(bits: int, device: torch.device) -> Tensor:
    """0 to 2^bits - 1 with their binary digits in reverse."""
    index = torch.arange(1 << bits, device=device)
    reverse = torch.zeros_like(index)
    for bit in range(bits):
        reverse |= ((index >> bit) & 1) << (bits - 1 - bit)
    return reverse


@lru_cache(maxsize=64)
def _generator(dimension: int, device: torch.device) -> Tensor:
    head = torch.tensor(_GENERATOR[:dimension], device=device, dtype=torch.int64)
    later = torch.arange(len(_GENERATOR), max(dimension, len(_GENERATOR)), device=device, dtype=torch.float64)
    tail = ((later * 0.6180339887498949).frac() * (1 << (_BITS - 1))).long() | 1
    return torch.cat([head, tail])


def _sums(factor: OrderedFactor, tilt: Tensor | None, seed: int, start: int, stop: int) -> Tensor:
    """Sum of the integrand over points `start` to `stop` of every shift.

    Args:
        factor: rows in the order of `_sorting`.
        tilt: (rows, width); None for the plain transformation.
        seed: of the shifts.
        start: first lattice point.
        stop: one after the last.

    Returns:
        (rows, shifts), float64.
    """
    count, width = factor.limit.shape
    device = factor.limit.device
    step = _POINTS["cpu" if device.type == "cpu" else "other"]
    total = torch.zeros(count, SHIFTS, dtype=torch.float64, device=device)
    for low in range(start, stop, step):
        high = min(low + step, stop)
        exact = lattice_points(width, low, high, seed, device)  # (width, shifts * points)
        row = 0
        for piece, kind in _pieces(factor, exact.shape[1]):
            rows, rank = piece.limit.shape
            u = exact[:rank].to(kind) if kind == torch.float64 else exact[:rank].to(kind).clamp_max_(_BELOW_ONE)
            values = separated_values(piece, None if tilt is None else tilt[row : row + rows, :rank], u)
            total[row : row + rows] += values.unflatten(1, (SHIFTS, high - low)).sum(-1)
            row += rows
    return total


def _sorting(factor: OrderedFactor) -> Tensor:
    """The order of rows in which those of one precision and of similar rank are adjacent."""
    return (factor.rank + factor.single * (factor.limit.shape[1] + 1)).argsort(descending=True, stable=True)


def _pieces(factor: OrderedFactor, points: int) -> list[tuple[OrderedFactor, torch.dtype]]:
    """Cut a sorted factor into pieces of one precision and bounded size, each as narrow as its widest row."""
    device = "cpu" if factor.limit.device.type == "cpu" else "other"
    rank, single = torch.stack([factor.rank, factor.single.long()]).tolist()
    cut, first = [], 0
    while first < len(rank):
        width = max(rank[first], 1)
        most = first + max(1, min(_ELEMENTS[device] // points, _ELEMENTS[device] * _KEPT // (points * width)))
        last, padded = first + 1, 0
        while last < min(most, len(rank)) and single[last] == single[first]:
            padded += points * (width - rank[last])
            if padded > _STARTING[device] * rank[last]:
                break
            last += 1
        piece = _some_rows(factor, slice(first, last))
        narrow = piece._replace(
            limit=piece.limit[:, :width],
            slope=piece.slope[:, :width, :width],
            tie_slope=piece.tie_slope[:, :, :width],
        )
        cut.append((narrow, torch.float32 if single[first] else torch.float64))
        first = last
    return cut


def _some_rows(factor: OrderedFactor, index: Tensor | slice) -> OrderedFactor:
    """The same for some of the rows."""
    return OrderedFactor(*(field[index] for field in factor))


def integrate(
    factor: OrderedFactor, estimate: Tensor, correction: Tensor, *, points: int, seed: int, absolute: float, relative: float
) -> tuple[Tensor, Tensor]:
    """Randomised lattice estimate of P[C y <= limits], refined row by row until it is good enough.

    Every row sees the same points in the same order and stops by its own values alone. Rows that look common start with
    `SHIFTS` x 16 points of the plain transformation. A row that is rare or not yet precise starts (again) with the
    minimax tilt, doubling the points until `WIDENED_THREE` standard errors are at most min(absolute, relative * value)
    or `points` are used. Where limits nearly meet or jump, a tilt can be worse than none, so such a row is tried without one
    first, and a tilt that proves worse is dropped.

    Args:
        factor: ordered problems.
        estimate: rough probabilities, (rows,); they decide the method, not the value.
        correction: what is going to be subtracted and its standard error, (rows, 2); precision is of the difference.
        points: largest number of points of a row, over all shifts.
        seed: seed of the shifts.
        absolute: wanted error (`WIDENED_THREE` standard errors).
        relative: the same relative to the value.

    Returns:
        The difference and its standard error, (rows,) each.
    """
    most = max(points // SHIFTS, 1)
    order = _sorting(factor)
    factor, correction, estimate = _some_rows(factor, order), correction[order], estimate[order]
    steep = _steep(factor)
    open_ = factor.rank > 0
    value, error = (~open_).to(estimate.dtype) - correction[:, 0], correction[:, 1].clone()
    plain = torch.zeros(len(order), SHIFTS, dtype=torch.float64, device=value.device)  # zero has infinite doubt
    tied = (factor.tie_level < NO_TIE).any(-1)
    tried = (open_ & (steep | tied | (estimate > _COMMON))).nonzero().squeeze(-1)
    stop = min(_FIRST, most)
    if len(tried):
        plain[tried] = _sums(_some_rows(factor, tried), None, seed, 0, stop)
        now, spread = _summarise(plain[tried], stop, correction[tried], factor.single[tried])
        value[tried], error[tried] = now, spread
        good = _precise(now, spread, absolute, relative) & (now > _COMMON) & ~steep[tried]
        open_[tried] = ~good
    left = open_.nonzero().squeeze(-1)
    tilt, total, start = torch.empty(0), torch.empty(0), 0
    while left.numel() and start < stop:
        part = _some_rows(factor, left)
        if start == 0:
            tilt = minimax_tilt(part)
            total = torch.zeros_like(plain[left])
        total = total + _sums(part, tilt, seed, start, stop)
        if start == 0:
            worse = (value[left] > _SEEN) & (_doubt(total, stop) > _WORSE * _doubt(plain[left], stop))
            worse = worse.nonzero().squeeze(-1)
            if len(worse):
                tilt[worse], total[worse] = 0.0, plain[left[worse]]
        now, spread = _summarise(total, stop, correction[left], part.single)
        value[left], error[left] = now, spread
        keep = ~_precise(now, spread, absolute, relative) | (steep[left] & (stop < _FIRST_STEEP))
        keep = keep.nonzero().squeeze(-1)
        left, tilt, total = left[keep], tilt[keep], total[keep]
        start, stop = stop, min((4 if start == 0 else 2) * stop, most)
    back = order.argsort()
    return value[back], error[back]


def _doubt(total: Tensor, points: int) -> Tensor:
    """Relative standard error; infinite where the sum is zero."""
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
