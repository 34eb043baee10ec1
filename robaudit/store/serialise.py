"""Results as JSON and CSV text, and back.

The JSON is ASCII and in a fixed order, so that the same results give the same bytes; it has one result per line, so that files can be
compared by eye. NaN and infinity, which JSON does not have, are never written.

The CSV has a header and one comma-separated line for each result, ending in "\\n". An absent value is an empty field, a truth value
``true`` or ``false``, a float the shortest text that reads back as the same float. Text is quoted only where necessary, and its
characters are kept: ids and class names that begin with ``=``, ``+``, ``-`` or ``@`` are *not* altered, because an id must remain the
id. If they come from strangers, import the file into a spreadsheet with its columns declared as text.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from operator import itemgetter
from types import NoneType
from typing import IO, Any, Protocol

from robaudit.errors import RunError
from robaudit.levels import LevelName
from robaudit.quantities import Interval
from robaudit.rows import COLUMNS, LARGEST, TABLE_COLUMNS, Row, check_kept, table_values
from robaudit.stats.groups import json_values
from robaudit.text import Names, clipped

SCHEMA_VERSION = 2
_PIECE = 2**17  # characters
_REMEDY = "restore the file, or run the audit again"
_MOST = 2**63
_LONGEST_LINE = 2**24  # bytes
_HEAD = re.compile(rb'\{"schema_version": (.{1,20}),\n')
_COLUMNS_LINE = re.compile(rb'"columns": \[.*\],\n')
_REPEATED = [COLUMNS.index(name) for name in ("noise", "level_name", "estimator", "quantity", "note")]
_INTERVAL, _KEPT = COLUMNS.index("interval"), len(COLUMNS) + 2
_MOST_SHARED, _LONGEST_SHARED = 1000, 200
_encode = json.JSONEncoder(allow_nan=False, separators=(", ", ": ")).encode
_decode = json.JSONDecoder().decode
_columns = itemgetter(*COLUMNS)
_LEVEL_NAMES = frozenset(name.value for name in LevelName)
_shared_texts: dict[str, str] = {}


def rows_json(rows: Iterable[Row]) -> str:
    """The text of samples.json: ``{"schema_version", "columns", "rows": [one object per row]}``.

    A value that is not finite becomes null, with an ``error`` beside it; an infinite bound becomes null.
    """
    return "".join(rows_json_chunks(rows))


def rows_json_chunks(rows: Iterable[Row]) -> Iterator[str]:
    """The text of :func:`rows_json` piece by piece, with few rows in memory at a time."""
    return pieces(_texts(rows))


def _texts(rows: Iterable[Row]) -> Iterator[str]:
    yield f'{{"schema_version": {SCHEMA_VERSION},\n"columns": {_encode(list(COLUMNS))},\n"rows": ['
    before = "\n"
    for row in rows:
        yield before + _row_text(row)
        before = ",\n"
    yield "\n]}\n" if before == ",\n" else "]}\n"


class Summary(Protocol):
    """A summary that can be written as JSON values."""

    def document(self) -> dict[str, Any]:
        """The summary as JSON values."""
        ...


def summary_json(groups: Sequence[Summary], **more: Any) -> str:
    """The text of summary.json: ``more`` (JSON values), then ``groups``, one for each estimator and noise level."""
    return document_json({**more, "groups": [group.document() for group in groups]})


def document_json(document: dict[str, Any]) -> str:
    """Any document of JSON values as indented text, beginning with the schema version."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, allow_nan=False) + "\n"


def read_rows_json(text: str | bytes, where: str = "samples.json", *, kept: bool = True) -> list[Row]:
    """The inverse of :func:`rows_json`, whatever the line breaks; a null value reads as NaN.

    Without ``kept``, the bits of the draws are checked but left out: they take more memory than the rest of a row.

    Raises:
        RunError: it is not such a document, or of another schema version.
    """
    try:
        document = json.loads(text)
        _check_version(document["schema_version"], where)
        return [checked_row(values, kept=kept) for values in document["rows"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(where, f"not a list of results ({error})", _REMEDY) from error


def stream_rows_json(file: IO[bytes], where: str = "samples.json", *, kept: bool = True) -> Iterator[Row]:
    """The inverse of :func:`rows_json` for a file with the lines that it writes, one row per line.

    One line is in memory at a time, however long the file. Without ``kept``, the bits of the draws are checked but left out.

    Raises:
        RunError: it is not such a file, or of another schema version; the rows before the fault have been yielded by then.
    """
    number = 0

    def line() -> bytes:
        nonlocal number
        number += 1
        text = file.readline(_LONGEST_LINE + 1)
        if len(text) > _LONGEST_LINE:
            raise ValueError(f"has more than {_LONGEST_LINE} bytes")
        return text

    try:
        head = _HEAD.fullmatch(line())
        if head is None:
            raise ValueError('does not begin with {"schema_version": ')
        _check_version(json.loads(head[1]), where)
        if not _COLUMNS_LINE.fullmatch(line()):
            raise ValueError('does not begin with "columns": ')
        begin = line()
        if begin not in (b'"rows": [\n', b'"rows": []}\n'):
            raise ValueError('is not "rows": [')
        more = begin.endswith(b"[\n")
        while more:
            text = line()
            more = text.endswith(b",\n")
            yield checked_row(_decode(text[: -2 if more else -1].decode()), kept=kept)
        if begin.endswith(b"[\n") and line() != b"]}\n":
            raise ValueError("does not end the list")
        if line():
            raise ValueError("follows the end")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(where, f"not a list of results (line {number}: {_explained(error)})", _REMEDY) from error


def _check_version(version: object, where: str) -> None:
    if version != SCHEMA_VERSION:
        raise RunError(where, f"schema version {_shown(version)}", f"this robaudit reads version {SCHEMA_VERSION}")


def _explained(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return f"{error} is missing" if isinstance(error, KeyError) else clipped(str(error), 200)


def checked_row(values: Any, *, kept: bool = True) -> Row:
    """A result from JSON values, each checked to have the type of its column; a null value is NaN.

    Without ``kept``, the bits of the draws are checked but left out.

    Raises:
        ValueError: it is not a result.
        KeyError: a column is missing.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{_shown(values)} is not a result")  # noqa: TRY004  every fault of a file is a ValueError
    for name, fits in _FITS.items():
        if not fits(values[name]):
            raise ValueError(f"{name}: {_shown(values[name])}")
    votes, details = values.get("votes"), values.get("details")
    if not (votes is None or (isinstance(votes, list) and _are_counts(votes))):
        raise ValueError(f"votes: {_shown(votes)}")
    if not (details is None or (isinstance(details, dict) and all(map(_is_number, details.values())))):
        raise ValueError(f"details: {_shown(details)}")
    bits = values.get("kept")
    if not (bits is None or isinstance(bits, str)):
        raise ValueError(f"kept: {_shown(bits)}")
    worth, lost = values.get("worth"), values.get("not_finite", 0)
    if worth is not None and not (_is_number(worth) and worth > 0):
        raise ValueError(f"worth: {_shown(worth)}")
    if "not_finite" in values and not _is_count(lost):
        raise ValueError(f"not_finite: {_shown(lost)}")
    fields: list[Any] = [*_columns(values), None if votes is None else tuple(votes), details, bits, worth, lost]
    for place in _REPEATED:
        fields[place] = _shared(fields[place])
    fields[_INTERVAL] = Interval.parse(fields[_INTERVAL])
    row = Row(*fields)
    if bits is not None:
        check_kept(row)
        if not kept:
            fields[_KEPT] = None
            row = Row(*fields)
    return row if row.value is not None else replace(row, value=math.nan)


def _shared(text: str) -> str:
    """The same string object for all rows that have the text, which halves the memory of many rows."""
    if len(_shared_texts) > _MOST_SHARED:
        _shared_texts.clear()
    return _shared_texts.setdefault(text, text) if len(text) < _LONGEST_SHARED else text


def _shown(value: object) -> str:
    return clipped(repr(value), 60) if not isinstance(value, int) or abs(value) < _MOST else "a huge number"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _are_counts(values: list[object]) -> bool:
    """:func:`_is_count` of each, but fast: there may be thousands of classes."""
    return not values or (set(map(type, values)) == {int} and min(values) >= 0 and max(values) < _MOST)  # type: ignore[type-var, operator]


def _is_number(value: object) -> bool:
    """Whether it is a number that can be squared and summed; NaN is not."""
    return (type(value) is float and -LARGEST < value < LARGEST) or (type(value) is int and -_MOST < value < _MOST)


def _is_text(value: object) -> bool:
    """Whether it is text that can be encoded: lone surrogates cannot."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


def _or_none(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _row_text(row: Row) -> str:
    document = row.document()
    try:
        return _encode(document)
    except ValueError:  # a number that is not finite
        document = json_values(document)
    return _encode(document if math.isfinite(row.value) else {**document, "error": f"value is {float(row.value)!r}"})


def rows_csv(rows: Iterable[Row], class_names: Names | None = None) -> str:
    """The text of samples.csv: the columns of :data:`robaudit.rows.TABLE_COLUMNS` (votes are in samples.json only).

    Args:
        rows: the results.
        class_names: by class index; None where they are not known.
    """
    return "".join(rows_csv_chunks(rows, class_names))


def rows_csv_chunks(rows: Iterable[Row], class_names: Names | None = None) -> Iterator[str]:
    """The text of :func:`rows_csv` piece by piece, with few rows in memory at a time."""
    return pieces(_lines(itertools.chain([TABLE_COLUMNS], (table_values(row, class_names) for row in rows))))


def table_csv(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A header and lines of None, bool, int, float or str values as CSV text."""
    return "".join(_lines(itertools.chain([columns], lines)))


def _lines(lines: Iterable[Sequence[Any]]) -> Iterator[str]:
    for line in lines:
        yield ",".join([_WRITE.get(type(value), _other)(value) for value in line]) + "\n"


def read_rows(text: str, where: str = "samples.csv") -> list[Row]:
    """The inverse of :func:`rows_csv`, except for what it does not write; the names of the classes are left out.

    Raises:
        RunError: it has another header, or a line that does not fit the header; the message names the line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    line = 1
    try:
        if tuple(next(reader, ())) != TABLE_COLUMNS:
            raise RunError(where, "the header is not that of a samples.csv", "it should be " + ",".join(TABLE_COLUMNS))
        for fields in reader:
            named = dict(zip(TABLE_COLUMNS, fields, strict=True))
            rows.append(Row(**{name: read(named[name]) for name, read in _READ.items()}))
            line = reader.line_num
    except (ValueError, KeyError, csv.Error) as error:
        raise RunError(f"{where}:{line + 1}", f"the line is not a result ({error})", "restore the file, or run the audit again") from error
    return rows


def _text(value: str) -> str:
    """Text as a field, quoted where necessary; what UTF-8 cannot hold (lone surrogates of a class name) is escaped."""
    if not value.isascii():
        value = value.encode(errors="backslashreplace").decode()
    if "," in value or '"' in value or "\n" in value or "\r" in value or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def _other(value: object) -> str:
    """A value of an unusual type: NumPy's numbers, or a subclass."""
    if isinstance(value, str):
        return _text(value)
    return str(int(value)) if isinstance(value, Integral) else repr(float(value))  # type: ignore[arg-type]


def _unless_empty(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda field: None if field == "" else read(field)


def pieces(texts: Iterable[str], size: int = _PIECE) -> Iterator[str]:
    """The same text in pieces: each ends with the first of the texts that makes it ``size`` characters or more."""
    piece: list[str] = []
    length = 0
    for text in texts:
        piece.append(text)
        length += len(text)
        if length >= size:
            yield "".join(piece)
            piece.clear()
            length = 0
    if piece:
        yield "".join(piece)


_FITS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("sample_id", "noise", "estimator", "quantity", "note", "interval"), _is_text),
    **dict.fromkeys(("predicted", "forwards", "backwards"), _is_count),
    **dict.fromkeys(("label", "flips_to"), _or_none(_is_count)),
    **dict.fromkeys(("value", "lower", "upper", "std_error"), _or_none(_is_number)),
    "level": _is_number,
    "level_name": lambda value: isinstance(value, str) and value in _LEVEL_NAMES,
    "correct": lambda value: value is None or isinstance(value, bool),
}
_WRITE: dict[type, Callable[[Any], str]] = {
    NoneType: lambda _: "",
    str: _text,
    Interval: lambda interval: _text(interval.text),
    bool: {True: "true", False: "false"}.__getitem__,
    int: str,
    float: repr,
}
_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, str),
    **dict.fromkeys(("predicted", "forwards", "backwards"), int),
    **dict.fromkeys(("label", "flips_to"), _unless_empty(int)),
    **dict.fromkeys(("level", "value"), float),
    **dict.fromkeys(("lower", "upper", "std_error"), _unless_empty(float)),
    "interval": Interval.parse,
    "correct": _unless_empty({"true": True, "false": False}.__getitem__),
}
