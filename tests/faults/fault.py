"""What goes wrong, and at which operation on the run folder."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Side = Literal["before", "half", "after"]
KILL, REMOVE, REPLACE = "kill", "remove", "replace"
FULL = ("ENOSPC", "EDQUOT")  # what is deleted or renamed needs no room
ERRORS = (*FULL, "EROFS", "EIO")
NEEDS_ROOM = ("open", "write", "mkdir", "truncate", "link", "symlink")


@dataclass(frozen=True, slots=True)
class Event:
    """One operation on the run folder.

    Attributes:
        name: of the function of ``os``; ``open`` and ``write`` stand for file objects, too.
        paths: what it is done to, relative to the place where the command runs.
        size: bytes that are written.
    """

    name: str
    paths: tuple[str, ...]
    size: int = 0

    @property
    def is_log(self) -> bool:
        """Whether it concerns the log alone, which a run can do without."""
        return all(Path(path).name == "log.txt" for path in self.paths)

    @property
    def is_end_of_journal(self) -> bool:
        """Whether it removes the journal of the state, empty by then: the next session does it if this one cannot."""
        return self.name == "unlink" and self.paths[0].endswith(".db-journal")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to go wrong.

    Attributes:
        at: the number of the operation, from 1.
        side: before it, after it, or when half of the bytes are written.
        action: kill the process, remove or replace the folder, or the name of the error with which the operation fails.
        lasting: whether all that follows fails, too.
    """

    at: int
    side: Side
    action: str
    lasting: bool = False

    def hits(self, number: int, name: str, side: Side) -> bool:
        """Whether it strikes on this side of this operation."""
        if number == self.at:
            return side == self.side
        return self.lasting and number > self.at and side == "before" and (self.action not in FULL or name in NEEDS_ROOM)

    def strike(self, folder: Path) -> None:
        """Do it."""
        if self.action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == REMOVE:
            shutil.rmtree(folder, ignore_errors=True)
        elif self.action == REPLACE:
            if folder.exists():
                folder.rename(folder.with_name("moved"))
            folder.with_name("another").rename(folder)
        else:
            number = getattr(errno, self.action)
            raise OSError(number, os.strerror(number))


def points(events: Sequence[Event], *sides: Side) -> Iterator[tuple[int, Side]]:
    """Every moment at which something can go wrong; a single byte has no half."""
    for number, event in enumerate(events, 1):
        yield from ((number, side) for side in sides if side != "half" or event.size > 1)
