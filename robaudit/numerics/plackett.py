"""How does an orthant probability change with its limits and its correlations?"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_pdf

_DEGENERATE = 1e-12  # conditional variance taken as zero
_NEGLIGIBLE = 1e-14  # densities below it give a derivative of zero
_HELD = 1 << 22  # correlation entries of conditional problems held at once

Probability = Callable[[Tensor, Tensor], Tensor]


def limit_gradient(upper: Tensor, correlation: Tensor, probability: Probability) -> Tensor:
    """dp/dz_i = phi(z_i) P[the others hold | Z_i = z_i]; (rows, k).

    At a kink (two equal limits of variables of correlation 1) each gets the whole one-sided derivative.

    Args:
        upper: limits z, (rows, k), float64.
        correlation: (rows, k, k).
        probability: orthant probability of (n, m) limits and (n, m, m) correlations.

    Source:
        Plackett (1954), Biometrika 41, section 2.
    """
    density = normal_pdf(upper)
    row, first = (density > _NEGLIGIBLE).nonzero(as_tuple=True)
    gradient = torch.zeros_like(upper)
    k = upper.shape[1]
    for part in torch.arange(len(row), device=upper.device).split(max(1, _HELD // max(1, k * k))):
        at = (row[part], first[part])
        z, r = condition(upper[at[0]], correlation[at[0]], at[1])
        gradient[at] = density[at] * probability(z, r)
    return gradient


def correlation_gradient(upper: Tensor, correlation: Tensor, probability: Probability) -> Tensor:
    """dp/drho_ij = phi_2(z_i, z_j; rho_ij) P[the others hold | Z_i = z_i, Z_j = z_j]; (rows, k, k).

    Symmetric, half of the derivative in each of (i, j) and (j, i), zero on the diagonal and where |rho| = 1, at which
    the density does not exist.

    Args:
        upper: limits z, (rows, k), float64.
        correlation: (rows, k, k).
        probability: orthant probability of (n, m) limits and (n, m, m) correlations.

    Source:
        Plackett (1954), Biometrika 41, equation (3).
    """
    gradient = torch.zeros_like(correlation)
    k = upper.shape[1]
    if k < 2:
        return gradient
    a, b = upper.unsqueeze(2), upper.unsqueeze(1)
    spare = (1.0 - correlation) * (1.0 + correlation)
    regular = spare > _DEGENERATE
    spare = torch.where(regular, spare, 1.0)
    exponent = -0.5 * (a * a - 2.0 * correlation * a * b + b * b) / spare
    density = torch.where(regular & exponent.isfinite(), exponent.exp() / (2.0 * math.pi * spare.sqrt()), 0.0)
    row, first, second = (density.triu(1) > _NEGLIGIBLE).nonzero(as_tuple=True)
    for part in torch.arange(len(row), device=upper.device).split(max(1, _HELD // max(1, k * k))):
        n, i, j = row[part], first[part], second[part]
        z, r = condition(upper[n], correlation[n], i)
        z, r = condition(z, r, j - 1)  # j > i has moved down by one
        half = 0.5 * density[n, i, j] * probability(z, r)
        gradient[n, i, j], gradient[n, j, i] = half, half
    return gradient


def condition(upper: Tensor, correlation: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Limits and correlations of the other variables, standardised, when one variable sits at its limit.

    Args:
        upper: (n, m).
        correlation: (n, m, m).
        given: (n,), int64, the variable with Z = z in each problem; its limit is finite.

    Returns:
        (n, m - 1) and (n, m - 1, m - 1). A variable that becomes certain gets the limit +inf or -inf.
    """
    m = upper.shape[1]
    index = torch.arange(len(upper), device=upper.device)
    place = torch.arange(m - 1, device=upper.device)
    rest = place + (place >= given.unsqueeze(-1))  # (n, m - 1)
    loading = correlation[index, given].gather(1, rest)
    variance = (1.0 - loading) * (1.0 + loading)
    certain = variance <= _DEGENERATE
    deviation = torch.where(certain, 1.0, variance).sqrt()
    distance = upper.gather(1, rest) - loading * upper[index, given].unsqueeze(-1)
    outcome = torch.where(distance >= -1e-9, torch.inf, -torch.inf)
    limit = torch.where(certain, outcome, distance / deviation)
    between = correlation[index[:, None, None], rest[:, :, None], rest[:, None, :]] - loading.unsqueeze(2) * loading.unsqueeze(1)
    between = (between / (deviation.unsqueeze(2) * deviation.unsqueeze(1))).clamp(-1.0, 1.0)
    between = torch.where(certain.unsqueeze(2) | certain.unsqueeze(1), 0.0, between)
    torch.diagonal(between, dim1=1, dim2=2).fill_(1.0)
    return limit, between
