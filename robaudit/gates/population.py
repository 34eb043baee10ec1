"""How sure are we of the mean, a quantile and a share of all images of the kind that these are a sample of?

Images are drawn independently; the interval of each misses on a given side with a chance of at most g, whatever the image. Nothing
else is assumed of quantiles and shares: they hold for every distribution and every number of images.
"""

from __future__ import annotations

import math

import numpy as np

from robaudit.gates.bets import betting_interval
from robaudit.gates.images import Floats, Images
from robaudit.gates.these import Ends, widened
from robaudit.numerics.intervals import clopper_pearson, mean_interval, quantile_ranks

_MANY = 2**12
_SMALL = 0.01  # errors at which Student's t no longer holds


def mean_population(images: Images, confidence: float) -> Ends:
    """The mean over images of this kind, by the spread of the values, which holds the measurement error; where images stopped by
    themselves, of their lower ends below and of their upper ends above.

    Student's t (:func:`robaudit.numerics.intervals.mean_interval`); where the error is below 1 %, bets
    (:func:`robaudit.gates.bets.betting_interval`), because there t misses more often than it says. A range without an end leaves that
    end open: a rare image that was not drawn may carry the mean. So does an image that is only bounded on one side.
    """
    return imagined(images, mean_now(images, confidence))


def mean_now(images: Images, confidence: float) -> Ends:
    """The interval of :func:`mean_population` of the images with a value alone, for :func:`imagined`."""
    low, high = images.low, images.high
    if not len(images.values):
        return low, high
    below = images.lowers.clip(low, high) if images.adaptive else images.values
    above = images.uppers.clip(low, high) if images.adaptive else images.values
    interval = betting_interval if _by_bets(images, confidence) else mean_interval
    lower = low if np.isneginf(low) or np.isneginf(images.lowers.min()) else interval(below, low, high, confidence)[0]
    upper = high if np.isposinf(high) or np.isposinf(images.uppers.max()) else interval(above, low, high, confidence)[1]
    return lower, upper


def _by_bets(images: Images, confidence: float) -> bool:
    return 1.0 - confidence < _SMALL and bool(np.isfinite(images.low) and np.isfinite(images.high))


def mean_method(images: Images, confidence: float) -> str:
    """How :func:`mean_population` goes about it, in a few words."""
    how = "bets on images" if _by_bets(images, confidence) else "Student's t over images"
    return how + (" of their interval ends" if images.adaptive else "")


def imagined(images: Images, ends: Ends) -> Ends:
    """The interval of a mean with as many times as many images as are imagined: nearer by 1/sqrt; images of which nothing is known at
    the ends of the range."""
    if not len(images.values):
        return ends
    mean, near = float(images.values.mean()), images.repeats**-0.5
    return widened(images, (mean - (mean - ends[0]) * near, mean + (ends[1] - mean) * near))


def share_population(images: Images, t: float, confidence: float) -> Ends:
    """The share s below t: an image's whole interval is below t with a chance r <= s + g (1 - s), so s >= (r - g)/(1 - g), with
    Clopper-Pearson's lower end for r; and the same for those that are not below."""
    n = images.size * images.repeats

    def least(sure: int) -> float:
        rate = float(clopper_pearson(sure * images.repeats, n, confidence)[0])
        return max(0.0, (rate - images.tail) / (1.0 - images.tail))

    return least(int((images.all_uppers < t).sum())), 1.0 - least(int((images.all_lowers >= t).sum()))


def quantile_population(images: Images, q: float, confidence: float) -> Ends:
    """The q-quantile: at least (1 - g) q of all images have a lower end that is not above it, and at most q + g (1 - q) an upper end
    below it, so order statistics of the ends bound it, by the binomial ranks of those shares; the end of the range where there are too
    few images."""
    n, g = round(images.size * images.repeats), images.tail
    first, last = _ranks(n, (1.0 - g) * q, confidence, images.repeats)[0], _ranks(n, q + g * (1.0 - q), confidence, images.repeats)[1]
    lower = images.low if first < 1 else _ranked(images.all_lowers, math.ceil(first / images.repeats))
    upper = images.high if last > n else _ranked(images.all_uppers, min(images.size, math.ceil(last / images.repeats)))
    return max(lower, images.low), min(upper, images.high)


def accuracy_population(correct: int, judged: int, repeats: float, confidence: float) -> Ends:
    """Clopper-Pearson."""
    lower, upper = clopper_pearson(correct * repeats, judged * repeats, confidence)
    return float(lower), float(upper)


def _ranks(n: int, q: float, confidence: float, repeats: float) -> tuple[int, int]:
    """Those of :func:`quantile_ranks`; of many images that are only imagined, by the normal distribution."""
    if n <= _MANY or repeats == 1.0:
        return quantile_ranks(n, q, confidence)
    from scipy.special import ndtri

    wide = float(ndtri(0.5 + confidence / 2.0)) * math.sqrt(n * q * (1.0 - q))
    return math.floor(n * q - wide), math.ceil(n * q + wide) + 1


def _ranked(ends: Floats, rank: int) -> float:
    return float(np.partition(ends, rank - 1)[rank - 1])
