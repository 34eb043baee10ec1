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

_LEAST_VARIANCE = 1e-8  # conditional variance of a variable determined by earlier variables
_CHECK_EVERY = 8  # variables between checks for rows that need more: on CUDA a check synchronises
_FAR = 40.0  # beyond any finite quantile: an infinite y times a slope of 0 would be NaN
_SQRT_HALF = math.sqrt(0.5)


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


def separated_values(limit: Tensor, slope: Tensor, points: Tensor) -> Tensor:
    """The integrand prod_i Phi(t_i), with t_i = limit_i - sum_{j<i} slope_ij y_j and y_i =
    Phi^-1(u_i Phi(t_i)).

    Its mean over uniform u is the orthant probability.

    Args:
        limit: of an :class:`OrderedFactor` (rows, width).
        slope: its slopes (rows, width, width).
        points: u, (width, points) in (0, 1), float64.

    Returns:
        (rows, points), float64.

    Source:
        Genz (1992), J. Comput. Graph. Stat. 1, equation (5).
    """
    width = limit.shape[1]
    # All t_i over sqrt 2, updated in place: (width, rows, points). So scaled, Phi(t) is
    # erfc(-t / sqrt 2) / 2 without a further product.
    scaled = (limit.T * _SQRT_HALF).unsqueeze(-1).repeat(1, 1, points.shape[1])
    # by the variable that acts on later variables: (width, width, rows, 1)
    slopes = slope.permute(2, 1, 0).contiguous().unsqueeze(-1)
    product = torch.ones_like(scaled[0])
    phi = torch.empty_like(product)
    y = torch.empty_like(product)
    for i in range(width):
        torch.erfc(scaled[i].neg_(), out=phi).mul_(0.5)
        product.mul_(phi)
        if i == width - 1:
            break
        torch.mul(phi, points[i], out=y)
        torch.special.ndtri(y, out=y).mul_(_SQRT_HALF)
        y.clamp_(-_FAR, _FAR)
        scaled[i + 1 :].addcmul_(slopes[i, i + 1 :], y, value=-1.0)
    return product
