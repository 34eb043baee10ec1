"""Runs side by side: whether each further run can be compared with the first, and its differences
from it."""

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
"""Runs by the names that they are shown by; the first is the one that the others are compared
with."""
Comparisons = Mapping[tuple[str, NoiseLevel], GroupComparison]
"""The comparisons of the results of two runs, by estimator and noise level."""


def comparisons(runs: Runs) -> dict[str, Comparisons]:
    """The comparisons of each further run with the first, as
    :func:`robaudit.compare.difference.compare` makes them, by its name."""
    return differences_from_first(runs, _compared)


def _compared(base: Run, new: Run) -> Comparisons:
    """The comparison of two runs, cached: several sections of a page show it."""
    memo = base.table.memo
    key = id(new.table)
    if key not in memo:
        groups = {(group.key.estimator, group.key.at): group for group in compare(base, new).groups}
        memo[key] = groups, new.table  # kept alive, so that its id stays its own
    cached: Comparisons = memo[key][0]
    return cached


def differences_from_first(
    runs: Runs, differences: Callable[[Run, Run], Mapping[Key, T]]
) -> dict[str, Mapping[Key, T]]:
    """The differences of each further run from the first, by its name; empty where the runs cannot
    be compared.

    Args:
        runs: at least one.
        differences: of two runs; a RobauditError where they have no result in common.
    """
    base, *others = runs
    found: dict[str, Mapping[Key, T]] = {}
    for name in others:
        try:
            check_comparable(runs[base], runs[name])
            found[name] = differences(runs[base], runs[name])
        except RobauditError:
            found[name] = {}
    return found


def not_compared(runs: Runs) -> str:
    """A line that names the runs that cannot be compared with the first; empty where all can."""
    base, *others = runs
    names = [name for name in others if not _comparable(runs[base], runs[name])]
    return (
        f"{', '.join(names)}: other images or other noise than {base}, so nothing is compared."
        if names
        else ""
    )


def _comparable(base: Run, new: Run) -> bool:
    try:
        check_comparable(base, new)
    except RobauditError:
        return False
    return True
