"""The files of a validation, and their folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import json_bytes, write_atomically
from robaudit.plugins import reference
from robaudit.records import json_values
from robaudit.runs.folder import in_runs
from robaudit.runs.serialise import SCHEMA_VERSION, table_csv
from robaudit.spec.model import AuditSpec, identity
from robaudit.validation.against_reference import Validation

_ROWS = "validation.csv"
SUMMARY = "validation.json"
"""Written last: its presence means that the validation is complete."""
_OURS = (_ROWS, SUMMARY)
_COLUMNS = (
    "sample_id",
    "label",
    "predicted",
    "noise",
    "level_name",
    "level",
    "estimator",
    "quantity",
    "value",
    "lower",
    "upper",
    "std_error",
    "reference",
    "reference_lower",
    "reference_upper",
    "reference_draws",
    "difference",
    "forwards",
    "backwards",
    "note",
)


def default_out(spec: AuditSpec) -> Path:
    """The default folder, runs/<spec name>-validation-<hash8>."""
    return in_runs(f"{spec.stem}-validation-{identity(spec.document())[:8]}")


def check_folder(path: Path) -> None:
    """Refuse a folder that holds anything but an earlier validation.

    To be called before any expensive computation.

    Raises:
        RunError: it is a file, cannot be read, or holds something else.
    """
    # iterdir also fails for a file, and for a folder that may not be read.
    try:
        names = [entry.name for entry in path.iterdir()] if path.exists() else []
    except OSError as error:
        raise RunError(
            str(path), f"is not a usable folder: {error.strerror or error}", "choose another --out"
        ) from error
    # Hidden files, such as .DS_Store, belong to the system.
    visible = (name for name in names if not name.startswith("."))
    foreign = sorted(set(visible) - set(_OURS))
    if foreign:
        raise RunError(
            str(path),
            f"holds something other than a validation: {foreign[0]}",
            "choose another --out",
        )


def write(path: Path, validation: Validation) -> list[str]:
    """Write the files of a validation, validation.json last.

    They replace the files of an earlier one.

    Args:
        path: the folder; created if it does not exist.
        validation: the validation.

    Returns:
        The names of the files.

    Raises:
        RunError: the folder holds something else, or the file system refuses.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            str(path), f"cannot be created: {error.strerror or error}", "choose another --out"
        ) from error
    check_folder(path)
    # An old summary beside new rows would look complete.
    for name in _OURS:
        (path / name).unlink(missing_ok=True)
    cells = ([row[column] for column in _COLUMNS] for row in _rows(validation))
    files = {
        _ROWS: table_csv(_COLUMNS, cells).encode(),
        SUMMARY: json_bytes({"schema_version": SCHEMA_VERSION, **document(validation)}),
    }
    for name, data in files.items():
        write_atomically(path / name, data)
    return list(files)


def document(validation: Validation) -> dict[str, Any]:
    """The summary as JSON values."""
    # A validation has no status: its summary exists only when it is complete.
    left_out = {"status", "schema_version"}
    info = validation.info.model_dump(mode="json", exclude_unset=True, exclude=left_out)
    return {
        **info,
        "samples": len({name for name, _ in validation.truths}),
        "reference": {"estimator": reference(), "draws": validation.draws, "stream": "reference"},
        "comparisons": json_values(validation.comparisons),
        "words": validation.verdicts(),
        "recorded_noise": json_values(validation.recorded),
        "skipped": [{"sample_id": name, "reason": reason} for name, reason in validation.skipped],
        "seconds": dict(validation.seconds),
    }


def _rows(validation: Validation) -> Iterable[dict[str, Any]]:
    """The rows of the table, by column."""
    for (sample_id, at, _), row in validation.rows.items():
        truth = validation.truths[sample_id, at]
        same_quantity = row.quantity == "p_robust"  # a difference of other quantities means nothing
        yield {
            **row.document(),
            "reference": truth.value,
            "reference_lower": truth.estimate.lower,
            "reference_upper": truth.estimate.upper,
            "reference_draws": truth.total,
            "difference": row.value - truth.value if same_quantity else None,
        }
