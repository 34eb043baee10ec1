"""Compare p_robust under models of noise with p_robust under the recorded noise itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from robaudit.compare.difference import unpaired_difference
from robaudit.estimates import Estimate
from robaudit.levels import NoiseLevel
from robaudit.noise.process import NoiseProcess
from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.records import Inline, Nested, Record
from robaudit.stats.summary import Share
from robaudit.validation.deviations import Truths

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LevelMean(Record):
    """The mean p_robust of the reference at one noise level.

    Attributes:
        at: the noise level.
        images: number of images.
        mean: over the images, with its interval over images
            (:func:`robaudit.numerics.intervals.mean_interval`).
        difference: the mean minus that under the recorded noise, with the interval of
            :func:`paired_difference_of_means`; None for the recorded noise itself.
    """

    at: NoiseLevel
    images: int
    mean: Annotated[Estimate, Inline("value", "lower", "upper")]
    difference: Annotated[
        Estimate | None,
        Nested(
            "Difference", "value", "lower", "upper", about="The mean minus the recorded noise's."
        ),
    ]


@dataclass(frozen=True, slots=True)
class RecordedComparison(Record):
    """The noise levels of a spec beside one recorded noise.

    Attributes:
        recorded: the level of the recorded noise that the others are compared with: the one nearest
            to 1, as strong as recorded.
        levels: its own levels, and those of the noises that are models, in the order of the spec.
    """

    recorded: NoiseLevel
    levels: tuple[LevelMean, ...]


def against_recorded(
    noises: Sequence[NoiseProcess], truths: Truths
) -> tuple[RecordedComparison, ...]:
    """A comparison with each recorded noise; empty without recorded noise, or without any other.

    Args:
        noises: of the spec.
        truths: the reference.
    """
    has_models = any(noise.levels and not noise.noise.empirical for noise in noises)
    if not has_models:
        return ()
    recorded = [noise for noise in noises if noise.levels and noise.noise.empirical]
    comparisons = []
    for noise in recorded:
        nearest = min(noise.levels, key=lambda at: abs(at.number - 1))
        # In the order of the spec.
        shown = [other for other in noises if other is noise or not other.noise.empirical]
        levels: list[LevelMean] = []
        for other in shown:
            base = None if other is noise else nearest
            levels += [_mean(at, base, truths) for at in other.levels]
        comparisons.append(RecordedComparison(nearest, tuple(levels)))
    return tuple(comparisons)


def _mean(at: NoiseLevel, recorded: NoiseLevel | None, truths: Truths) -> LevelMean:
    """The mean at a level, and its difference from that at another."""
    samples = [name for name, level in truths if level == at]
    shares = [truths[name, at] for name in samples]
    values = _values(shares)
    bounds = mean_interval(values, 0.0, 1.0)
    mean = Estimate.population(float(values.mean()), bounds, "Gaffke's bounds over images")
    difference = None
    if recorded is not None:
        base = [truths[name, recorded] for name in samples]
        difference = paired_difference_of_means(base, shares)
    return LevelMean(at, len(samples), mean, difference)


def paired_difference_of_means(base: Sequence[Share], new: Sequence[Share]) -> Estimate:
    """The mean difference of two shares of votes of the same images, new minus base.

    The images are paired, so that only the spread of their differences counts: Student's t over
    the images. Where no image changes, or there is one image, that spread is 0 or unknown. So each
    side is at least as wide as the error of the draws alone, from Clopper-Pearson of all votes of
    either mean (MOVER). A rare image that is not among these may still carry a difference.

    Args:
        base, new: shares of equally many independent votes, in the same order; at least one.

    Source: Zou and Donner, Statistics in Medicine 27 (2008) 1693 (MOVER).
    """
    differences = _values(new) - _values(base)
    value = float(differences.mean())
    of_draws = unpaired_difference(_pooled(base), _pooled(new), same_generator=False)
    below = of_draws.below
    above = of_draws.above
    if len(differences) > 1:
        lower, upper = mean_interval(differences, -math.inf, math.inf)
        below = max(below, value - lower)
        above = max(above, upper - value)
    bounds = (max(-1.0, value - below), min(1.0, value + above))
    return Estimate.population(value, bounds, "Student's t over paired images, or of the draws")


def _values(shares: Sequence[Share]) -> Floats:
    return np.array([part.value for part in shares])


def _pooled(shares: Sequence[Share]) -> Estimate:
    """The mean of shares of equally many votes, with the interval of all votes together."""
    count = sum(part.count for part in shares)
    total = sum(part.total for part in shares)
    lower, upper = clopper_pearson(count, total)
    return Estimate.measured(count / total, (float(lower), float(upper)), "Clopper-Pearson")
