"""The bootstrap over images, from a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from robaudit.estimates import Bounds, Estimate
from robaudit.numerics.image_intervals import ROW_CONFIDENCE, Floats
from robaudit.records import Inline, Record

REPLICATES = 2000
"""Number of replicates: a 95 % interval ends at the 50th from either end, and p-values are
multiples of 1/1000."""
SEED = 0
"""Seed of the draws, fixed so that a report of the same run always states the same intervals."""
BOOTSTRAP = "bootstrap over images"
"""The method of the intervals."""
_BLOCK = 1 << 20  # weights at a time: 8 MiB of float64, however many images
Key = TypeVar("Key")


def weights(images: int, replicates: int = REPLICATES) -> Iterator[Floats]:
    """How often each replicate draws each image, with replacement; the same in every call.

    Yields:
        Blocks of the counts (replicates, images), float64.
    """
    generator = np.random.default_rng(SEED)
    step = max(1, min(replicates, _BLOCK // images))
    for begin in range(0, replicates, step):
        rows = min(step, replicates - begin)
        drawn = generator.integers(images, size=(rows, images))
        # Each row has numbers of its own, so that one bincount counts all rows.
        numbered = drawn + images * np.arange(rows)[:, None]
        counts = np.bincount(numbered.ravel(), minlength=rows * images)
        yield counts.reshape(rows, images).astype(np.float64)


Ends = tuple[Floats, Floats]
"""Replicates of the lower and of the upper end, (replicates,) each; they differ where values are
censored."""
Statistics = Callable[[Floats], Mapping[Key, Floats | Ends]]
"""A function from the weights of the images (replicates, images) to statistics by name, each
(replicates,)."""


@dataclass(frozen=True, slots=True)
class PairedDifference(Record):
    """A difference of two runs on the same images.

    Attributes:
        estimate: new - base, with its 95 % interval for the population; infinite where an end is
            open.
        p_value: the smallest level at which the interval excludes 0, by the bootstrap at least
            1/1000; None without an interval.
        images: number of images.
    """

    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]
    p_value: float | None
    images: int

    def without_interval(self) -> PairedDifference:
        """The difference alone, where nothing is known of its error."""
        return PairedDifference(Estimate(self.estimate.value), None, self.images)


def percentiles(
    images: int, statistics: Statistics[Key], confidence: float = ROW_CONFIDENCE
) -> dict[Key, Bounds | None]:
    """Percentile intervals of statistics of the population: the quantiles of their bootstrap
    replicates.

    Replicates without a defined statistic are left out. There is no interval if half of them or
    more are left out, or for a single image.

    Args:
        images: number of images.
        statistics: the statistics by name.
        confidence: in (0, 1).

    Source: Efron 1979, Bootstrap methods: another look at the jackknife.
    """
    return {
        name: None if ranked is None else _percentile_interval(ranked, confidence)
        for name, ranked in _ranked(images, statistics).items()
    }


def differences(
    images: int,
    statistics: Statistics[Key],
    values: Mapping[Key, float],
    replicates: int = REPLICATES,
) -> dict[Key, PairedDifference]:
    """Differences of two runs with their intervals and p-values; replicates draw the same images
    for both.

    It assumes an independent sample of enough images: a rare image outside the sample, on which the
    runs differ by much, is not covered.

    Args:
        images: number of images.
        statistics: the differences of replicates, by name.
        values: the observed differences, by name.
        replicates: their number; the smallest p-value is 2 / replicates.
    """
    ranked = _ranked(images, statistics, replicates)
    paired = {}
    for name, value in values.items():
        ends = ranked.get(name)
        if ends is None:
            paired[name] = PairedDifference(Estimate(value), None, images)
            continue
        bounds = _percentile_interval(ends, ROW_CONFIDENCE)
        estimate = Estimate.population(value, bounds, BOOTSTRAP)
        paired[name] = PairedDifference(estimate, _p_value(ends, replicates), images)
    return paired


def _percentile_interval(ranked: Ends, confidence: float) -> Bounds:
    """The percentile interval from sorted replicates (Efron 1979)."""
    low, high = ranked
    return _quantile(low, (1.0 - confidence) / 2.0), _quantile(high, (1.0 + confidence) / 2.0)


def _p_value(ranked: Ends, replicates: int) -> float:
    """The smallest level at which the percentile interval excludes 0, two-sided."""
    low, high = ranked
    # At level a the lower end is replicate ceil(a R / 2) from below: it is above 0 from one more
    # than the replicates up to 0. The upper end is replicate ceil((1 - a / 2) R): it is below 0
    # from as many as the replicates from 0 on. Less than one replicate cannot be told from none.
    below = (low <= 0.0).sum() + 1.0
    above = (high >= 0.0).sum()
    tail = max(1.0, min(below, above))
    return float(min(1.0, 2.0 * tail / replicates))


def _ranked(
    images: int, statistics: Statistics[Key], replicates: int = REPLICATES
) -> dict[Key, Ends | None]:
    """The sorted replicates of each statistic, infinite ones at the ends.

    None for a single image, which has no spread, and where half of the replicates or more are
    undefined: the rest no longer represents the sample.
    """
    blocks: dict[Key, tuple[list[Floats], list[Floats]]] = {}
    for block in weights(images, replicates):
        for name, values in statistics(block).items():
            low, high = values if isinstance(values, tuple) else (values, values)
            lows, highs = blocks.setdefault(name, ([], []))
            lows.append(low)
            highs.append(high)
    ranked: dict[Key, Ends | None] = {}
    for name, (lows, highs) in blocks.items():
        low = _sorted(lows)
        high = _sorted(highs)
        enough = images >= 2 and min(len(low), len(high)) > replicates / 2
        ranked[name] = (low, high) if enough else None
    return ranked


def _sorted(blocks: list[Floats]) -> Floats:
    """The defined values of all blocks, ascending."""
    values = np.concatenate(blocks)
    return np.sort(values[~np.isnan(values)])


def _quantile(ranked: Floats, share: float) -> float:
    """The smallest replicate that at least this share of all does not exceed."""
    # 1e-9 makes up for the rounding of a whole product, such as 0.025 * 2000.
    rank = math.ceil(share * len(ranked) - 1e-9)  # from 1
    return float(ranked[max(rank - 1, 0)])


def minus(new: Ends, base: Ends) -> Ends:
    """The ends of new - base; infinite where one of the ends that enter is infinite."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity, replaced below
        low = new[0] - base[1]
        high = new[1] - base[0]
    # Values beyond a cap are only known to be larger, so an open end leaves one end here open.
    low = np.where(np.isinf(base[1]), -np.inf, low)
    high = np.where(np.isinf(new[1]), np.inf, high)
    return low, high
