"""How do results and summaries read as JSON, and back?

ASCII only and in a fixed order, so that the same results give the same bytes; one result a line, so that they can be compared
by eye. NaN and infinity, which JSON does not have, are never written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from robaudit.errors import RunError
from robaudit.rows import COLUMNS, Row
from robaudit.summary.groups import json_values
from robaudit.summary.overall import GroupSummary
from robaudit.text import clipped

SCHEMA_VERSION = 1


def rows_json(rows: Iterable[Row]) -> str:
    """The text of samples.json: ``{"schema_version", "columns", "rows": [one object a row]}``.

    A value that is no finite number becomes null with an ``error`` beside it; an infinite bound becomes null: no bound.
    """
    lines = ",\n".join(_dump(_row_document(row)) for row in rows)
    head = f'{{"schema_version": {SCHEMA_VERSION},\n"columns": {_dump(list(COLUMNS))},\n"rows": ['
    return head + (f"\n{lines}\n" if lines else "") + "]}\n"


def summary_json(groups: Sequence[GroupSummary], **more: Any) -> str:
    """The text of summary.json: ``more`` (JSON values), then ``groups``, one per estimator and sigma."""
    return document_json({**more, "groups": [group.document() for group in groups]})


def document_json(document: dict[str, Any]) -> str:
    """Any document of JSON values as indented text, the schema version first."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, allow_nan=False) + "\n"


def read_rows_json(text: str | bytes, where: str = "samples.json") -> list[Row]:
    """The inverse of :func:`rows_json`, votes included; a null value reads as NaN.

    Raises:
        RunError: not such a document, or of a newer schema.
    """
    try:
        document = json.loads(text)
        version = document["schema_version"]
        if version != SCHEMA_VERSION:
            raise RunError(where, f"schema version {version!r}", f"this robaudit reads version {SCHEMA_VERSION}")
        return [checked_row(values) for values in document["rows"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(where, f"not a list of results ({error})", "restore the file, or run the audit again") from error


def checked_row(values: Any) -> Row:
    """One result from JSON values, each of the type that its column has; a null value is NaN.

    Raises:
        ValueError: it is no such result.
        KeyError: it lacks a column.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{_shown(values)} is no result")  # noqa: TRY004  all of a file's faults are ValueErrors
    for name, fits in _FITS.items():
        if not fits(values[name]):
            raise ValueError(f"{name}: {_shown(values[name])}")
    votes, details = values.get("votes"), values.get("details")
    if not (votes is None or (isinstance(votes, list) and all(map(_is_count, votes)))):
        raise ValueError(f"votes: {_shown(votes)}")
    if not (details is None or (isinstance(details, dict) and all(map(_is_number, details.values())))):
        raise ValueError(f"details: {_shown(details)}")
    return Row.from_document({**values, "value": math.nan if values["value"] is None else values["value"]})


def _shown(value: object) -> str:
    return clipped(repr(value), 60) if not isinstance(value, int) or abs(value) < _MOST else "a giant number"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and -_MOST < value < _MOST)


def _is_text(value: object) -> bool:
    """Text that can be written: whole characters."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _or_none(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


_MOST = 2**63
_FITS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("sample_id", "noise", "estimator", "quantity", "note", "interval"), _is_text),
    **dict.fromkeys(("predicted", "forwards", "backwards"), _is_count),
    **dict.fromkeys(("label", "flips_to"), _or_none(_is_count)),
    **dict.fromkeys(("value", "lower", "upper", "std_error"), _or_none(_is_number)),
    "sigma": _is_number,
    "correct": lambda value: value is None or isinstance(value, bool),
}


def _row_document(row: Row) -> dict[str, Any]:
    document = json_values(row.document())
    return document if math.isfinite(row.value) else {**document, "error": f"value is {float(row.value)!r}"}


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(", ", ": "))
