"""What do a few independent, unbiased estimates of a small probability say together?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LN10 = math.log(10)


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
