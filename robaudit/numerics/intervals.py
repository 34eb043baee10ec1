"""Intervals of a proportion, a mean over images, a mean of measurements, and a mean on a log scale.

Only scipy.special is used: scipy.stats takes most of a second to import, and the reading commands start often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_BLOCK = 2**16  # values at a time, so that a million need no second copy
LN10 = math.log(10)


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The exact (conservative) interval of a binomial proportion: each tail holds at most (1 - confidence)/2, for every p and n.

    lower = BetaInv(a/2; k, n - k + 1), upper = BetaInv(1 - a/2; k + 1, n - k), a = 1 - confidence; exactly 0 at k = 0 and
    exactly 1 at k = n. No trials: [0, 1].

    Args:
        successes: k, any shape.
        trials: n >= k, broadcast against ``successes``.
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64, of the broadcast shape (0-d for scalars).

    Raises:
        ValueError: not 0 <= k <= n, or confidence outside (0, 1).

    Source: Clopper and Pearson, Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    _check_confidence(confidence)
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not (np.all(k >= 0) and np.all(k <= n)):
        raise ValueError("clopper_pearson: needs 0 <= successes <= trials")
    tail = (1.0 - confidence) / 2.0
    # the clamps only feed the branches that np.where throws away
    lower = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1.0), n - k + 1.0, tail))
    upper = np.where(k == n, 1.0, betaincinv(k + 1.0, np.maximum(n - k, 1.0), 1.0 - tail))
    return lower, upper


def mean_interval(values: ArrayLike, low: float, high: float, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for the mean of the population that n images came from, for values in [low, high].

    Student's t interval, but the lower end is computed with one more observation at ``low`` and the upper end with one more
    at ``high``:

        lower = m' - t(1 - a/2; n) s' / sqrt(n + 1),   m', s' = mean and standard deviation of (values, low)

    and the mirror image above, clipped to [low, high]. n images that all sit at ``high`` give about [high - 3 (high - low)/n,
    high] (the rule of three) instead of the plain interval's zero width, and the cost fades as 1/n. An infinite end has no
    such observation: plain t there.

    Coverage (``tests/numerics/test_intervals.py``): at least nominal for spread-out values, more for few images. It under-covers,
    slightly, in one place: 0/1 values with about three failures expected among 100 images or more, where a nominal 95 % is 94.4 %
    at the least (plain t: below 80 %, falling to 0). Where the values *are* 0/1, :func:`clopper_pearson` is never below nominal.

    Args:
        values: (n,), finite, n >= 1.
        low, high: the range of possible values; may be infinite.
        confidence: in (0, 1).

    Returns:
        (lower, upper); (low, high) for n = 1, which says nothing about spread.

    Raises:
        ValueError: no values, a value that is not finite, or confidence outside (0, 1).
    """
    from scipy.special import stdtrit

    _check_confidence(confidence)
    x = np.asarray(values, dtype=np.float64).ravel()
    if x.size == 0 or not np.all(np.isfinite(x)):
        raise ValueError("mean_interval: needs at least one value, all finite")
    if x.size == 1:
        return low, high

    inner = float(x.mean())
    squares = sum(float(np.square(x[i : i + _BLOCK] - inner).sum()) for i in range(0, x.size, _BLOCK))  # about the mean

    def end(edge: float, sign: float) -> float:
        n, mean, around = x.size, inner, squares
        if np.isfinite(edge):  # one more value
            n, mean, around = n + 1, inner + (edge - inner) / (n + 1), squares + (edge - inner) ** 2 * n / (n + 1)
        t = float(stdtrit(n - 1, 0.5 + confidence / 2.0))
        return mean + sign * t * float(np.sqrt(around / (n - 1) / n))

    return max(low, end(low, -1.0)), min(high, end(high, +1.0))


def pooled_measurement_error(std_errors: ArrayLike) -> float:
    """The standard error of a mean of n independent measurements: sqrt(sum se_i^2)/n. It says nothing about other images.

    Args:
        std_errors: (n,), one per measurement, n >= 1.

    Raises:
        ValueError: no measurements.
    """
    errors = np.asarray(std_errors, dtype=np.float64)
    if not errors.size:
        raise ValueError("no measurements")
    return float(np.linalg.norm(errors) / errors.size)


def pooled_measurement_interval(values: ArrayLike, lowers: ArrayLike, uppers: ArrayLike, scale: float = 1.0) -> tuple[float, float]:
    """The interval of a mean of n independent measurements, from the interval of each ("MOVER").

    The distances add in quadrature, each side separately: lower = mean - sqrt(sum (value_i - lower_i)^2)/n, so that lopsided
    intervals stay lopsided and measurements of exactly 0 or 1 keep a width, which their standard errors have lost.

    Args:
        values, lowers, uppers: (n,), with lower <= value <= upper, all of one confidence.
        scale: multiplies the distances; 1: the result has that confidence, too.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    value, lower, upper = (np.asarray(a, dtype=np.float64) for a in (values, lowers, uppers))
    mean = float(value.mean())
    below, above = (float(np.linalg.norm(distance)) / value.size for distance in (value - lower, upper - value))
    return mean - scale * below, mean + scale * above


def quantile_ranks(n: int, q: float, confidence: float = 0.95) -> tuple[int, int]:
    """Which order statistics bound the q-quantile of the population, whatever its distribution.

    With B ~ Binomial(n, q): the largest r with P[B < r] <= a/2 and the smallest s with P[B >= s] <= a/2.

    Returns:
        (r, s), ranks from 1 to n; r = 0 or s = n + 1 where n values are too few to bound that side.
    """
    from scipy.special import bdtr

    _check_confidence(confidence)
    tail = (1.0 - confidence) / 2.0
    at_most = bdtr(np.arange(n + 1, dtype=np.float64), n, q)  # P[B <= k], k = 0..n
    r = int(np.searchsorted(at_most, tail, side="right"))  # P[B <= r - 1] <= tail
    s = int(np.searchsorted(at_most, 1.0 - tail, side="left")) + 1  # P[B <= s - 1] >= 1 - tail
    return r, min(s, n + 1)


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")


class LogMean(NamedTuple):
    """A mean of probabilities on the scale log10.

    Attributes:
        value: log10 of the mean.
        lower, upper: 95 % interval.
        std_error: of the value.
        spread: standard deviation of the natural logarithms.
    """

    value: float
    lower: float
    upper: float
    std_error: float
    spread: float


def log_mean(log_p: Sequence[float], variance: Sequence[float], confidence: float = 0.95) -> LogMean:
    """The logarithm of the *mean* of estimates p_r, which is what is unbiased (the mean of log p_r is low by half its variance).

    The interval takes the p_r as lognormal: with m and v the mean and variance of the n logarithms, log E p = m + v / 2, and the
    intervals of m (Student's t) and of v (chi squared) are joined by the method of variance estimates recovery:

        lower = m + v/2 - sqrt(t^2 v/n + (v/2)^2 (1 - (n-1)/chi2_hi)^2),  upper = m + v/2 + sqrt(t^2 v/n + (v/2)^2 ((n-1)/chi2_lo - 1)^2).

    It reaches up much further than down once repeats differ: then most of E p is in repeats that were not drawn. Repeats may also be
    anything but lognormal (some miss a region, some only bound p), so it always holds Student's t about the value, log p +- t s / sqrt(n).
    And few repeats may agree by luck, so it is never narrower than the variance that theory gives in the ideal case allows.

    Args:
        log_p: natural logarithms, two at least.
        variance: of each logarithm, in the ideal case.
        confidence: in (0, 1).

    Raises:
        ValueError: fewer than two.

    Source: Zou, Huo and Taleban 2009, Simple confidence intervals for lognormal means, with Student's t for their normal
    quantile; the standard error is Cox's (Zhou and Gao 1997), sqrt(v / n + v^2 / (2 (n - 1))).
    """
    from scipy.special import chdtri, ndtri, stdtrit

    n = len(log_p)
    if n < 2:
        raise ValueError("log_mean: needs at least two estimates")
    tail = (1 - confidence) / 2
    top = max(log_p)
    value = top + math.log(math.fsum(math.exp(x - top) for x in log_p) / n)
    centre = math.fsum(log_p) / n
    spread = math.sqrt(math.fsum((x - centre) ** 2 for x in log_p) / (n - 1))
    seen, ideal, skew = spread / math.sqrt(n), math.sqrt(math.fsum(variance)) / n, spread**2 / 2
    half = float(stdtrit(n - 1, 1 - tail)) * seen
    least = max(half, float(ndtri(1 - tail)) * ideal)
    down = skew * (1 - (n - 1) / float(chdtri(n - 1, tail)))
    up = skew * ((n - 1) / float(chdtri(n - 1, 1 - tail)) - 1)
    lower = min(value - least, centre + skew - math.hypot(half, down))
    upper = max(value + least, centre + skew + math.hypot(half, up))
    error = max(math.hypot(seen, skew * math.sqrt(2 / (n - 1))), ideal)
    return LogMean(value / LN10, lower / LN10, min(0.0, upper / LN10), error / LN10, spread)
