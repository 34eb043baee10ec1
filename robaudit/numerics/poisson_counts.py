"""Poisson counts as a fixed, increasing function of a standard normal variable: the Poisson
quantile at its probability."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf

SWITCH = 10.0
"""The smallest rate at which the expansion is used."""

_FARTHEST = 7.5  # below the switch, z is clamped to this: a probability of 3e-14
# of s: where r is 0, and where its series stops being accurate; z = 7.9 at the switch
_LIMITS = (
    -math.sqrt(2.0),
    2.5,
)
_RADIUS = (1.0, 1.0, 1 / 6, -1 / 72, 1 / 270, -23 / 17280, 19 / 34020)  # r(s), by powers of s
_FIRST = (1 / 3, -1 / 36, 7 / 810, -137 / 38880, 5 / 3024)  # c0(s)
_SECOND = (-8 / 405, 671 / 38880, -0.012714)  # c1(s); the last number is fitted


def poisson_quantile(rate: Tensor, z: Tensor) -> Tensor:
    """The smallest k with P[N <= k] >= Phi(z) for N ~ Poisson(rate), so that N has that
    distribution if z is standard normal.

    Below a rate of 10, the probabilities of 0, 1, 2, ... are summed until they reach Phi(z), in
    float64: exact but for rounding. From 10 on, it is floor(Q) of the quantile Q of the continuous
    distribution function Gamma(k, rate) / Gamma(k), expanded for large rates at s = z / sqrt(rate):

        Q = rate r(s) + c0(s) + c1(s) / rate + O(rate^-2),     r log r - r + 1 = s^2 / 2,     r = 1 + s + s^2/6 - s^3/72 + ...

    For normal z, fewer than 1e-4 of the counts differ from the exact ones at a rate of 10 (by one),
    1e-5 at 30, 2e-6 at 100. Beyond z = 7.5 (a probability of 3e-14), counts of rates below the
    switch no longer grow; above it, beyond z = 2.5 sqrt(rate).

    Args:
        rate: expected counts >= 0, float64: of the shape of z, or (1, ...) if all rows of z have
            the same rates.
        z: (n, ...), any floating dtype.

    Returns:
        Counts (n, ...), float64. An element depends on its own rate and z alone, to the bit.

    Source:
        Giles (2016), Algorithm 955, ACM Trans. Math. Softw. 42: the continuous function and the
        form of the expansion. The coefficients of r and c0 follow from r log r - r + 1 = s^2 / 2
        and c0 = log(s sqrt(r) / (r - 1)) / log r.
    """
    rates = rate.flatten(1)
    values = z.double().flatten(1)
    few = rates < SWITCH
    if few.all():
        return _by_summation(rates, values).view(z.shape)
    count = _by_expansion(rates.clamp_min(SWITCH), values)
    small = few & (rates > 0.0)
    count.masked_fill_(few, 0.0)
    if len(rates) == 1:
        columns = small[0].nonzero().squeeze(1)
        count[:, columns] = _by_summation(rates[:, columns], values[:, columns])
    else:
        count[small] = _by_summation(rates[small], values[small])
    return count.view(z.shape)


def _by_expansion(rate: Tensor, z: Tensor) -> Tensor:
    s = (z / rate.sqrt()).clamp_(*_LIMITS)
    quantile = _polynomial(_RADIUS, s).mul_(rate)
    quantile.add_(_polynomial(_FIRST, s)).add_(_polynomial(_SECOND, s).div_(rate))
    return quantile.floor_().clamp_min_(0.0)


def _polynomial(coefficients: tuple[float, ...], s: Tensor) -> Tensor:
    *lower, first = coefficients
    value = torch.full_like(s, first)
    for coefficient in reversed(lower):
        value.mul_(s).add_(coefficient)
    return value


def _by_summation(rate: Tensor, z: Tensor) -> Tensor:
    count = torch.zeros_like(z, dtype=torch.uint8)  # at most 54
    if not z.numel():
        return count.to(z.dtype)
    u = normal_cdf(z.clamp_max(_FARTHEST))
    term = torch.exp(-rate)
    total = term.clone()
    for k in range(1, 1 + _steps(float(rate.max()), float(u.max()))):
        count.add_((u > total).view(torch.uint8))
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
    return k + 2  # an extra term, in case the device rounds the last sum differently
