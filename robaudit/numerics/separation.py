"""What does separation of variables give for an ordered normal orthant probability, point by point?"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from robaudit.numerics.earlier import BLOCK, Earlier
from robaudit.numerics.factor import OrderedFactor
from robaudit.numerics.rowwise import total
from robaudit.numerics.single import scaled_upper_quantile
from robaudit.numerics.ties import Ties

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
    limit = factor.limit if tilt is None else factor.limit - tilt - _applied(factor.slope, tilt)
    real = torch.arange(width, device=points.device) < factor.rank.unsqueeze(-1)  # of the others t = 0: their factor 2 Phi(t) is one
    first = (torch.where(real, limit, 0.0).T * -_SQRT_HALF).to(kind).unsqueeze(-1)  # (width, rows, 1)
    slope = factor.slope.to(kind)
    columns = slope.permute(2, 1, 0).contiguous().unsqueeze(-1)  # by the variable that acts: (width, width, rows, 1)
    weights = None if tilt is None else (tilt.T * _SQRT_TWO).to(kind).unsqueeze(-1).unbind()
    ties = Ties(factor, factor.tie_limit if tilt is None else _tie_limits(factor, tilt))
    n = torch.empty(width, rows, count, dtype=kind, device=points.device)
    earlier = Earlier(n)
    each_n, each_u, each_half = n.unbind(), points.unbind(), (0.5 * points).unbind()
    product, exponent, scratch = n.new_ones(rows, count), n.new_zeros(rows, count), n.new_empty(4, rows, count).unbind()
    twice = scratch[0]
    for start in range(0, width, BLOCK):
        stop = min(start + BLOCK, width)
        s = earlier.taken_from(first[start:stop], slope, start)
        each_s = s.unbind()
        for i in range(start, stop):
            out = each_n[i] if i < width - 1 else None
            if tilt is None:
                _plain(each_s[i - start], each_u[i], twice, out)
            else:
                _tailed(each_s[i - start], each_half[i], scratch, out)
            ties.narrow(i, each_s[i - start], each_u[i], earlier, twice, out)
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
        return product.double().mul_(_halvings(width, points.device)[factor.rank].unsqueeze(-1))
    constant = 0.5 * total(tilt * tilt) + factor.rank.to(tilt.dtype) * math.log(2.0)
    return exponent.double().sub_(constant.unsqueeze(-1)).exp_()


@lru_cache(maxsize=64)
def _halvings(most: int, device: torch.device) -> Tensor:
    """2^-0 to 2^-most."""
    return torch.tensor([0.5**i for i in range(most + 1)], dtype=torch.float64, device=device)


def _applied(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices (rows, n, width) times vectors (rows, width), by row; zeros at the end of a vector change nothing."""
    return total(matrix * vector.unsqueeze(1))


def _tie_limits(factor: OrderedFactor, tilt: Tensor) -> Tensor:
    """Limits of the ties measured from the tilt."""
    if not factor.tie_level.shape[1]:
        return factor.tie_limit
    at_level = tilt.gather(1, factor.tie_level.clamp_max(tilt.shape[1] - 1))
    return factor.tie_limit - at_level - _applied(factor.tie_slope, tilt)


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
