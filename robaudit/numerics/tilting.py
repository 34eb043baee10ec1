"""Around which point should each variable be drawn so that the integrand is nearly constant?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.newton import Gram, gram_of
from robaudit.numerics.normal import normal_hazard
from robaudit.numerics.rowwise import total

_NEWTON_STEPS = 20
_CONVERGED = 1.0  # of the residual; one more step is taken from there, and a better tilt no longer saves points
_LINE_STEPS = 6
_FAR = 50.0
_NARROW = 16  # from there on a row is padded to a multiple of it, whatever the others are
_ELEMENTS = {"cpu": 1 << 18, "other": 1 << 24}  # of all matrices of one operation


def minimax_tilt(factor: OrderedFactor) -> Tensor:
    """The exponential tilt that minimises the largest value of the integrand (ties are ignored).

    The saddle point of sum_i [tilt_i^2/2 - tilt_i y_i + log Phi(t_i)] satisfies, with hazards h = (phi/Phi)(t),
    y = tilt - h and tilt = -slope' h. Eliminating both leaves one equation for t alone,

        t = limit + (G - I) h(t),      G = (I + slope)(I + slope)',

    whose Newton matrix (I - Q) + G Q, with Q = diag(-h'(t)) in [0, 1), is solved in its symmetric form.

    Args:
        factor: the ordered factor.

    Returns:
        (rows, width). Any value keeps the integral exact, so a row for which Newton fails falls back to zero.

    Source:
        Botev (2017), JRSS B 79, section 3, for the saddle point; the reduction to t is ours.
    """
    tilt = torch.zeros_like(factor.limit)
    elements = _ELEMENTS["cpu" if tilt.device.type == "cpu" else "other"]
    size = (-(-factor.rank // _NARROW)).clamp_min(1) * _NARROW
    for padded in sorted(set(size.tolist())):
        alike = (size == padded).nonzero().squeeze(-1)
        for rows in alike.split(max(1, elements // padded**2)):
            width = padded if padded > _NARROW else max(1, int(factor.rank[rows].max()))
            kept = min(width, tilt.shape[1])
            more = (0, width - kept)
            limit = torch.nn.functional.pad(factor.limit[rows, :kept], more, value=torch.inf)
            slope = torch.nn.functional.pad(factor.slope[rows, :kept, :kept], more * 2)
            tilt[rows, :kept] = _tilt(limit.clamp_max(_FAR).T.contiguous(), slope)[:, :kept]
    return tilt


def _tilt(limit: Tensor, slope: Tensor) -> Tensor:
    """Tilts (rows, width) from limits (width, rows) and slopes (rows, width, width)."""
    gram = gram_of(slope + torch.eye(len(limit), dtype=slope.dtype, device=slope.device))
    t = _along_a_line(limit, gram)
    left = torch.arange(limit.shape[1], device=limit.device)
    for _ in range(_NEWTON_STEPS):
        t[:, left], error = _newton_step(t[:, left], limit[:, left], gram.rows(left))
        left = left[~(error < _CONVERGED)]
        if not len(left):
            break
    tilt = -total(slope * normal_hazard(t).T.unsqueeze(-1), 1)
    usable = torch.isfinite(tilt).all(-1, keepdim=True) & (tilt.abs().amax(-1, keepdim=True) < _FAR)
    return torch.where(usable, tilt, 0.0)


def _along_a_line(limit: Tensor, gram: Gram) -> Tensor:
    """A start for t near the solution: hazards proportional to those at the limits, h = a h(limit), with the best a."""
    first = normal_hazard(limit)
    push = gram.times(first) - first  # (G - I) h
    share = torch.full_like(limit[0], 0.3)
    for _ in range(_LINE_STEPS):  # Newton for sum_i first_i (share first_i - h(t_i)) = 0
        t = limit + share * push
        hazard = normal_hazard(t)
        excess = total(first * (share * first - hazard), 0)
        rate = total(first * (first + hazard * (t + hazard) * push), 0)
        share = (share - excess / rate).nan_to_num_(1.0).clamp_(1e-3, 1.0)
    return limit + share * push


def _newton_step(t: Tensor, limit: Tensor, gram: Gram) -> tuple[Tensor, Tensor]:
    """The next t and the largest residual of the last one."""
    hazard = normal_hazard(t)
    curvature = (hazard * (t + hazard)).clamp(0.0, 1.0)  # Q
    residual = t - limit + hazard - gram.times(hazard)
    root = curvature.sqrt()
    v = root * gram.solve(root, 1.0 - curvature, root * residual)
    return t - residual + gram.times(v) - v, residual.abs().amax(0)
