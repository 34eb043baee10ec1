"""Which variable is the most restrictive next, one pivot of a Cholesky factor at a time?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf, normal_hazard
from robaudit.numerics.rowwise import fold


class PivotState(NamedTuple):
    """What pivoting has found so far. A variable that is a pivot or left out has variance 0."""

    columns: Tensor  # (k, rows, k): the factor's columns, by pivot
    variance: Tensor  # (rows, k), given the pivots
    mean: Tensor  # (rows, k), with the pivots at their truncated means
    step: Tensor  # (rows, k)
    estimate: Tensor  # (rows,)

    def rows(self, index: Tensor) -> PivotState:
        """The same for some of the rows."""
        return PivotState(self.columns[:, index], *(field[index] for field in self[1:]))


def restriction(state: PivotState, upper: Tensor, tolerance: float) -> Tensor:
    """Limits of the variables with variance left, given truncated means; infinite for the others: (rows, k)."""
    limit = (upper - state.mean) / state.variance.clamp_min(tolerance).sqrt()
    return limit.masked_fill_(state.variance <= tolerance, torch.inf)


def one_by_one(state: PivotState, upper: Tensor, correlation: Tensor, first: int, last: int, tolerance: float) -> PivotState:
    """Pivots `first` to `last`, fewer where no row has variance left."""
    k = upper.shape[1]
    index = torch.arange(len(upper), device=upper.device)
    step = torch.nn.functional.pad(state.step, (0, 1))  # the last place is for rows without a pivot left
    for pivots in range(first, last):
        t, pivot = restriction(state, upper, tolerance).min(-1)
        none = t == torch.inf
        if bool(none.all()):
            break
        at = pivot.unsqueeze(-1)
        column = correlation[index, pivot]
        if pivots:
            known = state.columns[:pivots]
            column = column - fold(known * known.gather(2, at.expand(pivots, -1, -1)))
        deviation = state.variance.gather(1, at).clamp_min_(tolerance).sqrt_()
        column = (column / deviation).masked_fill_(state.variance <= tolerance, 0.0)
        column.scatter_(1, at, deviation.masked_fill_(none.unsqueeze(-1), 0.0))
        state.columns[pivots] = column
        step.scatter_(1, torch.where(none, k, pivot).unsqueeze(-1), pivots)
        state = state._replace(
            variance=(state.variance - column * column).scatter_(1, at, 0.0),
            mean=state.mean - column * normal_hazard(t).unsqueeze(-1),
            estimate=state.estimate * normal_cdf(t),
        )
    return state._replace(step=step[:, :k])
