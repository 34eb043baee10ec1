"""Are draws more skewed or heavier tailed than normal ones of that number would be?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.rowwise import mean_over


class Shape(NamedTuple):
    """Skewness, excess kurtosis, and how unlikely both would be for normal draws: the smaller two-sided p-value times two (batch,)."""

    skewness: Tensor
    kurtosis: Tensor
    p_value: Tensor


def shape_of_pairs(even: Tensor, odd: Tensor) -> Shape:
    """Skewness and excess kurtosis of antithetic draws even +- odd, tested against normality.

    The two members of a pair correlate by rho = (V_even - V_odd)/(V_even + V_odd); then the variances of the sample skewness and
    kurtosis of n normal draws change by 1 + rho^3 (taken as 1 where it would shrink) and 1 + rho^4, which is taken as fewer
    draws. The p-values are D'Agostino's and Anscombe and Glynn's (accurate from about 20 draws on), combined by Bonferroni.

    Args:
        even, odd: (batch, pairs), float64.

    Source: D'Agostino 1970 (Biometrika 57); Anscombe and Glynn 1983 (Biometrika 70).
    """
    centred = even - mean_over(even, 1)[:, None]
    v_even, v_odd = mean_over(centred.square(), 1), mean_over(odd.square(), 1)
    variance = v_even + v_odd
    flat = variance <= 0
    scale = torch.where(flat, 1.0, variance).sqrt()[:, None]
    u = torch.cat([centred + odd, centred - odd], dim=1) / scale
    squares = u.square()
    skewness, kurtosis = mean_over(u * squares, 1), mean_over(squares.square(), 1) - 3
    rho = torch.where(flat, 0.0, (v_even - v_odd) / torch.where(flat, 1.0, variance))
    n = torch.full_like(variance, float(u.shape[1]))
    square, positive = rho.square(), rho.clamp_min(0)
    fewer = n / (1 + positive * square), n / (1 + square.square())
    z = torch.stack([_skewness_score(skewness, fewer[0]), _kurtosis_score(kurtosis, fewer[1])])
    p = (2 * torch.special.erfc(z.abs() / 2**0.5)).amin(0).clamp_max(1.0)
    return Shape(torch.where(flat, 0.0, skewness), torch.where(flat, 0.0, kurtosis), torch.where(flat, 1.0, p))


def _skewness_score(b1: Tensor, n: Tensor) -> Tensor:
    y = b1 * ((n + 1) * (n + 3) / (6 * (n - 2))).sqrt()
    beta2 = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    w2 = (2 * (beta2 - 1)).sqrt() - 1
    alpha = (2 / (w2 - 1)).sqrt()
    scaled = (y / alpha).abs()
    asinh = torch.log1p(scaled + scaled.square() / (1 + (1 + scaled.square()).sqrt())) * y.sign()
    return asinh / (0.5 * w2.log()).sqrt()


def _kurtosis_score(excess: Tensor, n: Tensor) -> Tensor:
    mean = 3 * (n - 1) / (n + 1)
    variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    x = (excess + 3 - mean) / variance.sqrt()
    beta = 6 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * (6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3))).sqrt()
    a = 6 + 8 / beta * (2 / beta + (1 + 4 / beta**2).sqrt())
    ratio = (1 - 2 / a) / (1 + x * (2 / (a - 4)).sqrt())
    cube_root = torch.exp(ratio.abs().log() / 3) * ratio.sign()
    return ((1 - 2 / (9 * a)) - cube_root) / (2 / (9 * a)).sqrt()
