"""How are the values of the images distributed at each noise level: curve, box and mean?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.pictures.groups import columns_of
from robaudit.store.run import Run
from robaudit.summary.columns import Columns
from robaudit.summary.estimates import Mean, Share, mean_of, share
from robaudit.summary.groups import GroupKey, QuantityLike, quantity_of

MOST_POINTS = 400
_BOX = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class Level:
    """One estimator at one noise level.

    Attributes:
        sigma: the level.
        images: with a finite value; ``left_out``: without.
        with_interval, sampling_only: images with an interval of their own; of those, with one that covers the draws only.
        shares, values: the curve: this share of the images is at least as bad as the value; from the worst image to the best.
        box: 5 %, 25 %, 50 %, 75 % and 95 % quantile of the values.
        mean: as in the summary.
        beyond: images beyond the threshold.
    """

    sigma: float
    images: int
    left_out: int
    with_interval: int
    sampling_only: int
    shares: tuple[float, ...]
    values: tuple[float, ...]
    box: tuple[float, ...]
    mean: Mean
    beyond: Share


@dataclass(frozen=True, slots=True)
class Distribution:
    """All noise levels of one estimator, the smallest first."""

    estimator: str
    quantity: QuantityLike
    threshold: float
    levels: tuple[Level, ...]


def distributions(
    run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = (), threshold: float | None = None
) -> tuple[Distribution, ...]:
    """One for each estimator, in the run's order.

    Args:
        run: a finished run.
        estimators, sigmas: only these.
        threshold: for the share beyond it; each quantity's usual one where None, or where it is out of its range.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there is no finite value.
    """
    from robaudit.summary.flags import usual_threshold

    found: dict[tuple[str, str], list[tuple[GroupKey, Columns]]] = {}
    for key, columns in columns_of(run, estimators, sigmas).items():
        found.setdefault((key.estimator, key.quantity), []).append((key, columns))
    made = []
    for (estimator, name), groups in found.items():
        quantity = quantity_of(name, run.quantities)
        limit = threshold if threshold is not None and quantity.low <= threshold <= quantity.high else usual_threshold(quantity)
        ordered = sorted(groups, key=lambda group: group[0].sigma)
        made.append(
            Distribution(estimator, quantity, limit, tuple(_level(key.sigma, columns, quantity, limit) for key, columns in ordered))
        )
    return tuple(made)


def _level(sigma: float, columns: Columns, quantity: QuantityLike, threshold: float) -> Level:
    values = columns.values
    ranked = np.sort(values) if quantity.higher_is_better else -np.sort(-values)  # the worst first
    count = len(ranked)
    places = np.arange(count) if count <= MOST_POINTS else np.unique(np.linspace(0, count - 1, MOST_POINTS).round().astype(int))
    beyond = int((values < threshold).sum() if quantity.higher_is_better else (values > threshold).sum())
    return Level(
        sigma=sigma,
        images=count,
        left_out=columns.not_finite,
        with_interval=columns.bounded,
        sampling_only=columns.sampling_only,
        shares=tuple(((places + 1) / count).tolist()),
        values=tuple(ranked[places].tolist()),
        box=tuple(np.quantile(values, _BOX).tolist()),
        mean=mean_of(columns, quantity),
        beyond=share(beyond, count),
    )


def band(images: int) -> float:
    """Half the width of a 95 % band about the whole curve, for images of this kind: sqrt(log(2 / .05) / (2 n)).

    Source: Dvoretzky, Kiefer and Wolfowitz (1956), with the constant of Massart (1990).
    """
    return min(1.0, math.sqrt(math.log(40.0) / (2 * images)))
