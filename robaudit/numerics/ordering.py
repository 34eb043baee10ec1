"""In which order, and down to which variable, should a normal orthant probability be integrated?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf, normal_hazard


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

    The next pivot is the variable least likely to hold given that the earlier ones sit at their truncated means. A row
    stops early once the union bound on everything left is below `truncation` times the running estimate of the
    probability. A variable whose conditional variance is below `tolerance` is a function of the earlier ones: a tie.

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
    columns = torch.zeros(rows, k, k, dtype=upper.dtype, device=upper.device)
    variance, mean = torch.ones_like(upper), torch.zeros_like(upper)
    place = torch.full((rows, k), k, dtype=torch.int64, device=upper.device)
    running = torch.ones(rows, dtype=torch.bool, device=upper.device)
    failure = normal_cdf(-upper)
    free = failure > 0
    estimate, omitted = torch.ones_like(upper[:, 0]), torch.zeros_like(upper[:, 0])
    index = torch.arange(rows, device=upper.device)
    width = 0
    for step in range(k + 1):
        left = (failure * free).sum(-1)
        candidate = free & (variance > tolerance)
        stop = running & (left <= truncation * estimate)
        omitted = torch.where(stop, left, omitted)
        free = free & ~stop.unsqueeze(-1)
        running = running & ~stop & candidate.any(-1)
        if step == k or not bool(running.any()):
            break
        width = step + 1
        deviation = variance.clamp_min(tolerance).sqrt()
        pivot = ((upper - mean) / deviation).masked_fill(~candidate, torch.inf).argmin(-1)
        pivot_deviation = deviation[index, pivot]
        t = (upper[index, pivot] - mean[index, pivot]) / pivot_deviation
        column = correlation[index, pivot]
        if step:
            known = columns[:, :step]
            column = column - torch.bmm(known[index, :, pivot].unsqueeze(1), known).squeeze(1)
        column = torch.where(candidate & running.unsqueeze(-1), column / pivot_deviation.unsqueeze(-1), 0.0)
        column[index, pivot] = torch.where(running, pivot_deviation, 0.0)
        columns[:, step] = column
        variance = (variance - column * column).clamp_min(0.0)
        mean = mean - column * torch.where(running, normal_hazard(t), 0.0).unsqueeze(-1)
        estimate = torch.where(running, estimate * normal_cdf(t), estimate)
        place[index, pivot] = torch.where(running, step, place[index, pivot])
        free[index, pivot] = free[index, pivot] & ~running
    kept = free | (place < k)
    return Pivoting(columns[:, :width], place, free, torch.where(kept, failure, 0.0), estimate, omitted)
