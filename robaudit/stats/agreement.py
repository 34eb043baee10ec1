"""Agreement between the estimators of one quantity on the same samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.documents import Document
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.names import Part, ResultName
from robaudit.numerics.intervals import mean_interval
from robaudit.stats.frame import Columns, Results
from robaudit.stats.groups import GroupKey, quantity_of


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's rank correlation: Pearson's correlation of the ranks, equal values sharing their mean rank.

    Pairs with a value that is not finite are left out. (scipy.stats has the same function, and takes two seconds to import.)

    Args:
        a, b: values of the same images, in the same order (images,).

    Returns:
        In [-1, 1]; None with fewer than two pairs, or where either side is constant.

    Source: Spearman, American Journal of Psychology 15 (1904) 72.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 2:
        return None
    u, v = _centred_ranks(x[both]), _centred_ranks(y[both])
    norm = math.sqrt(float(u @ u) * float(v @ v))
    return max(-1.0, min(1.0, float(u @ v) / norm)) if norm else None


def _centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks minus their mean (images,)."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    ranks: NDArray[np.float64] = middle[place] - (len(values) - 1) / 2
    return ranks


MOST_ESTIMATORS = 4
"""How many estimators are compared in every pair; the others are compared with the first only."""


@dataclass(frozen=True, slots=True)
class Pair(Document):
    """Two estimators on the images for which both have a finite value.

    Attributes:
        first, second: their names; the second comes first in the run.
        images: number of images.
        difference: mean of first - second; ``lower``, ``upper``: 95 % interval for the population.
        rms: root mean square of the differences.
        rank: Spearman's correlation; None where one of them gives all images the same value.
    """

    first: str
    second: str
    images: int
    difference: float
    lower: float
    upper: float
    rms: float
    rank: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The pairs of estimators of one quantity at one noise level, at least one."""

    quantity: str
    at: NoiseLevel
    pairs: tuple[Pair, ...]


def comparable(keys: Iterable[GroupKey]) -> dict[tuple[str, Part | None, NoiseLevel], list[GroupKey]]:
    """Results by quantity, part (norms of different order measure different things) and noise level, where there are two or more."""
    groups: dict[tuple[str, Part | None, NoiseLevel], list[GroupKey]] = {}
    for key in keys:
        groups.setdefault((key.quantity, ResultName.parse(key.estimator).part, key.at), []).append(key)
    return {place: some for place, some in groups.items() if len(some) > 1}


def agreements(run: Results, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[Agreement, ...]:
    """The agreement for each quantity and noise level with two or more estimators on common images, in the run's order.

    Raises:
        RunError: the run has no such estimator or noise level.
    """
    columns = {one.key: finite for one in run.groups(estimators, levels).values() if len(finite := one.finite)}
    found = []
    for (name, _, at), keys in comparable(columns).items():
        wanted = [*combinations(keys[:MOST_ESTIMATORS], 2), *((keys[0], other) for other in keys[MOST_ESTIMATORS:])]
        quantity = quantity_of(name, run.quantities)
        pairs = (_pair(columns[first], columns[second], quantity.high - quantity.low) for second, first in wanted)
        if known := tuple(pair for pair in pairs if pair is not None):
            found.append(Agreement(name, at, known))
    return tuple(found)


def _pair(first: Columns, second: Columns, span: float) -> Pair | None:
    """The pair on their common images, whose values differ by ``span`` at most; None without any."""
    both, mine, others = np.intersect1d(first.place, second.place, return_indices=True)
    if not len(both):
        return None
    a, b = first.values[mine], second.values[others]
    differences = a - b
    interval = mean_interval(differences, -span, span)
    rms = float(np.sqrt(np.mean(differences**2)))
    names = first.key.estimator, second.key.estimator
    return Pair(*names, len(both), float(differences.mean()), *interval, rms, rank_correlation(a, b))
