"""Typed tables as people see them: the values as text, several runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from robaudit.report.tables import Column, Table, cells
from robaudit.report.typed import Beside, TypedColumn, TypedTable, Value


def laid_out(named: Sequence[tuple[str, TypedTable]], *, several: bool) -> Table:
    """The table for people.

    Args:
        named: tables with the same columns, each with the name of its run.
        several: the runs are named.
    """
    tables = [table for _, table in named]
    first = tables[0]
    heads = _heads(tables)
    return Table(
        first.heading,
        _columns(first, heads, several=several),
        tuple(map(cells, _rows(named, heads, several=several))),
        lines=(*first.lines, *_of_runs(named, [table.facts for table in tables], several=several)),
        notes=(
            *dict.fromkeys(note for table in tables for note in table.notes),
            *_of_runs(named, [table.remarks for table in tables], several=several),
        ),
    )


def _of_runs(
    named: Sequence[tuple[str, TypedTable]], texts: Iterable[Sequence[str]], *, several: bool
) -> Iterator[str]:
    """Texts about each run, after its name where there are several."""
    for (name, _), of_run in zip(named, texts, strict=True):
        yield from (f"{name}: {text}" if several else text for text in of_run)


# --- lines for people


class _Head(NamedTuple):
    """A column of numbers or prose as people see it."""

    column: TypedColumn
    at: Value
    text: str


class _Line(NamedTuple):
    """A line for people: what it is about, and a value below each head."""

    key: tuple[str, ...]
    values: tuple[Value, ...]


def _columns(table: TypedTable, heads: Sequence[_Head], *, several: bool) -> tuple[Column, ...]:
    """The columns: keys and, where they are named, runs; then numbers and prose."""
    keys = [
        Column(column.head or column.name, detail=column.detail)
        for column in table.columns
        if _is_key(table, column)
    ]
    run = [Column("run")] if several else []
    names = [*keys, *run] if table.beside is Beside.KEYS else [*run, *keys]
    return (*names, *map(_column, heads))


def _rows(
    named: Sequence[tuple[str, TypedTable]], heads: Sequence[_Head], *, several: bool
) -> Iterator[tuple[str, ...]]:
    """The texts of the lines, in the order of the columns."""
    lines = [(name, line) for name, table in named for line in _lines(table, heads)]
    if not several:
        yield from ((*line.key, *_texts(line, heads)) for _, line in lines)
    elif named[0][1].beside is Beside.LINES:
        yield from ((name, *line.key, *_texts(line, heads)) for name, line in lines)
    else:
        found = {(line.key, name): line for name, line in lines}
        for key in dict.fromkeys(line.key for _, line in lines):
            for name in dict.fromkeys(name for name, _ in named):
                yield (*key, name, *_texts(found.get((key, name)), heads))


def _is_key(table: TypedTable, column: TypedColumn) -> bool:
    """Whether people see a column that names what its line is about."""
    spread = {other.across for other in table.columns}
    is_name = not (column.kind.number or column.kind.wrap)
    return column.head is not None and is_name and column.name not in spread - {""}


def _heads(tables: Sequence[TypedTable]) -> list[_Head]:
    """The heads of the columns that are not keys; a column that goes across others has several."""
    first = tables[0]
    by_name = {column.name: column for column in first.columns}
    heads: list[_Head] = []
    for column in first.columns:
        is_spread = any(other.across == column.name for other in first.columns if other.across)
        if column.head is None or is_spread or _is_key(first, column):
            continue
        if not column.across:
            heads.append(_Head(column, None, column.head or column.name))
            continue
        across = by_name[column.across]
        place = first.columns.index(across)
        values = [row[place] for table in tables for row in table.rows]
        ats = sorted({value for value in values if isinstance(value, (int, float))})
        heads += [_Head(column, at, across.text(at)) for at in ats]
    return heads


def _lines(table: TypedTable, heads: Sequence[_Head]) -> list[_Line]:
    """A line for each row; where a column goes across others, for each key."""
    places = {column.name: i for i, column in enumerate(table.columns)}
    keys = [i for i, column in enumerate(table.columns) if _is_key(table, column)]
    merges = any(head.column.across for head in heads)
    found: dict[Any, tuple[tuple[str, ...], dict[_Head, Value]]] = {}
    for number, row in enumerate(table.rows):
        key = tuple(table.columns[i].text(row[i]) for i in keys)
        _, values = found.setdefault(key if merges else number, (key, {}))
        for head in heads:
            across = head.column.across
            if not across or row[places[across]] == head.at:
                values[head] = row[table.columns.index(head.column)]
    return [_Line(key, tuple(values.get(head) for head in heads)) for key, values in found.values()]


def _texts(line: _Line | None, heads: Sequence[_Head]) -> list[str]:
    """The values of a line; a run may lack it."""
    if line is None:
        return [head.column.missing for head in heads]
    return [head.column.text(value) for head, value in zip(heads, line.values, strict=True)]


def _column(head: _Head) -> Column:
    kind = head.column.kind
    return Column(head.text, number=kind.number, wrap=kind.wrap, detail=head.column.detail)
