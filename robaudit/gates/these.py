"""How sure are we of a mean, a quantile and a share of *these* images, given that each was measured with an error?

Images are fixed; their noise draws are independent of each other. Proofs rest on this alone: the interval of an image misses on a
given side with a chance of at most g (``Images.tail``), independently of the other images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from robaudit.gates.images import Images, normal_scale
from robaudit.gates.misses import Side
from robaudit.numerics.intervals import clopper_pearson, pooled_measurement_interval

Ends = tuple[float, float]


def mean_these(images: Images, confidence: float) -> Ends:
    """The mean of these images.

    Shares of equally many votes: Clopper-Pearson of all votes together (a sum of unequal binomials varies less than the binomial of
    their mean, so it covers). Images that stopped by themselves: the mean of their ends. Others: MOVER. Rows have 95 % intervals:
    for another confidence those distances are scaled as a normal error's.
    Images of which nothing is known are counted at both ends of the range.
    """
    if not len(images.values):
        return images.low, images.high
    if images.draws is not None:
        votes = images.draws * len(images.values)
        lower, upper = (float(end) for end in clopper_pearson(min(votes, float(images.values.sum()) * images.draws), votes, confidence))
    else:
        mean, scale = float(images.values.mean()), normal_scale(confidence)
        if images.adaptive:
            lower, upper, scale = float(images.lowers.mean()), float(images.uppers.mean()), max(1.0, scale)
        else:
            lower, upper = pooled_measurement_interval(images.values, images.lowers, images.uppers)
        lower, upper = max(images.low, mean - (mean - lower) * scale), min(images.high, mean + (upper - mean) * scale)
    return widened(images, (lower, upper))


def share_these(images: Images, t: float, confidence: float) -> Ends:
    """The share of these images below t: those that are at least below it, and all but those that are at least not
    (:mod:`robaudit.gates.misses`)."""
    alpha = (1.0 - confidence) / 2.0
    below = Side.upper(images, alpha).above(-t, alpha)
    above = Side.lower(images, alpha).above(t, alpha, itself=True)
    return below / images.size, 1.0 - above / images.size


def quantile_these(images: Images, q: float, confidence: float) -> Ends:
    """The q-quantile of these images: (1 - f) x_r + f x_s of two neighbouring order statistics (s = r where the place is whole).

    Each is bounded by :mod:`robaudit.gates.misses`; the error is split over the two by f, which is known beforehand, so that both
    bounds hold together. The bound of x_s is at least that of x_r, if it is larger than it: so the result is never less than the bound
    of x_r alone. Upper ends: the same from above.
    """
    n, alpha = images.size, (1.0 - confidence) / 2.0
    place = (n - 1) * q
    first, last = math.floor(place + 1e-9) + 1, math.ceil(place - 1e-9) + 1
    weight = min(max(place - (first - 1), 0.0), 1.0) if last > first else 0.0
    lower = _between(images.low, weight, alpha, lambda error, far: Side.lower(images, error).below_rank(last if far else first, error))
    upper = -_between(
        -images.high, 1.0 - weight if last > first else 0.0, alpha,
        lambda error, far: Side.upper(images, error).below_rank(n - (first if far else last) + 1, error),
    )  # fmt: skip
    return lower, upper


def _between(floor: float, weight: float, alpha: float, bound: Callable[[float, bool], float]) -> float:
    """A lower bound of (1 - weight) x + weight y, x <= y, from those of x (near) and y (far) at an error that is split over them;
    none is below ``floor``."""
    near = max(floor, bound(alpha * (1.0 - weight / 2.0), False))
    far = bound(alpha * weight / 2.0, True) if weight > 0.0 else near
    return near if far <= near or not math.isfinite(near) else near + weight * (far - near)


def classes_these(classes: Sequence[Images], confidence: float) -> list[Ends]:
    """The mean of each class, all intervals at once (Bonferroni: each at 1 - a/classes)."""
    return [mean_these(one, each_class(confidence, len(classes))) for one in classes]


def each_class(confidence: float, classes: int) -> float:
    """The confidence at which the intervals of so many classes hold together with ``confidence``."""
    return 1.0 - (1.0 - confidence) / classes


def widened(images: Images, ends: Ends) -> Ends:
    """The interval of a mean, with the images of which nothing is known at the ends of the range."""
    if not images.unknown:
        return ends
    share = images.unknown / images.size
    return ends[0] * (1 - share) + images.low * share, ends[1] * (1 - share) + images.high * share
