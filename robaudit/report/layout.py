"""Typed tables as people see them: the values as text, several runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from robaudit.estimates import Estimate
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.report.typed import Beside, TypedColumn, TypedTable, Value


def laid_out(named: Sequence[tuple[str, TypedTable]]) -> Table:
    """The table for people.

    Args:
        named: tables of the same heading, each with the name of its run.
    """
    tables = [table for _, table in named]
    first = tables[0]
    several = len({name for name, _ in named}) > 1
    columns, rows = _several_runs(named) if several else _one_run(tables)
    return Table(
        first.heading,
        columns,
        rows,
        lines=(*first.lines, *_of_runs(named, [table.facts for table in tables], several=several)),
        conclusions=(Cell(first.empty),) if first.empty and not rows else (),
        notes=(
            *dict.fromkeys(note for table in tables for note in table.notes),
            *_of_runs(named, [table.remarks for table in tables], several=several),
        ),
    )


def _of_runs(named: Sequence[tuple[str, TypedTable]], texts: Iterable[Sequence[str]], *, several: bool) -> Iterator[str]:
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


Laid = tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]


def _one_run(tables: Sequence[TypedTable]) -> Laid:
    heads = _heads(tables)
    lines = [line for table in tables for line in _lines(table, heads)]
    columns = (*_key_columns(tables[0]), *map(_column, heads))
    return columns, tuple(cells((*line.key, *_texts(line, heads))) for line in lines)


def _several_runs(named: Sequence[tuple[str, TypedTable]]) -> Laid:
    tables = [table for _, table in named]
    heads = _heads(tables)
    keys = _key_columns(tables[0])
    lines = [(name, line) for name, table in named for line in _lines(table, heads)]
    match tables[0].beside:
        case Beside.LINES:
            rows = [(name, *line.key, *_texts(line, heads)) for name, line in lines]
            columns = (Column("run"), *keys, *map(_column, heads))
        case Beside.KEYS:
            found = {(line.key, name): line for name, line in lines}
            order = [(line.key, name) for _, line in lines for name, _ in named]
            rows = [(*key, name, *_texts(found.get((key, name)), heads)) for key, name in dict.fromkeys(order)]
            columns = (*keys, Column("run"), *map(_column, heads))
        case Beside.COLUMNS:
            found = {(line.key, name): line for name, line in lines}
            ordered = dict.fromkeys(line.key for _, line in _sorted(lines, heads, tables[0].largest))
            rows = [(*key, *(text for name, _ in named for text in _texts(found.get((key, name)), heads))) for key in ordered]
            columns = (*keys, *(_of_run(name, head, alone=len(heads) == 1) for name, _ in named for head in heads))
    return columns, tuple(map(cells, rows))


def _is_key(table: TypedTable, column: TypedColumn) -> bool:
    """Whether people see a column that names what its line is about."""
    spread = {other.across for other in table.columns}
    is_name = not (column.kind.number or column.kind.wrap)
    return column.head is not None and is_name and column.name not in spread - {""}


def _key_columns(table: TypedTable) -> tuple[Column, ...]:
    return tuple(Column(column.head or column.name, detail=column.detail) for column in table.columns if _is_key(table, column))


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


def _of_run(name: str, head: _Head, *, alone: bool) -> Column:
    """The column of a run."""
    kind = head.column.kind
    return Column(name if alone else f"{head.text}, {name}", number=kind.number, wrap=kind.wrap, detail=head.column.detail)


def _sorted(lines: Sequence[tuple[str, _Line]], heads: Sequence[_Head], largest: str) -> list[tuple[str, _Line]]:
    """The lines by the value of a column, the largest first; without a column as they are."""
    if not largest:
        return list(lines)
    (place,) = [i for i, head in enumerate(heads) if head.column.name == largest]

    def value_of(entry: tuple[str, _Line]) -> float:
        value = entry[1].values[place]
        return value.value if isinstance(value, Estimate) else float(value or 0.0)

    return sorted(lines, key=value_of, reverse=True)
