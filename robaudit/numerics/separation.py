"""What does separation of variables give for an ordered normal orthant probability, point by point?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.normal import normal_cdf, normal_quantile
from robaudit.numerics.single import scaled_upper_quantile

_BLOCK = 16  # variables between two matrix products
_LOGARITHM = 4  # factors multiplied before a logarithm is taken, so that single precision does not underflow
_FAR = 40.0
_SQRT_HALF, _SQRT_TWO = math.sqrt(0.5), math.sqrt(2.0)


def separated_values(factor: OrderedFactor, tilt: Tensor | None, points: Tensor) -> Tensor:
    """Integrand of Genz's transformation, with each y_i drawn around its tilt.

    With t_i = limit_i - sum_{j<i} slope_ij y_j - tilt_i and y_i = tilt_i + Phi^-1(u_i Phi(t_i)), the mean of

        prod_i Phi(t_i) exp(tilt_i^2 / 2 - tilt_i y_i)

    over uniform u is the orthant probability, whatever the tilt; a good one makes the product nearly constant. Ties
    narrow the interval of their level: Phi(t_i) becomes Phi(min of the upper limits) - Phi(max of the lower ones).

    Computed with s_i = -t_i / sqrt 2 and n_i = (tilt_i - y_i) / sqrt 2, because 2 Phi(t_i) = erfc(s_i).

    Args:
        factor: the ordered factor, `rank` variables and `ties` ties.
        tilt: (rows, rank); None for the plain transformation, good to 1e-6 when the result is not itself that small.
        points: u, (rank, points) in (0, 1). Their type is that of the computation; ties need float64.

    Returns:
        (rows, points), float64, non-negative.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1, equation (5); Botev (2017), JRSS B 79, equation (8) for the tilt.
    """
    rows, width = factor.limit.shape
    count, kind = points.shape[1], points.dtype
    limit, tie_limit = (factor.limit, factor.tie_limit) if tilt is None else _around(factor, tilt)
    first = (limit.T * -_SQRT_HALF).to(kind).unsqueeze(-1)  # (width, rows, 1)
    slope = factor.slope.to(kind)
    columns = slope.permute(2, 1, 0).contiguous().unsqueeze(-1)  # by the variable that acts: (width, width, rows, 1)
    weights = None if tilt is None else (tilt.T * _SQRT_TWO).to(kind).unsqueeze(-1).unbind()
    span = _tie_spans(factor.tie_level, width)
    n = torch.empty(width, rows, count, dtype=kind, device=points.device)
    each_n, each_u, each_half = n.unbind(), points.unbind(), (0.5 * points).unbind()
    product, exponent, scratch = n.new_ones(rows, count), n.new_zeros(rows, count), n.new_empty(4, rows, count).unbind()
    twice = scratch[0]
    held = n.new_empty(2, min(width, _BLOCK) * rows, count)
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        s = _open_block(first[start:stop], slope[:, start:stop, :start], n[:start], held)
        each_s = s.unbind()
        for i in range(start, stop):
            out = each_n[i] if i < width - 1 else None
            if i in span:
                bounds = _tie_bounds(factor, tie_limit, n, i, span[i])
                _between(each_s[i - start], bounds, each_u[i], twice, out)
            elif tilt is None:
                _plain(each_s[i - start], each_u[i], twice, out)
            else:
                _tailed(each_s[i - start], each_half[i], scratch, out)
            product.mul_(twice)
            if out is not None:
                if i + 1 < stop:
                    s[i + 1 - start :].addcmul_(columns[i, i + 1 : stop], out, value=-1.0)
                if weights is not None:  # the tilt of a last variable is zero
                    exponent.addcmul_(weights[i], out)
            if weights is not None and (i % _LOGARITHM == _LOGARITHM - 1 or out is None):
                exponent.add_(product.log_())
                product.fill_(1.0)
    if tilt is None:
        return product.double().mul_(0.5**width)
    constant = 0.5 * (tilt * tilt).sum(-1, keepdim=True) + width * math.log(2.0)
    return exponent.double().sub_(constant).exp_()


def _open_block(first: Tensor, slope: Tensor, n: Tensor, held: Tensor) -> Tensor:
    """s of the variables of a block, (size, rows, points), with all variables before the block taken into account."""
    size, rows, _ = first.shape
    s, known = held[:, : size * rows].unflatten(1, (size, rows)).unbind()
    if not len(n):
        return first.expand_as(s).clone()
    known = known.reshape(rows, size, -1)
    torch.bmm(slope, n.transpose(0, 1), out=known)
    return torch.sub(first, known.transpose(0, 1), out=s)


def _around(factor: OrderedFactor, tilt: Tensor) -> tuple[Tensor, Tensor]:
    """Limits, and limits of the ties, measured from the tilt."""
    limit = factor.limit - tilt - torch.bmm(factor.slope, tilt.unsqueeze(-1)).squeeze(-1)
    at_level = tilt.gather(1, factor.tie_level.clamp_max(tilt.shape[1] - 1)) if factor.tie_level.shape[1] else 0.0
    return limit, factor.tie_limit - at_level - torch.bmm(factor.tie_slope, tilt.unsqueeze(-1)).squeeze(-1)


def _plain(s: Tensor, u: Tensor, twice: Tensor, n: Tensor | None) -> None:
    """2 Phi(t) and n = -Phi^-1(u Phi(t)) / sqrt 2, to an absolute error of rounding."""
    torch.erf(s, out=twice).neg_().add_(1.0)
    if n is not None:
        torch.erfinv(torch.mul(twice, u, out=n).neg_().add_(1.0), out=n).clamp_(-_FAR, _FAR)


def _tailed(s: Tensor, half: Tensor, scratch: tuple[Tensor, ...], n: Tensor | None) -> None:
    """The same with small relative errors; u / 2 is given, and 2 Phi(t) is the first of `scratch`."""
    twice, probability, *rest = scratch
    torch.erfc(s, out=twice)
    if n is None:
        return
    torch.mul(twice, half, out=probability)
    if s.dtype == torch.float32:
        scaled_upper_quantile(probability, n, rest)
    else:
        torch.special.ndtri(probability, out=n).mul_(-_SQRT_HALF).clamp_(-_FAR, _FAR)


def _between(s: Tensor, bounds: tuple[Tensor, Tensor], u: Tensor, twice: Tensor, n: Tensor | None) -> None:
    """The same when ties keep t between limits: 2 (Phi(above) - Phi(below))."""
    floor = normal_cdf(bounds[1])
    mass = (normal_cdf(torch.minimum(s * -_SQRT_TWO, bounds[0])) - floor).clamp_min_(0.0)
    if n is not None:
        n.copy_(normal_quantile(torch.addcmul(floor, u, mass)).mul_(-_SQRT_HALF).clamp_(-_FAR, _FAR))
    torch.mul(mass, 2.0, out=twice)


def _tie_spans(level: Tensor, width: int) -> dict[int, tuple[int, int]]:
    """For each level with a tie in any row, the range of tie columns that may hold it."""
    spans: dict[int, tuple[int, int]] = {}
    for column, values in enumerate(level.T.cpu().tolist()):
        for value in set(values):
            if value < width:
                spans[value] = (spans.get(value, (column, column))[0], column + 1)
    return spans


def _tie_bounds(factor: OrderedFactor, limit: Tensor, n: Tensor, i: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The lowest upper and the highest lower limit that the ties of level i set: (rows, points) each."""
    first, last = span
    here = factor.tie_level[:, first:last, None] == i
    side = factor.tie_side[:, first:last, None]
    bound = limit[:, first:last].unsqueeze(-1)  # (rows, ties, 1)
    if i:
        bound = bound + _SQRT_TWO * torch.bmm(factor.tie_slope[:, first:last, :i], n[:i].transpose(0, 1))
    above = torch.where(here & (side > 0), bound, torch.inf).amin(1)
    below = torch.where(here & (side < 0), bound, -torch.inf).amax(1)
    return above, below
