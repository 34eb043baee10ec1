"""Which variables compete, that is, are likely enough to fail to matter to an orthant probability?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf


def competitive(upper: Tensor, correlation: Tensor, budget: Tensor, keep: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Sort each row by rising limit and drop the variables whose union bound fits the budget.

    The probability p of all variables and that of the kept ones, q, satisfy q - sum_dropped Phi(-z_i) <= p <= q.

    Args:
        upper: limits (rows, k), float64.
        correlation: (rows, k, k).
        budget: (rows,), largest sum of Phi(-z_i) to drop.
        keep: largest number of variables to keep, whatever the sum; None for no limit.

    Returns:
        Limits (rows, n) and correlations (rows, n, n) of the variables kept, n being the most any row keeps, with +inf
        for those a row does not; and the sum dropped (rows,).
    """
    k = upper.shape[1]
    limits, order = upper.sort(dim=-1, stable=True)
    from_here = normal_cdf(-limits).flip(-1).cumsum(-1).flip(-1)  # (rows, k): mass of a variable and all after it
    count = (from_here > budget.unsqueeze(-1)).sum(-1)
    if keep is not None:
        count = count.clamp_max(keep)
    width = max(int(count.max()), 1)
    dropped = torch.nn.functional.pad(from_here, (0, 1)).gather(1, count.unsqueeze(-1)).squeeze(-1)
    limits = torch.where(torch.arange(k, device=upper.device) < count.unsqueeze(-1), limits, torch.inf)
    order = order[:, :width]
    rows = torch.arange(len(upper), device=upper.device)[:, None, None]
    return limits[:, :width], correlation[rows, order[:, :, None], order[:, None, :]], dropped
