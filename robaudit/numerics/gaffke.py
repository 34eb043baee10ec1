"""Gaffke's one-sided confidence bounds for the mean of a bounded distribution."""

from __future__ import annotations

import cmath
import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Most distinct values; more are distributed over a grid. The bound of 5,000 beta values moves by
# 2e-9 then.
_GRID = 2**11

# Distance of two points of the trapezoid rule in r. The error of log P on beta distributions (2 to
# 1001 weights) is 2e-6 at .4, 1e-7 at .3, 1e-5 at .5.
_STEP = 0.4

# The integrand exp(-r^2) is 2e-12 at r = 13 * .4; twenty points give the same error.
_STEPS = 13

# Newton's steps to the next point of the path. Six were enough in 45 trials, with alpha from .5 to
# 1e-9.
_NEWTON = 12

# Secant steps to the bound: 8 in the median of these trials, 35 at most.
_ITERATIONS = 200

# Halvings of [0, 1] for the saddle point, to 1e-12. K - log s is flat there, so only the square of
# this error enters.
_BISECTIONS = 40

_TOLERANCE = 1e-9

# log of the smallest probability whose normal quantile is computed: exp(-700) is still a normal
# float64 number.
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
    above_low = np.asarray(values, dtype=np.float64).ravel() - low
    x, counts = _distinct(above_low)
    top = float(x[-1])
    if top <= 0.0:
        return low
    # The bound scales with the values, so all ranges share one computation on [0, 1].
    return low + top * _lower((x / top).tobytes(), counts.tobytes(), alpha)


# A report, a page or a session needs the same means several times. Bytes are hashable, arrays are
# not.
@lru_cache(maxsize=1024)
def _lower(distinct: bytes, counts_of_distinct: bytes, alpha: float) -> float:
    """The bound for distinct values in [0, 1] and their counts, both as bytes of float64."""
    from scipy.special import ndtri  # commands start without SciPy

    # The added value at the lower end of the range, with a weight of one value.
    x = np.append(0.0, np.frombuffer(distinct))
    counts = np.append(1.0, np.frombuffer(counts_of_distinct))
    n = float(counts.sum()) - 1.0
    mean = float(x @ counts) / n
    target = float(ndtri(alpha))
    # The root is sought in z = Phi^-1(P[weighted mean <= t]), which is nearly linear in t, so
    # secants hit it soon. P[weighted mean <= first] <= alpha; it is about a half at the mean of all
    # n + 1 values.
    first = 0.0
    last = mean
    old_guess = mean
    old_height = _quantile_at(x, counts, mean) - target
    normal_bound = mean + target * math.sqrt(float(np.square(x - mean) @ counts)) / n
    guess = max(mean / 2.0, normal_bound)
    for iteration in range(1, _ITERATIONS):
        height = _quantile_at(x, counts, guess) - target
        if height < 0.0:
            first = guess
        else:
            last = guess
        if abs(height) <= _TOLERANCE or last - first <= _TOLERANCE * first:
            break
        secant = first
        if height != old_height:
            secant = guess - height * (guess - old_guess) / (height - old_height)
        old_guess = guess
        old_height = height
        # Each fifth step bisects, because secants alone may creep along one end of the interval.
        take_secant = first < secant < last and iteration % 5
        guess = secant if take_secant else (first + last) / 2.0
    return guess


def _distinct(values: Floats) -> tuple[Floats, Floats]:
    """The distinct values, ascending, and their counts.

    If there are very many, values on a grid and weights with the same mean and sum.
    """
    x, counts = np.unique(values, return_counts=True)
    if len(x) <= _GRID:
        return x, counts.astype(np.float64)
    grid = np.linspace(x[0], x[-1], _GRID)
    place = (x - x[0]) / (grid[1] - grid[0])
    # The largest value lies at the end of the last cell, and not in a cell beyond it.
    left = np.minimum(place.astype(np.int64), _GRID - 2)
    # Each value is divided between its two grid points in proportion to its nearness, which keeps
    # the mean.
    left_weights = np.bincount(left, counts * (left + 1 - place), _GRID)
    right_weights = np.bincount(left + 1, counts * (place - left), _GRID)
    weights = left_weights + right_weights
    return grid, np.asarray(weights, dtype=np.float64)


def _quantile_at(x: Floats, counts: Floats, t: float) -> float:
    """The normal quantile of P[sum_i D_i x_i <= t]: nearly linear in t."""
    from scipy.special import ndtri

    log_probability = max(_log_probability(x, counts, t), _LEAST_LOG)
    return float(ndtri(math.exp(log_probability)))


def _log_probability(x: Floats, counts: Floats, t: float) -> float:
    """log P[sum_i D_i x_i <= t], D ~ Dirichlet(counts).

    It is P[Q >= 0] with Q = sum_i (t - x_i) G_i, G_i ~ Gamma(counts_i), whose cumulant generating
    function K(s) = -sum_i counts_i log(1 - (t - x_i) s) is explicit: the integral of exp(K(s) - log
    s)/(2 pi i) upwards through the positive numbers below the first singularity. It is taken along
    the path of steepest descent from the saddle point, where K(s) - log s falls by r^2: the
    integrand is exp(-r^2) ds/dr, smooth, and the trapezoid rule converges geometrically. The path
    meets no other saddle point, as all are real (Gauss and Lucas).

    Source: Dirichlet weights as gamma variables over their sum; saddle-point paths: Daniels 1954,
        Annals of Mathematical Statistics 25.
    """
    # 1 - x_i / t, so that s below is s t of the docstring: K(s) = -sum_i counts_i log(1 - slopes_i
    # s), with its first singularity at s = 1 (x_0 = 0).
    slopes = 1.0 - x / t
    saddle = _saddle_point(slopes, counts)
    # K(s) - log s and its second derivative at the saddle point.
    top = -float(counts @ np.log1p(-slopes * saddle)) - math.log(saddle)
    curvature = float(counts @ (slopes / (1.0 - slopes * saddle)) ** 2) + saddle**-2
    s = complex(saddle)
    # ds/dr. At the saddle point top - (K - log s) = -curvature (s - saddle)^2 / 2 = r^2.
    speed = 1j * math.sqrt(2.0 / curvature)
    # The lower half of the path is the mirror image of the upper one, so Im ds/dr over r >= 0 is
    # summed, with half of its first term.
    total = speed.imag / 2.0
    for step in range(1, _STEPS + 1):
        r = step * _STEP
        # Predict the next point along the tangent, then correct it by Newton's method for
        # K(s) - log s = top - r^2.
        s = s + _STEP * speed
        for _ in range(_NEWTON):
            factors = 1.0 - slopes * s
            slope = complex(counts @ (slopes / factors)) - 1.0 / s
            excess = complex(counts @ np.log(factors)) + cmath.log(s) + top - r * r
            change = excess / slope
            s += change
            if abs(change) <= _TOLERANCE * abs(s - saddle):
                break
        # From d/dr (K(s) - log s) = -2 r.
        speed = -2.0 * r / slope
        total += math.exp(-r * r) * speed.imag
    return top + math.log(total * _STEP / math.pi)


def _saddle_point(slopes: Floats, counts: Floats) -> float:
    """The s in (0, 1) with K'(s) = 1 / s, K(s) = -sum_i counts_i log(1 - slopes_i s)."""
    low = 0.0
    high = 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if float(counts @ (slopes / (1.0 - slopes * middle))) < 1.0 / middle:
            low = middle
        else:
            high = middle
    return middle
