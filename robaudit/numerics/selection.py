"""Which variables compete, that is, are likely enough to fail to matter to an orthant probability?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf

_HELD = 1 << 24  # correlation entries worked on at once
_NARROWER, _NARROW = 0.7, 16  # a row this much narrower than the widest of its group, and by this many, starts another


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


def groups(selection: Selection) -> list[Tensor]:
    """Indices of rows with similar numbers of competing variables, so that little is computed for padding."""
    count, order = selection.kept.clamp_min(1).sort(descending=True, stable=True)
    sizes, widest = count.tolist(), 0
    parts: list[int] = []  # the first place of each group
    for place, size in enumerate(sizes):
        full = bool(parts) and (place - parts[-1] + 1) * widest * widest > _HELD
        if not parts or full or size < min(_NARROWER * widest, widest - _NARROW):
            parts.append(place)
            widest = size
    return [order[first:last] for first, last in zip(parts, [*parts[1:], len(sizes)], strict=True)]


def competing(selection: Selection, correlation: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Limits (rows, n) and correlations (rows, n, n) of the competing variables of some rows, n being the most of any."""
    width = max(int(selection.kept[rows].max()), 1)
    order = selection.order[rows, :width]
    return selection.limit[rows, :width], submatrix(correlation, rows, order)


def submatrix(matrix: Tensor, rows: Tensor, order: Tensor) -> Tensor:
    """Rows and columns `order` (n, m) of matrices `rows` (n,): (n, m, m)."""
    n, m = order.shape
    return matrix[rows.unsqueeze(-1), order].gather(2, order.unsqueeze(1).expand(n, m, m))
