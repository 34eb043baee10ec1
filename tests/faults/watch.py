"""Operations that change the run folder, to show that none goes uncounted.

Two witnesses: what Python itself announces of the files that it opens, renames and removes (its audit events), and the folder's
content, which must be the same after an operation and before the next.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile.client import snapshot

CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WATCHED = {
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "os.link", "os.symlink", "os.utime"),
    *("os.setxattr", "os.removexattr"),
}


class Watch:
    """Tells what escapes.

    Args:
        folder: the run folder.
        note: takes ``escaped``: what happened there unseen, and ``after``: the folder's content after each operation.
    """

    def __init__(self, folder: Path, note: Callable[..., None]) -> None:
        self._folder, self._note = folder, note
        self._inside = False
        self._state = self._content()
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        """What happens within is counted."""
        self._inside = True
        if self._content() != self._state:
            self._note(escaped="something changed the folder since the operation before")
        try:
            yield
        finally:
            self._state = self._content()
            self._note(after=self._state)
            self._inside = False

    def _content(self) -> str:
        return content(self._folder)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and not isinstance(args[0], int) and isinstance(args[2], int) and args[2] & CHANGING
        if self._inside or not (event in WATCHED or opened) or (event == "os.mkdir" and os.path.isdir(args[0])):  # noqa: PTH112
            return
        for path in args[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
            with contextlib.suppress(OSError, TypeError):
                found = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(os.fsdecode(path))  # noqa: PTH100, PTH115
                if Path(found).is_relative_to(self._folder):
                    self._note(escaped=f"{event} of {found}")


def content(folder: Path) -> str:
    """All of a folder in one line."""
    return repr(sorted(snapshot(folder).items())) if folder.exists() else "no folder"
