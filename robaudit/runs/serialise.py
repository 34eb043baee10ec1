"""Conversion of results to JSON and CSV text, and back.

The JSON is ASCII and in a fixed order, so that the same results give the same bytes; it has one
result per line, so that files can be compared by eye. It never contains NaN or infinity, which are
not JSON.

The CSV has a header and one comma-separated line for each result, ending in "\\n". An absent value
is an empty field, a boolean ``true`` or ``false``, a float the shortest text that reads back as the
same float. The CSV is for spreadsheets: text that looks like a formula gets an apostrophe before
it, and control characters become escapes. Programs read exact ids from the JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from numbers import Integral
from types import NoneType
from typing import IO, Any

from robaudit.errors import RunError
from robaudit.quantities import Interval
from robaudit.records import json_values
from robaudit.runs.rows import COLUMNS, TABLE_COLUMNS, Row, read_line, read_row, table_values
from robaudit.text import Names, clipped, printable

SCHEMA_VERSION = 2
_PIECE = 2**17  # characters that go to a file at once
_REMEDY = "restore the file, or run the audit again"
# Bytes of a row: a damaged or hostile file must not fill the memory.
_LONGEST_LINE = 2**24
# zlib's window is 2^12 bytes, which holds a row. A larger one costs memory and time for each row.
_WINDOW = 12
# The last four are the full-width forms of the first, which spreadsheets read alike.
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)
_encode = json.JSONEncoder(allow_nan=False, separators=(", ", ": ")).encode


def rows_json(rows: Iterable[Row]) -> Iterator[str]:
    """The text of samples.json piece by piece, with few rows in memory at a time.

    The text is ``{"schema_version", "columns", "rows": [one object per row]}``. A value that is not
    finite becomes null, with an ``error``; an infinite bound becomes null.
    """
    return pieces(lines_json(row_text(row) for row in rows))


def lines_json(lines: Iterable[str]) -> Iterator[str]:
    """The text of samples.json, from the lines of its rows (:func:`row_text`); each text ends just
    before the end of its line."""
    yield f'{{"schema_version": {SCHEMA_VERSION},\n"columns": {_encode(list(COLUMNS))},\n"rows": ['
    # A comma goes before each line but the first, so that nobody has to know which is the last.
    separator = "\n"
    for line in lines:
        yield separator + line
        separator = ",\n"
    has_rows = separator == ",\n"
    yield "\n]}\n" if has_rows else "]}\n"


def document_json(document: dict[str, Any]) -> str:
    """A document of JSON values as indented text, beginning with the schema version."""
    versioned = {"schema_version": SCHEMA_VERSION, **document}
    return json.dumps(versioned, indent=2, allow_nan=False) + "\n"


def stream_rows_json(
    file: IO[bytes], where: str = "samples.json", *, bits: bool = True
) -> Iterator[Row]:
    """Read the rows of a samples.json: the inverse of :func:`rows_json`.

    One line is in memory at a time, however long the file. Without ``bits``,
    :attr:`robaudit.results.Votes.bits` are left out.

    Raises:
        RunError: the file is not such a list; the rows before the fault have been yielded.
    """
    line_number = 0

    def next_line() -> bytes:
        nonlocal line_number
        line_number += 1
        line = file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"has more than {_LONGEST_LINE} bytes")
        return line

    try:
        # run.json has the version, which its reader checks, and the columns are those of Row.
        next_line()
        next_line()
        rows_key = next_line()
        if rows_key == b'"rows": []}\n':
            return
        if rows_key != b'"rows": [\n':
            raise ValueError('is not "rows": [')
        for line in iter(next_line, b"]}\n"):
            data = line.removesuffix(b"\n").removesuffix(b",")
            # read_line parses faster, but cannot leave a key out.
            yield read_line(data) if bits or b'"bits"' not in data else _without_bits(data)
    except (ValueError, RecursionError) as error:
        what = f"not a list of results (line {line_number}: {clipped(str(error), 200)})"
        raise RunError(where, what, _REMEDY) from error


def _without_bits(line: bytes) -> Row:
    """The row of a line, without the bits of its votes."""
    values = json.loads(line)
    votes = values.get("votes") if isinstance(values, dict) else None
    if isinstance(votes, dict):
        votes.pop("bits", None)
    return read_row(values)


def row_text(row: Row) -> str:
    """The line of a row in samples.json, without the comma and the end of the line."""
    document = row.document()
    try:
        return _encode(document)
    except ValueError:  # rare, so it is not looked for: a number that is not finite
        document = json_values(document)
    if not math.isfinite(row.value):
        document = {**document, "error": f"value is {float(row.value)!r}"}
    return _encode(document)


def compressed(text: str) -> bytes:
    """The line of a row, compressed to about a quarter of its length.

    The line of a typical row is zlib's dictionary, so what a row shares with it costs a few bytes.
    """
    # 139 bytes instead of 476 for a row, for 5 % of the time of a run of cheap rows.
    compressor = zlib.compressobj(wbits=_WINDOW, zdict=_TYPICAL)
    return compressor.compress(text.encode()) + compressor.flush()


def decompressed(data: bytes) -> str:
    """The inverse of :func:`compressed`; at most 2^24 bytes.

    Raises:
        zlib.error, ValueError, TypeError: the data are not a compressed text.
    """
    return zlib.decompressobj(_WINDOW, zdict=_TYPICAL).decompress(data, _LONGEST_LINE).decode()


def rows_csv(rows: Iterable[Row], class_names: Names | None = None) -> Iterator[str]:
    """The text of samples.csv piece by piece: the columns of
    :data:`robaudit.runs.rows.TABLE_COLUMNS` (votes are in samples.json only).

    Args:
        rows: the results.
        class_names: by class index; None if unknown.
    """
    lines = (table_values(row, class_names) for row in rows)
    return pieces(csv_lines(itertools.chain([TABLE_COLUMNS], lines)))


def table_csv(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A header and lines of None, bool, int, float or str values as CSV text."""
    return "".join(csv_lines(itertools.chain([columns], lines)))


def csv_lines(lines: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of None, bool, int, float or str values as CSV text."""
    for line in lines:
        # A dictionary by exact type: this is the inner loop of writing a run.
        yield ",".join([_WRITE.get(type(value), _other)(value) for value in line]) + "\n"


@lru_cache  # the rows of a run share most of their texts
def _text(value: str) -> str:
    """Text as a field that no spreadsheet takes for a formula, as OWASP recommends ("CSV
    Injection"), quoted if necessary."""
    value = printable(value)
    if value.startswith(_FORMULA):
        value = f"'{value}"
    # A semicolon separates fields where the comma is the decimal mark, and readers may strip
    # spaces that are not quoted.
    if any(mark in value for mark in ',";') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def _other(value: object) -> str:
    """A value of an unusual type: NumPy's numbers, or a subclass."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Integral):
        return str(int(value))
    return repr(float(value))  # type: ignore[arg-type]


def pieces(texts: Iterable[str], size: int = _PIECE) -> Iterator[str]:
    """The texts joined into pieces: each ends with the first text that makes it ``size`` characters
    or more."""
    collected: list[str] = []
    length = 0
    for text in texts:
        collected.append(text)
        length += len(text)
        if length >= size:
            yield "".join(collected)
            collected.clear()
            length = 0
    if collected:
        yield "".join(collected)


_WRITE: dict[type, Callable[[Any], str]] = {
    NoneType: lambda _: "",
    str: _text,
    Interval: lambda interval: _text(interval.text),
    bool: {True: "true", False: "false"}.__getitem__,
    int: str,
    float: repr,
}

# A row as robaudit once wrote it. Part of the format of state.db: whoever changes it raises the
# version of the state.
_TYPICAL = (
    b'{"sample_id": "0", "label": 0, "predicted": 0, "correct": true, "noise": "gaussian", '
    b'"level_name": "sigma", "level": 0.1, "estimator": "mc", "quantity": "p_robust", '
    b'"value": 1.0, "lower": 0.9, "upper": 1.0, "std_error": 0.0, "flips_to": null, '
    b'"forwards": 1001, "backwards": 0, "note": "", "interval": "clopper-pearson", '
    b'"votes": {"counts": [1000, 0, 0, 0, 0, 0, 0, 0, 0, 0]}}'
)
