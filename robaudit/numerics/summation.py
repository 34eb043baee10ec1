"""What do the integrands of many ordered normal probabilities sum to over a range of lattice points?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.lattice import SHIFTS, lattice_points
from robaudit.numerics.separation import separated_values

_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points of one operation
_HELD = 64  # at most this many times as many values of y are kept
_STARTING = {"cpu": 1 << 12, "other": 1 << 18}  # padded elements that cost as much as a variable of another piece
_POINTS = {"cpu": 1 << 8, "other": 1 << 12}  # most points of a shift in one operation
_BELOW_ONE = 1.0 - 2.0**-24  # the largest number below one in single precision


def sums(factor: OrderedFactor, tilt: Tensor | None, seed: int, start: int, stop: int) -> Tensor:
    """Sum of the integrand over points `start` to `stop` of every shift.

    Args:
        factor: rows in the order of `sorting`.
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
        for piece in pieces(factor, exact.shape[1]):
            rows, rank = piece.limit.shape
            kind = torch.float32 if bool(piece.single[0]) else torch.float64
            u = exact[:rank].to(kind) if kind == torch.float64 else exact[:rank].to(kind).clamp_max_(_BELOW_ONE)
            values = separated_values(piece, None if tilt is None else tilt[row : row + rows, :rank], u)
            total[row : row + rows] += values.unflatten(1, (SHIFTS, high - low)).sum(-1)
            row += rows
    return total


def sorting(factor: OrderedFactor) -> Tensor:
    """The order of rows in which those of one precision and of similar rank are adjacent."""
    return (factor.rank + factor.single * (factor.limit.shape[1] + 1)).argsort(descending=True, stable=True)


def pieces(factor: OrderedFactor, points: int) -> list[OrderedFactor]:
    """Cut a sorted factor into pieces of one precision and bounded size, each as narrow as its widest row."""
    device = "cpu" if factor.limit.device.type == "cpu" else "other"
    rank, single = factor.rank.tolist(), factor.single.tolist()
    cut, first = [], 0
    while first < len(rank):
        width = max(rank[first], 1)
        most = first + max(1, min(_ELEMENTS[device] // points, _ELEMENTS[device] * _HELD // (points * width)))
        last, padded = first + 1, 0
        while last < min(most, len(rank)) and single[last] == single[first]:
            padded += points * (width - rank[last])
            if padded > _STARTING[device] * rank[last]:
                break
            last += 1
        piece = some_rows(factor, slice(first, last))
        cut.append(
            piece._replace(
                limit=piece.limit[:, :width],
                slope=piece.slope[:, :width, :width],
                tie_slope=piece.tie_slope[:, :, :width],
            )
        )
        first = last
    return cut


def some_rows(factor: OrderedFactor, index: Tensor | slice) -> OrderedFactor:
    """The same for some of the rows."""
    return OrderedFactor(*(field[index] for field in factor))
