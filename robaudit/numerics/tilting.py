"""Around which point should each variable be drawn so that the integrand is nearly constant?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.normal import normal_hazard

_NEWTON_STEPS = 20
_CONVERGED = 1.0  # of the residual; one more step is taken from there, and a better tilt no longer saves points
_LINE_STEPS = 6
_FAR = 50.0


def minimax_tilt(factor: OrderedFactor) -> Tensor:
    """The exponential tilt that minimises the largest value of the integrand (ties are not looked at).

    The saddle point of sum_i [tilt_i^2/2 - tilt_i y_i + log Phi(t_i)] satisfies, with hazards h = (phi/Phi)(t),
    y = tilt - h and tilt = -slope' h. Eliminating both leaves one equation for t alone,

        t = limit + (G - I) h(t),      G = (I + slope)(I + slope)',

    whose Newton matrix (I - Q) + G Q, with Q = diag(-h'(t)) in [0, 1), is solved in its symmetric form by Cholesky.

    Args:
        factor: the ordered factor.

    Returns:
        (rows, rank). Any value keeps the integral exact, so a row for which Newton fails falls back to zero.

    Source:
        Botev (2017), JRSS B 79, section 3, for the saddle point; the reduction to t is ours.
    """
    width = factor.limit.shape[1]
    eye = torch.eye(width, dtype=factor.limit.dtype, device=factor.limit.device)
    unit = factor.slope + eye
    gram = torch.bmm(unit, unit.transpose(1, 2))
    limit = factor.limit.clamp_max(_FAR)
    t = _along_a_line(limit, gram)
    left = torch.arange(len(limit), device=limit.device)
    for _ in range(_NEWTON_STEPS):
        t[left], error = _newton_step(t[left], limit[left], gram[left])
        left = left[~(error < _CONVERGED)]
        if not len(left):
            break
    tilt = -torch.bmm(factor.slope.transpose(1, 2), normal_hazard(t).unsqueeze(-1)).squeeze(-1)
    usable = torch.isfinite(tilt).all(-1, keepdim=True) & (tilt.abs().amax(-1, keepdim=True) < _FAR)
    return torch.where(usable, tilt, 0.0)


def _along_a_line(limit: Tensor, gram: Tensor) -> Tensor:
    """A start for t near the solution: hazards proportional to those at the limits, h = a h(limit), with the best a."""
    first = normal_hazard(limit)
    push = torch.bmm(gram, first.unsqueeze(-1)).squeeze(-1) - first  # (G - I) h
    share = torch.full_like(limit[:, :1], 0.3)
    for _ in range(_LINE_STEPS):  # Newton for sum_i first_i (share first_i - h(t_i)) = 0
        t = limit + share * push
        hazard = normal_hazard(t)
        excess = (first * (share * first - hazard)).sum(-1, keepdim=True)
        rate = (first * (first + hazard * (t + hazard) * push)).sum(-1, keepdim=True)
        share = (share - excess / rate).nan_to_num_(1.0).clamp_(1e-3, 1.0)
    return limit + share * push


def _newton_step(t: Tensor, limit: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """The next t and the largest residual of the last one."""
    hazard = normal_hazard(t)
    curvature = (hazard * (t + hazard)).clamp(0.0, 1.0)  # Q
    residual = t - limit + hazard - torch.bmm(gram, hazard.unsqueeze(-1)).squeeze(-1)
    root = curvature.sqrt()
    matrix = gram * root.unsqueeze(-1) * root.unsqueeze(1) + torch.diag_embed(1.0 - curvature)
    lower, _ = torch.linalg.cholesky_ex(matrix)
    v = root * torch.cholesky_solve((root * residual).unsqueeze(-1), lower).squeeze(-1)
    return t - residual + torch.bmm(gram, v.unsqueeze(-1)).squeeze(-1) - v, residual.abs().amax(-1)
