"""How many of the images' intervals may miss on one side, and so how far does an order statistic of true values lie from one of ends?

Images are fixed, their draws independent of each other; an interval misses on a given side with a chance of at most g. Those
misses matter only where an interval reaches across the value asked about. With shares of votes it is known which can: all true
shares lie within Clopper-Pearson at 1 - d/n together with a chance of at least 1 - d (d: a tenth of the error), and an image
whose bound is far from the value reaches across it with a chance that the binomial gives. The bound on the number of misses only
grows with those bounds, so it holds whenever they do, though both come from the same votes.

Source: the number is at most Binomial(n, mean chance), for counts above its mean + 1: Hoeffding, Ann. Math. Statist. 27 (1956).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.gates.images import Floats, Images, normal_scale
from robaudit.numerics.intervals import clopper_pearson

_CELLS = 32  # ranks looked at one by one
_FOR_BOUNDS = 0.1  # of the error


Bounds = tuple[Floats, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Side:
    """Images seen from one side: their ends towards lower values.

    Attributes:
        ends: (n,), ascending: what is known to be below each true value; -inf where nothing is.
        tail: chance that one is not, at most.
        counts: (n,) votes behind the ends, in their order; None without votes.
        draws: votes of an image.
        unknown: how many are images of which nothing is known (the first ones).
        shift: what is added to an end to have a share of those votes.
    """

    ends: Floats
    tail: float
    counts: Floats | None
    draws: int
    unknown: int
    shift: float

    @classmethod
    def lower(cls, images: Images, alpha: float) -> Side:
        """The lower ends, each at a confidence that an error of alpha in all can use."""
        return cls._of(*_ends(images, alpha, 0), images.values, images, 0.0)

    @classmethod
    def upper(cls, images: Images, alpha: float) -> Side:
        """The upper ends, all signs changed, and the votes that are missing."""
        ends, tail = _ends(images, alpha, 1)
        return cls._of(-ends, tail, 1.0 - images.values, images, 1.0)

    @classmethod
    def _of(cls, ends: Floats, tail: float, shares: Floats, images: Images, shift: float) -> Side:
        order, nothing = np.argsort(ends, kind="stable"), np.full(images.unknown, -np.inf)
        counts = None if images.draws is None else np.append(np.zeros(images.unknown), shares[order] * images.draws)
        return cls(np.append(nothing, ends[order]), tail, counts, images.draws or 0, images.unknown, shift)

    def below_rank(self, rank: int, alpha: float) -> float:
        """A number that is above the ``rank``-th smallest true value with a chance of at most alpha; -inf where none is known.

        Some t is above that value only if e of the ``rank`` images up to it have ends above t that they should not have; e is such
        that as many have a chance of at most alpha.
        """
        bounds = self._bounds(alpha)
        level = _level(alpha, votes=bounds is not None)
        plain = misses(rank, self.tail, level)
        first = max(1, rank - plain + 1)
        if bounds is not None and rank - plain + 1 >= 1:
            ranks = np.unique(np.linspace(first, rank, min(_CELLS, rank - first + 1)).round().astype(np.int64)).tolist()
            for r, s in zip(ranks, [*ranks[1:], rank + 1], strict=True):  # t between ends r and s: at least n - s + 1 ends are above it
                first = r
                if rank - s + 1 < min(plain, self._misses_from(r - 1, rank, bounds, level)):
                    break
        return max(self._surely(rank, alpha), float(self.ends[first - 1]) if rank - plain + 1 >= 1 else -math.inf)

    def above(self, t: float, alpha: float, *, itself: bool = False) -> int:
        """More true values are above t (or are t ``itself``) than this with a chance of at least 1 - alpha.

        If there are f, then so many and the misses among the n - f others are the ends above t at most.
        """
        size, sure = len(self.ends), int(((self.ends >= t) if itself else (self.ends > t)).sum())
        if not sure:
            return 0
        bounds = self._bounds(alpha)
        level = _level(alpha, votes=bounds is not None)
        least = at_least(sure, size, self.tail, level)
        if bounds is None or self.counts is None or least == sure:
            return least
        near, chance = self._reaching(bounds, t + self.shift, self._needed(t + self.shift, float(self.counts[size - sure]), itself=itself))
        f = np.arange(least, sure, dtype=np.int64)
        mean = np.minimum(near + self.unknown, size - f) * self.tail + chance
        possible = (sure - f < mean + 1.0) | (_tail(sure - f, size - f, np.minimum(mean / (size - f), 1.0)) > level)
        possible &= mean > level  # Markov
        return int(f[np.argmax(possible)]) if possible.any() else sure

    def _bounds(self, alpha: float) -> Bounds | None:
        """Upper Clopper-Pearson bounds of all images with votes at once, each with how many images have it."""
        if self.counts is None:
            return None
        votes, images = np.unique(self.counts[self.unknown :], return_counts=True)
        return clopper_pearson(votes, np.full_like(votes, self.draws), self._together(alpha))[1], images

    def _surely(self, rank: int, alpha: float) -> float:
        """What the ``rank``-th smallest true value is above when all true shares lie within their bounds; -inf where nothing is."""
        if self.counts is None or rank <= self.unknown:
            return -math.inf
        return float(clopper_pearson(self.counts[rank - 1], self.draws, self._together(alpha))[0]) - self.shift

    def _together(self, alpha: float) -> float:
        """The confidence at which the bounds of all images hold together, for the part of the error that is spent on them."""
        return 1.0 - alpha * _FOR_BOUNDS / len(self.ends)

    def _needed(self, share: float, enough: float, *, itself: bool) -> float:
        """The fewest votes whose end is above a share (or is it, ``itself``); so many are ``enough``."""
        low, high = 0.0, enough
        while low < high:
            votes = float((low + high) // 2)
            end = float(clopper_pearson(votes, self.draws, 1.0 - 2.0 * self.tail)[0])
            low, high = (low, votes) if (end >= share if itself else end > share) else (votes + 1.0, high)
        return high

    def _reaching(self, bounds: Bounds, share: float, votes: float) -> tuple[int, float]:
        """How many images may have this share or more, and how many others have so many votes, on average at most."""
        from scipy.special import betainc

        shares, images = bounds
        near = shares >= share
        if votes <= 0.0 or votes > self.draws:
            return int(images[near].sum()), float(images[~near].sum()) if votes <= 0.0 else 0.0
        return int(images[near].sum()), float((betainc(votes, self.draws - votes + 1.0, shares[~near]) * images[~near]).sum())

    def _misses_from(self, place: int, rank: int, bounds: Bounds, level: float) -> int:
        """So many of ``rank`` images with values up to t have ends above t with a chance of at most ``level``, for t from that end on."""
        if self.counts is None or place < self.unknown:
            return rank + 1
        near, chance = self._reaching(bounds, float(self.ends[place]) + self.shift, float(self.counts[place]) + 1.0)
        mean = min(near + self.unknown, rank) * self.tail + chance
        if mean <= level:  # Markov
            return 1
        return max(misses(rank, min(mean / rank, 1.0), level), math.ceil(mean + 1.0))


def _level(alpha: float, *, votes: bool) -> float:
    """What is left of the error for the misses."""
    return alpha * (1.0 - _FOR_BOUNDS) if votes else alpha


def _ends(images: Images, alpha: float, side: int) -> tuple[Floats, float]:
    """The images' ends on one side, and the chance that each misses: no more than there is left of the error, so that one image alone
    can be told. Votes: Clopper-Pearson; other 95 % intervals: stretched as a normal error's; sequences: as they are."""
    tail = min(images.tail, _level(alpha, votes=images.draws is not None) * (1.0 - 1e-9))
    given = (images.lowers, images.uppers)[side]
    if tail == images.tail or images.adaptive:
        return given, images.tail
    if images.draws is None:
        return images.values + (given - images.values) * normal_scale(1.0 - 2.0 * tail), tail
    shares, which = np.unique(images.values, return_inverse=True)
    found: Floats = clopper_pearson(shares * images.draws, np.full_like(shares, images.draws), 1.0 - 2.0 * tail)[side][which]
    return found, tail


def misses(images: int, chance: float, alpha: float) -> int:
    """The smallest e >= 1 with P[Binomial(images, chance) >= e] <= alpha; images + 1 where there is none."""
    mean = images * chance
    first = max(1, math.floor(mean))
    e = np.arange(first, min(images, math.ceil(mean + 12.0 * math.sqrt(mean) + 40.0)) + 1, dtype=np.int64)
    few = _tail(e, images, chance) <= alpha
    return int(e[np.argmax(few)]) if few.any() else images + 1


def at_least(sure: int, size: int, tail: float, alpha: float) -> int:
    """The smallest f with P[f + Binomial(size - f, tail) >= sure] > alpha: so many of a kind there are at least, at confidence
    1 - alpha, when ``sure`` look like it, and each that is not of the kind does with a chance of at most ``tail``."""
    low, high = 0, sure  # the chance grows with f; it is 1 at sure
    while low < high:
        f = (low + high) // 2
        low, high = (low, f) if float(_tail(sure - f, size - f, tail)) > alpha else (f + 1, high)
    return low


def _tail(least: NDArray[np.int64] | int, trials: NDArray[np.int64] | int, chance: Floats | float) -> Floats:
    """P[Binomial(trials, chance) >= least], least >= 1."""
    from scipy.special import betainc

    k, n = np.asarray(least, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    inside = betainc(np.maximum(k, 1.0), np.maximum(n - k, 0.0) + 1.0, chance)
    found: Floats = np.where(k > n, 0.0, inside)
    return found
