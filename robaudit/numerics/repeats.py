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
    """

    value: float
    lower: float
    upper: float
    std_error: float


def log_mean(log_p: Sequence[float], variance: Sequence[float], confidence: float = 0.95) -> LogMean:
    """The logarithm of the *mean* of estimates p_r, which is what is unbiased (the mean of log p_r is low by half its variance).

    The interval is symmetric about it on the log scale: Student's t with the standard deviation s of the log p_r, that is
    log10 p +- t(R - 1) s / sqrt(R). Four repeats may agree by luck, so it is never narrower than the variance that theory gives in the
    ideal case allows, with the normal quantile: splitting in practice varies as much or more.

    Args:
        log_p: natural logarithms, two at least.
        variance: of each logarithm, in the ideal case.
        confidence: in (0, 1).
    """
    from scipy.special import ndtri, stdtrit

    n = len(log_p)
    if n < 2:
        raise ValueError("log_mean: needs at least two estimates")
    top = max(log_p)
    value = top + math.log(math.fsum(math.exp(x - top) for x in log_p) / n)
    centre = math.fsum(log_p) / n
    seen = math.sqrt(math.fsum((x - centre) ** 2 for x in log_p) / (n - 1) / n)
    ideal = math.sqrt(math.fsum(variance)) / n
    half = max(float(stdtrit(n - 1, 0.5 + confidence / 2)) * seen, float(ndtri(0.5 + confidence / 2)) * ideal)
    return LogMean(value / LN10, (value - half) / LN10, min(0.0, (value + half) / LN10), max(seen, ideal) / LN10)
