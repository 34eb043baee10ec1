"""The confidence of repeated looks at a growing sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NODES = 40
_NODES_PER_DEVIATION = 3.0
"""Nodes of a look: more where a step to a neighbouring look is small, because the density then
changes within a small part of the range. Four times as many change no level by 1e-12."""
_ROUNDING = 1e-6
"""Looks that are nearly independent, or nearly the same, have a z at an end of its range but for
rounding."""


def confidence_of_each(confidence: float, looks: Sequence[int]) -> float:
    """The confidence of the interval at each of several looks at a growing sample, such that the
    intervals of all looks hold together with ``confidence``.

    It is the same at all looks (Pocock). The estimates are those of a Brownian motion B, seen when
    the sample has n_1 < ... < n_K draws. The two-sided normal intervals of all looks hold if
    |B(n_k)| <= z sqrt(n_k) for all k. Let f_k be the density of B(n_k) on paths that kept to this
    before. Then

        f_1(x) = phi(x; n_1),
        f_k(x) = integral of f_(k-1)(y) phi(x - y; n_k - n_(k-1)) over |y| <= z sqrt(n_(k-1)),

    phi(x; v) being the normal density of variance v, and the paths that leave at n_k have the
    probability of f_k beyond z sqrt(n_k). z is such that these add up to 1 - confidence. The
    integrals are sums over Gauss-Legendre nodes; the result's error is below 1e-12.

    Clopper-Pearson intervals of binomial counts at this confidence miss at any look with a
    probability of at most 1 - confidence in every case computed
    (``tests/unit/numerics/test_looks.py``).

    Several families of intervals, of classes for instance, share the error first, and each of
    them its looks: ``confidence_of_each(simultaneous(confidence, families), looks)``. In the other
    order the intervals would miss more often.

    Args:
        confidence: of all looks together, in (0, 1).
        looks: the number of draws at each look, one or more, ascending. Only their ratios matter.

    Returns:
        The nominal confidence of each look; ``confidence`` if there is only one.

    Raises:
        ValueError: no looks, looks that are not positive and ascending, or confidence outside
            (0, 1).

    Source: the recursion: Armitage, McPherson and Rowe, Journal of the Royal Statistical Society A
        132 (1969); equal levels: Pocock, Biometrika 64 (1977).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    is_ascending = all(earlier < later for earlier, later in pairwise((0, *looks)))
    if not looks or not is_ascending:
        raise ValueError(f"looks must be positive and ascending, not {list(looks)}")
    # Only ratios matter, and equal ratios are equal floats.
    return _confidence_of_each(confidence, tuple(look / looks[-1] for look in looks))


@cache
def _confidence_of_each(confidence: float, times: tuple[float, ...]) -> float:
    """The value of :func:`confidence_of_each` for looks at these shares of the last look."""
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    if len(times) == 1:
        return confidence
    error = 1.0 - confidence

    def excess(z: float) -> float:
        return _miss(z, times) - error

    # The level of a single look is too low, and Bonferroni's too high.
    low = -ndtri(error / 2.0)
    high = -ndtri(error / 2.0 / len(times))
    z = brentq(excess, low - _ROUNDING, high + _ROUNDING, xtol=1e-12)
    return float(1.0 - 2.0 * ndtr(-min(max(z, low), high)))


def _miss(z: float, times: Sequence[float]) -> float:
    """The probability that |B(t)| > z sqrt(t) at any of these times of a Brownian motion B."""
    from scipy.special import ndtr

    miss = 2.0 * float(ndtr(-z))
    steps = np.diff(times)
    # f_k at the nodes, times their weights. f_k is even, so the positive half suffices.
    nodes, weights = _half_nodes(_number(z, times[0], steps[0]))
    x = z * math.sqrt(times[0]) * nodes
    mass = 2.0 * z * weights * np.exp(-(x**2) / (2.0 * times[0])) / math.sqrt(2.0 * math.pi)
    for k, step in enumerate(steps, start=1):
        deviation = math.sqrt(step)
        end = z * math.sqrt(times[k])
        leaves = ndtr((x - end) / deviation) + ndtr((-x - end) / deviation)
        miss += float(mass @ leaves)
        if k == len(steps):
            break
        nodes, weights = _half_nodes(_number(z, times[k], min(step, steps[k])))
        y = end * nodes
        # (nodes here, nodes of the look before)
        near = (y[:, None] - x) / deviation
        far = (y[:, None] + x) / deviation
        kernel = np.exp(-(near**2) / 2.0) + np.exp(-(far**2) / 2.0)
        mass = end / deviation / math.sqrt(2.0 * math.pi) * weights * (kernel @ mass)
        x = y
    return miss


def _number(z: float, time: float, step: float) -> int:
    """The number of nodes on [-z sqrt(time), z sqrt(time)] beside a step of this length."""
    deviations = 2.0 * z * math.sqrt(time / step)
    # Rounded up to few distinct numbers, as making nodes takes longer than using them.
    return _NODES * math.ceil(max(1.0, _NODES_PER_DEVIATION * deviations / _NODES))


@cache
def _half_nodes(number: int) -> tuple[Floats, Floats]:
    """The positive Gauss-Legendre nodes of [-1, 1] and their weights, of an even ``number``."""
    from scipy.special import roots_legendre

    nodes, weights = roots_legendre(number)
    return nodes[number // 2 :], weights[number // 2 :]
