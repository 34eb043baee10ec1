"""Confidence intervals of a mean, a quantile and a share over measured images.

Two kinds, never mixed. *Measured* intervals are about these images: the images are fixed, their
noise draws are independent of each other. *Population* intervals are about the population that
these images are an independent sample of. The proofs rest on a single property: the interval of an
image misses its true value on a given side with a chance of at most g
(:attr:`MeasuredImages.tail`).

Rows carry 95 % intervals. For means at another confidence their distances are scaled as a normal
error's, up and down; distances of images that stopped adaptively are never narrowed, because their
distance also bounds the bias due to stopping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.estimates import Bounds
from robaudit.numerics.intervals import (
    antithetic_share,
    clopper_pearson,
    mean_lower,
    pooled_measurement_interval,
    quantile_ranks,
    weighted_share,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
_Number = TypeVar("_Number", float, Floats)

ROW_CONFIDENCE = 0.95
TAIL = 0.025
"""Chance that a row's interval misses on a given side."""

_ROUNDING = 1e-9
"""Differences up to this size are rounding: of a rank (n - 1) q that should be whole, and of a rate
relative to its tail."""

_FEWEST_REPEATS = 4
"""Repeats of estimators whose intervals come from repeats: chains, and repetitions of splitting."""

BY_RANKS = "ranks and counts of the images' intervals"
"""The method of the intervals of quantiles and shares."""

THESE_IMAGES = "these images"
"""The subject of a measured interval: the audited images; it covers their noise draws only."""
LIKE_THESE = "images like these"
"""The subject of a population interval: it covers the choice of the images, too."""


def these_images(number: int, of: str = "", *, like: bool = False) -> str:
    """The subject of an interval with the number of images.

    Args:
        number: of images; 0: unknown, and not stated.
        of: a restriction such as `` of class cat``.
        like: the interval is about the population.

    Returns:
        ``these 200 images`` or, with ``like``, ``images like these 200``.
    """
    if not number:
        return (LIKE_THESE if like else THESE_IMAGES) + of
    if number == 1:
        return ("images like this one" if like else "this image") + of
    return f"images like these {number:,}{of}" if like else f"these {number:,} images{of}"


class MeanMethod(StrEnum):
    """The method of the measured interval of a mean."""

    POOLED = "clopper-pearson:pooled"
    PAIRS = "antithetic pairs:pooled"
    WEIGHTED = "weighted votes:pooled"
    MOVER = "mover"
    MEAN_OF_ENDS = "mean of intervals"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MeasuredImages:
    """Values and 95 % intervals of images.

    Attributes:
        values, lowers, uppers: (n,); ends may be infinite. Where an image has no interval they are
            its value.
        low, high: the range of possible values.
        unknown: number of further images, without a known value.
        draws: votes of each image (n,), if all values are shares of votes whose numbers were fixed
            before the draws; else None. Antithetic pairs are equally many for all images.
        adaptive: the sampling of some stopped adaptively, so their values are biased towards the
            side where they stopped.
        split: the antithetic pairs of those votes that disagree (n,); None where votes are
            independent.
        shared: whether part of an image's error may be the same in other images (n,), bool, so that
            a mean does not average it out; None: of no image.
    """

    values: Floats
    lowers: Floats
    uppers: Floats
    low: float
    high: float
    unknown: int = 0
    draws: Counts | None = None
    adaptive: bool = False
    split: Floats | None = None
    shared: Mask | None = None

    @property
    def size(self) -> int:
        """Number of images, including those without a known value."""
        return len(self.values) + self.unknown

    @property
    def tail(self) -> float:
        """The largest chance g that an image's interval misses on a given side."""
        # A confidence sequence bounds its two sides together: all of its error may be on one side.
        return 2 * TAIL if self.adaptive else TAIL

    @property
    def method(self) -> MeanMethod:
        """The method of :func:`measured_mean`."""
        if self.draws is not None:
            if (self.draws != self.draws[:1]).any():
                return MeanMethod.WEIGHTED
            return MeanMethod.POOLED if self.split is None else MeanMethod.PAIRS
        return MeanMethod.MEAN_OF_ENDS if self.errors_add.any() else MeanMethod.MOVER

    @property
    def errors_add(self) -> Mask:
        """Whether an image's error adds to those of others in a mean, instead of averaging out
        (n,), bool."""
        if self.adaptive or self.shared is None:
            return np.full(len(self.values), self.adaptive)
        return self.shared

    def padded(self, ends: Floats, end: float) -> Floats:
        """The ends of all images, ``end`` for those without a known value."""
        return np.append(ends, np.full(self.unknown, end))

    def chosen(self, places: NDArray[np.int64], unknown: int) -> MeasuredImages:
        """A selection of the images, and ``unknown`` further ones without a known value."""
        return replace(
            self,
            values=self.values[places],
            lowers=self.lowers[places],
            uppers=self.uppers[places],
            unknown=unknown,
            draws=None if self.draws is None else self.draws[places],
            split=None if self.split is None else self.split[places],
            shared=None if self.shared is None else self.shared[places],
        )

    def mirrored(self) -> MeasuredImages:
        """The images with all signs changed, so that higher is better where lower was."""
        # A negated value is no share of votes any more.
        return replace(
            self,
            values=-self.values,
            lowers=-self.uppers,
            uppers=-self.lowers,
            low=-self.high,
            high=-self.low,
            draws=None,
            split=None,
        )

    def exact(self) -> MeasuredImages:
        """The images with the intervals that endless draws would give, if the values are the true
        ones; open ends stay open."""
        # An open end is open because of the method (a bound, a censored value), not for want of
        # draws.
        lowers = np.where(np.isinf(self.lowers), self.lowers, self.values)
        uppers = np.where(np.isinf(self.uppers), self.uppers, self.values)
        return replace(self, lowers=lowers, uppers=uppers, draws=None, split=None)

    def ends(self, tail: float) -> tuple[Floats, Floats]:
        """Intervals that each miss on a given side with a chance of at most ``tail`` (n,); NaN
        where images stopped adaptively."""
        if self.adaptive:
            # A confidence sequence at another confidence needs the counts, which are not here.
            no_ends = np.full_like(self.values, np.nan)
            return no_ends, no_ends.copy()
        draws = 0 if self.draws is None else self.draws
        return restated(self.values, self.lowers, self.uppers, draws, tail, self.split)


# --- intervals of rows at another confidence


def normal_scale(confidence: float) -> float:
    """The width of a normal error's interval relative to a row's 95 % interval."""
    from scipy.special import ndtri

    if confidence == ROW_CONFIDENCE:
        return 1.0
    return float(ndtri(0.5 + confidence / 2.0) / ndtri(0.5 + ROW_CONFIDENCE / 2.0))


def repeats_scale(tail: float) -> float:
    """The width of an interval that misses on a given side with a chance of at most ``tail``,
    relative to the 95 % interval's.

    It is the ratio of the quantiles of Student's t with three degrees of freedom, for the fewest
    repeats that estimators make are four.
    """
    from scipy.special import stdtrit

    if tail >= TAIL:
        return 1.0
    degrees = _FEWEST_REPEATS - 1
    return float(stdtrit(degrees, 1.0 - tail) / stdtrit(degrees, 1.0 - TAIL))


def scaled(value: _Number, end: _Number, scale: float) -> _Number:
    """The end of an interval at ``scale`` times its distance from the value."""
    # value - (value - end) would be rounded, and NaN for infinite values.
    return end if scale == 1.0 else value - (value - end) * scale


def share_bounds(
    shares: Floats,
    draws: float,
    confidence: float,
    split: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Intervals of shares of the same number of votes.

    Clopper-Pearson, computed once for each distinct share; with ``split`` pairs that disagree,
    intervals for antithetic copies.
    """
    if split is not None:
        return antithetic_share(shares * draws, split, draws, confidence)
    distinct = np.unique(shares)
    place = np.searchsorted(distinct, shares)
    successes = distinct * draws
    lowers, uppers = clopper_pearson(successes, np.full_like(distinct, draws), confidence)
    return lowers[place], uppers[place]


def restated(
    values: Floats,
    lowers: Floats,
    uppers: Floats,
    draws: ArrayLike,
    tail: float,
    split: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Intervals of rows that each miss on a given side with a chance of at most ``tail``, never
    narrower than before.

    Args:
        values, lowers, uppers: (n,), 95 % intervals; NaN stays NaN, infinite ends stay infinite.
        draws: for each image, the votes behind a value that is a share of votes; 0 for other
            values.
        tail: at most :data:`TAIL`.
        split: the antithetic pairs of each image that disagree; NaN where its votes are
            independent. Default: all votes are independent.

    Returns:
        (lowers, uppers): recomputed for shares of votes; the others scaled (:func:`repeats_scale`).
    """
    scale = repeats_scale(tail)
    confidence = 1.0 - 2.0 * tail
    counts = np.broadcast_to(np.asarray(draws), values.shape)
    lower = scaled(values, lowers, scale)
    upper = scaled(values, uppers, scale)
    if not counts.any():
        return lower, upper
    # With a scale of 1 they are the caller's own arrays.
    lower = lower.copy()
    upper = upper.copy()
    paired = np.zeros_like(values, dtype=np.bool_) if split is None else ~np.isnan(split)
    for n in np.unique(counts[counts > 0]):
        same_count = counts == n
        alone = same_count & ~paired
        if alone.any():
            lower[alone], upper[alone] = share_bounds(values[alone], float(n), confidence)
        in_pairs = same_count & paired
        if split is not None and in_pairs.any():
            bounds = share_bounds(values[in_pairs], float(n), confidence, split[in_pairs])
            lower[in_pairs], upper[in_pairs] = bounds
    return lower, upper


def simultaneous(confidence: float, number: int) -> float:
    """The confidence of each of ``number`` intervals that together hold with ``confidence``
    (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / number


# --- means


def measured_mean(images: MeasuredImages, confidence: float) -> Bounds:
    """The mean of these images.

    Shares of equally many votes: Clopper-Pearson of all votes together (a sum of unequal binomials
    varies less than the binomial of their mean, so it covers), of antithetic copies the interval of
    all pairs together. Shares of different numbers of votes: the interval of all votes, weighted
    (:func:`robaudit.numerics.intervals.weighted_share`). Images that stopped adaptively, or whose
    errors may be shared: the mean of their ends. Others: MOVER, the distances added in quadrature,
    each side separately. Images without a known value count at both ends of the range.

    Source: Zou and Donner, Statistics in Medicine 27 (2008); sums of unequal binomials: Hoeffding
        1956, Annals of Mathematical Statistics 27.
    """
    if not len(images.values):
        return images.low, images.high
    if images.draws is not None:
        return widened(images, _pooled_votes(images, images.draws, confidence))
    scale = normal_scale(confidence)
    adds = images.errors_add
    if adds.all():
        lower, upper = _mean_of_ends(images, scale)
    elif not adds.any():
        lower, upper = pooled_measurement_interval(
            images.values, images.lowers, images.uppers, scale
        )
    else:
        # The mean of both kinds: the ends of their means, by their numbers of images.
        together = _mean_of_ends(images.chosen(np.flatnonzero(adds), 0), scale)
        apart = images.chosen(np.flatnonzero(~adds), 0)
        pooled = pooled_measurement_interval(apart.values, apart.lowers, apart.uppers, scale)
        share = float(adds.mean())
        lower = share * together[0] + (1 - share) * pooled[0]
        upper = share * together[1] + (1 - share) * pooled[1]
    return widened(images, (max(images.low, lower), min(images.high, upper)))


def _mean_of_ends(images: MeasuredImages, scale: float) -> Bounds:
    """The means of the lower and of the upper ends, at ``scale`` times their distances from the
    mean value."""
    mean = float(images.values.mean())
    # The distances also bound a bias, which has no confidence to scale by.
    scale = max(1.0, scale)
    lower = scaled(mean, float(images.lowers.mean()), scale)
    upper = scaled(mean, float(images.uppers.mean()), scale)
    return lower, upper


def _pooled_votes(images: MeasuredImages, draws: Counts, confidence: float) -> Bounds:
    """The interval of the mean share of votes, from all votes (``draws`` (n,) an image)
    together."""
    # A sum of shares times the draws is a whole number but for rounding.
    if (draws != draws[0]).any():
        numbers, group = np.unique(draws, return_inverse=True)
        images_of = np.bincount(group)
        votes = np.bincount(group, images.values * draws).round()
        mean = float(images.values.mean())
        lower, upper = weighted_share(votes, images_of * numbers, 1.0 / numbers, confidence)
        # Rounding must not put the mean outside its own interval.
        return min(mean, lower), max(mean, upper)
    number = int(draws[0])
    total = number * len(images.values)
    all_votes = round(float(images.values.sum()) * number)
    if images.split is None:
        low, high = clopper_pearson(all_votes, total, confidence)
    else:
        low, high = antithetic_share(all_votes, images.split.sum(), total, confidence)
    return float(low), float(high)


def widened(images: MeasuredImages, bounds: Bounds) -> Bounds:
    """The interval of a mean, with the images without a known value at the ends of the range."""
    if not images.unknown:
        return bounds
    share = images.unknown / images.size
    lower = bounds[0] * (1 - share) + images.low * share
    upper = bounds[1] * (1 - share) + images.high * share
    return lower, upper


def opened(images: MeasuredImages, bounds: Bounds) -> Bounds:
    """The interval of a mean for display: infinite, instead of at the end of the range, where an
    image is bounded on one side only."""
    lower, upper = bounds
    if np.isneginf(images.lowers).any():
        lower = -math.inf
    if np.isposinf(images.uppers).any():
        upper = math.inf
    return lower, upper


def population_mean(
    images: MeasuredImages, confidence: float, *, light_tails: bool = False
) -> Bounds:
    """The mean over the population, from the spread of the values, which includes the measurement
    error.

    By :func:`robaudit.numerics.intervals.mean_interval`. Where images stopped adaptively,
    or their errors may be shared, it is from the spread of their lower ends (below) and of their
    upper ends (above). An image that is
    bounded on one side only leaves the other end of the mean at the end of the range. So does a
    range without an end: a rare image that was not drawn may carry the mean.

    Args:
        images: one or more.
        confidence: in (0, 1).
        light_tails: trust Student's t towards an infinite end of the range.
    """
    low = images.low
    high = images.high
    tail = (1.0 - confidence) / 2.0
    if not len(images.values):
        return low, high
    adds = images.errors_add
    below = np.where(adds, images.lowers, images.values)
    above = np.where(adds, images.uppers, images.values)
    below = below.clip(low, high)
    above = above.clip(low, high)
    range_is_open_below = np.isneginf(low) and not light_tails
    range_is_open_above = np.isposinf(high) and not light_tails
    lower = low
    if not (range_is_open_below or np.isneginf(images.lowers.min())):
        lower = mean_lower(below, low, tail)
    upper = high
    if not (range_is_open_above or np.isposinf(images.uppers.max())):
        upper = -mean_lower(-above, -high, tail)
    return widened(images, (lower, upper))


def population_mean_method(images: MeasuredImages) -> str:
    """The method of :func:`population_mean`, in a few words."""
    bounded = math.isfinite(images.low) or math.isfinite(images.high)
    method = "Gaffke's bounds" if bounded else "Student's t"
    of_ends = bool(images.errors_add.any())
    return f"{method} over images" + (" of their interval ends" if of_ends else "")


# --- shares and quantiles


def measured_share(images: MeasuredImages, t: float, confidence: float) -> Bounds:
    """The share of these images below t: at least the images shown to be below it, and at most all
    but those shown not to be (:func:`least_shown`)."""
    n = images.size
    alpha = (1.0 - confidence) / 2.0
    # Half of a side's error, shared by n images: all these ends hold together (Bonferroni).
    strict_lowers, strict_uppers = images.ends(alpha / (2.0 * n))
    below = least_shown(images.uppers < t, strict_uppers < t, n, images.tail, alpha)
    not_below = least_shown(images.lowers >= t, strict_lowers >= t, n, images.tail, alpha)
    return below / n, (n - not_below) / n


def population_share(images: MeasuredImages, t: float, confidence: float) -> Bounds:
    """The share s below t of the population.

    An image's whole interval is below t with a chance r <= s + g (1 - s), so s >= (r - g)/(1 - g),
    with Clopper-Pearson's lower end for r; and the same for those that are not below.

    Args:
        images: one or more.
        t: the threshold.
        confidence: in (0, 1).
    """
    below = int((images.uppers < t).sum())
    not_below = int((images.lowers >= t).sum())
    lower = least_share(below, images.size, images.tail, confidence)
    upper = 1.0 - least_share(not_below, images.size, images.tail, confidence)
    return lower, upper


def measured_quantile(images: MeasuredImages, q: float, confidence: float) -> Bounds:
    """The q-quantile of these images: (1 - f) x_r + f x_s of two neighbouring order statistics (s =
    r where the place is whole), each bounded at half of the error."""
    n = images.size
    alpha = (1.0 - confidence) / 2.0
    # NumPy's default definition of a quantile: the values are at the places 0 to n - 1. Ranks begin
    # with 1.
    place = (n - 1) * q
    first = math.floor(place + _ROUNDING) + 1
    last = math.ceil(place - _ROUNDING) + 1
    if first == last:
        rank_alpha = alpha
        weight = 0.0
    else:
        rank_alpha = alpha / 2.0
        weight = place + 1.0 - first
    strict_lowers, strict_uppers = images.ends(rank_alpha / (2.0 * n))
    lower = _least_quantile(images, strict_lowers, (first, last), weight, rank_alpha)
    # The upper bound is the lower bound of the negated values, whose ranks count from the other
    # end.
    upper = -_least_quantile(
        images.mirrored(),
        -strict_uppers,
        (n - last + 1, n - first + 1),
        1.0 - weight,
        rank_alpha,
    )
    return lower, upper


def _least_quantile(
    images: MeasuredImages,
    strict_ends: Floats,
    ranks: tuple[int, int],
    weight: float,
    alpha: float,
) -> float:
    """A lower bound of (1 - weight) x_r + weight x_s for the true values of these images.

    Args:
        images: the images.
        strict_ends: lower ends that hold for all images at once; NaN where there are none.
        ranks: r <= s, from 1.
        weight: in [0, 1].
        alpha: the error of each of the two bounds.
    """
    # An image without a known value could lie anywhere.
    ends = np.append(np.full(images.unknown, -np.inf), images.lowers)
    strict_ends = np.append(np.full(images.unknown, -np.inf), strict_ends)
    strict_ends[np.isnan(strict_ends)] = -np.inf
    ends.sort()
    strict_ends.sort()
    near_rank, far_rank = ranks
    near = max(images.low, _rank_bound(ends, strict_ends, near_rank, images.tail, alpha))
    far = max(images.low, _rank_bound(ends, strict_ends, far_rank, images.tail, alpha))
    # x_s is at least x_r, even if its own bound is lower; and inf - inf is no number.
    if far <= near or not math.isfinite(near):
        return near
    return near + weight * (far - near)


def _rank_bound(ends: Floats, strict: Floats, rank: int, tail: float, alpha: float) -> float:
    """A lower bound of the ``rank``-th smallest true value, from sorted lower ends that each miss
    with a chance of at most ``tail``, and from ends that hold together.

    A bound t is above that value only if e of the ``rank`` images up to it have ends above t, which
    miss; e is such that this has a chance of at most alpha / 2.
    """
    place = rank - miss_quantile(rank, tail, alpha / 2.0)
    by_count = float(ends[place]) if place >= 0 else -math.inf
    return max(float(strict[rank - 1]), by_count)


def population_quantile(images: MeasuredImages, q: float, confidence: float) -> Bounds:
    """The q-quantile of the population: order statistics of the images' ends.

    At least (1 - g) q of the population have a lower end that is not above the quantile, and at
    most q + g (1 - q) an upper end below it. So the binomial ranks of those shares bound it; the
    end of the range does where there are too few images.

    Args:
        images: one or more.
        q: in (0, 1).
        confidence: in (0, 1).
    """
    n = images.size
    g = images.tail
    first, _ = quantile_ranks(n, (1.0 - g) * q, confidence)
    _, last = quantile_ranks(n, q + g * (1.0 - q), confidence)
    lowers = np.sort(images.padded(images.lowers, images.low))
    uppers = np.sort(images.padded(images.uppers, images.high))
    lower = images.low
    if first >= 1:
        lower = max(float(lowers[first - 1]), images.low)
    upper = images.high
    if last <= n:
        upper = min(float(uppers[last - 1]), images.high)
    return lower, upper


# --- how many intervals may miss


def least_shown(usual: Mask, strict: Mask, size: int, tail: float, alpha: float) -> int:
    """A lower bound, at confidence 1 - alpha, of the number of images of a kind: the larger of two,
    each at half of the error.

    Args:
        usual: images of the kind by their own intervals, each wrong with a chance of at most
            ``tail``.
        strict: images of the kind by intervals that hold for all images at once, at confidence 1 -
            alpha / 2.
        size: number of images.
        tail, alpha: as above.
    """
    by_count = least_count(int(usual.sum()), size, tail, alpha / 2.0)
    return max(by_count, int(strict.sum()))


def least_share(shown: int, size: int, tail: float, confidence: float) -> float:
    """A lower bound of the share s of a kind in the population: an image appears to be of it with a
    chance r <= s + g (1 - s)."""
    lower, _ = clopper_pearson(shown, size, confidence)
    rate = float(lower)
    # A single image has a rate equal to its tail: their difference is rounding, not a share.
    if rate <= tail * (1.0 + _ROUNDING):
        return 0.0
    return (rate - tail) / (1.0 - tail)


def miss_quantile(images: int, chance: float, alpha: float) -> int:
    """The smallest e >= 1 with P[Binomial(images, chance) >= e] <= alpha; images + 1 where there is
    none."""
    # The probability falls with e, so bisection finds where it crosses alpha.
    low = 1
    high = images + 1
    while low < high:
        e = (low + high) // 2
        if _binomial_tail(e, images, chance) <= alpha:
            high = e
        else:
            low = e + 1
    return low


def least_count(shown: int, size: int, tail: float, alpha: float) -> int:
    """The smallest f with P[f + Binomial(size - f, tail) >= shown] > alpha.

    It is a lower bound, at confidence 1 - alpha, of the number of images of a kind when ``shown``
    of them appear to be of it, and others appear so with a chance of at most ``tail``.
    """
    # The probability rises with f, and is 1 at ``shown``.
    low = 0
    high = shown
    while low < high:
        f = (low + high) // 2
        if _binomial_tail(shown - f, size - f, tail) > alpha:
            high = f
        else:
            low = f + 1
    return low


def _binomial_tail(least: int, trials: int, chance: float) -> float:
    """P[Binomial(trials, chance) >= least]."""
    from scipy.special import bdtrc

    return float(least <= 0 or bdtrc(least - 1.0, trials, chance))
