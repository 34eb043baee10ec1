"""How do results and summaries read as JSON, and back?

ASCII only and in a fixed order, so that the same results give the same bytes; one result a line, so that they can be compared
by eye. NaN and infinity, which JSON does not have, are never written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from robaudit.errors import RunError
from robaudit.rows import COLUMNS, Row
from robaudit.summary.groups import json_values
from robaudit.summary.overall import GroupSummary

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


def read_rows_json(text: str, where: str = "samples.json") -> list[Row]:
    """The inverse of :func:`rows_json`, votes included; a null value reads as NaN.

    Raises:
        RunError: not such a document, or of a newer schema.
    """
    try:
        document = json.loads(text)
        version = document["schema_version"]
        if version != SCHEMA_VERSION:
            raise RunError(where, f"schema version {version!r}", f"this robaudit reads version {SCHEMA_VERSION}")
        return [Row.from_document({**row, "value": math.nan if row["value"] is None else row["value"]}) for row in document["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(where, f"not a list of results ({error})", "restore the file, or run the audit again") from error


def _row_document(row: Row) -> dict[str, Any]:
    document = json_values(row.document())
    return document if math.isfinite(row.value) else {**document, "error": f"value is {float(row.value)!r}"}


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(", ", ": "))
