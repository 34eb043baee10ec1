"""In which order, and down to which variable, should a normal orthant probability be integrated?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf, normal_hazard
from robaudit.numerics.pivots import PivotState, one_by_one, restriction
from robaudit.numerics.selection import submatrix

_CHOSEN = 16  # pivots taken one by one; the order of the others is settled at once
_CAREFUL = 0.5  # of the truncation is used, because the guess of the probability is rough
_SWEEPS = 4  # of the equation for the truncated means of these others


class Pivoting(NamedTuple):
    """A pivoted Cholesky factor Z = columns' y in the original order of the variables, with the order of its pivots."""

    columns: Tensor  # (rows, pivots, k)
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
        torch.zeros(rows, k, k, dtype=upper.dtype, device=upper.device),
        (failure > 0).to(upper.dtype),
        torch.zeros_like(upper),
        torch.full((rows, k), k, dtype=torch.int64, device=upper.device),
        torch.ones_like(upper[:, 0]),
    )
    state, pivots = one_by_one(state, upper, correlation, 0, min(k, _CHOSEN), tolerance)
    omitted = torch.zeros_like(upper[:, 0])
    if pivots == _CHOSEN < k:
        out = _negligible(state, upper, failure, truncation, tolerance)
        omitted = (failure * out).sum(-1)
        failure = failure.masked_fill(out, 0.0)
        state = state._replace(variance=state.variance.masked_fill(out, 0.0))
        state, pivots = _all_others(state, upper, correlation, tolerance)
    tie = (failure > 0) & (state.step == k)
    return Pivoting(state.columns[:, :pivots], state.step, tie, failure, state.estimate, omitted)


def _negligible(state: PivotState, upper: Tensor, failure: Tensor, truncation: float, tolerance: float) -> Tensor:
    """The last variables that, together, hardly ever fail: (rows, k), bool."""
    low = state.estimate * normal_cdf(restriction(state, upper, tolerance)).prod(-1)  # the rest as if independent
    left = (state.step == upper.shape[1]) & (failure > 0)
    return left & ((failure * left).flip(-1).cumsum(-1).flip(-1) <= (_CAREFUL * truncation * low).unsqueeze(-1))


def _all_others(state: PivotState, upper: Tensor, correlation: Tensor, tolerance: float) -> tuple[PivotState, int]:
    """Every pivot after the first `_CHOSEN`, by the restriction they have now; and the number of pivots then."""
    rows, k = upper.shape
    t, order = restriction(state, upper, tolerance).sort(dim=-1, stable=True)
    real = t < torch.inf
    m = int(real.sum(-1).max())
    if m == 0:
        return state, _CHOSEN
    order, real = order[:, :m], real[:, :m]
    known = state.columns[:, :_CHOSEN].gather(2, order.unsqueeze(1).expand(-1, _CHOSEN, -1))
    given = submatrix(correlation, torch.arange(rows, device=upper.device), order)
    rest = torch.baddbmm(given, known.transpose(1, 2), known, alpha=-1.0)
    rest.masked_fill_(~(real.unsqueeze(1) & real.unsqueeze(2)), 0.0)
    rest.diagonal(dim1=1, dim2=2).masked_fill_(~real, 1.0)
    lower, failed = torch.linalg.cholesky_ex(rest)
    deviation = lower.diagonal(dim1=1, dim2=2)
    singular = (failed != 0) | ~(deviation * deviation > tolerance).all(-1)

    limit = ((upper - state.mean).gather(1, order) / deviation).masked_fill_(~real, torch.inf)
    coupling = (lower / deviation.unsqueeze(-1)).tril_(-1)
    t = limit
    for _ in range(_SWEEPS):
        t = torch.baddbmm(limit.unsqueeze(-1), coupling, normal_hazard(t).unsqueeze(-1)).squeeze(-1)
    pivots = torch.arange(_CHOSEN, _CHOSEN + m, device=upper.device).expand(rows, m)
    done = state._replace(
        step=state.step.scatter(1, order, torch.where(real, pivots, state.step.gather(1, order))),
        estimate=state.estimate * normal_cdf(t).prod(-1),
    )
    where = order.unsqueeze(1).expand(rows, m, m)
    lower.masked_fill_(~real.unsqueeze(-1), 0.0)
    state.columns[:, _CHOSEN : _CHOSEN + m].scatter_(2, where, lower.transpose(1, 2))
    total = _CHOSEN + m
    again = singular.nonzero().squeeze(-1)
    if len(again):
        part = PivotState(*(field[again] for field in state))
        part.columns[:, _CHOSEN:] = 0.0
        part, reached = one_by_one(part, upper[again], correlation[again], _CHOSEN, k, tolerance)
        total = max(total, reached)
        for field, new in zip(done, part, strict=True):
            field[again] = new
    return done, total
