"""Differences of further runs from the first, where they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from robaudit.compare.difference import compare
from robaudit.compare.matching import check_same_images, check_same_noise
from robaudit.compare.result import Difference, GroupComparison
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.report import numbers
from robaudit.report.sections import Entry
from robaudit.report.tables import Column
from robaudit.runs.run import Run
from robaudit.stats import bootstrap

Key = TypeVar("Key")
T = TypeVar("T")
Paired = Mapping[Key, bootstrap.PairedDifference]
P_VALUE = "p: two-sided, of no difference; each line alone"
BOOTSTRAP_P = f"{P_VALUE}, and 0.001 at least."
Changes = Mapping[tuple[str, NoiseLevel], GroupComparison]


def changes_of(entries: Sequence[Entry[Any]]) -> dict[str, Changes]:
    """The comparisons of each further run with the first, by its name; empty where images or noise differ."""
    return paired_changes(entries, _changes)


def _changes(base: Run, new: Run) -> Changes:
    """The comparison of two runs, cached: several sections of a page show it."""
    memo, key = base.frame.memo, id(new.frame)
    if key not in memo:
        groups = {(group.key.estimator, group.key.at): group for group in compare(base, new).groups}
        memo[key] = groups, new.frame  # kept alive, so that its id stays its own
    changes: Changes = memo[key][0]
    return changes


def comparable(base: Run, new: Run) -> bool:
    """Whether the runs share images, and have the same noise."""
    try:
        check_same_images(base, new)
        check_same_noise(base, new)
    except RobauditError:
        return False
    return not set(base.frame.ids).isdisjoint(new.frame.ids)


def not_compared(entries: Sequence[Entry[Any]]) -> str:
    """A line that names the runs that cannot be compared with the first; empty where all can."""
    base, *others = {entry.name: entry.run for entry in entries}.items()
    names = [name for name, run in others if not comparable(base[1], run)]
    return f"{', '.join(names)}: other images or other noise than {base[0]}, so nothing is compared." if names else ""


def paired_changes(entries: Sequence[Entry[Any]], differences: Callable[[Run, Run], Mapping[Key, T]]) -> dict[str, Mapping[Key, T]]:
    """The differences of each further run from the first, by its name; empty where images or noise differ."""
    runs = {entry.name: entry.run for entry in entries}
    base, *others = runs
    changes: dict[str, Mapping[Key, T]] = {}
    for name in others:
        try:
            changes[name] = differences(runs[base], runs[name]) if comparable(runs[base], runs[name]) else {}
        except RobauditError:  # no result in common
            changes[name] = {}
    return changes


def difference_lines(
    entries: Sequence[Entry[Any]], changes: Mapping[str, Paired[Key]], columns: Callable[[Key], Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The differences of each run from the first as values by column; ``columns``: a key's columns."""
    for name, of_run in changes.items():
        for key, change in of_run.items():
            parted = change.document()
            yield {"run": name, "base": entries[0].name, **columns(key), "images": parted.pop("images"), "difference": parted}


def run_columns(names: Sequence[str], *, compared: bool = True, tested: bool = False) -> list[Column]:
    """A column for each run, then for the difference of each further run from the first; ``tested``: and for its p-value."""
    base, *others = names
    columns = [Column(name, number=True) for name in names]
    for name in others if compared else ():
        columns.append(Column(f"{name} - {base}", number=True))
        if tested:
            columns.append(Column("p", number=True))
    return columns


def paired_cells(changes: Mapping[str, Paired[Key]], key: Key) -> Iterator[str]:
    """The difference of each further run with its interval, and its p-value, empty without one; nothing where no run is compared."""
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
