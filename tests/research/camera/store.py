"""Results that are kept, so that a study goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Store:
    """A file of results, one JSON document a line: its key and its value.

    Attributes:
        found: results by key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Mapping[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        whole = 0
        text = path.read_bytes()
        for line in text.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                # what was being written when the study was killed
                break
            document = json.loads(line)
            self.found[document["key"]] = document["value"]
            whole += len(line)
        if whole < len(text):
            path.write_bytes(text[:whole])

    def add(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep one result."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
        self.found[key] = value
