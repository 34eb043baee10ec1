"""Who may write into a run folder: is it this process alone, and is it still the folder that was locked?"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robaudit.errors import RunError

NAME = ".lock"
_held: set[int] = set()  # descriptors of this process


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that is held.

    Attributes:
        folder: what it locks.
        file: device and inode of its file.
    """

    folder: Path
    file: tuple[int, int]

    def check(self) -> None:
        """Refuse to go on in a folder that somebody has deleted, moved or made anew: it is not the one that was locked.

        Raises:
            RunError: the folder's lock is no longer the file that this process holds.
        """
        try:
            about = (self.folder / NAME).lstat()
        except (FileNotFoundError, NotADirectoryError):
            about = None
        except OSError as error:
            raise RunError(str(self.folder), f"cannot be read: {error.strerror or error}", "choose another --out") from error
        if about is None or (about.st_dev, about.st_ino) != self.file:
            raise RunError(str(self.folder), "was removed or replaced while robaudit was writing here", "choose another --out")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Hold the folder's lock; it dies with this process, whatever children outlive it.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    try:
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RunError(str(folder), f"cannot be written: {error.strerror or error}", "choose another --out") from error
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(str(folder), "another robaudit is writing here", "wait for it, or choose another --out") from error
        except OSError as error:
            raise RunError(str(folder), f"cannot be locked: {error.strerror or error}", "choose another --out") from error
        about = os.fstat(handle)
        lock = Lock(folder, (about.st_dev, about.st_ino))
        lock.check()
        yield lock
    finally:
        if handle in _held:  # a child has let go of it already, and the number may be another file's there
            _held.remove(handle)
            os.close(handle)


def _let_go() -> None:
    """In a forked child: the lock belongs to the parent, and a child that outlives it must not hold it."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)
