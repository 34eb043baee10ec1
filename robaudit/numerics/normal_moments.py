"""Means and covariances of normal variables through the layers of a network, and the mean of their
maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf

# Entries of a covariance processed at once: 32 MiB for each intermediate result.
_BLOCK = 1 << 22
_SQRT_2PI = math.sqrt(2 * math.pi)


class MeanCovariance(NamedTuple):
    """Mean and covariance of a vector of random variables.

    Attributes:
        mean: (values,).
        covariance: (values, values).
    """

    mean: Tensor
    covariance: Tensor


def _density(x: Tensor) -> Tensor:
    """phi(x), the density of the standard normal distribution."""
    return torch.exp(-x.square() / 2) / _SQRT_2PI


def mean_of_larger(first: Tensor, second: Tensor, spread: Tensor) -> Tensor:
    """E max(X, Y) = m1 Phi(a) + m2 Phi(-a) + T phi(a) with a = (m1 - m2) / T, for jointly normal X
    and Y.

    Exact for two variables. For the largest of more variables it underestimates the mean, so it
    cannot certify anything.

    Args:
        first, second: means m1, m2, any shape, float64.
        spread: T, the standard deviation of X - Y: T^2 = s1^2 + s2^2 - 2 cov(X, Y).

    Source: Clark 1961, The greatest of a finite set of random variables. Smoothed robustness
        analysis, eq. 12 is this for independent variables, but its exponent and its error function
        have 2 pi instead of 2.
    """
    # Without spread a is +-huge, and the larger mean is returned.
    safe = spread.clamp_min(torch.finfo(spread.dtype).tiny)
    a = (first - second) / safe
    return first * normal_cdf(a) + second * normal_cdf(-a) + spread * _density(a)


def probability_of_larger(first: Tensor, second: Tensor, spread: Tensor) -> Tensor:
    """P[X > Y] = Phi((m1 - m2) / T), for jointly normal X and Y.

    With Y the largest of all other logits it is P_c of the paper: at least the probability that X
    is larger than all of them.

    Args:
        first, second, spread: as in :func:`mean_of_larger`.

    Source: Smoothed robustness analysis, eq. 14 (there with T^2 = s1^2 + s2^2).
    """
    difference = first - second
    # Without spread: 1, 0, or 1/2 for a tie.
    limit_below = torch.where(difference < 0, -torch.inf, 0.0)
    limit = torch.where(difference > 0, torch.inf, limit_below)
    safe = torch.where(spread > 0, spread, 1.0)
    return normal_cdf(torch.where(spread > 0, difference / safe, limit))


def relu_moments(mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of max(X, 0) for X ~ N(m, s^2), without cancellation for m / s far from 0.

    With a = m / s they are s h and s^2 v: h = a Phi(a) + phi(a), v = (a^2 + 1) Phi(a) + a phi(a) -
    h^2. For a > 0, max(X, 0) = X + R with R = max(-X, 0), whose moments h_R and E_R are small: h =
    a + h_R and v = 1 - E_R - 2 a h_R - h_R^2.

    Args:
        mean: m, any shape, float64.
        deviation: s >= 0, of the same shape.

    Source: Smoothed robustness analysis, eqs. 16 and 17.
    """
    is_constant = deviation <= 0
    a = mean / torch.where(is_constant, 1.0, deviation)
    # First and second moment of max(-|a| + Z, 0): of max(X, 0) / s for a <= 0, of R / s for a > 0.
    # In exact arithmetic they are positive.
    minus_abs = -a.abs()
    tail = normal_cdf(minus_abs)
    density = _density(minus_abs)
    first = (minus_abs * tail + density).clamp_min(0.0)
    second = ((minus_abs.square() + 1) * tail + minus_abs * density).clamp_min(0.0)
    above = a > 0
    h = torch.where(above, a + first, first)
    v_above = 1 - second - 2 * a * first - first.square()
    v_below = second - first.square()
    v = torch.where(above, v_above, v_below).clamp_min(0.0)
    after_mean = torch.where(is_constant, mean.clamp_min(0.0), deviation * h)
    after_variance = torch.where(is_constant, 0.0, deviation.square() * v)
    return after_mean, after_variance


def through_relu(before: MeanCovariance, order: int = 4) -> MeanCovariance:
    """Moments of max(X, 0) for normal X: means and variances exact, covariances by their series in
    the correlation rho.

    cov(max(X, 0), max(Y, 0)) = s_x s_y sum_k rho^k / k! c_k(a_x) c_k(a_y), c_1 = Phi, c_k = (-1)^k
    phi He_{k-2} for k >= 2: the Hermite coefficients of max(a + Z, 0), by Mehler's formula. The
    omitted terms are below their sum at rho = 1, known from the variances: for a variable with mean
    0 it is 3 % with two terms, 1.3 % with four; it matters only for correlations near +-1. The
    result is positive semi-definite like the input covariance.

    Args:
        before: moments of X, float64.
        order: terms of the series, 1 or more.
    """
    mean, covariance = before
    deviation = covariance.diagonal().clamp_min(0.0).sqrt()
    is_constant = deviation <= 0
    safe_deviation = torch.where(is_constant, 1.0, deviation)
    a = mean / safe_deviation
    after_mean, after_variance = relu_moments(mean, deviation)
    # The coefficients of a constant are 0, which makes its covariances 0.
    scale = torch.where(is_constant, 0.0, deviation)
    coefficients = _hermite_coefficients(a, order) * scale  # (order, values)
    inverse = torch.where(is_constant, 0.0, 1 / safe_deviation)
    after = torch.empty_like(covariance)
    rows = max(1, _BLOCK // len(mean))
    for part in torch.arange(len(mean), device=mean.device).split(rows):
        rho = (covariance[part] * inverse[part, None] * inverse).clamp(-1.0, 1.0)
        # rho (c_1 c_1' + rho (c_2 c_2' + ...)), from the inside out (Horner's rule).
        series = coefficients[-1, part, None] * coefficients[-1]
        for c in coefficients[:-1].flip(0):
            series = series.mul_(rho).add_(c[part, None] * c)
        after[part] = series.mul_(rho)
    # Variances are known exactly; their series, at rho = 1, is the one that converges slowest.
    after.diagonal().copy_(after_variance)
    return MeanCovariance(after_mean, after)


def _hermite_coefficients(a: Tensor, order: int) -> Tensor:
    """E[max(a + Z, 0) He_k(Z)] / sqrt(k!) for k = 1, 2, ... (order, values), up to signs that
    cancel in products of two."""
    density = _density(a)
    coefficients = [normal_cdf(a)]
    # He_(k-3) and He_(k-2) at k = 2: He_(-1) counts as 0, He_0 = 1.
    before = torch.zeros_like(a)
    polynomial = torch.ones_like(a)
    for k in range(2, order + 1):
        coefficients.append(density * polynomial / math.sqrt(math.factorial(k)))
        # He_(k-1) = a He_(k-2) - (k-2) He_(k-3)
        following = a * polynomial - (k - 2) * before
        before = polynomial
        polynomial = following
    return torch.stack(coefficients)


def through_affine(
    function: Callable[[Tensor], Tensor],
    mean: Tensor,
    covariance: Tensor,
    rows: int,
) -> MeanCovariance:
    """Moments of A X + b: exactly A m + b and A S A^T, without A.

    Args:
        function: values (n, *shape) to A x + b, (n, *other shape).
        mean: m (*shape), float64.
        covariance: S (values, values).
        rows: values passed to ``function`` at once.
    """
    offset = function(torch.zeros_like(mean)[None])

    def products(matrix: Tensor) -> Tensor:
        """A times each row of a matrix: (n, values) -> (n, other values)."""
        parts = []
        for part in matrix.split(rows):
            images = part.reshape(-1, *mean.shape)
            parts.append((function(images) - offset).flatten(1))
        return torch.cat(parts)

    # The rows of S A^T, then the rows of (S A^T)^T A^T = A S A^T, as S is symmetric.
    covariance_after = products(products(covariance).T.contiguous())
    mean_after = function(mean[None])[0].flatten()
    # Rounding leaves the product a little asymmetric.
    return MeanCovariance(mean_after, (covariance_after + covariance_after.T) / 2)
