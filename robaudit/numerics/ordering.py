"""In which order, and down to which variable, should a normal orthant probability be integrated?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf, normal_hazard
from robaudit.numerics.pivots import PivotState, one_by_one, restriction
from robaudit.numerics.rowwise import cholesky, gram, product_of, total
from robaudit.numerics.selection import submatrix

_CHOSEN = 16  # pivots taken one by one; the order of the others is settled at once
_CAREFUL = 0.5  # of the truncation is used, because the guess of the probability is rough
_SWEEPS = 4  # of the equation for the truncated means of these others
_STEP = 16  # their number is padded to a multiple of this


class Pivoting(NamedTuple):
    """A pivoted Cholesky factor Z = columns' y in the original order of the variables, with the order of its pivots."""

    columns: Tensor  # (rows, k, k), zero where there is no pivot left
    step: Tensor  # (rows, k), int64: step at which a variable was the pivot; k where it never was
    tie: Tensor  # (rows, k), bool: no variance of its own, a function of the pivots
    failure: Tensor  # (rows, k): Phi(-upper) of the variables kept, 0 of those left out
    estimate: Tensor  # (rows,): rough probability, each variable conditioned on truncated means
    omitted: Tensor  # (rows,): union bound on the variables left out

    def rows(self, index: Tensor) -> Pivoting:
        """The same for some of the rows."""
        return Pivoting(*(field[index] for field in self))


def pivot_by_restriction(upper: Tensor, correlation: Tensor, *, truncation: float, tolerance: float) -> Pivoting:
    """Factor each correlation by pivoted Cholesky, always taking the most restrictive variable next.

    The next pivot is the variable least likely to hold given that the earlier ones sit at their truncated means. After
    `_CHOSEN` pivots the variables whose union bound is below `truncation` times a low guess of the probability are left
    out, and the rest follow in the order they have then: the later the pivot, the less its place matters. A variable
    whose conditional variance is below `tolerance` is a function of the earlier ones: a tie. A row in which one appears
    among the rest is pivoted one by one to the end.

    Args:
        upper: limits (rows, k), float64, above -inf.
        correlation: (rows, k, k), positive semi-definite with unit diagonal.
        truncation: relative mass that may be left out; 0 leaves out only limits so high that Phi(-upper) is zero.
        tolerance: conditional variance taken as zero.

    Returns:
        The pivoting; each row is a function of that row's inputs alone.

    Source:
        Gibson, Glasbey and Elston (1994), Advances in Numerical Methods and Applications; Genz and Bretz (2009),
        section 4.1.3; Genz and Kwong (2000), J. Stat. Comput. Simul. 68, for singular matrices.
    """
    rows, k = upper.shape
    failure = normal_cdf(-upper)
    state = PivotState(
        torch.zeros(k, rows, k, dtype=upper.dtype, device=upper.device),
        (failure > 0).to(upper.dtype),
        torch.zeros_like(upper),
        torch.full((rows, k), k, dtype=torch.int64, device=upper.device),
        torch.ones_like(upper[:, 0]),
    )
    state = one_by_one(state, upper, correlation, 0, min(k, _CHOSEN), tolerance)
    omitted = torch.zeros_like(upper[:, 0])
    if k > _CHOSEN:
        out = _negligible(state, upper, failure, truncation, tolerance)
        omitted = total(failure * out)
        failure = failure.masked_fill(out, 0.0)
        state = state._replace(variance=state.variance.masked_fill(out, 0.0))
        _add_all_others(state, upper, correlation, tolerance)
    tie = (failure > 0) & (state.step == k)
    return Pivoting(state.columns.transpose(0, 1), state.step, tie, failure, state.estimate, omitted)


def _negligible(state: PivotState, upper: Tensor, failure: Tensor, truncation: float, tolerance: float) -> Tensor:
    """The last variables that, together, hardly ever fail: (rows, k), bool."""
    low = state.estimate * product_of(normal_cdf(restriction(state, upper, tolerance)))  # the rest as if independent
    left = (state.step == upper.shape[1]) & (failure > 0)
    return left & ((failure * left).flip(-1).cumsum(-1).flip(-1) <= (_CAREFUL * truncation * low).unsqueeze(-1))


def _add_all_others(state: PivotState, upper: Tensor, correlation: Tensor, tolerance: float) -> None:
    """Every pivot after the first `_CHOSEN`, by the restriction they have now; `state` is overwritten."""
    k = upper.shape[1]
    t, order = restriction(state, upper, tolerance).sort(dim=-1, stable=True)
    size = (-(-(t < torch.inf).sum(-1) // _STEP) * _STEP).clamp_max(k - _CHOSEN)
    singular = torch.zeros_like(size, dtype=torch.bool)
    for m in sorted(set(size.tolist()) - {0}):
        rows = (size == m).nonzero().squeeze(-1)
        singular[rows] = _add_others(state, rows, order[rows, :m], t[rows, :m] < torch.inf, upper, correlation, tolerance)
    again = singular.nonzero().squeeze(-1)
    if again.shape[0]:
        part = one_by_one(state.rows(again), upper[again], correlation[again], _CHOSEN, k, tolerance)
        state.columns[:, again] = part.columns
        for field, new in zip(state[1:], part[1:], strict=True):
            field[again] = new


def _add_others(
    state: PivotState, rows: Tensor, order: Tensor, real: Tensor, upper: Tensor, correlation: Tensor, tolerance: float
) -> Tensor:
    """The same for rows that have about as many others: the variables `order` (rows, m) that are `real`; where that fails, nothing."""
    m = order.shape[1]
    known = state.columns[:_CHOSEN, rows].gather(2, order.expand(_CHOSEN, -1, -1))  # (chosen, rows, m)
    rest = submatrix(correlation, rows, order) - gram(known.permute(1, 2, 0))
    rest.masked_fill_(~(real.unsqueeze(1) & real.unsqueeze(2)), 0.0)
    rest.diagonal(dim1=1, dim2=2).masked_fill_(~real, 1.0)
    lower, failed = cholesky(rest)
    deviation = lower.diagonal(dim1=1, dim2=2)
    singular = (failed != 0) | ~(deviation * deviation > tolerance).all(-1)

    limit = ((upper - state.mean)[rows].gather(1, order) / deviation).masked_fill_(~real, torch.inf)
    coupling = (lower / deviation.unsqueeze(-1)).tril_(-1)
    t = limit
    for _ in range(_SWEEPS):
        t = limit + (coupling * normal_hazard(t).unsqueeze(1)).sum(-1)
    state.estimate[rows] *= torch.where(singular, 1.0, product_of(normal_cdf(t)))
    real = real & ~singular.unsqueeze(-1)
    pivots = torch.arange(_CHOSEN, _CHOSEN + m, device=upper.device)
    state.step[rows] = state.step[rows].scatter(1, order, torch.where(real, pivots, state.step[rows].gather(1, order)))
    columns = torch.where(real.unsqueeze(-1), lower, 0.0).permute(2, 0, 1)  # (pivots, rows, variables in order)
    state.columns[_CHOSEN : _CHOSEN + m, rows] = torch.zeros_like(state.columns[:m, rows]).scatter_(2, order.expand(m, -1, -1), columns)
    return singular
