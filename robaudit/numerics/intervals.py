"""Confidence intervals for a proportion, a mean over images, a mean of measurements, and a mean on
a log scale.

Only scipy.special is used: scipy.stats takes most of a second to import, too long for commands that
only read a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.estimates import Estimate
from robaudit.numerics.gaffke import gaffke_lower

Floats = NDArray[np.float64]

LN10 = math.log(10)

_SMALLEST_VARIANCE = 1e-300
"""Keeps a correlation finite where a product of two variances is 0 or less: then all pairs are in
one of two parts, and the covariance is 0."""


def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """The exact (conservative) interval for a binomial proportion: each tail holds at most (1 -
    confidence)/2, for every p and n.

    lower = BetaInv(a/2; k, n - k + 1), upper = BetaInv(1 - a/2; k + 1, n - k), a = 1 - confidence;
    exactly 0 at k = 0 and exactly 1 at k = n. No trials: [0, 1].

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
    k, n = np.broadcast_arrays(_floats(successes), _floats(trials))
    if not (np.all(k >= 0) and np.all(k <= n)):
        raise ValueError("clopper_pearson: needs 0 <= successes <= trials")
    tail = (1.0 - confidence) / 2.0
    # BetaInv needs positive parameters; the clamps only affect entries that np.where discards.
    lower_end = betaincinv(np.maximum(k, 1.0), n - k + 1.0, tail)
    upper_end = betaincinv(k + 1.0, np.maximum(n - k, 1.0), 1.0 - tail)
    lower = np.where(k == 0, 0.0, lower_end)
    upper = np.where(k == n, 1.0, upper_end)
    return lower, upper


def weighted_share(
    successes: ArrayLike,
    trials: ArrayLike,
    weights: ArrayLike,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """The interval for a weighted share sum_g w_g n_g p_g / sum_g w_g n_g of independent groups of
    trials, in which a trial of group g has the weight w_g.

    Of a single weight it is Clopper and Pearson's interval, whose upper end is a quantile of
    G_1 / (G_1 + G_0), with gamma variables of k + 1 successes and n - k failures. With weights G_1
    and G_0 become

        G_1 = sum_g w_g Gamma(k_g) + max_g w_g Gamma(1),    G_0 = sum_g w_g Gamma(n_g - k_g),

    each replaced by a scaled gamma variable with the same mean and variance. The lower end is 1
    less the upper end of the failures. For rare successes this is the interval of Fay and Feuer,
    which never fell below its coverage in their simulations. Neither did this one, each side
    apart, for counts that were enumerated (``tests/unit/numerics/test_intervals.py``). MOVER on the
    groups' intervals misses rare counts far more often than stated.

    Args:
        successes, trials: (groups,), 0 <= successes <= trials; a trial at least.
        weights: (groups,), of one trial, positive.
        confidence: in (0, 1).

    Returns:
        (lower, upper); exactly 0 without a success, and exactly 1 without a failure.

    Source: Fay and Feuer, Statistics in Medicine 16 (1997), for Poisson counts.
    """
    _check_confidence(confidence)
    k = _floats(successes)
    n = _floats(trials)
    w = _floats(weights)
    tail = (1.0 - confidence) / 2.0
    upper = _weighted_upper(k, n - k, w, tail)
    lower = 1.0 - _weighted_upper(n - k, k, w, tail)
    return lower, upper


def _weighted_upper(successes: Floats, failures: Floats, weights: Floats, tail: float) -> float:
    """The upper end of :func:`weighted_share`, which misses with a chance of ``tail``."""
    from scipy.special import betaincinv

    if not failures.any():
        return 1.0
    heaviest = float(weights.max())
    mean_1 = float(weights @ successes) + heaviest
    mean_0 = float(weights @ failures)
    scale_1 = (float(weights**2 @ successes) + heaviest**2) / mean_1
    scale_0 = float(weights**2 @ failures) / mean_0
    # Both parts of the quantile, as one may be too close to 1 for the other to be its difference.
    share_1 = float(betaincinv(mean_1 / scale_1, mean_0 / scale_0, 1.0 - tail))
    share_0 = float(betaincinv(mean_0 / scale_0, mean_1 / scale_1, tail))
    return scale_1 * share_1 / (scale_1 * share_1 + scale_0 * share_0)


def paired_difference(
    lost: ArrayLike,
    won: ArrayLike,
    draws: ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """The interval for p_new - p_base from n common draws.

    ``lost`` draws keep the class of the base model only, ``won`` draws of the new model only. With
    a = lost/n, b = won/n, their Clopper-Pearson intervals [l_a, u_a] and [l_b, u_b], and d = b
    - a:

        lower = d - sqrt((b - l_b)^2 + (u_a - a)^2 + 2 r (b - l_b)(u_a - a)),
        upper = d + sqrt((u_b - b)^2 + (a - l_a)^2 + 2 r (u_b - b)(a - l_a)),

    r = sqrt(a' b' / ((1 - a')(1 - b'))) the correlation of multinomial cells, with a' = (lost +
    1/2)/(n + 1) and b' similarly: the "method of variance estimates recovery" (MOVER) on exact
    limits. Without a discordant draw it is +- log(2/alpha)/n, never zero wide. If all draws are
    discordant it is the exact binomial interval.

    Coverage, computed by enumeration (``tests/unit/numerics/test_paired.py``): at least nominal in
    every case examined, at least .9543 for a nominal .95, for n from 1 to infinity (Poisson) and
    any share of discordant draws. Draws of images with different probabilities may be pooled: their
    counts vary less than in n equal draws.

    Args:
        lost, won, draws: counts, broadcast against each other; lost + won <= draws, draws >= 1.
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64, within [-1, 1].

    Source: Zou and Donner, Statistics in Medicine 27 (2008); the limits: Clopper and Pearson 1934.
    """
    k, m, n = np.broadcast_arrays(_floats(lost), _floats(won), _floats(draws))
    not_negative = np.all(k >= 0) and np.all(m >= 0)
    if not (not_negative and np.all(k + m <= n) and np.all(n >= 1)):
        raise ValueError("paired_difference: needs 0 <= lost + won <= draws and a draw")
    low_a, high_a = clopper_pearson(k, n, confidence)
    low_b, high_b = clopper_pearson(m, n, confidence)
    a = k / n
    b = m / n
    # Half a count more, so that the correlation is defined where a share is 0 or 1.
    near_a = (k + 0.5) / (n + 1)
    near_b = (m + 0.5) / (n + 1)
    # Cells of a multinomial have the correlation -r, their difference b - a therefore +r between
    # the errors of b and of -a.
    odds_product = near_a * near_b / ((1 - near_a) * (1 - near_b))
    r = np.sqrt(np.minimum(1.0, odds_product))
    below = _correlated_norm(b - low_b, high_a - a, r)
    above = _correlated_norm(high_b - b, a - low_a, r)
    lower = np.maximum(-1.0, b - a - below)
    upper = np.minimum(1.0, b - a + above)
    return lower, upper


def antithetic_share(
    kept: ArrayLike,
    split: ArrayLike,
    copies: ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """The interval for the probability p that a copy keeps its class, from independent antithetic
    pairs of dependent copies.

    In a share P2 of h pairs both copies keep the class, in a share P0 neither. Then p = (1 + P2 -
    P0)/2, and P2 - P0 is the difference of two multinomial cells, with the interval
    :func:`paired_difference`. The gain or loss from pairing depends on how many pairs disagree: if
    none do, the interval is Clopper-Pearson's for h trials.

    Args:
        kept: copies that kept the class.
        split: pairs with a single copy that did, broadcast against ``kept``.
        copies: number of copies, even.
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64.
    """
    k = _floats(kept)
    s = _floats(split)
    n = _floats(copies)
    # Counts may be products of a rounded share and a number of draws, and so a little below 0.
    neither = np.maximum(n - k - s, 0.0) / 2.0
    both = np.maximum(k - s, 0.0) / 2.0
    lower, upper = paired_difference(neither, both, n / 2.0, confidence)
    # p = (1 + P2 - P0) / 2
    return (1.0 + lower) / 2.0, (1.0 + upper) / 2.0


def share_variance(shares: ArrayLike, draws: ArrayLike, split: ArrayLike | None = None) -> Floats:
    """The variance of shares of votes: p (1 - p)/n for n independent votes, 2 (p (1 - p) -
    split/(2n))/n if ``split`` of n/2 antithetic pairs disagree."""
    p = _floats(shares)
    n = _floats(draws)
    variance: Floats = p * (1.0 - p)
    if split is None:
        return variance / n
    # The mean of a pair is 0, 1/2 or 1. Its second moment is p - s/4 with s = split/(n/2), so its
    # variance is p (1 - p) - split/(2n), and there are n/2 pairs.
    pair_variance = variance - np.asarray(split) / (2.0 * n)
    return np.maximum(2.0 * pair_variance / n, 0.0)


def antithetic_difference(
    halves: tuple[ArrayLike, ArrayLike],
    wholes: tuple[ArrayLike, ArrayLike],
    pairs: ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """The interval for p_new - p_base from the antithetic pairs of copies that both runs share.

    The difference of a pair is -1, -1/2, 0, 1/2 or 1. The mean is d_1/2 + d_2 with d_1, d_2 the
    differences of two cells each, for pairs that differ by 1/2 and by 1; their intervals
    (:func:`paired_difference`) are joined with the correlation of multinomial cells if the two have
    opposite signs, and without correlation where it would narrow the result.

    Args:
        halves: pairs that differ by -1/2 and by 1/2.
        wholes: pairs that differ by -1 and by 1.
        pairs: number of all pairs.
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64. Coverage is at least nominal on each side in every case enumerated
        (``tests/unit/numerics/test_paired.py``).
    """
    n = _floats(pairs)
    half = _weighted_difference(halves, n, 0.5, confidence)
    whole = _weighted_difference(wholes, n, 1.0, confidence)
    # A pair cannot differ by 1/2 and by 1 at once: the covariance of the two parts is minus the
    # product of their means, over the number of pairs. A negative correlation would narrow the
    # interval and is left out.
    variances = np.maximum(half.variance * whole.variance, _SMALLEST_VARIANCE)
    r = np.clip(-half.value * whole.value / np.sqrt(variances), 0.0, 1.0)
    difference = half.value + whole.value
    below = _correlated_norm(half.below, whole.below, r)
    above = _correlated_norm(half.above, whole.above, r)
    lower = np.maximum(-1.0, difference - below)
    upper = np.minimum(1.0, difference + above)
    return lower, upper


class _WeightedDifference(NamedTuple):
    """A weight times the difference of two multinomial cells.

    Attributes:
        value: weight * (won - lost) / pairs.
        below, above: distances to the ends of its interval.
        variance: of the contribution of one pair.
    """

    value: Floats
    below: Floats
    above: Floats
    variance: Floats


def _weighted_difference(
    cells: tuple[ArrayLike, ArrayLike],
    n: Floats,
    weight: float,
    confidence: float,
) -> _WeightedDifference:
    """The part of an antithetic difference that comes from pairs which differ by ``weight``."""
    lost, won = cells
    k = _floats(lost)
    m = _floats(won)
    value = (m - k) / n
    lower, upper = paired_difference(k, m, n, confidence)
    # E[d^2] - E[d]^2 for d = -1, 0 or 1; half a count more, so that it is not 0 without counts.
    variance = (k + m + 0.5) / (n + 1) - value**2
    return _WeightedDifference(
        value=weight * value,
        below=weight * (value - lower),
        above=weight * (upper - value),
        variance=weight**2 * variance,
    )


def _correlated_norm(x: Floats, y: Floats, r: Floats) -> Floats:
    """Distances x and y of two errors with correlation r, added in quadrature (MOVER)."""
    norm: Floats = np.sqrt(x * x + y * y + 2 * r * x * y)
    return norm


def mean_interval(
    values: ArrayLike,
    low: float,
    high: float,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """An interval for the population mean from n images with values in [low, high].

    Each finite end of the range gives Gaffke's bound
    (:func:`robaudit.numerics.gaffke.gaffke_lower`), which misses with probability at most (1 -
    confidence)/2 on its side wherever the mean lies: n images that are all at ``high`` give the
    lower bound of Clopper and Pearson, about high - 3.7 (high - low)/n at 95 %. Towards an infinite
    end it is Student's t, which assumes that no rare value dominates the mean.

    Args:
        values: (n,), finite, n >= 1.
        low, high: the range of possible values; may be infinite.
        confidence: in (0, 1).

    Returns:
        (lower, upper); an infinite end for n = 1, which gives no spread.

    Raises:
        ValueError: no values, a value that is not finite, or confidence outside (0, 1).
    """
    _check_confidence(confidence)
    x = _floats(values).ravel()
    tail = (1.0 - confidence) / 2.0
    if x.size == 0 or not np.all(np.isfinite(x)):
        raise ValueError("mean_interval: needs at least one value, all finite")
    # A computed value may be a rounding error outside of its range.
    x = x.clip(low, high)
    lower = mean_lower(x, low, tail)
    upper = -mean_lower(-x, -high, tail)
    return lower, upper


def mean_lower(values: ArrayLike, low: float, alpha: float) -> float:
    """The lower end of :func:`mean_interval`; the upper end is -mean_lower(-values, -high, alpha).

    Args:
        values: (n,), finite, at least ``low``, n >= 1.
        low: the lower end of the range; may be -inf.
        alpha: the chance to miss, in (0, 0.5].
    """
    from scipy.special import stdtrit

    if math.isfinite(low):
        return gaffke_lower(values, low, alpha)
    x = _floats(values)
    if x.size == 1:  # a single value gives no spread
        return -math.inf
    # Student's t; the quantile is negative.
    quantile = stdtrit(x.size - 1, alpha)
    distance = quantile * x.std(ddof=1) / math.sqrt(x.size)
    return float(x.mean() + distance)


def pooled_measurement_error(std_errors: ArrayLike) -> float:
    """The standard error of a mean of n independent measurements: sqrt(sum se_i^2)/n.

    It is about these images only: the spread between images does not enter.

    Args:
        std_errors: (n,), one per measurement, n >= 1.

    Raises:
        ValueError: no measurements.
    """
    errors = _floats(std_errors)
    if not errors.size:
        raise ValueError("no measurements")
    return float(np.linalg.norm(errors) / errors.size)


def pooled_measurement_interval(
    values: ArrayLike,
    lowers: ArrayLike,
    uppers: ArrayLike,
    scale: float = 1.0,
) -> tuple[float, float]:
    """The interval for a mean of n independent measurements, from their intervals ("MOVER").

    The distances add in quadrature, each side separately: lower = mean - sqrt(sum (value_i -
    lower_i)^2)/n, so that lopsided intervals stay lopsided and measurements of exactly 0 or 1 have
    a width although their standard error is 0.

    Args:
        values, lowers, uppers: (n,), with lower <= value <= upper, all with the same confidence.
        scale: multiplies the distances; at 1 the result has the same confidence.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    value = _floats(values)
    mean = float(value.mean())
    below = float(np.linalg.norm(value - _floats(lowers))) / value.size
    above = float(np.linalg.norm(_floats(uppers) - value)) / value.size
    return mean - scale * below, mean + scale * above


def quantile_ranks(n: int, q: float, confidence: float = 0.95) -> tuple[int, int]:
    """The order statistics that bound the q-quantile of the population, for any distribution.

    With B ~ Binomial(n, q): the largest r with P[B < r] <= a/2 and the smallest s with P[B >= s] <=
    a/2.

    Returns:
        (r, s), ranks from 1 to n; r = 0 or s = n + 1 if n values are too few to bound that side.
    """
    from scipy.special import bdtr

    _check_confidence(confidence)
    tail = (1.0 - confidence) / 2.0
    # P[B <= k] for k = 0..n, which rises with k. B is the number of values below the quantile: the
    # r-th smallest value lies above it if B < r.
    at_most = bdtr(np.arange(n + 1, dtype=np.float64), n, q)
    r = int(np.searchsorted(at_most, tail, side="right"))  # P[B <= r - 1] <= tail
    s = int(np.searchsorted(at_most, 1.0 - tail, side="left")) + 1  # P[B <= s - 1] >= 1 - tail
    return r, min(s, n + 1)


def _floats(numbers: ArrayLike) -> Floats:
    return np.asarray(numbers, dtype=np.float64)


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")


class LogMean(NamedTuple):
    """A mean of probabilities on the log10 scale.

    Attributes:
        estimate: log10 of the mean, with its 95 % interval.
        std_error: of the value.
        spread: standard deviation of the natural logarithms.
    """

    estimate: Estimate
    std_error: float
    spread: float


def log_mean(log_p: Sequence[float], variance: Sequence[float]) -> LogMean:
    """The logarithm of the *mean* of estimates p_r, which is unbiased (the mean of log p_r is low
    by half its variance).

    The interval takes the p_r as lognormal: with m and v the mean and variance of the n logarithms,
    log E p = m + v / 2, and the intervals of m (Student's t) and of v (chi squared) are joined by
    the method of variance estimates recovery:

        lower = m + v/2 - sqrt(t^2 v/n + (v/2)^2 (1 - (n-1)/chi2_hi)^2),
        upper = m + v/2 + sqrt(t^2 v/n + (v/2)^2 ((n-1)/chi2_lo - 1)^2).

    It reaches much further up than down once repeats differ, as most of E p is then in repeats that
    were not drawn. Repeats may also be far from lognormal (some miss a region, some only bound p),
    so it always includes Student's t around the value, log p +- t s / sqrt(n). A few repeats may
    agree by luck, so it is never narrower than the theoretical variance of the ideal case allows.

    Args:
        log_p: natural logarithms, at least two.
        variance: variance of each logarithm in the ideal case.

    Raises:
        ValueError: fewer than two estimates.

    Source: Zou, Huo and Taleban 2009, Simple confidence intervals for lognormal means, with
        Student's t for their normal quantile; the standard error is Cox's (Zhou and Gao 1997),
        sqrt(v / n + v^2 / (2 (n - 1))).
    """
    from scipy.special import chdtri, ndtri, stdtrit

    n = len(log_p)
    if n < 2:
        raise ValueError("log_mean: needs at least two estimates")
    tail = (1 - 0.95) / 2
    # log of the mean, relative to the largest p: probabilities of 1e-400 have no float.
    top = max(log_p)
    mean_over_top = math.fsum(math.exp(x - top) for x in log_p) / n
    value = top + math.log(mean_over_top)
    mean_of_logs = math.fsum(log_p) / n
    squares = math.fsum((x - mean_of_logs) ** 2 for x in log_p)
    spread = math.sqrt(squares / (n - 1))
    error_of_logs = spread / math.sqrt(n)
    ideal_error = math.sqrt(math.fsum(variance)) / n

    # Half of the variance: log E p = m + v / 2 (Zou, Huo and Taleban 2009).
    half_variance = spread**2 / 2
    t_distance = float(stdtrit(n - 1, 1 - tail)) * error_of_logs
    ideal_distance = float(ndtri(1 - tail)) * ideal_error
    least_distance = max(t_distance, ideal_distance)
    # chdtri takes the upper tail: a small one gives the high quantile of chi squared.
    chi2_high = float(chdtri(n - 1, tail))
    chi2_low = float(chdtri(n - 1, 1 - tail))
    variance_below = half_variance * (1 - (n - 1) / chi2_high)
    variance_above = half_variance * ((n - 1) / chi2_low - 1)
    lognormal_mean = mean_of_logs + half_variance
    lower = min(value - least_distance, lognormal_mean - math.hypot(t_distance, variance_below))
    upper = max(value + least_distance, lognormal_mean + math.hypot(t_distance, variance_above))

    cox_error = math.hypot(error_of_logs, half_variance * math.sqrt(2 / (n - 1)))
    error = max(cox_error, ideal_error)
    # A probability is at most 1, and its logarithm at most 0.
    bounds = lower / LN10, min(0.0, upper / LN10)
    return LogMean(Estimate.measured(value / LN10, bounds, "lognormal"), error / LN10, spread)
