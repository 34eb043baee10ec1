"""Which groups of a run does a picture show, and which one if it can show only one?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from robaudit.errors import NothingLeftError
from robaudit.estimators.adaptive import LABEL as ADAPTIVE
from robaudit.estimators.base import P_ROBUST
from robaudit.rows import Row
from robaudit.store.run import Run
from robaudit.summary.columns import Columns
from robaudit.summary.groups import GroupKey

_EXACT = ("clopper-pearson", ADAPTIVE)


def columns_of(run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> dict[GroupKey, Columns]:
    """The numbers of each group that is named, in the run's order; rows are read one by one. Groups without a finite value are left out.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there is no finite value.
    """
    found: dict[GroupKey, Columns] = {}
    for row in run.rows:
        key = GroupKey(row.estimator, row.sigma, row.noise, row.quantity)
        if key not in found:
            found[key] = Columns()
        found[key].add(row)
    wanted = set(run.chosen([(key.estimator, key.sigma) for key in found], estimators, sigmas))
    chosen = {key: columns for key, columns in found.items() if (key.estimator, key.sigma) in wanted and len(columns)}
    if not chosen:
        raise NothingLeftError(str(run.path), "has no finite value to draw", "read the notes in samples.csv")
    return chosen


def one_of(run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> tuple[list[Row], int]:
    """The rows of the group that speaks for the run among those that are named, and how many others there are.

    Of the estimators, a probability of robustness comes first, then the interval: exact, sampling only, none; then the run's order.
    Of its noise levels, the largest.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there are no rows.
    """
    groups = list(run.groups(estimators, sigmas).values())
    if not groups:
        raise NothingLeftError(str(run.path), "has no results to draw", "audit at least one sample")
    first = min(groups, key=_rank)[0]
    same = [rows for rows in groups if rows[0].estimator == first.estimator]
    return max(same, key=lambda rows: rows[0].sigma), len(groups) - 1


def _rank(rows: Sequence[Row]) -> tuple[bool, int]:
    kind = rows[0].interval
    return rows[0].quantity != P_ROBUST.name, 0 if kind in _EXACT else 1 if kind != "none" else 2


def others_words(others: int) -> str:
    """That a run has more groups than the one that is shown."""
    return "" if not others else f" One of {others + 1} combinations of estimator and sigma in this run."


def rows_by_group(
    run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()
) -> dict[GroupKey, dict[str, tuple[float, float, float]]]:
    """Value, lower and upper end (NaN where there is none) of each sample with a finite value, by group, in the run's order.

    Raises:
        RunError: the run has no such estimator or sigma.
    """
    found: dict[GroupKey, dict[str, tuple[float, float, float]]] = {}
    for row in run.rows:
        group = found.setdefault(GroupKey(row.estimator, row.sigma, row.noise, row.quantity), {})
        if math.isfinite(row.value):
            low, high = (math.nan if end is None else end for end in (row.lower, row.upper))
            group[row.sample_id] = row.value, low, high
    wanted = set(run.chosen([(key.estimator, key.sigma) for key in found], estimators, sigmas))
    return {key: group for key, group in found.items() if (key.estimator, key.sigma) in wanted and group}
