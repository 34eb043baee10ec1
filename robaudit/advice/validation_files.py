"""The folder of a validation: its files, and the check that it may be written."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.advice.validate import Validation
from robaudit.errors import RunError
from robaudit.files import json_bytes, read_json, remove_leftovers, sealed, write_atomically
from robaudit.spec.model import AuditSpec, digest, identity
from robaudit.store.folder import in_runs, locked

SCHEMA_VERSION = 2
NAME = "validation.json"
_KIND = "validation"
_COLUMNS = (
    "sample_id", "label", "predicted", "noise", "level_name", "level", "estimator", "quantity", "value", "lower", "upper", "std_error",
    "reference", "reference_lower", "reference_upper", "reference_draws", "difference", "forwards", "backwards", "note",
)  # fmt: skip
_POINTS = (
    "estimator", "noise", "level_name", "level", "n", "images", "forwards", "backwards", "rmse", "rmse_error", "bias", "bias_error",
)  # fmt: skip


def request_digest(spec: AuditSpec, samples: int, draws: int, budget: float | None, convergence: bool) -> str:
    """sha256 of what a validation is to compute: the same request may overwrite its files."""
    return digest([identity(spec.document()), samples, draws if budget is None else None, budget, convergence])


def default_out(spec: AuditSpec, wanted: str) -> Path:
    """runs/<spec name>-validation-<hash8>."""
    return in_runs(f"{spec.name}-validation-{wanted[:8]}")


def check_folder(path: Path, wanted: str) -> None:
    """Refuse a folder that is not empty, unless it holds a validation of the same request, before anything expensive is computed.

    Raises:
        RunError: it is a file, cannot be read, or holds something else.
    """
    try:
        if not path.exists():
            return
        names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise RunError(str(path), f"cannot be made a folder: {error.strerror or error}", "choose another --out") from error
    if not names:
        return
    if NAME not in names:
        raise RunError(str(path), f"is not empty and holds no validation ({names[0]} is in it)", "choose another --out")
    document = read_json(path / NAME)
    if not isinstance(document, dict) or document.get("kind") != _KIND or document.get("asked") != wanted:
        raise RunError(str(path), "holds a validation of something else", "choose another --out")


def write(path: Path, wanted: str, validation: Validation, pictures: Mapping[str, Callable[[], bytes]]) -> list[str]:
    """Write the files of a validation, each by atomic rename; validation.json tells a reader whether all are there.

    Args:
        path: the folder; made if it does not exist.
        wanted: from :func:`request_digest`.
        validation: the validation.
        pictures: functions that make further files, by name.

    Returns:
        The names of the files.

    Raises:
        RunError: the folder holds something else, or the file system refuses.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(str(path), f"cannot be made a folder: {error.strerror or error}", "choose another --out") from error
    with locked(path) as lock:
        check_folder(path, wanted)
        remove_leftovers(path)
        files = {f"{_KIND}.csv": _table(_COLUMNS, _rows(validation))}
        if validation.points:
            files["convergence.csv"] = _table(_POINTS, (point.document() for point in validation.points))
        files |= {name: make() for name, make in pictures.items()}
        begun = {"schema_version": SCHEMA_VERSION, "kind": _KIND, "asked": wanted, "status": "running"}
        write_atomically(path / NAME, json_bytes(sealed(begun)), lock.check)
        for name, data in files.items():
            write_atomically(path / name, data, lock.check)
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        whole = {**begun, "status": "complete", **document(validation), "files": sums}
        write_atomically(path / NAME, json_bytes(sealed(whole)), lock.check)
    return [*files, NAME]


def document(validation: Validation) -> dict[str, Any]:
    """The summary as JSON values."""
    about = {key: value for key, value in validation.info.items() if key not in ("status", "schema_version")}
    return {
        **about,
        "samples": len({name for name, _ in validation.truths}),
        "reference": {"estimator": "mc", "draws": validation.draws, "stream": "reference"},
        "correction": "rmse = sqrt(mean((value - reference)^2) - mean(reference variance)), variance = p (1 - p) / (draws - 1)",
        "errors": "bias_error, rmse_error: one standard error over the images (of the RMSE: upwards); no confidence interval",
        "comparisons": [one.document() for one in validation.comparisons],
        "words": validation.verdicts(),
        "convergence": [point.document() for point in validation.points],
        "skipped": [{"sample_id": name, "reason": reason} for name, reason in validation.skipped],
        "seconds": dict(validation.seconds),
    }


def _rows(validation: Validation) -> Iterable[dict[str, Any]]:
    for (name, at, _), row in validation.rows.items():
        truth = validation.truths[name, at]
        lower, upper = truth.interval()
        reference = {"reference": truth.value, "reference_lower": lower, "reference_upper": upper, "reference_draws": truth.draws}
        same_quantity = row.quantity == "p_robust"
        yield {**row.document(), **reference, "difference": row.value - truth.value if same_quantity else None}


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")
