"""What do the integrands of many ordered normal probabilities sum to over a range of lattice points?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.lattice import shifted_lattice
from robaudit.numerics.separation import separated_values

_ELEMENTS = {"cpu": 1 << 16, "other": 1 << 22}  # rows x points of one operation
_HELD = 64  # at most this many times as many values of y are kept
_STARTING = {"cpu": 1 << 12, "other": 1 << 18}  # padded elements that cost as much as a variable of another piece
_BELOW_ONE = 1.0 - 2.0**-24  # the largest number below one in single precision


def sums(factor: OrderedFactor, tilt: Tensor | None, shifts: Tensor, start: int, stop: int) -> Tensor:
    """Sum of the integrand over points `start` to `stop` of every shift.

    Args:
        factor: rows in the order of `sorting`.
        tilt: (rows, width); None for the plain transformation.
        shifts: (shifts, width or more), float64.
        start: first lattice point.
        stop: one after the last.

    Returns:
        (rows, shifts), float64.
    """
    budget = _ELEMENTS["cpu" if factor.limit.device.type == "cpu" else "other"]
    count, width = len(shifts), factor.limit.shape[1]
    step = max(1, min(stop - start, budget // count, budget * _HELD // (count * max(width, 1))))
    total = torch.zeros(len(factor.limit), count, dtype=torch.float64, device=shifts.device)
    for low in range(start, stop, step):
        high = min(low + step, stop)
        exact = shifted_lattice(width, low, high, shifts).flatten(1)  # (width, shifts * points)
        row = 0
        for piece in pieces(factor, exact.shape[1]):
            rows, rank = piece.limit.shape
            kind = torch.float32 if bool(piece.single[0]) else torch.float64
            u = exact[:rank].to(kind) if kind == torch.float64 else exact[:rank].to(kind).clamp_max_(_BELOW_ONE)
            values = separated_values(piece, None if tilt is None else tilt[row : row + rows, :rank], u)
            total[row : row + rows] += values.unflatten(1, (count, high - low)).sum(-1)
            row += rows
    return total


def sorting(factor: OrderedFactor) -> Tensor:
    """The order of rows in which those of one precision and of like rank stand together."""
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
