"""Results as an Arrow table, and as the bytes of a Parquet file: the columns of samples.csv, typed, and votes, details and not_finite.

An absent value is null. A result that could not be computed is NaN, as in samples.csv.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from robaudit.errors import needs_extra
from robaudit.rows import TABLE_COLUMNS, Row, table_values

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP = 2**16
"""Rows of a Parquet file that are in memory together."""

_TYPES = {
    **dict.fromkeys(("label", "predicted", "flips_to", "forwards", "backwards"), "int64"),
    **dict.fromkeys(("level", "value", "lower", "upper", "std_error"), "float64"),
    "correct": "bool",
}  # all others are text


def arrow_table(rows: Iterable[Row], class_names: Sequence[str] | None = None, *, where: str = "an Arrow table") -> pyarrow.Table:
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
    batches = [_batch(pa, schema, some, class_names) for some in _groups(rows)]
    return pa.Table.from_batches(batches, schema)


def parquet_pieces(rows: Iterable[Row], class_names: Sequence[str] | None = None, *, where: str = "Parquet") -> Iterator[bytes]:
    """The bytes of a Parquet file piece by piece, with :data:`ROW_GROUP` rows in memory at a time.

    Raises:
        RobauditError: pyarrow is not installed; it is raised by the call, not by the first piece.
    """
    pa = _pyarrow(where)
    return _written(pa, rows, class_names)


def _written(pa: Any, rows: Iterable[Row], class_names: Sequence[str] | None) -> Iterator[bytes]:
    from pyarrow import parquet

    schema, pieces = _schema(pa), _Pieces()
    with parquet.ParquetWriter(pa.PythonFile(pieces, "w"), schema, compression="zstd") as writer:
        for some in _groups(rows):
            writer.write_batch(_batch(pa, schema, some, class_names))
            yield pieces.take()
    yield pieces.take()


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while some := list(islice(left, ROW_GROUP)):
        yield some


def _schema(pa: Any) -> Any:
    columns = [pa.field(name, pa.type_for_alias(_TYPES.get(name, "string")), nullable=True) for name in TABLE_COLUMNS]
    return pa.schema([*columns, ("votes", pa.list_(pa.int64())), ("details", pa.string()), ("not_finite", pa.int64())])


def _batch(pa: Any, schema: Any, rows: Sequence[Row], class_names: Sequence[str] | None) -> Any:
    names = None if class_names is None else [name.encode(errors="backslashreplace").decode() for name in class_names]  # as in samples.csv
    columns = dict(zip(TABLE_COLUMNS, zip(*(table_values(row, names) for row in rows), strict=True), strict=True))
    columns["interval"] = tuple(interval.text for interval in columns["interval"])
    columns["votes"] = tuple(row.votes for row in rows)
    columns["details"] = tuple(None if row.details is None else json.dumps(dict(row.details)) for row in rows)
    columns["not_finite"] = tuple(row.not_finite for row in rows)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


class _Pieces:
    """A file object that hands over its content piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._length = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._held.append(piece)
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Nothing is buffered."""

    def take(self) -> bytes:
        """What has been written since the last call."""
        piece = b"".join(self._held)
        self._held.clear()
        return piece


def _pyarrow(where: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise needs_extra(where, "pyarrow", "parquet") from None
    return pyarrow
