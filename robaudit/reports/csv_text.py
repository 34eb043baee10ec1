"""How do results read as CSV, and back?

One comma-separated line each, "\\n" at the end, a header first. An absent value is an empty field, a truth value ``true`` or
``false``, a float the shortest text that reads back to the same float. Text is quoted where it has to be, and its characters
are kept as they are: ids that begin with ``=``, ``+``, ``-`` or ``@`` are *not* altered, because an id must stay the id.
Import the file into a spreadsheet with the columns declared as text when its ids come from strangers.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from operator import attrgetter
from types import NoneType
from typing import Any

from robaudit.errors import RunError
from robaudit.quantities import Interval
from robaudit.reports.pieces import pieces
from robaudit.rows import COLUMNS, Row


def rows_csv(rows: Iterable[Row]) -> str:
    """The text of samples.csv: the columns of :data:`robaudit.rows.COLUMNS`, in order (votes are in samples.json)."""
    return "".join(rows_csv_chunks(rows))


def rows_csv_chunks(rows: Iterable[Row]) -> Iterator[str]:
    """The text of :func:`rows_csv` piece by piece: of the rows, few are held at a time."""
    return pieces(_lines(itertools.chain([COLUMNS], map(attrgetter(*COLUMNS), rows))))


def table_csv(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A header and lines of None, bool, int, float or str as CSV text."""
    return "".join(_lines(itertools.chain([columns], lines)))


def _lines(lines: Iterable[Sequence[Any]]) -> Iterator[str]:
    for line in lines:
        yield ",".join([_WRITE.get(type(value), _other)(value) for value in line]) + "\n"


def read_rows(text: str, where: str = "samples.csv") -> list[Row]:
    """The inverse of :func:`rows_csv`, ``votes`` apart.

    Raises:
        RunError: another header, or a line that does not fit it; it names the line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    line = 1
    try:
        if tuple(next(reader, ())) != COLUMNS:
            raise RunError(where, "the header is not that of a samples.csv", "expected " + ",".join(COLUMNS))
        for fields in reader:
            rows.append(Row(**{name: _READ[name](field) for name, field in zip(COLUMNS, fields, strict=True)}))
            line = reader.line_num
    except (ValueError, KeyError, csv.Error) as error:
        raise RunError(f"{where}:{line + 1}", f"the line is not a result ({error})", "restore the file, or run the audit again") from error
    return rows


def _text(value: str) -> str:
    """Text as a field, quoted where it has to be."""
    if "," in value or '"' in value or "\n" in value or "\r" in value or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def _other(value: object) -> str:
    """A value whose type is none of the usual ones: NumPy's numbers, or a subclass."""
    if isinstance(value, str):
        return _text(value)
    return str(int(value)) if isinstance(value, Integral) else repr(float(value))  # type: ignore[arg-type]


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda field: None if field == "" else read(field)


_WRITE: dict[type, Callable[[Any], str]] = {
    NoneType: lambda _: "",
    str: _text,
    bool: {True: "true", False: "false"}.__getitem__,
    int: str,
    float: repr,
    Interval: lambda interval: _text(interval.text),
}
_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, str),
    **dict.fromkeys(("predicted", "forwards", "backwards"), int),
    **dict.fromkeys(("label", "flips_to"), _or_none(int)),
    **dict.fromkeys(("sigma", "value"), float),
    **dict.fromkeys(("lower", "upper", "std_error"), _or_none(float)),
    "interval": Interval.parse,
    "correct": _or_none({"true": True, "false": False}.__getitem__),
}
