"""Confidence sequences for a probability: intervals that hold at all numbers of draws at once.

Only scipy.special and scalar loops are used: a bound depends only on its own counts, to the last
bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Of the betas around a threshold; see :func:`prior_around` for the numbers of draws they serve.
_CONCENTRATIONS = (30.0, 300.0, 3000.0)

# Weight of the prior on the deciding side. The far end of the interval pays for it.
_NEAR = 0.9

# Enough for any float: the smallest is 2^-1074, with 53 bits. Most ends take about 60.
_HALVINGS = 1130

# Below this a ratio of incomplete beta functions counts as 0.
_SMALLEST_RATIO = 1e-300


class Prior(NamedTuple):
    """A mixture of beta distributions over the probability: the prior of the mixture martingale.

    Coverage holds for *any* prior fixed before its draws; a prior near the truth gives narrower
    intervals.

    Attributes:
        weights: weight of each component, positive, with sum 1.
        a, b: parameters of each component, > 0.
    """

    weights: Sequence[float]
    a: Sequence[float]
    b: Sequence[float]


def prior_around(threshold: float) -> Prior:
    """A prior for deciding on which side of ``threshold`` a probability lies: Jeffreys', Beta(1/2,
    1/2), and betas around it, equally weighted.

    A beta with concentration c, Beta(c threshold, c (1 - threshold)), loses about log(1 + n/c)/2
    for the unknown p and 1/(1 + n/c) of the evidence, Jeffreys' prior about log(n)/2: the beta wins
    at n = 3 c to 100 c draws. The three betas serve probabilities so near the threshold that 100 to
    300,000 draws are needed; Jeffreys' prior serves all others. The mixture costs each component
    log 4.

    Args:
        threshold: in (0, 1).

    Source: mixtures over the size of the effect: Robbins 1970; Howard et al. 2021, section 3.
    """
    a = [c * threshold for c in _CONCENTRATIONS]
    b = [c * (1.0 - threshold) for c in _CONCENTRATIONS]
    return Prior((0.25,) * 4, (0.5, *a), (0.5, *b))


def deciding_sequence(
    successes: ArrayLike,
    failures: ArrayLike,
    threshold: float,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """A confidence sequence that soon lies wholly on one side of ``threshold``: it contains the
    truth *at all times at once* with at least this probability.

    It is the set of all p with M_t(p) < 1/(1 - confidence), where log M_t(p) is the log probability
    of the counts under a prior (:func:`deciding_marginals`) - S log p - F log(1 - p). Under p, M_t
    is a nonnegative martingale that starts at 1: the probability that it ever reaches 1/a is at
    most a (Ville). So you may look after every draw and stop by any rule. For a prior, log M_t is
    convex in p with its minimum, at most 0, at S/(S + F): each end is bisected to the last bit and
    rounded outwards.

    Any family of martingales, one for each p, gives a confidence sequence. Here all p below the
    threshold share a prior with nine tenths of its weight above the threshold, and all other p a
    prior with nine tenths below: power is spent on the side that decides. Both are
    :func:`prior_around`, each component cut in two at the threshold. The price is a wider far end.
    An interval wholly above usually starts at the threshold itself; an interval wholly below ends
    at the float before it.

    Args:
        successes, failures: S and F >= 0, any shapes that broadcast.
        threshold: in (0, 1).
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64, of the broadcast shape, the smallest interval that contains every p
        not rejected. Without any count: [0, 1].

    Raises:
        ValueError: negative counts, or confidence outside (0, 1).

    Source: Ville 1939; Robbins, Annals of Mathematical Statistics 41 (1970); one-sided mixtures:
        Darling and Robbins 1968; Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 49
        (2021), beta-binomial mixture.
    """
    s, f = _checked(successes, failures, confidence)
    marginal_of_low_p, marginal_of_high_p = deciding_marginals(s, f, threshold)
    # For each of the two priors, the ends of the set of p that are not rejected with it.
    log_error = np.log1p(-confidence)
    lower_of_low, upper_of_low = _ends(s, f, marginal_of_low_p + log_error)
    lower_of_high, upper_of_high = _ends(s, f, marginal_of_high_p + log_error)
    # The first set counts below the threshold, the second from the threshold on. An end comes from
    # the other set where its own has no p on its side of the threshold.
    lower_above = np.maximum(lower_of_high, threshold)
    lower = np.where(lower_of_low < threshold, lower_of_low, lower_above)
    upper_below = np.minimum(upper_of_low, np.nextafter(threshold, 0.0))
    upper = np.where(upper_of_high >= threshold, upper_of_high, upper_below)
    return lower, upper


def deciding_marginals(s: Floats, f: Floats, threshold: float) -> tuple[Floats, Floats]:
    """log probability of a sequence with S successes and F failures under the prior for p below the
    threshold, and under the prior for the other p.

    Under Beta(a, b) it is log B(a + S, b + F) / B(a, b).
    """
    from scipy.special import betainc, betaincc, betaln

    # Each component of the prior is cut at the threshold into two parts, each with mass 1. The
    # marginal of a part is the marginal of the whole component, times the posterior mass of the
    # part, over its prior mass.
    over = np.full(s.shape, -np.inf)
    under = np.full(s.shape, -np.inf)
    prior = prior_around(threshold)
    for weight, a, b in zip(prior.weights, prior.a, prior.b, strict=True):
        a_after = np.add(a, s)
        b_after = np.add(b, f)
        whole = np.log(weight) + betaln(a_after, b_after) - betaln(a, b)
        mass_over = betaincc(a_after, b_after, threshold) / betaincc(a, b, threshold)
        mass_under = betainc(a_after, b_after, threshold) / betainc(a, b, threshold)
        over = np.logaddexp(over, whole + _log(mass_over))
        under = np.logaddexp(under, whole + _log(mass_under))
    near = np.log(_NEAR)
    far = np.log1p(-_NEAR)
    of_low_p = np.logaddexp(near + over, far + under)
    of_high_p = np.logaddexp(far + over, near + under)
    return of_low_p, of_high_p


def _log(x: Floats) -> Floats:
    """log x of each number separately; -inf below 1e-300."""
    from scipy.special import xlogy

    # NumPy's log may take neighbours together, and round them differently.
    clamped = np.maximum(x, _SMALLEST_RATIO)
    log: Floats = np.where(x > _SMALLEST_RATIO, xlogy(1.0, clamped), -np.inf)
    return log


def _checked(successes: ArrayLike, failures: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    """The counts as float64 of the broadcast shape; ValueError: they, or the confidence, are
    invalid."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    s, f = _broadcast(successes, failures)
    if not (np.all(s >= 0) and np.all(f >= 0)):
        raise ValueError("a confidence sequence needs counts that are not negative")
    return s, f


def _broadcast(successes: ArrayLike, failures: ArrayLike) -> tuple[Floats, Floats]:
    """The counts as float64, of their broadcast shape."""
    s = np.asarray(successes, dtype=np.float64)
    f = np.asarray(failures, dtype=np.float64)
    s, f = np.broadcast_arrays(s, f)
    return s, f


def _ends(s: Floats, f: Floats, least: Floats) -> tuple[Floats, Floats]:
    """The points on both sides of S/(S + F) where the log-likelihood falls to ``least``."""
    # Failures have the probability 1 - p, so the upper end is 1 - their lower end.
    lower_of_failures = _lower_end(f, s, least)
    upper = 1.0 - lower_of_failures
    # Rounded outwards, where 1 - lower_of_failures was rounded down: 1 - upper is exact.
    upper = np.where(1.0 - upper > lower_of_failures, np.nextafter(upper, 2.0), upper)
    upper = np.where(f == 0, 1.0, np.minimum(upper, 1.0))
    return _lower_end(s, f, least), upper


def _lower_end(s: Floats, f: Floats, least: Floats) -> Floats:
    """The largest p below s/(s + f) with a log-likelihood of at most ``least``, by bisection."""
    outside = np.zeros(s.shape)
    # The maximum of the likelihood; 0 without counts.
    total = s + f
    inside = np.divide(s, total, out=np.zeros(s.shape), where=total > 0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (outside + inside)
        # No float lies between the ends of any interval.
        if np.all((middle <= outside) | (middle >= inside)):
            break
        rejected = _log_likelihood(s, f, middle) <= least
        outside = np.where(rejected, middle, outside)
        inside = np.where(rejected, inside, middle)
    return np.where(s == 0, 0.0, outside)


def _log_likelihood(s: ArrayLike, f: ArrayLike, p: ArrayLike) -> Floats:
    """s log p + f log(1 - p), with 0 log 0 = 0."""
    from scipy.special import xlog1py, xlogy

    value: Floats = xlogy(s, p) + xlog1py(f, np.negative(p))
    return value
