"""Gaffke's one-sided confidence bounds for the mean of a bounded distribution."""

from __future__ import annotations

import cmath
import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_GRID = 2**11  # most distinct values; more values are distributed over a grid
_STEP = 0.4
_STEPS = 13
_NEWTON = 12
_ITERATIONS = 200
_BISECTIONS = 40
_TOLERANCE = 1e-9
_LEAST_LOG = -700.0


def gaffke_lower(values: ArrayLike, low: float, alpha: float) -> float:
    """A lower confidence bound for the mean of a distribution from independent values; it fails
    with probability at most alpha.

    Add a value at the lower end of the range, give the n + 1 values random weights D ~ Dirichlet(1,
    ..., 1), and take the alpha-quantile of their weighted mean:

        P[D_0 low + sum_i D_i x_i <= bound] = alpha.

    It needs no upper end of the range. For values of 0 and 1 it is Clopper-Pearson's bound; for
    many spread-out values it tends to Student's. Coverage for every distribution is proven for n =
    1 and for distributions on two values, one of them ``low``; in general it is a conjecture
    without a known counterexample, unlike for Student's t, which misses far too often if a rare
    value dominates the mean.

    Args:
        values: (n,), finite, at least ``low``, n >= 1; in any order.
        low: the lower end of the range, finite.
        alpha: in (0, 0.5].

    Returns:
        The bound, in [low, mean].

    Source: Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
    nonnegative variable", Math. Methods of Statistics 14 (2005); Learned-Miller and Thomas,
    arXiv:1905.06208 (2019), section 3.
    """
    x, counts = _distinct(np.asarray(values, dtype=np.float64).ravel() - low)
    top = float(x[-1])
    if top <= 0.0:
        return low
    return low + top * _lower((x / top).tobytes(), counts.tobytes(), alpha)


@lru_cache(maxsize=1024)  # a report, a page or a session needs the same means several times
def _lower(distinct: bytes, often: bytes, alpha: float) -> float:
    """The bound for distinct values in [0, 1] and their counts, both as bytes of float64."""
    from scipy.special import ndtri  # commands start without SciPy

    x = np.append(0.0, np.frombuffer(distinct))
    counts = np.append(1.0, np.frombuffer(often))
    n = float(counts.sum()) - 1.0
    mean = float(x @ counts) / n
    target = float(ndtri(alpha))
    # P[weighted mean <= first] <= alpha; it is about a half at the mean of all n + 1
    first = 0.0
    last = mean
    old = mean
    before = _quantile_at(x, counts, mean) - target
    guess = max(mean / 2.0, mean + target * math.sqrt(float(np.square(x - mean) @ counts)) / n)
    for iteration in range(1, _ITERATIONS):  # secants, with an occasional bisection
        height = _quantile_at(x, counts, guess) - target
        first, last = (guess, last) if height < 0.0 else (first, guess)
        if abs(height) <= _TOLERANCE or last - first <= _TOLERANCE * first:
            break
        secant = guess - height * (guess - old) / (height - before) if height != before else first
        old = guess
        before = height
        guess = secant if first < secant < last and iteration % 5 else (first + last) / 2.0
    return guess


def _distinct(values: Floats) -> tuple[Floats, Floats]:
    """The distinct values, ascending, and their counts; if there are very many, weights on a grid
    with the same mean."""
    x, counts = np.unique(values, return_counts=True)
    if len(x) <= _GRID:
        return x, counts.astype(np.float64)
    grid = np.linspace(x[0], x[-1], _GRID)
    place = (x - x[0]) / (grid[1] - grid[0])
    left = np.minimum(place.astype(np.int64), _GRID - 2)
    weights = np.bincount(left, counts * (left + 1 - place), _GRID) + np.bincount(
        left + 1, counts * (place - left), _GRID
    )
    return grid, np.asarray(weights, dtype=np.float64)


def _quantile_at(x: Floats, counts: Floats, t: float) -> float:
    """The normal quantile of P[sum_i D_i x_i <= t]: nearly linear in t."""
    from scipy.special import ndtri

    return float(ndtri(math.exp(max(_log_probability(x, counts, t), _LEAST_LOG))))


def _log_probability(x: Floats, counts: Floats, t: float) -> float:
    """log P[sum_i D_i x_i <= t], D ~ Dirichlet(counts).

    It is P[Q >= 0] with Q = sum_i (t - x_i) G_i, G_i ~ Gamma(counts_i), whose cumulant generating
    function K(s) = -sum_i counts_i log(1 - (t - x_i) s) is explicit: the integral of exp(K(s) - log
    s)/(2 pi i) upwards through the positive numbers below the first singularity. It is taken along
    the path of steepest descent from the saddle point, where K(s) - log s falls by r^2: the
    integrand is exp(-r^2) ds/dr, smooth, and the trapezoid rule converges geometrically. The path
    meets no other saddle point, as all are real (Gauss and Lucas).
    """
    slopes = 1.0 - x / t  # of K as a function of s t
    low = 0.0
    high = 1.0
    for _ in range(_BISECTIONS):
        c = (low + high) / 2.0
        low, high = (
            (c, high) if float(counts @ (slopes / (1.0 - slopes * c))) < 1.0 / c else (low, c)
        )
    top = -float(counts @ np.log1p(-slopes * c)) - math.log(c)
    curvature = float(counts @ (slopes / (1.0 - slopes * c)) ** 2) + c**-2
    s = complex(c)
    speed = 1j * math.sqrt(2.0 / curvature)
    total = speed.imag / 2.0
    for step in range(1, _STEPS + 1):
        r = step * _STEP
        s = s + _STEP * speed
        for _ in range(_NEWTON):
            factors = 1.0 - slopes * s
            slope = complex(counts @ (slopes / factors)) - 1.0 / s
            change = (complex(counts @ np.log(factors)) + cmath.log(s) + top - r * r) / slope
            s += change
            if abs(change) <= _TOLERANCE * abs(s - c):
                break
        speed = -2.0 * r / slope
        total += math.exp(-r * r) * speed.imag
    return top + math.log(total * _STEP / math.pi)
