"""Which specs ask for the same numbers?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_SPEED_ONLY = ("device", "batch_size", "workers", "memory", "deterministic")


def digest(document: object) -> str:
    """sha256 (hex) of a JSON document in canonical form."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity(spec_document: Mapping[str, Any]) -> str:
    """sha256 of what a run computes: the spec without what changes only its speed, and without gates, which change nothing."""
    document = json.loads(json.dumps(spec_document))
    document.pop("gates", None)
    for key in _SPEED_ONLY:
        document["run"].pop(key, None)
    return digest(document)


def base_identity(spec_document: Mapping[str, Any]) -> str:
    """sha256 of what an extension must share: the spec without noise levels, estimators and limit."""
    document = json.loads(json.dumps(spec_document))
    document["noise"].pop("sigma")
    document.pop("estimators")
    document["dataset"].pop("limit")
    if document["dataset"]["sample"] is not None:
        document["dataset"]["sample"].pop("size")
    return identity(document)
