"""The groups of a run that a picture shows, and the one that represents the run where there is room for one."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.errors import NothingLeftError
from robaudit.levels import LevelChoice
from robaudit.quantities import P_ROBUST, IntervalKind
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey
from robaudit.stats.summary import Columns
from robaudit.store.run import Run

_EXACT = (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE)


def columns_of(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> dict[GroupKey, Columns]:
    """The numbers of each group that is named, in the run's order; rows are read one by one. Groups without a finite value are left out.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there is no finite value.
    """
    groups: dict[GroupKey, Columns] = {}
    for row in run.rows:
        key = GroupKey.of(row)
        if key not in groups:
            groups[key] = Columns()
        groups[key].add(row)
    wanted = set(run.chosen([(key.estimator, key.at) for key in groups], estimators, levels))
    chosen = {key: columns for key, columns in groups.items() if (key.estimator, key.at) in wanted and len(columns)}
    if not chosen:
        raise NothingLeftError(str(run.path), "has no finite value to draw", "read the notes in samples.csv")
    return chosen


def one_of(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[list[Row], int]:
    """The rows of the group that represents the run among those named, and how many others there are.

    Of the estimators, a probability of robustness comes first, then the interval: exact, sampling only, none; then the run's order.
    Of its noise levels, the strongest of the run's first noise: levels of different noises are no numbers to compare.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there are no rows.
    """
    groups = list(run.groups(estimators, levels).values())
    if not groups:
        raise NothingLeftError(str(run.path), "has no results to draw", "audit at least one sample")
    first = min(groups, key=_rank)[0]
    same = [rows for rows in groups if rows[0].estimator == first.estimator]
    alike = [rows for rows in same if rows[0].at.noise == same[0][0].at.noise]
    return max(alike, key=lambda rows: rows[0].at.strength), len(groups) - 1


def _rank(rows: Sequence[Row]) -> tuple[bool, int]:
    kind = rows[0].interval.kind
    return rows[0].quantity != P_ROBUST.name, 0 if kind in _EXACT else 1 if kind is not IntervalKind.NONE else 2


def others_text(others: int) -> str:
    """A sentence for the caption if the run has more groups than the one shown."""
    return "" if not others else f" One of {others + 1} combinations of estimator and noise level in this run."
