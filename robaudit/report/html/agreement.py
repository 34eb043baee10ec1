"""How far do two estimators of one quantity agree on the same images?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from robaudit.numerics.intervals import mean_interval
from robaudit.report.html.tally import GroupTally
from robaudit.summary.groups import QuantityLike
from robaudit.validation.comparison import spearman

_MOST = 4  # estimators of which every pair is compared; of more, each with the first


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two estimators at one noise level.

    Attributes:
        first, second: their names.
        sigma, quantity: what both estimate.
        images: how many have a finite value from both.
        difference: mean over these images of second - first.
        lower, upper: its 95 % interval over images.
        rms: root mean square of the differences.
        rank: Spearman's rank correlation; None where either is the same for all images.
    """

    first: str
    second: str
    sigma: float
    quantity: str
    images: int
    difference: float
    lower: float
    upper: float
    rms: float
    rank: float | None


def agreements(groups: Mapping[tuple[str, float], GroupTally], quantities: Mapping[str, QuantityLike]) -> tuple[Agreement, ...]:
    """The pairs of estimators of one quantity and noise level that looked at the same samples, in the order of the groups.

    Args:
        groups: by estimator and sigma.
        quantities: descriptions by name.
    """
    kinds: dict[tuple[str, float], list[str]] = {}
    for (estimator, sigma), group in groups.items():
        kinds.setdefault((group.quantity, sigma), []).append(estimator)
    found = []
    for (quantity, sigma), names in kinds.items():
        for first, second in _pairs(names):
            a, b = groups[first, sigma], groups[second, sigma]
            if a.order == b.order:
                found.append(_agreement(first, second, sigma, quantities[quantity], a, b))
    return tuple(one for one in found if one is not None)


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(combinations(names, 2)) if len(names) <= _MOST else [(names[0], other) for other in names[1:]]


def _agreement(first: str, second: str, sigma: float, quantity: QuantityLike, a: GroupTally, b: GroupTally) -> Agreement | None:
    both = np.isfinite(a.values) & np.isfinite(b.values)
    x, y = a.values[both], b.values[both]
    if not x.size:
        return None
    away, width = y - x, quantity.high - quantity.low
    ends = mean_interval(away, -width, width)
    rms = float(np.sqrt(np.mean(away**2)))
    return Agreement(first, second, sigma, quantity.name, int(x.size), float(away.mean()), *ends, rms, spearman(x, y))
