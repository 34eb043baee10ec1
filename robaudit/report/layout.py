"""Typed tables for people: the values as text, several runs side by side."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from robaudit.report import numbers
from robaudit.report.tables import Cell, Column, Table
from robaudit.report.typed import Beside, Changes, TypedColumn, TypedTable, Value
from robaudit.stats.bootstrap import PairedDifference

NO_CHANGES = Changes()
Named = Sequence[tuple[str, TypedTable]]
"""Tables with the same heading, each with the name of its run."""
Cells = tuple[Cell, ...]


def laid_out(
    named: Named, *, several: bool, runs: Sequence[str] = (), changes: Changes = NO_CHANGES
) -> Table:
    """The table for people.

    Args:
        named: the tables.
        several: whether they are of several runs, which are named.
        runs: the names of all runs that may have a column. Default: those with a table.
        changes: the differences of further runs from the first.
    """
    tables = [table for _, table in named]
    first = tables[0]
    columns, rows, rest = _arranged(named, several=several, runs=runs, changes=changes)
    # the heading of a table apart already has the name of the run
    is_apart = several and first.beside is Beside.APART
    prefixes = [f"{name}: " if several and not is_apart else "" for name, _ in named]
    conclusions = []
    for prefix, table in zip(prefixes, tables, strict=True):
        conclusions += [replace(cell, text=prefix + cell.text) for cell in table.conclusions]
    if first.empty and not rows:
        conclusions.append(Cell(first.empty))
    notes = [first.more.format(f"{rest:,}")] if rest else []
    notes += _each_once(table.notes for table in tables)
    if several and changes and first.beside in _COMPARED:
        notes += changes.notes
    notes += _of_runs(prefixes, [table.remarks for table in tables])
    return Table(
        f"{named[0][0]}: {first.heading}" if is_apart else first.heading,
        # "No noisy copy changes class." needs the columns: a page draws only tables that have some
        columns if rows or first.empty else (),
        tuple(rows),
        lines=(
            *_of_all_runs(_each_once(table.lines for table in tables)),
            *_of_runs(prefixes, [table.facts for table in tables]),
        ),
        conclusions=tuple(conclusions),
        notes=tuple(notes),
        folded=first.folded,
    )


def _each_once(texts: Iterable[Sequence[str]]) -> dict[str, None]:
    """The texts of all tables, in order and without repeats."""
    return dict.fromkeys(chain.from_iterable(texts))


def _of_all_runs(lines: Collection[str]) -> list[str]:
    """The lines without those that say more than another: the noise of one run, say, where another
    run has several."""
    return [line for line in lines if not any(line != other and other in line for other in lines)]


def _of_runs(prefixes: Iterable[str], texts: Iterable[Sequence[str]]) -> Iterator[str]:
    """Texts about each run, after its name."""
    for prefix, of_run in zip(prefixes, texts, strict=True):
        yield from (prefix + text for text in of_run)


# --- the rows of each run


class _Head(NamedTuple):
    """A column for people that names no subject, where it goes across another at one value of
    it."""

    column: TypedColumn
    at: Value
    text: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of one run.

    Attributes:
        key: of its subject.
        subject: the texts that name it.
        values: by head; some may be missing.
        rank: among the lines.
    """

    key: Hashable
    subject: Cells
    values: dict[_Head, Value]
    rank: float = 0.0

    def cells(self, heads: Sequence[_Head]) -> Cells:
        """A cell below each head."""
        return tuple(_cell(head.column, self.values.get(head)) for head in heads)


def _cell(column: TypedColumn, value: Value) -> Cell:
    return Cell(column.text(value), column.tone(value))


def _heads(tables: Sequence[TypedTable]) -> list[_Head]:
    """The heads of the columns that name no subject; a column across another has several."""
    # a dictionary keeps the order of the first table that has a column
    heads: dict[_Head, None] = {}
    for table in tables:
        across = {column.across for column in table.columns} - {""}
        for column in table.columns:
            if column.head is None or column.is_key or column.name in across:
                continue
            text = column.head or column.name
            if not column.across:
                heads[_Head(column, None, text)] = None
                continue
            other = next(spread for spread in table.columns if spread.name == column.across)
            # of all tables: a run that lacks a value has the column, too, with a dash
            for at in sorted(_values_of(other, tables)):
                heads[_Head(column, at, other.text(at))] = None
    return list(heads)


def _values_of(column: TypedColumn, tables: Sequence[TypedTable]) -> set[float]:
    """The numbers in a column of any of the tables."""
    values: set[float] = set()
    for table in tables:
        if column in table.columns:
            place = table.columns.index(column)
            values.update(row[place] for row in table.rows if row[place] is not None)
    return values


def _subject_columns(tables: Sequence[TypedTable]) -> list[TypedColumn]:
    """The columns that name the subject of a row for people."""
    columns = []
    for column in tables[0].columns:
        if not column.is_key or column.head is None:
            continue
        place = tables[0].columns.index(column)
        values = {row[place] for row in chain.from_iterable(table.rows for table in tables)}
        if len(values) > 1 or not column.varying:
            columns.append(column)
    return columns


def _lines_of(
    table: TypedTable, subjects: Sequence[TypedColumn], heads: Sequence[_Head]
) -> list[_Line]:
    """A line for each row; where a column goes across another, for each subject."""
    places = {column: i for i, column in enumerate(table.columns)}
    by_name = {column.name: i for column, i in places.items()}
    own = [head for head in heads if head.column in places]
    merges = any(head.column.across for head in own)
    lines: dict[Hashable, _Line] = {}
    for number, row in enumerate(table.rows):
        if table.shows is not None and not table.shows(row):
            continue
        subject = tuple(_cell(column, row[places[column]]) for column in subjects)
        key = table.keys[number] if table.keys else subject
        rank = 0.0 if table.rank is None else table.rank(row)
        # rows that differ only in the value across become one line; others stay apart, even where
        # their texts are the same
        line = lines.setdefault(key if merges else number, _Line(key, subject, {}, rank))
        for head in own:
            across = head.column.across
            if not across or row[by_name[across]] == head.at:
                line.values[head] = row[places[head.column]]
    return list(lines.values())


# --- several runs

_COMPARED = (Beside.KEYS, Beside.COLUMNS)


def _arranged(
    named: Named, *, several: bool, runs: Sequence[str], changes: Changes
) -> tuple[tuple[Column, ...], list[Cells], int]:
    """The columns and the lines in the layout of the first table, and how many lines are left out.

    Lines are left out before their values become texts: some intervals are computed on first use.
    """
    tables = [table for _, table in named]
    first = tables[0]
    heads = _heads(tables)
    named_by = _subject_columns(tables)
    subject = tuple(_column(column, column.head or column.name) for column in named_by)
    values = tuple(_column(head.column, head.text) for head in heads)
    lines = {name: list[_Line]() for name, _ in named}
    for name, table in named:
        lines[name] += _lines_of(table, named_by, heads)
    if not several or first.beside is Beside.APART:
        alone = list(chain.from_iterable(lines.values()))
        rows = [(*line.subject, *line.cells(heads)) for line in alone[: first.most]]
        return (*subject, *values), rows, len(alone) - len(rows)
    if first.beside is Beside.LINES:
        pairs: list[tuple[str, _Line]] = []
        for name, of_run in lines.items():
            pairs += [(name, line) for line in of_run]
        shown = pairs[: first.most]
        rows = [(Cell(name), *line.subject, *line.cells(heads)) for name, line in shown]
        return (Column("run"), *subject, *values), rows, len(pairs) - len(rows)
    # subjects in the order of the first run, then those that only further runs have
    by_key: dict[Hashable, dict[str, _Line]] = {}
    for name, of_run in lines.items():
        for line in of_run:
            by_key.setdefault(line.key, {})[name] = line
    subjects = list(by_key)
    if first.rank is not None:
        # the sort is stable, so that ties keep that order
        subjects.sort(key=lambda key: -max(line.rank for line in by_key[key].values()))
    found = [(key, by_key[key]) for key in subjects[: first.most]]
    if first.beside is Beside.KEYS:
        added, rows = _below_each_other(found, list(lines), heads, changes)
    else:
        # a column also for a run that has none of these results
        added, rows = _in_columns(found, runs or list(lines), heads, changes)
    return (*subject, *added), rows, len(subjects) - len(found)


Subjects = Sequence[tuple[Hashable, Mapping[str, _Line]]]
"""Keys of subjects, each with the lines of the runs that have it."""


def _below_each_other(
    subjects: Subjects, names: Sequence[str], heads: Sequence[_Head], changes: Changes
) -> tuple[list[Column], list[Cells]]:
    """A line for each subject and run, with the difference from the first run last."""
    columns = [Column("run"), *(_column(head.column, head.text) for head in heads)]
    if changes:
        # They are about the last of the values.
        columns.append(Column(f"{heads[-1].text}: difference from {names[0]}", number=True))
    rows = []
    for key, lines in subjects:
        subject = next(iter(lines.values())).subject
        for name in names:
            line = lines.get(name) or _Line(key, subject, {})
            row = [*subject, Cell(name), *line.cells(heads)]
            # empty in the line of the first run, which differs from nothing
            if changes:
                change = changes.by_run.get(name, {}).get(key)
                row.append(Cell("" if change is None else _difference(change)))
            rows.append(tuple(row))
    return columns, rows


def _in_columns(
    subjects: Subjects, names: Sequence[str], heads: Sequence[_Head], changes: Changes
) -> tuple[list[Column], list[Cells]]:
    """A line for each subject and a column for each run, then the differences from the first
    run."""
    base, *others = names
    # the name of a run is enough above a single value
    alone = len(heads) == 1
    columns = []
    for name in names:
        texts = [name if alone else f"{name}: {head.text}" for head in heads]
        columns += [_column(head.column, text) for head, text in zip(heads, texts, strict=True)]
    compared = others if changes else []
    for name in compared:
        columns.append(Column(f"{name} - {base}", number=True))
        if changes.tested:
            columns.append(Column("p", number=True))
    rows = []
    for key, lines in subjects:
        row = list(next(iter(lines.values())).subject)
        for name in names:
            line = lines.get(name) or _Line(key, (), {})
            row += line.cells(heads)
        for name in compared:
            change = changes.by_run.get(name, {}).get(key)
            row.append(Cell(numbers.NONE if change is None else _difference(change)))
            if changes.tested:
                row.append(Cell(_p_value(change)))
        rows.append(tuple(row))
    return columns, rows


def _difference(change: PairedDifference) -> str:
    return numbers.change(change.estimate.value, *change.estimate.ends)


def _p_value(change: PairedDifference | None) -> str:
    """The p-value; empty without one."""
    if change is None or change.p_value is None:
        return ""
    return numbers.p_value(change.p_value)


def _column(column: TypedColumn, head: str) -> Column:
    kind = column.kind
    return Column(head, number=kind.number, wrap=kind.wrap, detail=column.detail)
