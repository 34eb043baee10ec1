"""Small specs that need nothing but the package: the embedded network on the embedded digits, and
tiny generated data."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from robaudit.runs.rows import COLUMNS
from robaudit.spec.model import AuditSpec
from robaudit.spec.origin import Origin
from robaudit.spec.read import validated

WEIGHTS = Path(str(files("robaudit.demo") / "digits_cnn.safetensors"))
NETWORK = {"path": str(WEIGHTS), "architecture": "robaudit:digits_cnn"}


def digits(*, limit: int = 8, **sections: Any) -> dict[str, Any]:
    """The embedded network on the first held-out digits, as a YAML document; ``sections`` replace
    whole sections (None: left out)."""
    document = {
        "model": dict(NETWORK),
        "dataset": {"kind": "digits", "limit": limit},
        "noise": {"sigma": [0.2]},
        "estimators": [{"mc": {"draws": 20}}],
        **sections,
    }
    return {key: value for key, value in document.items() if value is not None}


def located(document: Mapping[str, Any], folder: Path, name: str) -> AuditSpec:
    """The spec in the document, with its folder and its name, as if it were read from a file."""
    return validated(document, Origin(folder=folder, name=name))


def write(folder: Path, document: object, name: str = "spec.yaml") -> Path:
    """The document (or text) as a spec file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(
        document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False),
        encoding="utf-8",
    )
    return path


def save_npz(
    path: Path,
    *,
    count: int = 4,
    shape: tuple[int, ...] = (1, 8, 8),
    labels: Any = None,
    **arrays: Any,
) -> Path:
    """Random uint8 images with labels 0, 1, ... in a .npz file."""
    images = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    found = np.arange(count) % 10 if labels is None else np.asarray(labels)
    np.savez(path, **{"images": images, "labels": found, **arrays})
    return path


def read_info(run: Path) -> dict[str, Any]:
    """run.json without its checksum, to be changed and written by hand."""
    info = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return {key: value for key, value in info.items() if key != "checksum"}


def laid_out(document: dict[str, Any]) -> bytes:
    """A samples.json as robaudit lays it out, one row a line: it must be refused for what it says,
    not for how it looks."""
    found = document.get("rows")
    lines = ",\n".join(json.dumps(row) for row in found) if isinstance(found, list) else ""
    rows = f"[\n{lines}\n]" if lines else json.dumps(found)
    columns = json.dumps(document.get("columns", list(COLUMNS)))
    return (
        f'{{"schema_version": {document.get("schema_version")},\n"columns": '
        f'{columns},\n"rows": {rows}}}\n'
    ).encode()


def read_rows(run: Path) -> list[dict[str, str]]:
    """The rows of samples.csv."""
    with (run / "samples.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def boxed(*estimators: Any, **sections: Any) -> dict[str, Any]:
    """A spec of the digits under uniform noise of .3."""
    return digits(
        **{"noise": [{"kind": "uniform", "eps": [0.3]}], "estimators": list(estimators), **sections}
    )


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: contents by relative path (None: a folder)."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }
