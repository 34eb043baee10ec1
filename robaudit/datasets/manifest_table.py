"""What is kept of a CSV file of a million rows: where each one stands, and the class of each?"""

from __future__ import annotations

import csv
import os
import weakref
from array import array
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from robaudit.datasets.files import reason
from robaudit.errors import DataError


@dataclass(slots=True, weakref_slot=True)
class Table:
    """A CSV file as offsets: 12 bytes a row, however long the rows are.

    The file stays open, through one descriptor for all threads, until nothing refers to the table any more.

    Attributes:
        places: column number by name, for those of path, label and id that the header has.
        starts: byte offset of every row.
        codes: number of the row's label in ``labels``, -1 for none.
        labels: distinct label texts with the line on which each stands first.
        end: byte offset after the last row.
        longest: bytes of the longest row.
        descriptor: of the open file.
    """

    path: Path
    where: str
    places: dict[str, int] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("i"))
    labels: dict[str, int] = field(default_factory=dict)
    end: int = 0
    longest: int = 0
    descriptor: int = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise DataError(self.where, f"cannot be read ({reason(error)})", "give a file that you may read") from None
        weakref.finalize(self, os.close, self.descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.__post_init__()  # every process opens the file for itself

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, index: int) -> tuple[str, str]:
        """Path and id of one row, read from the file."""
        index = range(len(self))[index]
        start = self.starts[index]
        end = self.starts[index + 1] if index + 1 < len(self) else self.end
        try:
            # what stands between two rows are empty lines, which the reader passes over
            text = os.pread(self.descriptor, min(end - start, self.longest), start).decode("utf-8")
            return path_and_id(next(csv.reader([text], strict=True)), self.places)
        except (OSError, ValueError, csv.Error, IndexError, StopIteration) as error:
            raise DataError(self.where, f"changed while it was in use ({reason(error)})", "start again") from None

    def line(self, index: int) -> int:
        """The line (from 1) on which a row begins, counted anew: for messages."""
        at, count = 0, 1
        while at < self.starts[index] and (chunk := os.pread(self.descriptor, min(self.starts[index] - at, 1 << 20), at)):
            count += chunk.count(b"\n")
            at += len(chunk)
        return count


def path_and_id(fields: list[str], places: dict[str, int]) -> tuple[str, str]:
    """What a row says, its columns being in these places."""
    path = fields[places["path"]].strip()
    return path, fields[places["id"]].strip() if "id" in places else path
