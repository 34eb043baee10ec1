"""Poisson counts as a fixed, increasing function of a standard normal variable: the Poisson
quantile at its probability."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf

SWITCH = 10.0
"""The smallest rate at which the expansion is used."""

# Below the switch, z is clamped to this: a probability of 3e-14. Beyond, 1 - Phi(z) is not far from
# the rounding of the summed probabilities.
_FARTHEST = 7.5
# Of s: where r is 0, and where its series stops being accurate; z = 7.9 at the switch.
_LIMITS = (-math.sqrt(2.0), 2.5)

# Coefficients by powers of s, for r(s), c0(s) and c1(s) of :func:`poisson_quantile`. The last
# number is fitted: with it 4e-5 of the counts are off at a rate of 10, and 1.6e-4 without.
_RADIUS = (1.0, 1.0, 1 / 6, -1 / 72, 1 / 270, -23 / 17280, 19 / 34020)
_FIRST = (1 / 3, -1 / 36, 7 / 810, -137 / 38880, 5 / 3024)
_SECOND = (-8 / 405, 671 / 38880, -0.012714)


def poisson_quantile(rate: Tensor, z: Tensor) -> Tensor:
    """The smallest k with P[N <= k] >= Phi(z) for N ~ Poisson(rate), so that N has that
    distribution if z is standard normal.

    Below a rate of 10, the probabilities of 0, 1, 2, ... are summed until they reach Phi(z), in
    float64: exact but for rounding. From 10 on, it is floor(Q) of the quantile Q of the continuous
    distribution function Gamma(k, rate) / Gamma(k), expanded for large rates at s = z / sqrt(rate):

        Q = rate r(s) + c0(s) + c1(s) / rate + O(rate^-2),
        r log r - r + 1 = s^2 / 2,  r = 1 + s + s^2/6 - s^3/72 + ...

    For normal z, fewer than 1e-4 of the counts differ from the exact ones at a rate of 10 (by one),
    1e-5 at 30, 2e-6 at 100. Beyond z = 7.5 (a probability of 3e-14), counts of rates below the
    switch no longer grow; above it, beyond z = 2.5 sqrt(rate).

    Args:
        rate: expected counts >= 0, float64: of the shape of z, or (1, ...) if all rows of z have
            the same rates.
        z: (n, ...), any floating dtype.

    Returns:
        Counts (n, ...), float64. An element depends on its own rate and z alone, to the bit.

    Source: Giles (2016), Algorithm 955, ACM Trans. Math. Softw. 42: the continuous function and the
        form of the expansion. The coefficients of r and c0 follow from r log r - r + 1 = s^2 / 2
        and c0 = log(s sqrt(r) / (r - 1)) / log r.
    """
    rates = rate.flatten(1)
    values = z.double().flatten(1)
    is_low = rates < SWITCH
    if is_low.all():
        return _by_summation(rates, values).view(z.shape)
    # The expansion of all elements in one go, then the sums of those below the switch. A rate of 0
    # has the count 0, and needs no sum.
    count = _by_expansion(rates.clamp_min(SWITCH), values)
    small = is_low & (rates > 0.0)
    count.masked_fill_(is_low, 0.0)
    if len(rates) == 1:
        columns = small[0].nonzero().squeeze(1)
        count[:, columns] = _by_summation(rates[:, columns], values[:, columns])
    else:
        count[small] = _by_summation(rates[small], values[small])
    return count.view(z.shape)


def _by_expansion(rate: Tensor, z: Tensor) -> Tensor:
    """floor(Q), by Giles' expansion for rates of at least :data:`SWITCH`."""
    s = (z / rate.sqrt()).clamp_(*_LIMITS)
    # Q = rate r(s) + c0(s) + c1(s) / rate
    quantile = _polynomial(_RADIUS, s).mul_(rate)
    quantile.add_(_polynomial(_FIRST, s))
    quantile.add_(_polynomial(_SECOND, s).div_(rate))
    return quantile.floor_().clamp_min_(0.0)


def _polynomial(coefficients: tuple[float, ...], s: Tensor) -> Tensor:
    """sum_k coefficients[k] s^k, by Horner's rule."""
    *lower, highest = coefficients
    value = torch.full_like(s, highest)
    for coefficient in reversed(lower):
        value.mul_(s).add_(coefficient)
    return value


def _by_summation(rate: Tensor, z: Tensor) -> Tensor:
    """The smallest k with P[N <= k] >= Phi(z), by summing P[N = 0], P[N = 1], ..."""
    # Rates below the switch and z up to 7.5 give counts of at most 54, which fit a byte.
    count = torch.zeros_like(z, dtype=torch.uint8)
    if not z.numel():
        return count.to(z.dtype)
    u = normal_cdf(z.clamp_max(_FARTHEST))
    term = torch.exp(-rate)  # P[N = 0]
    total = term.clone()
    steps = _steps(float(rate.max()), float(u.max()))
    for k in range(1, 1 + steps):
        # The count is the number of k with P[N <= k] < u.
        count.add_((u > total).view(torch.uint8))
        # P[N = k] = P[N = k - 1] rate / k
        term.mul_(rate).div_(k)
        total.add_(term)
    return count.to(z.dtype)


def _steps(rate: float, u: float) -> int:
    """The number of terms that suffices for the largest count."""
    term = total = math.exp(-rate)
    k = 0
    while total < u and term > 0.0:
        k += 1
        term *= rate / k
        total += term
    # Two more than needed here, in case the device rounds the last sums differently.
    return k + 2
