"""Typed tables: values with names and kinds, from which every view of a section derives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from robaudit.estimates import Estimate
from robaudit.report import numbers

Value = str | int | float | bool | Estimate | None


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a column are, and so how people read them.

    Attributes:
        text: writes a value.
        number: whether the values are numbers; other columns name what a line is about.
        wrap: whether the values are prose.
    """

    text: Callable[[Any], str]
    number: bool = True
    wrap: bool = False


def _number(value: float | Estimate) -> str:
    if isinstance(value, Estimate):
        return numbers.with_interval(value.value, *value.ends, -math.inf, math.inf)
    return f"{value:.4g}"


def _share(value: float | Estimate) -> str:
    return numbers.percents(value) if isinstance(value, Estimate) else f"{value:.1%}"


TEXT = Kind(str, number=False)
PROSE = Kind(str, number=False, wrap=True)
COUNT = Kind(lambda value: f"{value:,}")
NUMBER = Kind(_number)
"""A number, or an estimate with its interval."""
SHARE = Kind(_share)
"""A share of 1 in percent: exact, or an estimate with its interval."""


class Beside(Enum):
    """How several runs stand side by side."""

    LINES = auto()
    """The lines of each run together, after its name."""
    KEYS = auto()
    """The lines that are about the same together, a line for each run."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of values.

    Attributes:
        name: in CSV and JSON; empty: only people see it.
        kind: of its values.
        head: for people; empty: its name; None: only CSV and JSON have it.
        detail: terminals leave it out.
        across: the name of a column of numbers; people see a column for each of its values, the
            smallest first.
        missing: what people see in place of None, and of a value that a run lacks.
        bare_ends: the ends of intervals are named ``lower`` and ``upper`` in CSV, without the name
            of the column.
    """

    name: str
    kind: Kind = TEXT
    head: str | None = ""
    detail: bool = False
    across: str = ""
    missing: str = numbers.NONE
    bare_ends: bool = False

    def text(self, value: Value) -> str:
        """A value for people."""
        return self.missing if value is None else self.kind.text(value)

    def values(self, value: Value) -> Iterator[tuple[str, Any]]:
        """A value for CSV, by column: an estimate has three."""
        if not isinstance(value, Estimate):
            yield self.name, value
            return
        prefix = "" if self.bare_ends else f"{self.name}_"
        yield self.name, value.value
        yield f"{prefix}lower", value.lower
        yield f"{prefix}upper", value.upper


@dataclass(frozen=True, slots=True)
class TypedTable:
    """What a section says of a run: named columns of values, and the text around them.

    Attributes:
        heading: above the table; tables of the same heading stand side by side.
        columns: of the values.
        rows: a value for each column.
        about: the first columns of CSV and JSON, which have the same value in every row.
        lines: below the heading; of several runs those of the first.
        facts: about the run, below the heading; of several runs each follows the name of its run.
        notes: how to read the table; of several runs each once.
        remarks: about the run, last; of several runs each follows the name of its run.
        beside: how several runs stand side by side.
    """

    heading: str
    columns: tuple[TypedColumn, ...]
    rows: Sequence[Sequence[Value]]
    about: Mapping[str, Value] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    beside: Beside = Beside.LINES

    def csv_lines(self) -> Iterator[dict[str, Any]]:
        """The rows for CSV, as values by column; those without a named value are left out."""
        for row in self.rows:
            line = dict(self.about)
            for column, value in self._named(row):
                line.update(column.values(value))
            if line:
                yield line

    def objects(self) -> Iterator[dict[str, Any]]:
        """The rows for JSON, as values by name; an estimate is an object of ``value``, ``lower``
        and ``upper``."""
        from robaudit.records import json_values

        for row in self.rows:
            values = {column.name: _parts(value) for column, value in self._named(row)}
            yield json_values({**self.about, **values})

    def _named(self, row: Sequence[Value]) -> Iterator[tuple[TypedColumn, Value]]:
        return (
            (column, value) for column, value in zip(self.columns, row, strict=True) if column.name
        )


def _parts(value: Value) -> Any:
    if not isinstance(value, Estimate):
        return value
    return {"value": value.value, "lower": value.lower, "upper": value.upper}
