"""The groups of a run that a picture shows, and the one that represents the run where there is room for one."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.errors import NothingLeftError
from robaudit.levels import LevelChoice
from robaudit.quantities import P_ROBUST, IntervalKind
from robaudit.stats.frame import Columns
from robaudit.stats.groups import GroupKey
from robaudit.store.run import Run

_EXACT = (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE)


def columns_of(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> dict[GroupKey, Columns]:
    """The numbers of each group that is named, in the run's order. Groups without a finite value are left out.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there is no finite value.
    """
    chosen = {one.key: columns for one in run.groups(estimators, levels).values() if len(columns := one.finite)}
    if not chosen:
        raise NothingLeftError(str(run.path), "has no finite value to draw", "read the notes in samples.csv")
    return chosen


def one_of(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[Columns, int]:
    """The group that represents the run among those named, and how many others there are.

    Of the estimators, a probability of robustness comes first, then the interval: exact, sampling only, none; then the run's order.
    Of its noise levels, the strongest of the run's first noise: levels of different noises are no numbers to compare.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there are no results.
    """
    groups = list(run.groups(estimators, levels).values())
    if not groups:
        raise NothingLeftError(str(run.path), "has no results to draw", "audit at least one sample")
    first = min(groups, key=_rank).key
    same = [one for one in groups if one.key.estimator == first.estimator]
    alike = [one for one in same if one.key.noise == same[0].key.noise]
    return max(alike, key=lambda one: one.key.at.strength), len(groups) - 1


def _rank(columns: Columns) -> tuple[bool, int]:
    exact, none = (bool(columns.of_kind(*kinds)[0]) for kinds in (_EXACT, (IntervalKind.NONE,)))
    return columns.key.quantity != P_ROBUST.name, 0 if exact else 2 if none else 1


def others_text(others: int) -> str:
    """A sentence for the caption if the run has more groups than the one shown."""
    return "" if not others else f" One of {others + 1} combinations of estimator and noise level in this run."
