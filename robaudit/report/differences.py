"""Differences of further runs from the first, as cells of tables and lines of CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from robaudit.compare.result import Difference
from robaudit.compare.side_by_side import Comparisons, comparisons, differences_from_first
from robaudit.report import numbers
from robaudit.report.sections import Entry, runs_of
from robaudit.report.tables import Column
from robaudit.runs.run import Run
from robaudit.stats import bootstrap

Key = TypeVar("Key")
T = TypeVar("T")
Paired = Mapping[Key, bootstrap.PairedDifference]
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


def difference_lines(
    entries: Sequence[Entry[Any]],
    changes: Mapping[str, Paired[Key]],
    columns: Callable[[Key], Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The differences of each run from the first as values by column; ``columns``: a key's
    columns."""
    for name, of_run in changes.items():
        for key, change in of_run.items():
            parted = change.document()
            yield {
                "run": name,
                "base": entries[0].name,
                **columns(key),
                "images": parted.pop("images"),
                "difference": parted,
            }


def run_columns(
    names: Sequence[str], *, compared: bool = True, tested: bool = False
) -> list[Column]:
    """A column for each run, then for the difference of each further run from the first;
    ``tested``: and for its p-value."""
    base, *others = names
    columns = [Column(name, number=True) for name in names]
    for name in others if compared else ():
        columns.append(Column(f"{name} - {base}", number=True))
        if tested:
            columns.append(Column("p", number=True))
    return columns


def paired_cells(changes: Mapping[str, Paired[Key]], key: Key) -> Iterator[str]:
    """The difference of each further run with its interval, and its p-value, empty without one;
    nothing where no run is compared."""
    for change in (of_run.get(key) for of_run in changes.values() if any(changes.values())):
        if change is None:
            yield from (numbers.NONE, "")
        else:
            yield numbers.change(change.estimate.value, *change.estimate.ends)
            yield "" if change.p_value is None else numbers.p_value(change.p_value)


def difference(change: Difference | None) -> str:
    """The difference with its interval for images like these."""
    if change is None:
        return numbers.NONE
    return numbers.change(change.value, *change.population.ends)
