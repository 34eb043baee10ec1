"""Agreement between the estimators of one quantity on the same samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robaudit.errors import NothingLeftError
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.names import Part, ResultName
from robaudit.numerics.intervals import mean_interval
from robaudit.quantities import Quantity
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


MOST_ESTIMATORS, MOST_DOTS = 4, 600
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two estimators on the samples for which both have a finite value.

    Attributes:
        across, up: their names; ``across`` comes first in the run.
        images: number of samples.
        x, y: (dots, 3) value, lower and upper end of the samples that are drawn; an end is NaN where there is none.
        rank: Spearman's correlation; None where one of them gives all samples the same value.
        difference: mean of up - across; ``lower``, ``upper``: 95 % interval for the population.
        rms: root mean square of the differences.
    """

    across: str
    up: str
    images: int
    x: Floats
    y: Floats
    rank: float | None
    difference: float
    lower: float
    upper: float
    rms: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """The pairs of estimators of one quantity at one noise level.

    Attributes:
        quantity: what they estimate.
        at: the noise level.
        estimators: those that are compared in every pair, in the run's order; ``left``: the others, compared with the first only.
        pairs: those with samples in common.
        levels: number of noise levels with something to compare.
    """

    quantity: Quantity
    at: NoiseLevel
    estimators: tuple[str, ...]
    left: tuple[str, ...]
    pairs: tuple[Pair, ...]
    levels: int

    @property
    def drawn(self) -> tuple[Pair, ...]:
        """The pairs that a picture has room for."""
        return tuple(pair for pair in self.pairs if pair.up not in self.left)


def comparable(keys: Sequence[GroupKey]) -> dict[tuple[str, Part | None, NoiseLevel], list[str]]:
    """Results by quantity, which value of their estimator they are (norms of different order measure different things), and noise
    level, where there are two or more."""
    groups: dict[tuple[str, Part | None, NoiseLevel], list[str]] = {}
    for key in keys:
        groups.setdefault((key.quantity, ResultName.parse(key.estimator).part, key.at), []).append(key.estimator)
    return {place: names for place, names in groups.items() if len(names) > 1}


def agreements(run: Results, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[Agreement, ...]:
    """The agreement for each quantity and noise level with two or more estimators on common samples, in the run's order.

    Raises:
        RunError: the run has no such estimator or noise level.
    """
    groups = [found for one in run.groups(estimators, levels).values() if len(found := one.finite)]
    places = comparable([one.key for one in groups])
    several = len({at for *_, at in places})
    columns = {(one.key.quantity, one.key.at, one.key.estimator): one for one in groups}
    results = []
    for (name, _, at), names in places.items():
        quantity, shown = quantity_of(name, run.quantities), names[:MOST_ESTIMATORS]
        wanted = [*combinations(shown, 2), *((names[0], other) for other in names[MOST_ESTIMATORS:])]
        pairs = (_pair(columns[name, at, a], columns[name, at, b], quantity) for a, b in wanted)
        known = tuple(pair for pair in pairs if pair is not None)
        if known:
            results.append(Agreement(quantity, at, tuple(shown), tuple(names[MOST_ESTIMATORS:]), known, several))
    return tuple(results)


def agreement(run: Results, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> Agreement:
    """The agreement for the quantity with most estimators, at the strongest noise level (of several noises: of the first such one).

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: no two estimators of one quantity were run on the same samples at one noise level.
    """
    known = [one for one in agreements(run, estimators, levels) if one.drawn]
    if not known:
        raise NothingLeftError(
            str(run.path), "has no two estimators of one quantity with results for the same samples", "run a second one: --extend adds it"
        )
    most = max(len(one.estimators) + len(one.left) for one in known)
    widest = [one for one in known if len(one.estimators) + len(one.left) == most]
    return max((one for one in widest if one.at.noise == widest[0].at.noise), key=lambda one: one.at.strength)


def _pair(across: Columns, up: Columns, quantity: Quantity) -> Pair | None:
    both, first, second = np.intersect1d(across.place, up.place, return_indices=True)
    if not len(both):
        return None
    a, b = (np.stack([side.values, side.lower, side.upper], -1)[at] for side, at in ((across, first), (up, second)))
    differences = b[:, 0] - a[:, 0]
    span = quantity.high - quantity.low if math.isfinite(quantity.high - quantity.low) else math.inf
    lower, upper = mean_interval(differences, -span, span)
    drawn = np.unique(np.linspace(0, len(both) - 1, min(MOST_DOTS, len(both))).round().astype(int))
    rank, rms = rank_correlation(a[:, 0], b[:, 0]), float(np.sqrt(np.mean(differences**2)))
    names = across.key.estimator, up.key.estimator
    return Pair(*names, len(both), a[drawn], b[drawn], rank, float(differences.mean()), lower, upper, rms)
