"""A part of the measurement, and the file of results."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.research.gpu.clock import Clock

Row = dict[str, float | str | None]
"""Figures and texts by the names of their columns; None: not measured."""


@dataclass(slots=True)
class Part:
    """What a part is told, and what it has found.

    Attributes:
        device: where the networks run.
        tiny: sizes that show only that all works.
        clock: the time of the part.
        earlier: the rows of the parts before it.
        saved: called after each row.
        say: hears what takes long.
        rows: what was measured.
        wrong: what should not be: disagreements of the device with the CPU, and the like.
        left_out: what was not measured, and why.
        error: the end of the traceback, if the part failed.
        seconds: that it took.
    """

    device: torch.device
    tiny: bool
    clock: Clock
    earlier: Mapping[str, list[Row]] = field(default_factory=dict)
    saved: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _: None
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def on_card(self) -> bool:
        """Whether the device is a CUDA card."""
        return self.device.type == "cuda"

    def add(self, **figures: float | str | None) -> None:
        """Add a row, and save."""
        self.rows.append(figures)
        self.saved()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "seconds": round(self.seconds, 1),
            "error": self.error,
            "wrong": self.wrong,
            "left_out": self.left_out,
            "rows": self.rows,
        }


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write the results at once: a reader finds the old file or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        json.dump(document, file, indent=1)
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)  # noqa: PTH105  the name of a file, not a path
