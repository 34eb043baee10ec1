"""Which variables compete, that is, are likely enough to fail to matter to an orthant probability?"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf

_HELD = 1 << 24  # correlation entries worked on at once
_NARROW, _STEPS = 16, 4  # widths are multiples of 16 up to 64, and from there grow by sqrt 2


class Selection(NamedTuple):
    """Variables of each row by rising limit, of which the first `kept` compete."""

    limit: Tensor  # (rows, k), +inf where a variable does not compete
    order: Tensor  # (rows, k), int64
    kept: Tensor  # (rows,), int64
    dropped: Tensor  # (rows,), sum of Phi(-z_i) over those that do not


def competitive(upper: Tensor, budget: Tensor, keep: int | None) -> Selection:
    """Sort each row by rising limit and drop the variables whose union bound fits the budget.

    The probability p of all variables and that of the kept ones, q, satisfy q - sum_dropped Phi(-z_i) <= p <= q.

    Args:
        upper: limits (rows, k), float64.
        budget: (rows,), largest sum of Phi(-z_i) to drop.
        keep: largest number of variables to keep, whatever the sum; None for no limit.

    Returns:
        The selection.
    """
    k = upper.shape[1]
    limit, order = upper.sort(dim=-1, stable=True)
    from_here = normal_cdf(-limit).flip(-1).cumsum(-1).flip(-1)  # (rows, k): mass of a variable and all after it
    count = (from_here > budget.unsqueeze(-1)).sum(-1)
    if keep is not None:
        count = count.clamp_max(keep)
    dropped = torch.nn.functional.pad(from_here, (0, 1)).gather(1, count.unsqueeze(-1)).squeeze(-1)
    limit = torch.where(torch.arange(k, device=upper.device) < count.unsqueeze(-1), limit, torch.inf)
    return Selection(limit, order, count, dropped)


def groups(selection: Selection) -> list[tuple[Tensor, int]]:
    """Indices of rows of one :func:`width_of`, and that width: a row's padding does not depend on the others, and is never large."""
    k = selection.limit.shape[1]
    by_width: dict[int, list[int]] = {}
    for row, kept in enumerate(selection.kept.tolist()):
        by_width.setdefault(min(width_of(kept), k), []).append(row)
    found = []
    for width, rows in sorted(by_width.items(), reverse=True):
        index = torch.tensor(rows, device=selection.limit.device)
        found += [(part, width) for part in index.split(max(1, _HELD // (width * width)))]
    return found


def width_of(kept: int) -> int:
    """The number of variables, rounded up to one of 16, 32, 48, 64, 90, 128, 181, 256, ..."""
    if kept <= _STEPS * _NARROW:
        return max(1, -(-kept // _NARROW)) * _NARROW
    doublings = 0.5 * math.ceil(2 * math.log2(kept / (_STEPS * _NARROW)))
    return int(_STEPS * _NARROW * 2**doublings)


def competing(selection: Selection, correlation: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` lowest limits (rows, width) of some rows, and their correlations (rows, width, width)."""
    return selection.limit[rows, :width], submatrix(correlation, rows, selection.order[rows, :width])


def submatrix(matrix: Tensor, rows: Tensor, order: Tensor) -> Tensor:
    """Rows and columns `order` (n, m) of matrices `rows` (n,): (n, m, m)."""
    n, m = order.shape
    return matrix[rows.unsqueeze(-1), order].gather(2, order.unsqueeze(1).expand(n, m, m))
