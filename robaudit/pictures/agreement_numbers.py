"""How far do the estimators of one quantity agree on the same samples?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError
from robaudit.numerics.intervals import mean_interval
from robaudit.pictures.groups import rows_by_group
from robaudit.store.run import Run
from robaudit.summary.groups import GroupKey, QuantityLike, quantity_of

MOST_ESTIMATORS, MOST_DOTS = 4, 600
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two estimators on the samples that both have a finite value of.

    Attributes:
        across, up: their names; ``across`` comes first in the run.
        images: how many samples.
        x, y: (dots, 3) value, lower and upper end of those that are drawn; an end is NaN where there is none.
        rank: Spearman's correlation; None where one of them says the same of all samples.
        difference: mean of up - across; ``lower``, ``upper``: 95 % interval for images of this kind.
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """All pairs of estimators of one quantity at one noise level.

    Attributes:
        quantity: what they estimate.
        sigma: the level.
        estimators: those compared, in the run's order; ``left``: those there is no room for.
        pairs: each two of them.
        levels: how many noise levels have something to compare.
    """

    quantity: QuantityLike
    sigma: float
    estimators: tuple[str, ...]
    left: tuple[str, ...]
    pairs: tuple[Pair, ...]
    levels: int


def comparable(keys: Sequence[GroupKey]) -> dict[tuple[str, float], list[str]]:
    """Estimators by quantity and noise level, where there are two or more."""
    found: dict[tuple[str, float], list[str]] = {}
    for key in keys:
        found.setdefault((key.quantity, key.sigma), []).append(key.estimator)
    return {place: names for place, names in found.items() if len(names) > 1}


def agreement(run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> Agreement:
    """Of the quantity with most estimators at the largest noise level, where nothing else is asked for.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: no two estimators of one quantity were run at one noise level.
    """
    groups = rows_by_group(run, estimators, sigmas)
    places = comparable(list(groups))
    if not places:
        raise NothingLeftError(str(run.path), "has no two estimators of one quantity to compare", "run a second one: --extend adds it")
    name, sigma = max(places, key=lambda place: (len(places[place]), place[1]))
    names = places[name, sigma]
    shown = names[:MOST_ESTIMATORS]
    quantity = quantity_of(name, run.quantities)
    values = {key.estimator: rows for key, rows in groups.items() if (key.quantity, key.sigma) == (name, sigma) and key.estimator in shown}
    pairs = tuple(_pair(a, b, values[a], values[b], quantity) for a, b in combinations(shown, 2))
    return Agreement(quantity, sigma, tuple(shown), tuple(names[MOST_ESTIMATORS:]), pairs, len({level for _, level in places}))


def rank_correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's correlation of the ranks, equal values sharing their mean rank; None where one side has a single value.

    As :func:`robaudit.validation.comparison.spearman`, without its two seconds for importing scipy.stats.
    """
    u, v = (_ranks(side) for side in (a, b))
    norm = math.sqrt(float(u @ u) * float(v @ v))
    return float(u @ v) / norm if norm else None


def _ranks(values: Floats) -> Floats:
    """Ranks less their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    ranks: Floats = middle[place] - (len(values) - 1) / 2
    return ranks


def _pair(
    across: str, up: str, x: dict[str, tuple[float, float, float]], y: dict[str, tuple[float, float, float]], quantity: QuantityLike
) -> Pair:
    both = [name for name in x if name in y]
    if not both:
        raise NothingLeftError(f"{across}, {up}", "have no sample with finite values in common", "read the notes in samples.csv")
    a, b = (np.array([side[name] for name in both]) for side in (x, y))
    differences = b[:, 0] - a[:, 0]
    span = quantity.high - quantity.low if math.isfinite(quantity.high - quantity.low) else math.inf
    lower, upper = mean_interval(differences, -span, span)
    drawn = np.unique(np.linspace(0, len(both) - 1, min(MOST_DOTS, len(both))).round().astype(int))
    rank = rank_correlation(a[:, 0], b[:, 0])
    return Pair(across, up, len(both), a[drawn], b[drawn], rank, float(differences.mean()), lower, upper)
