"""The bootstrap over images: how often each is drawn, with replacement, from a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from robaudit.stats.intervals import ROW_CONFIDENCE, Bounds, Floats

REPLICATES, SEED = 2000, 0
_BLOCK = 1 << 20  # weights at a time: 8 MiB
Key = TypeVar("Key")


def weights(images: int, replicates: int = REPLICATES, seed: int = SEED) -> Iterator[Floats]:
    """Blocks of (replicates, images): how often each image is among as many drawn with replacement; the same for the same arguments."""
    generator = np.random.default_rng(seed)
    step = max(1, min(replicates, _BLOCK // images))
    for begin in range(0, replicates, step):
        rows = min(step, replicates - begin)
        drawn = generator.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * images).reshape(rows, images).astype(np.float64)


def percentiles(
    images: int, statistics: Callable[[Floats], Mapping[Key, Floats]], confidence: float = ROW_CONFIDENCE
) -> dict[Key, Bounds | None]:
    """Percentile intervals of statistics of the population: the quantiles of their bootstrap replicates.

    A replicate in which a statistic is not defined is left out; with more than half of them undefined there is no interval, nor is there
    one of a single image.

    Args:
        images: their number.
        statistics: by name, from the weights of the images (replicates, images): (replicates,).
        confidence: in (0, 1).

    Source: Efron 1979, Bootstrap methods: another look at the jackknife.
    """
    found: dict[Key, list[Floats]] = {}
    for block in weights(images):
        for name, values in statistics(block).items():
            found.setdefault(name, []).append(values)
    ends = [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
    intervals: dict[Key, Bounds | None] = {}
    for name, blocks in found.items():
        values = np.concatenate(blocks)
        values = values[~np.isnan(values)]
        if images < 2 or len(values) <= REPLICATES / 2:
            intervals[name] = None
        else:
            ranked = np.sort(values)  # with infinite ones at the ends
            lower, upper = (ranked[max(math.ceil(end * len(ranked) - 1e-9) - 1, 0)] for end in ends)
            intervals[name] = float(lower), float(upper)
    return intervals
