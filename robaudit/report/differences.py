"""How the means of further runs differ from those of the first one, where they can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robaudit.compare.difference import compare
from robaudit.compare.result import Difference, GroupComparison
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.report import numbers
from robaudit.report.sections import Found
from robaudit.report.tables import Column
from robaudit.store.run import Run
from robaudit.text import clipped

Changes = dict[tuple[str, NoiseLevel], GroupComparison]
_LONGEST = 24


def changes_of(found: Sequence[Found[Any]]) -> dict[str, Changes]:
    """By the name of each run but the first, the comparison of each result; empty where two runs have other images or other noise."""
    runs = {one.name: one.run for one in found}
    base, *others = runs
    return {name: _changes(runs[base], runs[name]) for name in others}


_KEPT: list[tuple[Run, Run, Changes]] = []
"""The last comparisons: several sections of a page show the same one."""


def _changes(base: Run, new: Run) -> Changes:
    for one, other, found in _KEPT:
        if one is base and other is new:
            return found
    try:
        made = {(group.key.estimator, group.key.at): group for group in compare(base, new).groups}
    except RobauditError:  # nothing in common
        made = {}
    _KEPT[:] = [*_KEPT[-3:], (base, new, made)]
    return made


def run_columns(names: Sequence[str]) -> list[Column]:
    """A column for each run, and one for the difference of each further run from the first."""
    short = [clipped(name, _LONGEST) for name in names]
    return [*(Column(name, number=True) for name in short), *(Column(f"{name} - {short[0]}", number=True) for name in short[1:])]


def difference(one: Difference | None) -> str:
    """The difference with its interval for images like these."""
    if one is None:
        return numbers.NONE
    return numbers.change(one.value, None if one.population is None else (one.population.lower, one.population.upper))
