"""What run.json says of a run before its first row: what was asked, by whom, of which model and data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch

from robaudit.checks import InputCheck
from robaudit.datasets.base import Dataset
from robaudit.models.logits import LogitModel
from robaudit.provenance import device_name, versions
from robaudit.spec.model import AuditSpec, base_identity, identity
from robaudit.store.folder import SCHEMA_VERSION


def first_info(spec: AuditSpec, model: LogitModel, dataset: Dataset, device: torch.device, check: InputCheck) -> dict[str, Any]:
    """What is known of a run before its first row."""
    document = spec.document()
    names = dataset.class_names
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "name": spec.name,
        "spec": document,
        "spec_folder": str(spec.base_dir),
        "identity": identity(document),
        "base_identity": base_identity(document),
        "seed": spec.run.seed,
        "device": device_name(device),
        "versions": versions(),
        "model": {"name": model.name, "format": model.format, "sha256": model.sha256, "classes": check.classes, "notes": list(model.notes)},
        "data": {"where": dataset.where, "class_names": None if names is None else list(names)},
        "noise": _noise_words(spec),
        "warnings": list(check.warnings),
        "batch_dependent": check.batch_dependent,
    }


def history(old: Mapping[str, Any] | None, command: str | None, device: torch.device) -> dict[str, Any]:
    """When the run began, and all its sessions, this one included."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    session = {"started": now, "command": command, "device": device_name(device), "robaudit": versions()["robaudit"]}
    before = [] if old is None else old.get("sessions", [])
    return {"started": now if old is None else old["started"], "command": command, "sessions": [*before, session]}


def _noise_words(spec: AuditSpec) -> str:
    """How noise and normalisation are applied, in the words every report prints."""
    model = spec.model
    clip = "then clipped to [0, 1]" if spec.noise.clip else "not clipped"
    normal = (
        f"mean {_listed(model.mean)} and std {_listed(model.std)} applied after it"
        if model.mean or model.std
        else "no mean/std applied after it"
    )
    return f"{spec.noise.kind} noise added to pixels in [0, 1], {clip}; {normal}"


def _listed(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values) + "]" if values else "none"
