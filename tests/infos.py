"""The run.json of runs that no audit made."""

from __future__ import annotations

from typing import Any

from robaudit.runs.info import RunInfo
from robaudit.runs.serialise import SCHEMA_VERSION

_USUAL = RunInfo.model_validate(
    {
        "schema_version": SCHEMA_VERSION,
        "status": "complete",
        "name": "run",
        "spec": {},
        "spec_folder": "/nowhere",
        "identity": "0",
        "base_identity": "0",
        "seed": 0,
        "device": "cpu",
        "model": {"name": "m.pt", "format": "torchscript", "sha256": "0" * 64, "classes": 4},
        "warnings": [],
        "rows": {"kind": "bitwise", "largest_difference": 0.0},
        "data": {"where": "gone.npz", "class_names": None},
        "noise": "gaussian noise",
        "quantities": [],
        "clean_accuracy": None,
        "noisy_accuracy": [],
        "totals": {"samples": 0, "skipped": 0},
        "seconds": {},
        "skipped": [],
        "files": {},
    }
)


def run_info(**values: Any) -> RunInfo:
    """That of a finished run with these values: see :func:`changed`."""
    return changed(_USUAL, **values)


def changed(info: RunInfo, **values: Any) -> RunInfo:
    """A copy with other values; for model, data and totals, a dictionary of those to change."""
    document = info.document()
    for name, value in values.items():
        document[name] = (
            {**document[name], **value} if name in ("model", "data", "totals") else value
        )
    return RunInfo.model_validate(document)
