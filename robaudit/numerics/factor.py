"""Which variables are integrated exactly, which only corrected for, and what does the ordered factor look like?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.ordering import Pivoting


class OrderedFactor(NamedTuple):
    """P[C y <= limits] for independent standard normal y, variables in the order of integration.

    Row i of the triangular part reads `y_i <= limit_i - sum_{j<i} slope_ij y_j`. A tie, a variable without variance of
    its own, bounds the y of its level from above (side +1) or from below (side -1) in the same way.
    """

    limit: Tensor  # (rows, width), limits over the conditional standard deviation; +inf beyond the rank
    slope: Tensor  # (rows, width, width), strictly lower triangular
    tie_limit: Tensor  # (rows, ties)
    tie_slope: Tensor  # (rows, ties, width), zero from the level on
    tie_level: Tensor  # (rows, ties), int64; k where there is no tie
    tie_side: Tensor  # (rows, ties), +-1
    rank: Tensor  # (rows,), int64: number of variables with variance of their own


def split_rare(pivoting: Pivoting, tolerance: float, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Set apart variables so unlikely to fail that their failure is cheaper to estimate on its own.

    Going up from the least likely to fail, variables are eligible as long as the sum of Phi(-upper) stays below
    `limit`. Only those the others do not depend on (the last pivots, and ties) can leave the integration.

    Args:
        pivoting: of all variables, (rows, k).
        tolerance: conditional variance taken as zero.
        limit: (rows,), largest mass set apart.

    Returns:
        `rare` (rows, k), bool, and the rank (rows,) of what remains to integrate.
    """
    k = pivoting.step.shape[1]
    ascending, order = pivoting.failure.sort(dim=-1, stable=True)
    eligible = torch.zeros_like(pivoting.tie).scatter(1, order, ascending.cumsum(-1) <= limit.unsqueeze(-1))
    is_pivot = pivoting.step < k
    needs = torch.where(is_pivot, pivoting.step, tie_levels(pivoting, tolerance)) + 1
    rank = torch.where((is_pivot | pivoting.tie) & ~eligible, needs, 0).amax(-1)
    return eligible & (pivoting.tie | (is_pivot & (pivoting.step >= rank.unsqueeze(-1)))), rank


def tie_levels(pivoting: Pivoting, tolerance: float) -> Tensor:
    """Last pivot step a variable depends on: (rows, k)."""
    steps = torch.arange(pivoting.columns.shape[1], device=pivoting.step.device).unsqueeze(-1)
    if not len(steps):
        return torch.zeros_like(pivoting.step)
    reached: Tensor = (pivoting.columns.abs() > tolerance**0.5) * steps  # (rows, pivot, variable)
    return reached.amax(1)


def arrange(upper: Tensor, pivoting: Pivoting, rank: Tensor, tie: Tensor, tolerance: float) -> OrderedFactor:
    """Bring the first `rank` pivots and the given ties into the order of integration.

    Args:
        upper: limits (rows, k).
        pivoting: of the same rows.
        rank: (rows,), number of leading pivots to integrate.
        tie: (rows, k), bool, ties to respect; each depends on those pivots only.
        tolerance: conditional variance taken as zero.

    Returns:
        The ordered factor, as wide as the largest rank.
    """
    k = upper.shape[1]
    width, ties = int(rank.max()), int(tie.sum(-1).max())
    position = torch.arange(k, device=upper.device)
    order = pivoting.step.sort(dim=-1, stable=True).indices[:, :width]
    is_pivot = position[:width] < rank.unsqueeze(-1)
    columns = pivoting.columns[:, :width]
    factor = torch.take_along_dim(columns, order.unsqueeze(1), dim=2).transpose(1, 2)  # (rows, variable, pivot)
    scale = torch.where(is_pivot, torch.diagonal(factor, dim1=1, dim2=2), 1.0)
    limit = torch.where(is_pivot, torch.take_along_dim(upper, order, dim=1) / scale, torch.inf)
    slope = torch.where(is_pivot.unsqueeze(-1), factor / scale.unsqueeze(-1), 0.0).tril(-1)

    level = torch.where(tie, tie_levels(pivoting, tolerance), k)
    tie_level, tie_order = level.sort(dim=-1, stable=True)
    tie_level, tie_order = tie_level[:, :ties], tie_order[:, :ties]
    real = (tie_level < k).unsqueeze(-1)
    tie_factor = torch.take_along_dim(columns, tie_order.unsqueeze(1), dim=2).transpose(1, 2)  # (rows, ties, pivot)
    last = tie_factor.new_ones(len(upper), ties, 1)
    if ties:
        last = torch.where(real, torch.take_along_dim(tie_factor, tie_level.clamp_max(width - 1).unsqueeze(-1), dim=2), last)
    before = position[:width] < tie_level.unsqueeze(-1)
    tie_slope = torch.where(before & real, tie_factor / last, 0.0)
    tie_limit = torch.take_along_dim(upper, tie_order, dim=1) / last.squeeze(-1)
    return OrderedFactor(limit, slope, tie_limit, tie_slope, tie_level, last.squeeze(-1).sign(), rank)
