"""Genz's separation of variables: a normal orthant probability as the mean of a product over
uniform points."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from robaudit.numerics.normal import normal_cdf, normal_hazard
from robaudit.numerics.rowwise import fold
from robaudit.numerics.rowwise import product as matrix_product

_LEAST_VARIANCE = 1e-8  # conditional variance of a variable determined by earlier variables
_CHECK_EVERY = 8  # variables between checks for rows that need more: on CUDA a check synchronises
_FAR = 40.0  # beyond any finite quantile: an infinite y times a slope of 0 would be NaN
_SQRT_HALF = math.sqrt(0.5)
_BELOW_ONE = 1.0 - 2.0**-24  # the largest float32 below 1
_BLOCK = 16  # variables between two matrix products, which are faster than a variable at a time


class OrderedFactor(NamedTuple):
    """P[C y <= limits] for independent standard normal y: the inequalities
    y_i <= limit_i - sum_{j<i} slope_ij y_j.

    Attributes:
        limit: over the conditional standard deviation (rows, width); +inf beyond the rank.
        slope: (rows, width, width), strictly lower triangular.
        rank: number of variables that matter (rows,), int64.
        estimate: rough probability, with each variable conditional on truncated means (rows,);
            exact for rank 0 and 1.
        rest: sum of Phi(-z_i) over all variables but the first (rows,).
        omitted: the same over those beyond the rank (rows,).
    """

    limit: Tensor
    slope: Tensor
    rank: Tensor
    estimate: Tensor
    rest: Tensor
    omitted: Tensor


def ordered_factor(upper: Tensor, correlation: Tensor, truncation: float) -> OrderedFactor:
    """The Cholesky factor of each correlation, the smallest limit first, up to the variables that
    hardly ever fail.

    A row ends where the union bound on the remaining variables is below half of `truncation` times
    the probability so far. A variable determined by earlier variables (a singular matrix) gets a
    conditional variance of 1e-8, which moves p by 2e-5 at most.

    Args:
        upper: limits z (rows, k), float64, above -inf.
        correlation: (rows, k, k), positive semi-definite with unit diagonal.
        truncation: relative mass that may be omitted; 0 omits only limits so high that Phi(-z) is
            zero.

    Returns:
        The factor; on the CPU each row depends only on its own inputs.

    Source:
        Genz and Bretz (2009), Computation of Multivariate Normal and t Probabilities, section
        4.1.3.
    """
    rows, k = upper.shape
    # The smallest limit first: in another order the integral takes 1.4 to 3.8 times as long for the
    # same error (docs/research/average_case.md).
    limit, order = upper.sort(dim=-1, stable=True)
    # mass of a variable and all later variables, and 0 at the end (rows, k + 1)
    reversed_mass = normal_cdf(-limit).flip(-1)
    beyond = pad(reversed_mass.cumsum(-1).flip(-1), (0, 1))
    columns = upper.new_zeros(k, rows, k)  # of the factor: (pivot, rows, variable)
    # of each variable, conditional on the pivots at their truncated means (rows, k)
    variance = torch.ones_like(upper)
    mean = torch.zeros_like(upper)
    estimate = torch.ones_like(upper[:, 0])
    rank = torch.zeros_like(order[:, 0])
    index = torch.arange(rows, device=upper.device)
    for i in range(k):
        # The first variable alone is exact, at no cost: it may omit nothing.
        omissible = 0.5 * truncation * estimate if i else 0.0
        matters = (rank == i) & (beyond[:, i] > omissible)
        if i % _CHECK_EVERY == 0 and not bool(matters.any()):
            break
        rank += matters
        # Column i of the Cholesky factor: (R_ji - sum_{l<i} C_jl C_il) / C_ii.
        column = correlation[index, order[:, i]].gather(1, order[:, i:])
        if i:
            known = columns[:i, :, i:]
            column -= fold(known * known[:, :, :1])
        deviation = variance[:, i].clamp_min(_LEAST_VARIANCE).sqrt()
        column /= deviation.unsqueeze(-1)
        # What a determined variable has in common with later ones is rounding, which would grow
        # from pivot to pivot.
        column *= (variance[:, i] >= _LEAST_VARIANCE).unsqueeze(-1)
        column[:, 0] = deviation
        columns[i, :, i:] = column
        # The mean of a normal variable below t is -phi(t) / Phi(t), the negative hazard.
        t = (limit[:, i] - mean[:, i]) / deviation
        estimate = torch.where(matters, estimate * normal_cdf(t), estimate)
        variance[:, i:] -= column * column
        mean[:, i:] -= column * normal_hazard(t).unsqueeze(-1)
    width = max(int(rank.max()), 1)
    real = torch.arange(width, device=upper.device) < rank.unsqueeze(-1)
    factor = columns[:width, :, :width].permute(1, 2, 0)  # (rows, variable, pivot)
    scale = torch.where(real, factor.diagonal(dim1=1, dim2=2), 1.0)
    return OrderedFactor(
        limit=torch.where(real, limit[:, :width] / scale, torch.inf),
        slope=(factor * (real / scale).unsqueeze(-1)).tril(-1),
        rank=rank,
        estimate=estimate,
        rest=beyond[:, 1],
        omitted=beyond.gather(1, rank.unsqueeze(-1)).squeeze(-1),
    )


def separated_values(limit: Tensor, slope: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The integrand prod_i Phi(t_i), with t_i = limit_i - sum_{j<i} slope_ij y_j and y_i =
    Phi^-1(u_i Phi(t_i)), and y itself.

    Its mean over uniform u is the orthant probability; the y, weighted by it, are standard normal
    variables given that all inequalities hold.

    Args:
        limit: of an :class:`OrderedFactor` (rows, width).
        slope: its slopes (rows, width, width).
        points: u, (width, points) in (0, 1). Computed in their dtype: float64 keeps small relative
            errors everywhere, float32 is for values above .01 and takes a third of the time.

    Returns:
        The integrand (rows, points), float64, and (1, y) over sqrt 2 (rows, 1 + width, points), the
        1 itself undivided, in the dtype of the points.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1, equation (5).
    """
    rows, width = limit.shape
    count = points.shape[1]
    write_factor = _single_factor if points.dtype == torch.float32 else _factor
    # All t and y are over sqrt 2, as erf and erfc take them: t = weights (1, y). A matrix product
    # has the same size in every batch, or the bits of its row would depend on the other rows.
    weights = torch.cat([limit.unsqueeze(-1) * _SQRT_HALF, -slope], -1).to(points.dtype)
    padded = pad(weights, (0, 0, 0, -width % _BLOCK))
    y = points.new_empty(rows, 1 + width, count)
    y[:, 0] = 1.0
    product = points.new_ones(rows, count)
    twice_phi = torch.empty_like(product)
    for first in range(0, width, _BLOCK):
        last = min(first + _BLOCK, width)
        if first:
            t = matrix_product(padded[:, first : first + _BLOCK, : first + 1], y[:, : first + 1])
        else:
            t = weights[:, :last, :1].repeat(1, 1, count)  # (rows, variables, points)
        for i in range(first, last):
            y_i = y[:, i + 1]
            write_factor(t[:, i - first], points[i], twice_phi, y_i)
            product.mul_(twice_phi)
            later = slice(i + 1 - first, last - first)
            t[:, later].addcmul_(weights[:, i + 1 : last, i + 1, None], y_i.unsqueeze(1))
        product.mul_(0.5 ** (last - first))
    return product.double(), y


def _factor(t: Tensor, u: Tensor, twice_phi: Tensor, y: Tensor) -> None:
    """Write 2 Phi(t) and y = Phi^-1(u Phi(t)), with t and y over sqrt 2; overwrites t."""
    torch.erfc(t.neg_(), out=twice_phi)
    torch.mul(twice_phi, u, out=y)
    y.copy_(torch.special.ndtri(y.mul_(0.5))).mul_(_SQRT_HALF).clamp_(-_FAR, _FAR)


def _single_factor(t: Tensor, u: Tensor, twice_phi: Tensor, y: Tensor) -> None:
    """:func:`_factor` in float32 by erf and its inverse, which are vectorised. Their absolute
    errors are small, the relative error of a small Phi(t) is not."""
    torch.erf(t, out=twice_phi).add_(1.0)
    torch.mul(twice_phi, u, out=y).sub_(1.0)
    torch.erfinv(y.clamp_(-_BELOW_ONE, _BELOW_ONE), out=y)
