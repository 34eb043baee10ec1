"""Differences of further runs from the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from robaudit.compare.result import Difference
from robaudit.compare.side_by_side import Comparisons, comparisons, differences_from_first
from robaudit.report import numbers
from robaudit.report.sections import Entry, runs_of
from robaudit.report.typed import Changes
from robaudit.runs.run import Run
from robaudit.stats.bootstrap import PairedDifference

Key = TypeVar("Key")
T = TypeVar("T")
Paired = Mapping[Key, PairedDifference]
P_VALUE = "p: two-sided, of no difference; each line alone"
BOOTSTRAP_P = f"{P_VALUE}, and 0.001 at least."


def changes_of(entries: Sequence[Entry[Any]]) -> dict[str, Comparisons]:
    """The comparisons of each further run with the first, by its name; empty where they cannot be
    compared."""
    return comparisons(runs_of(entries))


def paired_changes(
    entries: Sequence[Entry[Any]], differences: Callable[[Run, Run], Mapping[Key, T]]
) -> dict[str, Mapping[Key, T]]:
    """The differences of each further run from the first, by its name; empty where they cannot be
    compared."""
    return differences_from_first(runs_of(entries), differences)


def mean_changes(entries: Sequence[Entry[Any]], *notes: str) -> Changes:
    """The differences of the means of each result from the first run's, by estimator and noise
    level.

    Args:
        entries: of all runs.
        notes: how to read the differences.
    """
    # results that only one run has are not compared, and have a dash in the table
    by_run = {}
    for name, groups in changes_of(entries).items():
        by_run[name] = {
            key: for_the_population(group.mean, group.images) for key, group in groups.items()
        }
    return Changes(by_run, notes=notes)


def for_the_population(change: Difference, images: int) -> PairedDifference:
    """A difference of two runs with its interval for images like these, which has no p-value."""
    return PairedDifference(change.population, None, images)


def difference(change: Difference | None) -> str:
    """The difference with its interval for images like these."""
    if change is None:
        return numbers.NONE
    return numbers.change(change.value, *change.population.ends)
