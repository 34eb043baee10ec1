"""The origin of a spec: its file, the lines of its parts, and the base of its relative paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Location = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class OwnPreparation:
    """How a model's own files, or its library's entry, prepare images.

    Attributes:
        source: the file or entry, for messages.
        keys: mean, std, and the keys of image files.
        trained: whether they describe these weights, and not only their architecture.
    """

    source: str
    keys: Mapping[str, Any]
    trained: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a spec.

    Attributes:
        where: the file, for messages, or ''.
        folder: base of relative paths in the spec.
        name: the audit's name, the stem of the file.
        lines: line numbers in the file, by location.
        moved: locations in the file by location in the validated spec, where they differ.
        arguments: whether there is no file, and messages name a function's arguments instead.
        taken: lines for the user about values from the model's own files.
        own: how these prepare images, where they say so.
    """

    where: str = ""
    folder: Path = field(default_factory=Path.cwd)
    name: str = "audit"
    lines: Mapping[Location, int] = field(default_factory=dict)
    moved: Mapping[Location, Location] = field(default_factory=dict)
    arguments: bool = False
    taken: tuple[str, ...] = ()
    own: OwnPreparation | None = None

    def location(self, location: Sequence[int | str]) -> Location:
        """A location in the validated spec as a location in the file."""
        parts = tuple(location)
        length = next((n for n in range(len(parts), 0, -1) if parts[:n] in self.moved), 0)
        return (*self.moved[parts[:length]], *parts[length:]) if length else parts

    def line(self, location: Location) -> str:
        """The file and the line of a location, or of the nearest enclosing part; or the
        argument."""
        if self.arguments:
            return str(location[0]) if location else self.where
        number = next(
            (
                self.lines[location[:n]]
                for n in range(len(location), 0, -1)
                if location[:n] in self.lines
            ),
            None,
        )
        return f"{self.where}:{number}" if number else self.where

    def place(self, location: Sequence[int | str]) -> str:
        """A part of the validated spec for messages, with its line: "spec.yaml:7: noise.kind"."""
        parts = self.location(location)
        if self.arguments:
            return key_text(parts) or self.where
        return ": ".join(text for text in (self.line(parts), key_text(parts)) if text)


def key_text(location: Sequence[int | str]) -> str:
    """A location as messages show it: estimators[0].mc."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in location
    ).removeprefix(".")
