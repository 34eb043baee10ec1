"""How further runs differ from the first one, where they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from robaudit.compare.difference import compare
from robaudit.compare.matching import check_same_images, check_same_noise
from robaudit.compare.result import Difference, GroupComparison
from robaudit.errors import RobauditError
from robaudit.levels import NoiseLevel
from robaudit.report import numbers
from robaudit.report.sections import Found
from robaudit.report.tables import Column
from robaudit.stats import bootstrap
from robaudit.store.run import Run

Key = TypeVar("Key")
Paired = Mapping[Key, bootstrap.PairedDifference]
P_VALUE = "p: two-sided, of no difference; each line alone"
BOOTSTRAP_P = f"{P_VALUE}, and 0.001 at least."
Changes = dict[tuple[str, NoiseLevel], GroupComparison]


def changes_of(found: Sequence[Found[Any]]) -> dict[str, Changes]:
    """By the name of each run but the first, the comparison of each result; empty where two runs have other images or other noise."""
    runs = {one.name: one.run for one in found}
    base, *others = runs
    return {name: _changes(runs[base], runs[name]) for name in others}


def _changes(base: Run, new: Run) -> Changes:
    """The comparison of two runs, made once: several sections of a page show it."""
    memo, asked = base.frame.memo, id(new.frame)
    if asked not in memo:
        try:
            made = {(group.key.estimator, group.key.at): group for group in compare(base, new).groups}
        except RobauditError:  # nothing in common
            made = {}
        memo[asked] = made, new.frame  # which keeps its id
    found: Changes = memo[asked][0]
    return found


def comparable(base: Run, new: Run) -> bool:
    """Whether the runs share images, and have the same noise."""
    try:
        check_same_images(base, new)
        check_same_noise(base, new)
    except RobauditError:
        return False
    return not set(base.frame.ids).isdisjoint(new.frame.ids)


def not_compared(found: Sequence[Found[Any]]) -> str:
    """A line that names the runs that cannot be compared with the first; empty where all can."""
    base, *others = {one.name: one.run for one in found}.items()
    names = [name for name, run in others if not comparable(base[1], run)]
    return f"{', '.join(names)}: other images or other noise than {base[0]}, so nothing is compared." if names else ""


def paired_changes(found: Sequence[Found[Any]], differences: Callable[[Run, Run], Paired[Key]]) -> dict[str, Paired[Key]]:
    """By the name of each run but the first, its differences from the first; empty where two runs have other images or other noise."""
    runs = {one.name: one.run for one in found}
    base, *others = runs
    made: dict[str, Paired[Key]] = {}
    for name in others:
        try:
            made[name] = differences(runs[base], runs[name]) if comparable(runs[base], runs[name]) else {}
        except RobauditError:  # no result in common
            made[name] = {}
    return made


def run_columns(names: Sequence[str], *, tested: bool = False) -> list[Column]:
    """A column for each run, and one for the difference of each further run from the first; ``tested``: and one for its p-value."""
    base, *others = names
    columns = [Column(name, number=True) for name in names]
    for name in others:
        columns.append(Column(f"{name} - {base}", number=True))
        if tested:
            columns.append(Column("p", number=True, below=True))
    return columns


def paired_cells(one: bootstrap.PairedDifference | None) -> Iterator[str]:
    """A difference with its interval, and its p-value."""
    if one is None:
        yield from (numbers.NONE, "")
    else:
        yield numbers.change(one.value, one.lower, one.upper)
        yield p_text(one.p_value)


def p_text(p: float | None) -> str:
    """A p-value; empty without one."""
    return "" if p is None else numbers.p_value(p)


def difference(one: Difference | None) -> str:
    """The difference with its interval for images like these."""
    if one is None:
        return numbers.NONE
    return numbers.change(one.value, *((None, None) if one.population is None else one.population.ends))
