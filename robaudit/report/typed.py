"""Typed tables: values with names and kinds, from which every view of a section derives."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from robaudit.estimates import Estimate
from robaudit.report import numbers

if TYPE_CHECKING:
    from robaudit.records import Record
    from robaudit.report.tables import Cell, Tone
    from robaudit.stats.bootstrap import PairedDifference

Value = Any
"""A text, a number, an estimate, a record, a mapping, or None."""


def _no_tone(_: Value) -> Tone:
    return ""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of the values of a column, which decides how people see them.

    Attributes:
        text: writes a value.
        number: whether the values are numbers, which are aligned right.
        key: whether the values name the subject of a row. People see these columns first.
        wrap: whether the values are prose.
        tone: of a value.
    """

    text: Callable[[Any], str]
    number: bool = True
    key: bool = False
    wrap: bool = False
    tone: Callable[[Any], Tone] = _no_tone


def _number(value: float | Estimate) -> str:
    if isinstance(value, Estimate):
        # the range of the quantity is not known here, so that no value counts as the end of it
        return numbers.with_interval(value.value, *value.ends, -math.inf, math.inf)
    return f"{value:.4g}"


def _share(value: float | Estimate) -> str:
    return numbers.percents(value) if isinstance(value, Estimate) else f"{value:.1%}"


TEXT = Kind(str, number=False, key=True)
"""The name of something: the subject of a row."""
WORD = Kind(str, number=False)
"""A text about the subject of a row."""
PROSE = Kind(str, number=False, wrap=True)
COUNT = Kind(lambda value: f"{value:,}")
NUMBER = Kind(_number)
"""A number, or an estimate with its interval."""
SHARE = Kind(_share)
"""A share of 1 in percent: exact, or an estimate with its interval."""
WRITTEN = Kind(str)
"""A number that is already written as a text."""


class Beside(Enum):
    """The layout of several runs."""

    LINES = auto()
    """The rows of each run together, after its name."""
    KEYS = auto()
    """Rows with the same subject together, a line for each run."""
    COLUMNS = auto()
    """A line for each subject, and a column for each run; then the differences from the first."""
    APART = auto()
    """A table for each run, with its name before the heading."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of values.

    Attributes:
        name: in CSV and JSON. Empty: only people see the column, except that a record has its own
            columns in CSV.
        kind: of its values.
        head: for people. Empty: the name. None: only CSV and JSON have the column.
        detail: terminals leave the column out.
        across: the name of a column of numbers. People see a column for each of its values, the
            smallest first.
        missing: the text for people in place of None, and of a value that a run lacks.
        bare_ends: the ends of intervals are named ``lower`` and ``upper`` in CSV, without the name
            of the column.
        names: whether the column names the subject of a row. Default: as its kind says.
        varying: people see the column only where its values differ. For columns that name the
            subject.
        record: the class of the values, where they are records: its members are columns in CSV.
    """

    name: str
    kind: Kind = TEXT
    head: str | None = ""
    detail: bool = False
    across: str = ""
    missing: str = numbers.NONE
    bare_ends: bool = False
    names: bool | None = None
    varying: bool = False
    record: type[Record] | None = None

    @property
    def is_key(self) -> bool:
        """Whether the column names the subject of a row."""
        return self.kind.key if self.names is None else self.names

    def text(self, value: Value) -> str:
        """A value for people."""
        return self.missing if value is None else self.kind.text(value)

    def tone(self, value: Value) -> Tone:
        """The tone of a value for people."""
        return "" if value is None else self.kind.tone(value)

    def values(self, value: Value) -> Iterator[tuple[str, Any]]:
        """A value for CSV, by column: several where it is an estimate, a mapping or a record."""
        # A record names its own columns. It is written here and not where the table is made: people
        # see a few rows only, and a record may compute its interval on first use.
        if self.record is not None:
            if value is not None:
                yield from value.document().items()
        elif not self.name:
            return
        elif isinstance(value, Estimate):
            prefix = "" if self.bare_ends else f"{self.name}_"
            yield self.name, value.value
            yield f"{prefix}lower", value.lower
            yield f"{prefix}upper", value.upper
        else:
            yield from flat({self.name: value})


def data_columns(names: Sequence[str]) -> tuple[TypedColumn, ...]:
    """Columns that only CSV and JSON have."""
    return tuple(TypedColumn(name, WORD, head=None) for name in names)


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values by column; a mapping takes several columns: ``mean``, ``mean_lower``, ..., and one
    within it, too."""
    for name, value in values.items():
        if not isinstance(value, Mapping):
            yield name, value
            continue
        for part, number in flat(value):
            yield (name if part == "value" else f"{name}_{part}"), number


@dataclass(frozen=True, slots=True)
class TypedTable:
    """The results of a run: named columns of values, and the text around them.

    Attributes:
        heading: above the table. Tables of the same heading, one of each run, become one table.
        columns: of the values.
        rows: a value for each column.
        keys: a key for each row: the same for the same subject in every run. Default: the texts of
            the columns that name the subject.
        about: the first columns of CSV and JSON, which have the same value in every row.
        lines: below the heading.
        facts: about the run, below the lines.
        conclusions: about the run, below the table.
        notes: how to read the table.
        remarks: about the run, last.
        shows: whether people see a row. Default: every row.
        empty: a conclusion where no run has a row.
        most: the most rows that people see. Default: all.
        more: a note about further rows, with their number in place of ``{}``.
        rank: of a row. Runs in columns begin with the subject that has the largest of any run.
            Default: the order of the rows.
        beside: the layout of several runs. Each has its name before its facts, conclusions and
            remarks; lines and notes of several runs are each shown once.
        folded: a page shows the table only when unfolded.
        in_csv: whether CSV has its rows.
    """

    heading: str
    columns: tuple[TypedColumn, ...]
    rows: Sequence[Sequence[Value]]
    keys: Sequence[Hashable] = ()
    about: Mapping[str, Value] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    conclusions: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    shows: Callable[[Sequence[Value]], bool] | None = None
    empty: str = ""
    most: int | None = None
    more: str = "... and {} more."
    rank: Callable[[Sequence[Value]], float] | None = None
    beside: Beside = Beside.LINES
    folded: bool = False
    in_csv: bool = True

    def csv_columns(self) -> list[str]:
        """The columns of CSV that are known without rows."""
        if not self.in_csv:
            return []
        names = list(self.about)
        for column in self.columns:
            if column.record is not None:
                names += [member.key for member in column.record.json_members()]
            elif column.name:
                names.append(column.name)
        return names

    def csv_lines(self) -> Iterator[dict[str, Any]]:
        """The rows for CSV, as values by column; rows for people alone are left out."""
        for row in self.rows if self.in_csv else ():
            line: dict[str, Any] = {}
            for column, value in zip(self.columns, row, strict=True):
                line.update(column.values(value))
            # rows for people alone have no named value, as "no noise" among the noise levels
            if any(value is not None for value in line.values()):
                yield {**self.about, **line}

    def objects(self) -> Iterator[dict[str, Any]]:
        """The rows for JSON, as values by name; an estimate is an object of ``value``, ``lower``
        and ``upper``."""
        from robaudit.records import json_values

        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            values = {column.name: _parts(value) for column, value in cells if column.name}
            yield json_values({**self.about, **values})


def _parts(value: Value) -> Any:
    if not isinstance(value, Estimate):
        return value
    return {"value": value.value, "lower": value.lower, "upper": value.upper}


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences of further runs from the first.

    Attributes:
        by_run: by the name of the run, and by the key of the row (:attr:`TypedTable.keys`). A run
            that cannot be compared with the first has none.
        tested: whether people see a p-value beside each difference.
        about: the columns of a key in CSV and JSON. None: only people see the differences.
        notes: how to read the differences.
    """

    by_run: Mapping[str, Mapping[Any, PairedDifference]] = field(default_factory=dict)
    tested: bool = False
    about: Callable[[Any], Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.by_run.values())

    def csv_lines(self, base: str) -> Iterator[dict[str, Any]]:
        """A line for each difference, as values by column.

        Args:
            base: the name of the first run.
        """
        if self.about is None:
            return
        for name, of_run in self.by_run.items():
            for key, change in of_run.items():
                parts = change.document()
                # a column of its own, before the difference and its interval
                images = parts.pop("images")
                about = {"run": name, "base": base, **self.about(key)}
                yield {**about, "images": images, "difference": parts}
