"""The order of integration of a normal orthant probability: which variables matter, their pivots, and the ordered factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from robaudit.numerics.normal import normal_cdf, normal_hazard
from robaudit.numerics.rowwise import cholesky, fold, gram, product_of, total

_MOST_ENTRIES = 1 << 24  # correlation entries worked on at once
_WIDTH, _STEPS = 16, 4  # widths are multiples of 16 up to 64, and from there grow by sqrt 2
_CHOSEN = 16  # pivots taken one by one; the order of the others is settled at once
_LOOKS = 8  # after so many pivots the host looks whether any row has another left: on CUDA it waits for that
_CAREFUL = 0.5  # of the truncation is used, because the guess of the probability is rough
_SWEEPS = 4  # of the equation for the truncated means of these others
_STEP = 16  # their number is padded to a multiple of this
NO_TIE = 1 << 31  # the level where there is no tie
_LARGEST_SHARE = 0.5  # rare failures are estimated separately where that leaves at most this share of the pivots


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
        found += [(part, width) for part in index.split(max(1, _MOST_ENTRIES // (width * width)))]
    return found


def width_of(kept: int) -> int:
    """The number of variables, rounded up to one of 16, 32, 48, 64, 90, 128, 181, 256, ..."""
    if kept <= _STEPS * _WIDTH:
        return max(1, -(-kept // _WIDTH)) * _WIDTH
    doublings = 0.5 * math.ceil(2 * math.log2(kept / (_STEPS * _WIDTH)))
    return int(_STEPS * _WIDTH * 2**doublings)


def competing(selection: Selection, correlation: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` lowest limits (rows, width) of some rows, and their correlations (rows, width, width)."""
    return selection.limit[rows, :width], submatrix(correlation, rows, selection.order[rows, :width])


def submatrix(matrix: Tensor, rows: Tensor, order: Tensor) -> Tensor:
    """Rows and columns `order` (n, m) of matrices `rows` (n,): (n, m, m)."""
    n, m = order.shape
    return matrix[rows.unsqueeze(-1), order].gather(2, order.unsqueeze(1).expand(n, m, m))


class _PivotState(NamedTuple):
    """What pivoting has found so far. A variable that is a pivot or left out has variance 0."""

    columns: Tensor  # (k, rows, k): the factor's columns, by pivot
    variance: Tensor  # (rows, k), given the pivots
    mean: Tensor  # (rows, k), with the pivots at their truncated means
    step: Tensor  # (rows, k)
    estimate: Tensor  # (rows,)

    def rows(self, index: Tensor) -> _PivotState:
        """The same for some of the rows."""
        return _PivotState(self.columns[:, index], *(field[index] for field in self[1:]))


def _restriction(state: _PivotState, upper: Tensor, tolerance: float) -> Tensor:
    """Limits of the variables with variance left, given truncated means; infinite for the others: (rows, k)."""
    limit = (upper - state.mean) / state.variance.clamp_min(tolerance).sqrt()
    return limit.masked_fill_(state.variance <= tolerance, torch.inf)


def _one_by_one(state: _PivotState, upper: Tensor, correlation: Tensor, first: int, last: int, tolerance: float) -> _PivotState:
    """Pivots `first` to `last`, fewer where no row has variance left; a row without any stays as it is."""
    k = upper.shape[1]
    index = torch.arange(len(upper), device=upper.device)
    step = torch.nn.functional.pad(state.step, (0, 1))  # the last place is for rows without a pivot left
    for pivots in range(first, last):
        t, pivot = _restriction(state, upper, tolerance).min(-1)
        none = t == torch.inf
        if pivots % _LOOKS == 0 and bool(none.all()):
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
    state = _PivotState(
        torch.zeros(k, rows, k, dtype=upper.dtype, device=upper.device),
        (failure > 0).to(upper.dtype),
        torch.zeros_like(upper),
        torch.full((rows, k), k, dtype=torch.int64, device=upper.device),
        torch.ones_like(upper[:, 0]),
    )
    state = _one_by_one(state, upper, correlation, 0, min(k, _CHOSEN), tolerance)
    omitted = torch.zeros_like(upper[:, 0])
    if k > _CHOSEN:
        out = _negligible(state, upper, failure, truncation, tolerance)
        omitted = total(failure * out)
        failure = failure.masked_fill(out, 0.0)
        state = state._replace(variance=state.variance.masked_fill(out, 0.0))
        _add_all_others(state, upper, correlation, tolerance)
    tie = (failure > 0) & (state.step == k)
    return Pivoting(state.columns.transpose(0, 1), state.step, tie, failure, state.estimate, omitted)


def _negligible(state: _PivotState, upper: Tensor, failure: Tensor, truncation: float, tolerance: float) -> Tensor:
    """The last variables, which together hardly ever fail: (rows, k), bool."""
    low = state.estimate * product_of(normal_cdf(_restriction(state, upper, tolerance)))  # the rest as if independent
    left = (state.step == upper.shape[1]) & (failure > 0)
    return left & ((failure * left).flip(-1).cumsum(-1).flip(-1) <= (_CAREFUL * truncation * low).unsqueeze(-1))


def _add_all_others(state: _PivotState, upper: Tensor, correlation: Tensor, tolerance: float) -> None:
    """Every pivot after the first `_CHOSEN`, by the restriction they have now; `state` is overwritten."""
    k = upper.shape[1]
    t, order = _restriction(state, upper, tolerance).sort(dim=-1, stable=True)
    size = (-(-(t < torch.inf).sum(-1) // _STEP) * _STEP).clamp_max(k - _CHOSEN)
    singular = torch.zeros_like(size, dtype=torch.bool)
    for m in sorted(set(size.tolist()) - {0}):
        rows = (size == m).nonzero().squeeze(-1)
        singular[rows] = _add_others(state, rows, order[rows, :m], t[rows, :m] < torch.inf, upper, correlation, tolerance)
    again = singular.nonzero().squeeze(-1)
    if again.shape[0]:
        part = _one_by_one(state.rows(again), upper[again], correlation[again], _CHOSEN, k, tolerance)
        state.columns[:, again] = part.columns
        for field, new in zip(state[1:], part[1:], strict=True):
            field[again] = new


def _add_others(
    state: _PivotState, rows: Tensor, order: Tensor, real: Tensor, upper: Tensor, correlation: Tensor, tolerance: float
) -> Tensor:
    """The same for rows with about as many others, the variables `order` (rows, m) that are `real`; singular rows are left unchanged."""
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
    width, ties = torch.stack([rank.max(), tie.sum(-1).max()]).tolist()
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
