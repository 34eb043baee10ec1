"""Confidence intervals of a mean, a quantile and a share over measured images.

Two kinds, never mixed. *Measured* intervals are about these images: the images are fixed, their noise draws are independent of each
other. *Population* intervals are about all images of the kind that these are an independent sample of. The proofs rest on one
property: the interval of an image misses its true value on a given side with a chance of at most g (:attr:`MeasuredImages.tail`).

Rows carry 95 % intervals. For another confidence their distances are scaled as a normal error's, up and down; distances of images that
stopped adaptively are never narrowed, because their distance also bounds the bias due to stopping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.numerics.intervals import antithetic_share, clopper_pearson, mean_lower, pooled_measurement_interval, quantile_ranks

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
BoundsByValue = tuple[Floats, NDArray[np.int64]]
_Number = TypeVar("_Number", float, Floats)

THESE_IMAGES = "these images"
"""What a measured interval is about: the images that were audited; it covers their noise draws only."""
LIKE_THESE = "images like these"
"""What a population interval is about: it covers the choice of the images, too."""


def these_images(number: int, of: str = "", *, like: bool = False) -> str:
    """``these 200 images``, or with ``like`` ``images like these 200``; ``of``: `` of class cat``; 0: a number is not known."""
    if not number:
        return (LIKE_THESE if like else THESE_IMAGES) + of
    if number == 1:
        return ("images like this one" if like else "this image") + of
    return f"images like these {number:,}{of}" if like else f"these {number:,} images{of}"


ROW_CONFIDENCE = 0.95
TAIL = 0.025
"""Chance that a row's interval misses on one given side."""

_MANY_IMAGES = 2**12
_RANKS = 32  # ranks examined one by one
_SPENT_ON_BOUNDS = 0.1  # of the error


class MeanMethod(StrEnum):
    """How the measured interval of a mean is made."""

    POOLED = "clopper-pearson:pooled"
    PAIRS = "antithetic pairs:pooled"
    MOVER = "mover"
    MEAN_OF_ENDS = "mean of intervals"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MeasuredImages:
    """Values and 95 % intervals of images.

    Attributes:
        values, lowers, uppers: (n,); ends may be infinite. Where an image has no interval they are its value.
        low, high: the range of possible values.
        unknown: number of further images of which only the range is known.
        draws: votes per image, where all have equally many and their values are shares of them; else None.
        adaptive: the sampling of some stopped adaptively, so their values are biased towards the side where they stopped.
        split: (n,) where those votes are of antithetic pairs, the pairs that disagree; None where they are independent.
    """

    values: Floats
    lowers: Floats
    uppers: Floats
    low: float
    high: float
    unknown: int = 0
    draws: int | None = None
    adaptive: bool = False
    split: Floats | None = None

    @property
    def size(self) -> int:
        """Number of images, including those without a known value."""
        return len(self.values) + self.unknown

    @property
    def tail(self) -> float:
        """The largest chance that an image's interval misses on one given side; confidence sequences bound only both sides together."""
        return 2 * TAIL if self.adaptive else TAIL

    @property
    def independent_draws(self) -> int | None:
        """``draws`` where they are independent; else None."""
        return self.draws if self.split is None else None

    @property
    def method(self) -> MeanMethod:
        """The method of :func:`measured_mean`."""
        if self.draws is not None and self.split is not None:
            return MeanMethod.PAIRS
        return MeanMethod.POOLED if self.draws is not None else MeanMethod.MEAN_OF_ENDS if self.adaptive else MeanMethod.MOVER

    def padded(self, ends: Floats, end: float) -> Floats:
        """The ends of all images, ``end`` for those without a known value."""
        return np.append(ends, np.full(self.unknown, end))

    def chosen(self, places: NDArray[np.int64], unknown: int) -> MeasuredImages:
        """A selection of the images, and ``unknown`` further ones without a known value."""
        split = None if self.split is None else self.split[places]
        values, lowers, uppers = self.values[places], self.lowers[places], self.uppers[places]
        return replace(self, values=values, lowers=lowers, uppers=uppers, unknown=unknown, split=split)

    def mirrored(self) -> MeasuredImages:
        """The images with all signs changed, so that higher is better where lower was."""
        values, lowers, uppers = -self.values, -self.uppers, -self.lowers
        return replace(self, values=values, lowers=lowers, uppers=uppers, low=-self.high, high=-self.low, draws=None, split=None)

    def with_draws(self, factor: float) -> MeasuredImages:
        """The images as they would be with ``factor`` times as many draws and the same values.

        Shares of votes: the interval of that many; others: the distance of each end times 1/sqrt(factor).
        """
        if factor == 1.0:
            return self
        if self.draws is None:
            near = factor**-0.5
            lowers, uppers = scaled(self.values, self.lowers, near), scaled(self.values, self.uppers, near)
            return replace(self, lowers=lowers, uppers=uppers)
        draws, split = self.draws * factor, None if self.split is None else self.split * factor
        lowers, uppers = share_bounds(self.values, draws, ROW_CONFIDENCE, split)
        return replace(self, lowers=lowers, uppers=uppers, draws=round(draws), split=split)


def normal_scale(confidence: float) -> float:
    """The width of a normal error's interval relative to a row's 95 % interval."""
    from scipy.special import ndtri

    return 1.0 if confidence == ROW_CONFIDENCE else float(ndtri(0.5 + confidence / 2.0) / ndtri(0.5 + ROW_CONFIDENCE / 2.0))


def scaled(value: _Number, end: _Number, scale: float) -> _Number:
    """The end of an interval at ``scale`` times its distance from the value."""
    return end if scale == 1.0 else value - (value - end) * scale


def share_bounds(shares: Floats, draws: float, confidence: float, split: Floats | None = None) -> tuple[Floats, Floats]:
    """Intervals of shares of equally many votes: Clopper-Pearson, images with the same share computed once; with ``split`` pairs that
    disagree, intervals for antithetic copies."""
    if split is not None:
        return antithetic_share(shares * draws, split, draws, confidence)
    distinct, which = np.unique(shares, return_inverse=True)
    lowers, uppers = clopper_pearson(distinct * draws, np.full_like(distinct, draws), confidence)
    return lowers[which], uppers[which]


def restated(
    values: Floats, lowers: Floats, uppers: Floats, draws: ArrayLike, tail: float, split: Floats | None = None
) -> tuple[Floats, Floats]:
    """Intervals of rows that each miss on a given side with a chance of at most ``tail``, never narrower than the given ones.

    Args:
        values, lowers, uppers: (n,), 95 % intervals; NaN stays NaN, infinite ends stay infinite.
        draws: for each image, the votes that the value is a share of; 0 where it is not such a share.
        tail: at most :data:`TAIL`.
        split: of each image's antithetic pairs, those that disagree; NaN where its votes are independent. None: they all are.

    Returns:
        (lowers, uppers): recomputed for shares of votes; the others scaled as a normal error's.
    """
    scale = max(1.0, normal_scale(1.0 - 2.0 * tail))
    lower, upper = scaled(values, lowers, scale).copy(), scaled(values, uppers, scale).copy()
    counts = np.broadcast_to(np.asarray(draws, dtype=np.float64), values.shape)
    pairs = np.zeros_like(values, dtype=np.bool_) if split is None else ~np.isnan(split)
    for n in np.unique(counts[counts > 0]):
        for of, disagree in (((counts == n) & ~pairs, None), ((counts == n) & pairs, split)):
            if of.any():
                lower[of], upper[of] = share_bounds(values[of], float(n), 1.0 - 2.0 * tail, None if disagree is None else disagree[of])
    return lower, upper


def simultaneous(confidence: float, number: int) -> float:
    """The confidence of each of ``number`` intervals that together hold with ``confidence`` (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / number


# --- means


def measured_mean(images: MeasuredImages, confidence: float) -> Bounds:
    """The mean of these images.

    Shares of equally many votes: Clopper-Pearson of all votes together (a sum of unequal binomials varies less than the binomial of
    their mean, so it covers), of antithetic copies the interval of all pairs together. Images that stopped adaptively: the mean of their
    ends. Others: MOVER, the distances added in quadrature, each side separately. Images without a known value count at both ends of the
    range.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    if not len(images.values):
        return images.low, images.high
    if images.draws is not None:
        total, votes = images.draws * len(images.values), float(images.values.sum()) * images.draws
        votes = float(round(votes)) if abs(votes - round(votes)) < 1e-6 else min(votes, float(total))  # not an integer: hypothetical draws
        if images.split is None:
            lower, upper = (float(end) for end in clopper_pearson(votes, total, confidence))
        else:
            lower, upper = (float(end) for end in antithetic_share(votes, images.split.sum(), total, confidence))
        return widened(images, (lower, upper))
    mean, scale = float(images.values.mean()), normal_scale(confidence)
    if images.adaptive:
        lower, upper = (scaled(mean, float(ends.mean()), max(1.0, scale)) for ends in (images.lowers, images.uppers))
    else:
        lower, upper = pooled_measurement_interval(images.values, images.lowers, images.uppers, scale)
    return widened(images, (max(images.low, lower), min(images.high, upper)))


def widened(images: MeasuredImages, bounds: Bounds) -> Bounds:
    """The interval of a mean, with the images without a known value at the ends of the range."""
    if not images.unknown:
        return bounds
    share = images.unknown / images.size
    return bounds[0] * (1 - share) + images.low * share, bounds[1] * (1 - share) + images.high * share


def opened(images: MeasuredImages, bounds: Bounds) -> Bounds:
    """The interval of a mean for display: infinite, instead of at the end of the range, where an image is bounded on one side only."""
    lower = -math.inf if np.isneginf(images.lowers).any() else bounds[0]
    return lower, math.inf if np.isposinf(images.uppers).any() else bounds[1]


def population_mean(images: MeasuredImages, confidence: float, *, light_tails: bool = False) -> Bounds:
    """The mean over the population, from the spread of the values, which includes the measurement error; where images stopped
    adaptively, from the spread of their lower ends (below) and of their upper ends (above).

    By :func:`robaudit.numerics.intervals.mean_interval`. An image that is bounded on one side only leaves the other end of the mean at
    the end of the range. So does a range without an end: a rare image that was not drawn may carry the mean.

    Args:
        images: one or more.
        confidence: in (0, 1).
        light_tails: trust Student's t towards an infinite end of the range.
    """
    return repeated_mean(images, known_population_mean(images, confidence, light_tails=light_tails), 1.0)


def known_population_mean(images: MeasuredImages, confidence: float, *, light_tails: bool = False) -> Bounds:
    """The interval of :func:`population_mean` for the images with a known value only."""
    low, high, tail = images.low, images.high, (1.0 - confidence) / 2.0
    if not len(images.values):
        return low, high
    below, above = (images.lowers, images.uppers) if images.adaptive else (images.values, images.values)
    below, above = below.clip(low, high), above.clip(low, high)
    open_below = np.isneginf(images.lowers.min()) or (np.isneginf(low) and not light_tails)
    open_above = np.isposinf(images.uppers.max()) or (np.isposinf(high) and not light_tails)
    return low if open_below else mean_lower(below, low, tail), high if open_above else -mean_lower(-above, -high, tail)


def repeated_mean(images: MeasuredImages, known: Bounds, factor: float) -> Bounds:
    """The interval of a population mean with ``factor`` times as many images like these.

    Args:
        images: the present ones.
        known: from :func:`known_population_mean`.
        factor: the distances shrink by its square root; an end that an image leaves open stays.
    """
    if not len(images.values):
        return known
    mean, near = float(images.values.mean()), factor**-0.5
    lower = known[0] if np.isneginf(images.lowers).any() else scaled(mean, known[0], near)
    return widened(images, (lower, known[1] if np.isposinf(images.uppers).any() else scaled(mean, known[1], near)))


def population_mean_method(images: MeasuredImages) -> str:
    """The method of :func:`population_mean`, in a few words."""
    how = "Gaffke's bounds" if math.isfinite(images.low) or math.isfinite(images.high) else "Student's t"
    return f"{how} over images" + (" of their interval ends" if images.adaptive else "")


# --- shares and quantiles


def measured_share(images: MeasuredImages, t: float, confidence: float) -> Bounds:
    """The share of these images below t: at least a lower bound on those below it, and at most all but a lower bound on the others
    (:class:`OneSidedEnds`)."""
    alpha = (1.0 - confidence) / 2.0
    below = OneSidedEnds.upper(images, alpha).count_above(-t, alpha)
    above = OneSidedEnds.lower(images, alpha).count_above(t, alpha, inclusive=True)
    return below / images.size, 1.0 - above / images.size


def population_share(images: MeasuredImages, t: float, confidence: float, factor: float = 1.0) -> Bounds:
    """The share s below t of the population: an image's whole interval is below t with a chance r <= s + g (1 - s), so
    s >= (r - g)/(1 - g), with Clopper-Pearson's lower end for r; and the same for those that are not below.

    Args:
        images: one or more.
        t: the threshold.
        confidence: in (0, 1).
        factor: the multiple of images like these to assume.
    """

    def least(sure: int) -> float:
        rate = float(clopper_pearson(sure * factor, images.size * factor, confidence)[0])
        return max(0.0, (rate - images.tail) / (1.0 - images.tail))

    below, above = images.padded(images.uppers, images.high) < t, images.padded(images.lowers, images.low) >= t
    return least(int(below.sum())), 1.0 - least(int(above.sum()))


def measured_quantile(images: MeasuredImages, q: float, confidence: float) -> Bounds:
    """The q-quantile of these images: (1 - f) x_r + f x_s of two neighbouring order statistics (s = r where the place is whole).

    Each is bounded by :class:`OneSidedEnds`; the error is split over the two by f, which is known in advance, so that both bounds hold
    together. The bound of x_s is at least the bound of x_r, if it is larger: so the result is never less than the bound of x_r
    alone. Upper ends: the same from above.
    """
    n, alpha = images.size, (1.0 - confidence) / 2.0
    place = (n - 1) * q
    first, last = math.floor(place + 1e-9) + 1, math.ceil(place - 1e-9) + 1
    weight = min(max(place - (first - 1), 0.0), 1.0) if last > first else 0.0

    def lower(error: float, far: bool) -> float:
        return OneSidedEnds.lower(images, error).rank_bound(last if far else first, error)

    def upper(error: float, far: bool) -> float:
        return OneSidedEnds.upper(images, error).rank_bound(n - (first if far else last) + 1, error)

    return _between(images.low, weight, alpha, lower), -_between(-images.high, 1.0 - weight if last > first else 0.0, alpha, upper)


def _between(floor: float, weight: float, alpha: float, bound: Callable[[float, bool], float]) -> float:
    """A lower bound of (1 - weight) x + weight y, x <= y, from bounds of x (near) and y (far) at an error that is split over them;
    none is below ``floor``."""
    near = max(floor, bound(alpha * (1.0 - weight / 2.0), False))
    far = bound(alpha * weight / 2.0, True) if weight > 0.0 else near
    return near if far <= near or not math.isfinite(near) else near + weight * (far - near)


def population_quantile(images: MeasuredImages, q: float, confidence: float, factor: float = 1.0) -> Bounds:
    """The q-quantile of the population: at least (1 - g) q of them have a lower end that is not above it, and at most
    q + g (1 - q) an upper end below it, so order statistics of the ends bound it, by the binomial ranks of those shares; the end of
    the range where there are too few images.

    Args:
        images: one or more.
        q: in (0, 1).
        confidence: in (0, 1).
        factor: the multiple of images like these to assume.
    """
    n, g = round(images.size * factor), images.tail
    first, last = _ranks(n, (1.0 - g) * q, confidence, factor)[0], _ranks(n, q + g * (1.0 - q), confidence, factor)[1]

    def ranked(ends: Floats, rank: int) -> float:
        return float(np.partition(ends, rank - 1)[rank - 1])

    lower = images.low if first < 1 else ranked(images.padded(images.lowers, images.low), math.ceil(first / factor))
    upper = images.high if last > n else ranked(images.padded(images.uppers, images.high), min(images.size, math.ceil(last / factor)))
    return max(lower, images.low), min(upper, images.high)


def _ranks(n: int, q: float, confidence: float, factor: float) -> tuple[int, int]:
    """Those of :func:`quantile_ranks`; of many hypothetical images, by the normal distribution."""
    if n <= _MANY_IMAGES or factor == 1.0:
        return quantile_ranks(n, q, confidence)
    from scipy.special import ndtri

    wide = float(ndtri(0.5 + confidence / 2.0)) * math.sqrt(n * q * (1.0 - q))
    return math.floor(n * q - wide), math.ceil(n * q + wide) + 1


# --- how many intervals may miss


@dataclass(frozen=True, slots=True)
class OneSidedEnds:
    """One side of the images' intervals: their ends towards lower values.

    Bounds the order statistics of true values by how many of the images' intervals may miss. Images are fixed, their draws independent
    of each other; an interval misses on a given side with a chance of at most g. Those misses matter only where an interval reaches
    across the value asked about. With shares of votes it is known which can: all true shares lie within Clopper-Pearson at 1 - d/n
    together with a chance of at least 1 - d (d: a tenth of the error), and an image whose bound is far from the value reaches across
    it with a chance that the binomial gives. The bound on the number of misses only grows with those bounds, so it holds whenever they
    do, though both come from the same votes.

    Attributes:
        ends: (n,), ascending: lower bounds of the true values; -inf where there is none.
        tail: the largest chance that one of them is wrong.
        counts: (n,) independent votes behind the ends, in their order; None without such votes.
        draws: votes per image.
        unknown: number of images without a known value (the first ones).
        shift: added to an end, it gives a share of those votes.

    Source: the number is at most Binomial(n, mean chance), for counts above its mean + 1: Hoeffding, Ann. Math. Statist. 27 (1956).
    """

    ends: Floats
    tail: float
    counts: Floats | None
    draws: int
    unknown: int
    shift: float

    @classmethod
    def lower(cls, images: MeasuredImages, alpha: float) -> Self:
        """The lower ends, each at a confidence that an error of alpha in all can use."""
        (ends, _), tail = _restated_for(images, alpha)
        return cls._of(ends, tail, images.values, images, 0.0)

    @classmethod
    def upper(cls, images: MeasuredImages, alpha: float) -> Self:
        """The upper ends, all signs changed, and the votes that are missing."""
        (_, ends), tail = _restated_for(images, alpha)
        return cls._of(-ends, tail, 1.0 - images.values, images, 1.0)

    @classmethod
    def _of(cls, ends: Floats, tail: float, shares: Floats, images: MeasuredImages, shift: float) -> Self:
        order, unbounded = np.argsort(ends, kind="stable"), np.full(images.unknown, -np.inf)
        draws = images.independent_draws
        counts = None if draws is None else np.append(np.zeros(images.unknown), shares[order] * draws)
        return cls(np.append(unbounded, ends[order]), tail, counts, draws or 0, images.unknown, shift)

    def rank_bound(self, rank: int, alpha: float) -> float:
        """A lower bound of the ``rank``-th smallest true value, wrong with a chance of at most alpha; -inf where there is none.

        Some t is above that value only if e of the ``rank`` images up to it have ends above t that they should not have; e is such
        that as many have a chance of at most alpha.
        """
        bounds = self._bounds(alpha)
        level = _miss_level(alpha, votes=bounds is not None)
        plain = miss_quantile(rank, self.tail, level)
        first = max(1, rank - plain + 1)
        if bounds is not None and rank - plain + 1 >= 1:
            ranks = np.unique(np.linspace(first, rank, min(_RANKS, rank - first + 1)).round().astype(np.int64)).tolist()
            for r, s in zip(ranks, [*ranks[1:], rank + 1], strict=True):  # t between ends r and s: at least n - s + 1 ends are above it
                first = r
                if rank - s + 1 < min(plain, self._misses_from(r - 1, rank, bounds, level)):
                    break
        return max(self._simultaneous_bound(rank, alpha), float(self.ends[first - 1]) if rank - plain + 1 >= 1 else -math.inf)

    def count_above(self, t: float, alpha: float, *, inclusive: bool = False) -> int:
        """A lower bound, at confidence 1 - alpha, of the number of true values above t (``inclusive``: or equal to t).

        With f such values, at most f plus the number of misses among the other n - f ends are above t.
        """
        size, sure = len(self.ends), int(((self.ends >= t) if inclusive else (self.ends > t)).sum())
        if not sure:
            return 0
        bounds = self._bounds(alpha)
        level = _miss_level(alpha, votes=bounds is not None)
        least = least_count(sure, size, self.tail, level)
        if bounds is None or self.counts is None or least == sure:
            return least
        votes = self._votes_above(t + self.shift, float(self.counts[size - sure]), inclusive=inclusive)
        near, chance = self._reaching(bounds, t + self.shift, votes)
        f = np.arange(least, sure, dtype=np.int64)
        mean = np.minimum(near + self.unknown, size - f) * self.tail + chance
        possible = (sure - f < mean + 1.0) | (_binomial_tail(sure - f, size - f, np.minimum(mean / (size - f), 1.0)) > level)
        possible &= mean > level  # Markov
        return int(f[np.argmax(possible)]) if possible.any() else sure

    def _bounds(self, alpha: float) -> BoundsByValue | None:
        """Simultaneous upper Clopper-Pearson bounds of all images with votes, each with the number of images that have it."""
        if self.counts is None:
            return None
        votes, images = np.unique(self.counts[self.unknown :], return_counts=True)
        return clopper_pearson(votes, np.full_like(votes, self.draws), self._together(alpha))[1], images

    def _simultaneous_bound(self, rank: int, alpha: float) -> float:
        """The lower bound of the ``rank``-th smallest true value if all true shares lie within their bounds; -inf where there is none."""
        if self.counts is None or rank <= self.unknown:
            return -math.inf
        return float(clopper_pearson(self.counts[rank - 1], self.draws, self._together(alpha))[0]) - self.shift

    def _together(self, alpha: float) -> float:
        """The confidence at which the bounds of all images hold together, for the part of the error that is spent on them."""
        return 1.0 - alpha * _SPENT_ON_BOUNDS / len(self.ends)

    def _votes_above(self, share: float, most: float, *, inclusive: bool) -> float:
        """The fewest votes whose end is above a share (``inclusive``: or equal to it); ``most`` votes suffice."""
        low, high = 0.0, most
        while low < high:
            votes = float((low + high) // 2)
            end = float(clopper_pearson(votes, self.draws, 1.0 - 2.0 * self.tail)[0])
            low, high = (low, votes) if (end >= share if inclusive else end > share) else (votes + 1.0, high)
        return high

    def _reaching(self, bounds: BoundsByValue, share: float, votes: float) -> tuple[int, float]:
        """How many images may have this share or more, and the largest expected number of others with at least ``votes`` votes."""
        from scipy.special import betainc

        shares, images = bounds
        near = shares >= share
        if votes <= 0.0 or votes > self.draws:
            return int(images[near].sum()), float(images[~near].sum()) if votes <= 0.0 else 0.0
        return int(images[near].sum()), float((betainc(votes, self.draws - votes + 1.0, shares[~near]) * images[~near]).sum())

    def _misses_from(self, place: int, rank: int, bounds: BoundsByValue, level: float) -> int:
        """The number of misses among ``rank`` images with values up to t that has a chance of at most ``level``, for t from that end on."""
        if self.counts is None or place < self.unknown:
            return rank + 1
        near, chance = self._reaching(bounds, float(self.ends[place]) + self.shift, float(self.counts[place]) + 1.0)
        mean = min(near + self.unknown, rank) * self.tail + chance
        if mean <= level:  # Markov
            return 1
        return max(miss_quantile(rank, min(mean / rank, 1.0), level), math.ceil(mean + 1.0))


def _miss_level(alpha: float, *, votes: bool) -> float:
    """The part of the error that is left for the misses."""
    return alpha * (1.0 - _SPENT_ON_BOUNDS) if votes else alpha


def _restated_for(images: MeasuredImages, alpha: float) -> tuple[tuple[Floats, Floats], float]:
    """The images' ends, and the chance that each misses: no more than is left of the error, so that a single image can count.
    Confidence sequences stay unchanged."""
    tail = min(images.tail, _miss_level(alpha, votes=images.independent_draws is not None) * (1.0 - 1e-9))
    if tail == images.tail or images.adaptive:
        return (images.lowers, images.uppers), images.tail
    return restated(images.values, images.lowers, images.uppers, images.draws or 0, tail, images.split), tail


def miss_quantile(images: int, chance: float, alpha: float) -> int:
    """The smallest e >= 1 with P[Binomial(images, chance) >= e] <= alpha; images + 1 where there is none."""
    mean = images * chance
    first = max(1, math.floor(mean))
    e = np.arange(first, min(images, math.ceil(mean + 12.0 * math.sqrt(mean) + 40.0)) + 1, dtype=np.int64)
    few = _binomial_tail(e, images, chance) <= alpha
    return int(e[np.argmax(few)]) if few.any() else images + 1


def least_count(sure: int, size: int, tail: float, alpha: float) -> int:
    """The smallest f with P[f + Binomial(size - f, tail) >= sure] > alpha: a lower bound, at confidence 1 - alpha, of
    the number of a kind when ``sure`` appear to be of it, and one that is not appears so with a chance of at most ``tail``."""
    low, high = 0, sure  # the chance grows with f; it is 1 at sure
    while low < high:
        f = (low + high) // 2
        low, high = (low, f) if float(_binomial_tail(sure - f, size - f, tail)) > alpha else (f + 1, high)
    return low


def _binomial_tail(least: NDArray[np.int64] | int, trials: NDArray[np.int64] | int, chance: Floats | float) -> Floats:
    """P[Binomial(trials, chance) >= least], least >= 1."""
    from scipy.special import betainc

    k, n = np.asarray(least, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    tail: Floats = np.where(k > n, 0.0, betainc(np.maximum(k, 1.0), np.maximum(n - k, 0.0) + 1.0, chance))
    return tail
