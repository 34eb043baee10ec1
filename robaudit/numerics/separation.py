"""What does separation of variables give for an ordered normal orthant probability, point by point?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.normal import normal_cdf, normal_quantile

_BLOCK = 16
_SQRT_HALF, _SQRT_TWO = math.sqrt(0.5), math.sqrt(2.0)


def separated_values(factor: OrderedFactor, tilt: Tensor, points: Tensor, *, tails: bool = True) -> Tensor:
    """Integrand of Genz's transformation, with each y_i drawn around its tilt.

    With t_i = limit_i - sum_{j<i} slope_ij y_j - tilt_i and y_i = tilt_i + Phi^-1(u_i Phi(t_i)), the mean of

        prod_i Phi(t_i) exp(tilt_i^2 / 2 - tilt_i y_i)

    over uniform u is the orthant probability, whatever the tilt; a good one makes the product nearly constant. Ties
    narrow the interval of their level: Phi(t_i) becomes Phi(min of the upper limits) - Phi(max of the lower ones).

    Args:
        factor: the ordered factor, `rank` variables and `ties` ties.
        tilt: (rows, rank), zero for the plain transformation.
        points: u, (rank, points) in (0, 1).
        tails: keep relative accuracy where a conditional probability is below 1e-10. Without, a third faster, and good
            to 1e-6 when the result is not itself that small.

    Returns:
        (rows, points), non-negative.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1, equation (5); Botev (2017), JRSS B 79, equation (8) for the tilt.
    """
    rows, width = factor.limit.shape
    count = points.shape[1]
    y = torch.empty(rows, width, count, dtype=points.dtype, device=points.device)
    product = torch.ones(rows, count, dtype=points.dtype, device=points.device)
    log_value = (0.5 * tilt * tilt).sum(-1, keepdim=True).expand(rows, count)
    shifted = (factor.limit - tilt).unsqueeze(-1)
    span = _tie_spans(factor.tie_level, width)
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        block = shifted[:, start:stop].expand(rows, stop - start, count)
        if start:
            block = torch.baddbmm(block, factor.slope[:, start:stop, :start], y[:, :start], alpha=-1.0)
        for i in range(start, stop):
            t = block[:, i - start]
            if i > start:
                t = torch.baddbmm(t.unsqueeze(1), factor.slope[:, i : i + 1, start:i], y[:, start:i], alpha=-1.0).squeeze(1)
            last = i == width - 1  # its y is needed by nothing: the tilt of a last variable is zero
            if i in span:
                t, floor = _tighten(factor, tilt, y, t, i, span[i])
                below = normal_cdf(floor)
                mass = (normal_cdf(t) - below).clamp_min(0.0)
                quantile = t if last else normal_quantile(torch.addcmul(below, points[i], mass))
            elif tails:
                mass = normal_cdf(t)
                quantile = t if last else normal_quantile(points[i] * mass)
            else:
                twice = torch.erf(t * _SQRT_HALF).add_(1.0)
                mass = 0.5 * twice
                quantile = t if last else torch.erfinv(twice.mul_(points[i]).sub_(1.0)).mul_(_SQRT_TWO)
            product *= mass
            if last:
                y[:, i] = 0.0
            else:
                torch.add(quantile.clamp_(-40.0, 40.0), tilt[:, i : i + 1], out=y[:, i])
        log_value = log_value + product.log() - torch.bmm(tilt[:, None, start:stop], y[:, start:stop]).squeeze(1)
        product.fill_(1.0)
    return log_value.exp()


def _tie_spans(level: Tensor, width: int) -> dict[int, tuple[int, int]]:
    """For each level with a tie in any row, the range of tie columns that may hold it."""
    spans: dict[int, tuple[int, int]] = {}
    for column, values in enumerate(level.T.cpu().tolist()):
        for value in set(values):
            if value < width:
                spans[value] = (spans.get(value, (column, column))[0], column + 1)
    return spans


def _tighten(factor: OrderedFactor, tilt: Tensor, y: Tensor, t: Tensor, i: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
    first, last = span
    here = factor.tie_level[:, first:last, None] == i
    side = factor.tie_side[:, first:last, None]
    bound = (factor.tie_limit[:, first:last] - tilt[:, i : i + 1]).unsqueeze(-1)  # (rows, ties, 1)
    if i:
        bound = torch.baddbmm(bound.expand(-1, -1, y.shape[-1]), factor.tie_slope[:, first:last, :i], y[:, :i], alpha=-1.0)
    above = torch.where(here & (side > 0), bound, torch.inf).amin(1)
    below = torch.where(here & (side < 0), bound, -torch.inf).amax(1)
    return torch.minimum(t, above), below
