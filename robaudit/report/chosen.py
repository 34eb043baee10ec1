"""The result that represents the runs in figures of a single result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from robaudit.errors import NothingLeftError
from robaudit.quantities import P_ROBUST, IntervalKind
from robaudit.report.sections import Ask, Entry
from robaudit.stats.frame import Columns
from robaudit.stats.groups import GroupKey
from robaudit.store.run import Run

T = TypeVar("T")
_EXACT = (IntervalKind.CLOPPER_PEARSON, IntervalKind.CONFIDENCE_SEQUENCE)


def same_result(entries: Sequence[Entry[T]], key_of: Callable[[T], GroupKey]) -> list[Entry[T]]:
    """An entry of each run, all of the same result: the first, at the strongest level of its first noise in the first run."""
    keys = [key_of(entry.record) for entry in entries if entry.name == entries[0].name]
    chosen = max((key for key in keys if (key.estimator, key.noise) == (keys[0].estimator, keys[0].noise)), key=lambda key: key.at.strength)
    return [entry for entry in entries if key_of(entry.record) == chosen]


def one_result(runs: Sequence[Run], ask: Ask) -> Ask:
    """The request, narrowed to the result that represents the runs.

    Estimators of the probability of robustness come first, then exact intervals before sampling only before none, then the run's order.
    Of the noise levels, the strongest of the first noise: levels of different noises cannot be compared.

    Raises:
        RunError: a run lacks the estimator or noise level.
        NothingLeftError: the runs have no result in common.
    """
    ranks = [{columns.key: _rank(columns) for columns in run.groups(ask.estimators, ask.levels).values()} for run in runs]
    common = {key: rank for key, rank in ranks[0].items() if all(key in other for other in ranks[1:])}
    if not common:
        where, remedy = ", ".join(str(run.path) for run in runs), "audit the same estimators and noise levels"
        raise NothingLeftError(where, "have no result in common to draw" if len(runs) > 1 else "has no results to draw", remedy)
    first = min(common, key=lambda key: (key.quantity != P_ROBUST.name, common[key]))
    same = [key for key in common if key.estimator == first.estimator]
    at = max((key.at for key in same if key.noise == same[0].noise), key=lambda at: at.strength)
    return replace(ask, estimators=(first.estimator,), levels=at.choice)


def _rank(columns: Columns) -> int:
    """0 where intervals are exact, 2 where there are none."""
    exact, none = (bool(columns.of_kind(*kinds)[0]) for kinds in (_EXACT, (IntervalKind.NONE,)))
    return 0 if exact else 2 if none else 1
