"""Does the file or folder that a spec names exist, and can it be read like one?"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from robaudit.errors import DataError, did_you_mean
from robaudit.files import expanded


def find(written: str, base_dir: Path, kind: Literal["file", "folder"]) -> Path:
    """The path as written in a spec, relative to the spec's folder; ``~`` is understood.

    Raises:
        DataError: there is nothing there (with the nearest name next to it), or something of another kind.
    """
    path = base_dir / expanded(written)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _missing(written, path, kind) from None
        raise DataError(written, f"cannot be read ({reason(error)})", f"give a {kind} that you may read") from None
    if kind == "file" and not stat.S_ISREG(mode):
        raise DataError(written, "is a folder" if stat.S_ISDIR(mode) else "is not a regular file", "give a file")
    if kind == "folder" and not stat.S_ISDIR(mode):
        raise DataError(written, "is a file", "give the folder")
    return path


def _missing(written: str, path: Path, kind: str) -> DataError:
    """Say which part of the path is missing and what is there instead."""
    parent, name = path.parent, path.name
    while not parent.is_dir() and parent != parent.parent:
        parent, name = parent.parent, parent.name
    try:
        with os.scandir(parent) as entries:
            near = [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError:
        near = []
    hint = did_you_mean(name, near)
    remedy = hint if hint.startswith("did you mean") else "paths are relative to the spec file"
    if parent != path.parent:
        return DataError(written, f"no such {kind}: {str(parent)!r} has no {name!r}", remedy)
    return DataError(written, f"no such {kind} in {str(parent)!r}", remedy)


def name_text(name: str) -> str:
    """A name from a folder as text that can be written: bytes that are not UTF-8, and half characters, as escapes."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()


def reason(error: BaseException) -> str:
    """The message of an exception without the path that an OSError repeats."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
