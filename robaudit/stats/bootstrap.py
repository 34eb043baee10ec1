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
SEED = 0
BOOTSTRAP = "bootstrap over images"
"""The method of the intervals."""
_BLOCK = 1 << 20  # weights at a time: 8 MiB
Key = TypeVar("Key")


def weights(images: int) -> Iterator[Floats]:
    """Blocks (replicates, images) of how often each image is drawn, with replacement; the same in
    every call."""
    generator = np.random.default_rng(SEED)
    step = max(1, min(REPLICATES, _BLOCK // images))
    for begin in range(0, REPLICATES, step):
        rows = min(step, REPLICATES - begin)
        drawn = generator.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        yield (
            np.bincount(drawn.ravel(), minlength=rows * images)
            .reshape(rows, images)
            .astype(np.float64)
        )


Ends = tuple[Floats, Floats]
"""Replicates of the lower and of the upper end, which differ where values are censored."""
Statistics = Callable[[Floats], Mapping[Key, Floats | Ends]]
"""A function from the weights of the images (replicates, images) to statistics by name,
(replicates,) each."""


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

    Replicates without a defined statistic are left out. There is no interval if more than half of
    them are, or for a single image.

    Args:
        images: number of images.
        statistics: by name.
        confidence: in (0, 1).

    Source: Efron 1979, Bootstrap methods: another look at the jackknife.
    """
    ends = [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
    return {
        name: None
        if ranked is None
        else (_quantile(ranked[0], ends[0]), _quantile(ranked[1], ends[1]))
        for name, ranked in _ranked(images, statistics).items()
    }


def differences(
    images: int, statistics: Statistics[Key], values: Mapping[Key, float]
) -> dict[Key, PairedDifference]:
    """Differences of two runs with their intervals and p-values; replicates draw the same images
    for both.

    It assumes an independent sample of enough images: a rare image outside the sample, on which the
    runs differ by much, is not covered.

    Args:
        images: number of images.
        statistics: the differences by name.
        values: the differences of all images.
    """
    ranked = _ranked(images, statistics)
    ends = (1.0 - ROW_CONFIDENCE) / 2.0, (1.0 + ROW_CONFIDENCE) / 2.0
    paired = {}
    for name, value in values.items():
        if (known := ranked.get(name)) is None:
            paired[name] = PairedDifference(Estimate(value), None, images)
            continue
        low, high = known
        p = min(
            1.0, 2.0 * max(1.0, min((low <= 0.0).sum() + 1.0, (high >= 0.0).sum())) / REPLICATES
        )
        bounds = _quantile(low, ends[0]), _quantile(high, ends[1])
        paired[name] = PairedDifference(
            Estimate.population(value, bounds, BOOTSTRAP), float(p), images
        )
    return paired


def _ranked(images: int, statistics: Statistics[Key]) -> dict[Key, Ends | None]:
    """The sorted replicates of each statistic, infinite ones at the ends; None where too few are
    defined."""
    replicates: dict[Key, tuple[list[Floats], list[Floats]]] = {}
    for block in weights(images):
        for name, values in statistics(block).items():
            low, high = values if isinstance(values, tuple) else (values, values)
            below, above = replicates.setdefault(name, ([], []))
            below.append(low)
            above.append(high)
    ranked: dict[Key, Ends | None] = {}
    for name, (below, above) in replicates.items():
        low, high = (np.concatenate(blocks) for blocks in (below, above))
        low = np.sort(low[~np.isnan(low)])
        high = np.sort(high[~np.isnan(high)])
        ranked[name] = (
            None if images < 2 or min(len(low), len(high)) <= REPLICATES / 2 else (low, high)
        )
    return ranked


def _quantile(ranked: Floats, share: float) -> float:
    return float(ranked[max(math.ceil(share * len(ranked) - 1e-9) - 1, 0)])


def minus(new: Ends, base: Ends) -> Ends:
    """The ends of new - base; infinite where an end is."""
    with np.errstate(invalid="ignore"):
        low = new[0] - base[1]
        high = new[1] - base[0]
    return np.where(np.isinf(base[1]), -np.inf, low), np.where(np.isinf(new[1]), np.inf, high)
