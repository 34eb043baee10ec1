"""The bivariate normal distribution function."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total

_NODES = 24
_SWITCH = 0.925  # |rho| above which the integral is taken from +-1 inwards instead of from 0 outwards
_FAR = 40.0  # Phi(-40) is zero in float64, so a limit beyond it counts as infinite


def bivariate_cdf(first: Tensor, second: Tensor, rho: Tensor) -> Tensor:
    """Phi_2(a, b; rho) = P[X <= a, Y <= b] for standard normals of correlation rho, to about 1e-15.

    For moderate |rho| Plackett's identity d Phi_2 / d rho = phi_2 is integrated from the independent case,

        Phi(a) Phi(b) + 1/(2 pi) int_0^asin(rho) exp(-(a^2 + b^2 - 2 a b sin t) / (2 cos^2 t)) dt,

    and for large |rho| from the degenerate case, where the essential singularity exp(-(a - b)^2 / (2 x^2)) is
    integrated in closed form against the first terms of the smooth factor's series in x = cos t.

    Args:
        first: limits a, any shape; +-inf allowed.
        second: limits b, broadcastable to `first`.
        rho: correlations in [-1, 1], broadcastable to `first`.

    Returns:
        Probabilities in [0, 1], float64, of the broadcast shape; NaN where an input is NaN.

    Source:
        Plackett (1954), Biometrika 41; Drezner and Wesolowsky (1990), J. Stat. Comput. Simul. 35;
        Genz (2004), Stat. Comput. 14, section 2.4.
    """
    a, b, r = torch.broadcast_tensors(first.double(), second.double(), rho.double())
    shape = a.shape
    a, b, r = a.reshape(-1).clamp(-_FAR, _FAR), b.reshape(-1).clamp(-_FAR, _FAR), r.reshape(-1).clamp(-1.0, 1.0)
    strong = r.abs() > _SWITCH
    value = torch.empty_like(a)
    value[~strong] = _from_independence(a[~strong], b[~strong], r[~strong])
    value[strong] = _from_degeneracy(a[strong], b[strong], r[strong])
    low, high = normal_cdf(a), normal_cdf(b)
    value = torch.minimum(torch.maximum(value, (low - normal_cdf(-b)).clamp_min(0.0)), torch.minimum(low, high))
    return value.reshape(shape)


def _from_independence(a: Tensor, b: Tensor, rho: Tensor) -> Tensor:
    node, weight = _legendre(a.device)
    angle = torch.asin(rho)
    sine = torch.sin(angle.unsqueeze(-1) * node)  # (pairs, nodes)
    half_squares = (0.5 * (a * a + b * b)).unsqueeze(-1)
    integrand = torch.exp(((a * b).unsqueeze(-1) * sine - half_squares) / (1.0 - sine * sine))
    return normal_cdf(a) * normal_cdf(b) + angle / (2.0 * math.pi) * total(integrand * weight)


def _from_degeneracy(a: Tensor, b: Tensor, rho: Tensor) -> Tensor:
    # For rho < 0 reflect the second variable: P[X <= a, Y <= b] = P[X <= a] - P[X <= a, -Y <= -b].
    negative = rho < 0
    c = torch.where(negative, -b, b)
    missing = _missing_mass(a, c, rho.abs())
    comonotone = normal_cdf(torch.minimum(a, b)) - missing
    # P[-b < X <= a] from whichever tail does not cancel
    between = torch.where(a < 0, normal_cdf(a) - normal_cdf(-b), normal_cdf(b) - normal_cdf(-a)).clamp_min(0.0)
    return torch.where(negative, between + missing, comonotone)


def _missing_mass(a: Tensor, b: Tensor, rho: Tensor) -> Tensor:
    """1/(2 pi) int_0^X exp(-d^2 / (2 x^2)) g(x) dx with d = |a - b|, X = sqrt(1 - rho^2)."""
    edge = torch.sqrt((1.0 - rho) * (1.0 + rho))
    gap, product = (a - b).abs(), a * b
    second, fourth = (4.0 - product) / 8.0, (12.0 - product) * (4.0 - product) / 128.0
    safe = edge.clamp_min(1e-100)
    damp = torch.exp(-0.5 * (gap / safe) ** 2)
    zeroth_moment = edge * damp - gap * math.sqrt(2.0 * math.pi) * normal_cdf(-gap / safe)
    cube = edge * edge * edge
    second_moment = (cube * damp - gap * gap * zeroth_moment) / 3.0
    fourth_moment = (cube * edge * edge * damp - gap * gap * second_moment) / 5.0
    series = zeroth_moment + second * second_moment + fourth * fourth_moment
    # The rest, g minus its series, is O(x^6) and smooth enough for Gauss-Legendre.
    node, weight = _legendre(a.device)
    square = (safe.unsqueeze(-1) * node) ** 2  # (pairs, nodes)
    cosine = torch.sqrt(1.0 - square)
    log_damp = -0.5 * (gap * gap).unsqueeze(-1) / square
    half_product = 0.5 * product.unsqueeze(-1)
    exact = torch.exp(log_damp - 2.0 * half_product / (1.0 + cosine)) / cosine
    expansion = torch.exp(log_damp - half_product) * (1.0 + square * (second.unsqueeze(-1) + square * fourth.unsqueeze(-1)))
    rest = edge * total((exact - expansion) * weight)
    # exp(-ab/2) overflows only where damp has long made every moment zero.
    scaled = torch.where(series == 0, torch.zeros_like(series), torch.exp(-0.5 * product) * series)
    return ((scaled + rest) / (2.0 * math.pi)).clamp_min(0.0)


@lru_cache(maxsize=8)
def _legendre(device: torch.device) -> tuple[Tensor, Tensor]:
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    return torch.from_numpy(0.5 * (node + 1.0)).to(device), torch.from_numpy(0.5 * weight).to(device)
