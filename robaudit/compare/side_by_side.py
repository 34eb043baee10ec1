"""Several runs side by side: the differences of each further run from the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from robaudit.compare.difference import compare
from robaudit.compare.matching import check_comparable
from robaudit.compare.result import GroupComparison
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.runs.run import Run

Key = TypeVar("Key")
T = TypeVar("T")
Runs = Mapping[str, Run]
"""Runs by the names that they are shown by; the others are compared with the first."""
Comparisons = Mapping[tuple[str, NoiseLevel], GroupComparison]
"""The comparisons of the results of two runs, by estimator and noise level."""


def comparisons(runs: Runs) -> dict[str, Comparisons]:
    """The comparisons of each further run with the first, by its name.

    See :func:`robaudit.compare.difference.compare`.
    """
    return differences_from_first(runs, _compared)


def _compared(base: Run, new: Run) -> Comparisons:
    """The comparison of two runs, cached: several sections of a page show it."""
    cache = base.table.cache
    key = id(new.table)
    if key not in cache:
        groups = {}
        for group in compare(base, new).groups:
            groups[group.key.estimator, group.key.at] = group
        # The table stays alive with the entry: Python may give the id of a dead one to another.
        cache[key] = groups, new.table
    cached: Comparisons = cache[key][0]
    return cached


def differences_from_first(
    runs: Runs, differences: Callable[[Run, Run], Mapping[Key, T]]
) -> dict[str, Mapping[Key, T]]:
    """The differences of each further run from the first, by its name.

    They are empty where the runs cannot be compared.

    Args:
        runs: at least one.
        differences: of two runs; raises a RobauditError where they have no result in common.
    """
    base, *others = runs
    by_name: dict[str, Mapping[Key, T]] = {}
    for name in others:
        try:
            check_comparable(runs[base], runs[name])
            by_name[name] = differences(runs[base], runs[name])
        except RobauditError:
            # The page still shows the runs; not_compared says which ones have no differences.
            by_name[name] = {}
    return by_name


def not_compared(runs: Runs) -> str:
    """A line that names the runs that cannot be compared with the first; empty if all can."""
    base, *others = runs
    names = [name for name in others if not _comparable(runs[base], runs[name])]
    if not names:
        return ""
    return f"{', '.join(names)}: other images or other noise than {base}, so nothing is compared."


def _comparable(base: Run, new: Run) -> bool:
    """Whether two runs have the same images and noise, and a sample in common."""
    try:
        check_comparable(base, new)
    except RobauditError:
        return False
    return True
