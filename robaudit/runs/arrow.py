"""Results as an Arrow table or a Parquet file: the columns of samples.csv, then the typed parts and
the numbers.

An absent value is null. A result that could not be computed is NaN, as in samples.csv.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from operator import attrgetter
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from robaudit.errors import needs_extra
from robaudit.quantities import Interval
from robaudit.results import PARTS, Checked
from robaudit.runs.rows import TABLE_COLUMNS, Row, table_values

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP = 2**16
"""Rows of a Parquet file in memory at a time."""
_PIECE = 2**20  # bytes that are read back and passed on at once


def arrow_table(
    rows: Iterable[Row], class_names: Sequence[str] | None = None, *, where: str = "an Arrow table"
) -> pyarrow.Table:
    """The rows as a table in memory, for pandas, polars, DuckDB and other readers of Arrow.

    Args:
        rows: of a run.
        class_names: names by class index.
        where: the name of the source in messages.

    Raises:
        RobauditError: pyarrow is not installed.
    """
    pa = _pyarrow(where)
    schema = _schema(pa)
    batches = [_batch(pa, schema, group, class_names) for group in _row_groups(rows)]
    return pa.Table.from_batches(batches, schema)


def parquet_pieces(
    rows: Iterable[Row], class_names: Sequence[str] | None = None, *, where: str = "Parquet"
) -> Iterator[bytes]:
    """The bytes of a Parquet file piece by piece, with :data:`ROW_GROUP` rows in memory at a time.

    Raises:
        RobauditError: pyarrow is not installed; the call raises it, not the first piece.
    """
    # A generator function would import on its first piece, when output has begun.
    pa = _pyarrow(where)
    return _parquet_bytes(pa, rows, class_names)


def _parquet_bytes(
    pa: Any, rows: Iterable[Row], class_names: Sequence[str] | None
) -> Iterator[bytes]:
    """The bytes of a Parquet file."""
    from pyarrow import parquet

    # Through a file on disk, because the writer wants a file to write to, and the file may be
    # larger than memory.
    with tempfile.TemporaryFile() as file:
        schema = _schema(pa)
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for group in _row_groups(rows):
                writer.write_batch(_batch(pa, schema, group, class_names))
        file.seek(0)
        yield from iter(lambda: file.read(_PIECE), b"")


def _row_groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, :data:`ROW_GROUP` at a time."""
    remaining = iter(rows)
    while group := list(islice(remaining, ROW_GROUP)):
        yield group


def _schema(pa: Any) -> Any:
    """The Arrow schema of rows, from the types of the fields of :class:`Row`."""
    hints = get_type_hints(Row)
    names = (*TABLE_COLUMNS, *PARTS, "numbers")
    # Names of classes are no fields of a row; they are text.
    return pa.schema([(name, _type(pa, hints.get(name, str))) for name in names])


def _type(pa: Any, hint: Any) -> Any:
    """The Arrow type of a field; objects become text."""
    alternatives = [hint]
    if get_origin(hint) in (Union, UnionType):
        alternatives = [arg for arg in get_args(hint) if arg is not type(None)]
    # Of `int | float`, the wider one comes last.
    kind = get_origin(alternatives[-1]) or alternatives[-1]
    if kind is tuple:
        return pa.list_(pa.int64())
    if kind is Mapping:
        return pa.map_(pa.string(), pa.float64())
    if is_dataclass(kind) and kind is not Interval:
        hints = get_type_hints(kind)
        return pa.struct([(field.name, _type(pa, hints[field.name])) for field in fields(kind)])
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(kind, pa.string())


def _batch(pa: Any, schema: Any, rows: Sequence[Row], class_names: Sequence[str] | None) -> Any:
    """The rows as a batch of Arrow columns."""
    names = None
    if class_names is not None:
        # Arrow's text is UTF-8: what it cannot encode is escaped, as in samples.csv.
        names = [name.encode(errors="backslashreplace").decode() for name in class_names]
    lines = [table_values(row, names) for row in rows]
    columns = dict(zip(TABLE_COLUMNS, zip(*lines, strict=True), strict=True))
    columns["interval"] = tuple(interval.text for interval in columns["interval"])
    for name in PARTS:
        parts = map(attrgetter(name), rows)
        columns[name] = tuple(part and _members(part) for part in parts)
    columns["numbers"] = tuple(list(row.numbers.items()) or None for row in rows)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _members(part: Checked) -> dict[str, Any]:
    """The fields of a typed part, as Arrow's struct takes them."""
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _pyarrow(where: str) -> Any:
    """The package pyarrow.

    Raises:
        RobauditError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise needs_extra(where, "pyarrow", "parquet") from None
    return pyarrow
