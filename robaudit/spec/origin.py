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
        trained: whether they describe these weights; otherwise they describe the architecture.
        architecture: of the model, as a spec names it.
    """

    source: str
    keys: Mapping[str, Any]
    trained: bool
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a spec.

    Attributes:
        where: the file, for messages; empty without one.
        folder: base of relative paths in the spec.
        name: the audit's name, the stem of the file.
        lines: line numbers in the file, by location.
        moved: locations in the file by location in the validated spec, where they differ.
        files: files that sections are in, if it is not this one; lines are of these files.
        options: of the command line, by the location of the values that they set.
        arguments: the spec comes from the arguments of a function; messages name these.
        taken: lines for the user about values from the model's own files.
        own: how the model's own files prepare images, where they say so.
    """

    where: str = ""
    folder: Path = field(default_factory=Path.cwd)
    name: str = "audit"
    lines: Mapping[Location, int] = field(default_factory=dict)
    moved: Mapping[Location, Location] = field(default_factory=dict)
    files: Mapping[int | str, str] = field(default_factory=dict)
    options: Mapping[Location, str] = field(default_factory=dict)
    arguments: bool = False
    taken: tuple[str, ...] = ()
    own: OwnPreparation | None = None

    def location(self, location: Sequence[int | str]) -> Location:
        """A location in the validated spec as a location in the file."""
        parts = tuple(location)
        # The longest known beginning: an entry of a list may have moved within its section.
        for length in range(len(parts), 0, -1):
            moved = self.moved.get(parts[:length])
            if moved is not None:
                return (*moved, *parts[length:])
        return parts

    def line(self, location: Location) -> str:
        """The file and the line of a location, or the argument of a function.

        A location without a line has the line of the nearest part around it.
        """
        if self.arguments:
            return str(location[0]) if location else self.where
        file = self.files.get(location[0], self.where) if location else self.where
        for length in range(len(location), 0, -1):
            number = self.lines.get(location[:length])
            if number:
                return f"{file}:{number}"
        return file

    def option(self, location: Sequence[int | str]) -> str:
        """The option of the command line that sets a part of the validated spec; empty: none."""
        for length in range(len(location), 0, -1):
            option = self.options.get(tuple(location[:length]))
            if option is not None:
                return option
        return ""

    def place(self, location: Sequence[int | str]) -> str:
        """A part of the validated spec for messages, with its line: "spec.yaml:7: noise.kind"."""
        parts = self.location(location)
        if self.arguments:
            return key_text(parts) or self.where
        option = self.option(location)
        if option:
            return option
        # Either may be empty: a spec without a file, or the whole spec.
        named = [text for text in (self.line(parts), key_text(parts)) if text]
        return ": ".join(named)


def key_text(location: Sequence[int | str]) -> str:
    """A location as messages show it: estimators[0].mc."""
    texts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(texts).removeprefix(".")
