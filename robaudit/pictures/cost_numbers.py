"""What does an image cost with each estimator at each noise level, and how narrow an interval does that buy?"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robaudit.errors import NothingLeftError
from robaudit.store.run import Run
from robaudit.summary.groups import GroupKey


@dataclass(frozen=True, slots=True)
class Cost:
    """One estimator at one noise level.

    Attributes:
        key: which.
        images: how many.
        seconds: an image, without the clean pass that all estimators share; None where not measured.
        forwards, backwards: mean passes of an image.
        bounded: images with an interval that is closed to both sides.
        width: median width of those intervals; None without any.
        quarter, three_quarters: quartiles of those widths.
        sampling_only: whether those intervals cover the draws only.
    """

    key: GroupKey
    images: int
    seconds: float | None
    forwards: float
    backwards: float
    bounded: int
    width: float | None
    quarter: float | None
    three_quarters: float | None
    sampling_only: bool

    @property
    def passes(self) -> float:
        """Forward and backward passes of an image."""
        return self.forwards + self.backwards


@dataclass(slots=True)
class _Sum:
    images: int = 0
    forwards: int = 0
    backwards: int = 0
    sampling_only: bool = False
    widths: array[float] = field(default_factory=lambda: array("d"))


def costs(run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> tuple[Cost, ...]:
    """One for each group that is named, in the run's order; rows are read one by one.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there are no rows.
    """
    sums: dict[GroupKey, _Sum] = {}
    for row in run.rows:
        key = GroupKey(row.estimator, row.sigma, row.noise, row.quantity)
        one = sums.get(key)
        if one is None:
            one = sums[key] = _Sum()
        one.images += 1
        one.forwards += row.forwards
        one.backwards += row.backwards
        one.sampling_only |= row.interval.endswith(":sampling-only")
        if row.lower is not None and row.upper is not None and math.isfinite(row.upper - row.lower):
            one.widths.append(row.upper - row.lower)
    if not sums:
        raise NothingLeftError(str(run.path), "has no results to draw", "audit at least one sample")
    wanted = set(run.chosen([(key.estimator, key.sigma) for key in sums], estimators, sigmas))
    seconds = run.seconds
    return tuple(
        _cost(key, one, seconds.get((key.estimator, key.sigma))) for key, one in sums.items() if (key.estimator, key.sigma) in wanted
    )


def _cost(key: GroupKey, one: _Sum, seconds: float | None) -> Cost:
    widths = np.frombuffer(one.widths, dtype=np.float64)
    quartiles = [float(q) for q in np.quantile(widths, (0.25, 0.5, 0.75))] if widths.size else [None] * 3
    return Cost(
        key=key,
        images=one.images,
        seconds=seconds / one.images if seconds else None,  # run.json rounds to milliseconds: 0 is no measurement
        forwards=one.forwards / one.images,
        backwards=one.backwards / one.images,
        bounded=int(widths.size),
        width=quartiles[1],
        quarter=quartiles[0],
        three_quarters=quartiles[2],
        sampling_only=one.sampling_only,
    )
