"""Which variables are integrated exactly, which only corrected for, and what does the ordered factor look like?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from robaudit.numerics.ordering import Pivoting

NO_TIE = 1 << 31  # the level where there is no tie
_LARGEST_SHARE = 0.5  # rare failures are estimated apart where at most this share of the pivots is then left


class OrderedFactor(NamedTuple):
    """P[C y <= limits] for independent standard normal y, variables in the order of integration.

    Row i of the triangular part reads `y_i <= limit_i - sum_{j<i} slope_ij y_j`. A tie, a variable without conditional
    variance, bounds the y of its level from above (side +1) or from below (side -1) in the same way.
    """

    limit: Tensor  # (rows, width), limits over the conditional standard deviation; +inf beyond the rank
    slope: Tensor  # (rows, width, width), strictly lower triangular
    tie_limit: Tensor  # (rows, ties)
    tie_slope: Tensor  # (rows, ties, width), zero from the level on
    tie_level: Tensor  # (rows, ties), int64; NO_TIE where there is none
    tie_side: Tensor  # (rows, ties), +-1
    rank: Tensor  # (rows,), int64: number of variables with conditional variance
    single: Tensor  # (rows,), bool: single precision is enough; never with ties


def split_rare(pivoting: Pivoting, tolerance: float, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Set apart variables so unlikely to fail that their failure is cheaper to estimate separately.

    Going up from the least likely to fail, variables are eligible as long as the sum of Phi(-upper) stays below
    `limit`. Only those the others do not depend on (the last pivots, and ties) can leave the integration. A row for which
    that saves less than half of the pivots keeps them all: estimating rare failures costs about as much.

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
    needs = torch.where(is_pivot, pivoting.step, _tie_levels(pivoting, pivoting.tie, tolerance)) + 1
    present = is_pivot | pivoting.tie
    rank = torch.where(present & ~eligible, needs, 0).amax(-1)
    full = torch.where(present, needs, 0).amax(-1)
    too_many = rank > _LARGEST_SHARE * full
    rank = torch.where(too_many, full, rank)
    eligible = eligible & ~too_many.unsqueeze(-1)
    return eligible & (pivoting.tie | (is_pivot & (pivoting.step >= rank.unsqueeze(-1)))), rank


def _tie_levels(pivoting: Pivoting, tie: Tensor, tolerance: float) -> Tensor:
    """Last pivot step a tie depends on: (rows, k); NO_TIE where there is none."""
    steps = torch.arange(pivoting.columns.shape[1], device=pivoting.step.device).unsqueeze(-1)
    level = torch.full_like(pivoting.step, NO_TIE)
    some = tie.any(-1).nonzero().squeeze(-1)
    if not len(some):
        return level
    reached = torch.zeros_like(pivoting.step[some])
    if len(steps):
        reached = ((pivoting.columns[some].abs() > tolerance**0.5) * steps).amax(1)
    level[some] = torch.where(tie[some], reached, NO_TIE)
    return level


def arrange(upper: Tensor, pivoting: Pivoting, rank: Tensor, tie: Tensor, single: Tensor, tolerance: float) -> OrderedFactor:
    """Bring the first `rank` pivots and the given ties into the order of integration.

    Args:
        upper: limits (rows, k).
        pivoting: of the same rows.
        rank: (rows,), number of leading pivots to integrate.
        tie: (rows, k), bool, ties to respect; each depends on those pivots only.
        single: (rows,), bool, where single precision is enough as long as there are no ties.
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
    factor = columns.gather(2, order.unsqueeze(1).expand(-1, width, -1)).transpose(1, 2)  # (rows, variable, pivot)
    scale = torch.where(is_pivot, torch.diagonal(factor, dim1=1, dim2=2), 1.0)
    limit = torch.where(is_pivot, torch.take_along_dim(upper, order, dim=1) / scale, torch.inf)
    slope = (factor * (is_pivot / scale).unsqueeze(-1)).tril_(-1)

    level = _tie_levels(pivoting, tie, tolerance)
    tie_level, tie_order = level.sort(dim=-1, stable=True)
    tie_level, tie_order = tie_level[:, :ties], tie_order[:, :ties]
    real = (tie_level < NO_TIE).unsqueeze(-1)
    tie_factor = columns.gather(2, tie_order.unsqueeze(1).expand(-1, width, -1)).transpose(1, 2)  # (rows, ties, pivot)
    last = tie_factor.new_ones(len(upper), ties, 1)
    if ties:
        last = torch.where(real, torch.take_along_dim(tie_factor, tie_level.clamp_max(width - 1).unsqueeze(-1), dim=2), last)
    before = position[:width] < tie_level.unsqueeze(-1)
    tie_slope = torch.where(before & real, tie_factor / last, 0.0)
    tie_limit = torch.take_along_dim(upper, tie_order, dim=1) / last.squeeze(-1)
    return OrderedFactor(limit, slope, tie_limit, tie_slope, tie_level, last.squeeze(-1).sign(), rank, single & ~tie.any(-1))


def joined(factors: Sequence[OrderedFactor]) -> OrderedFactor:
    """The rows of all, one after the other, each padded to the widest and to the most ties."""
    if len(factors) == 1:
        return factors[0]
    width, ties = max(f.limit.shape[1] for f in factors), max(f.tie_level.shape[1] for f in factors)

    def padded(f: OrderedFactor) -> OrderedFactor:
        more, tied = width - f.limit.shape[1], ties - f.tie_level.shape[1]
        return f._replace(
            limit=pad(f.limit, (0, more), value=torch.inf),
            slope=pad(f.slope, (0, more, 0, more)),
            tie_limit=pad(f.tie_limit, (0, tied)),
            tie_slope=pad(f.tie_slope, (0, more, 0, tied)),
            tie_level=pad(f.tie_level, (0, tied), value=NO_TIE),
            tie_side=pad(f.tie_side, (0, tied), value=1.0),
        )

    return OrderedFactor(*(torch.cat(fields) for fields in zip(*map(padded, factors), strict=True)))
