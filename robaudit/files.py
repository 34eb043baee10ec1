"""Read and write files atomically and with checksums.

A reader sees the old or the new content of a file, never a mixture.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from robaudit.errors import RunError

SEAL = "checksum"
"""The key of the checksum in a sealed document."""
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)
"""Names of temporary files, as :func:`writing` makes them."""


class Sink:
    """Writes a file piece by piece, and computes its digest on the way."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            RunError: the file system refuses.
        """
        with _refusals(self._path):
            self._file.write(data)
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        """The digest (hex) of everything written so far."""
        return self._digest.hexdigest()


@contextlib.contextmanager
def writing(path: Path, check: Callable[[], None] | None = None) -> Iterator[Sink]:
    """Write to a temporary file beside ``path``, which replaces ``path`` at the end of the block.

    If anything is raised before that, the old file is untouched and the temporary file is removed.
    A killed process leaves the temporary file behind: see :func:`remove_leftovers`.

    Args:
        path: the file.
        check: raises if the folder is the wrong one (as :meth:`robaudit.runs.folder.Lock.check`).
            It is called once the folder is open; everything is then written into that folder, even
            if another folder takes its name meanwhile.

    Raises:
        RunError: the file system refuses (full, read-only, gone).
    """
    check = check or _accept
    try:
        with _refusals(path):
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            check()
            with _writing_in(folder, path) as sink:
                yield sink
        finally:
            os.close(folder)
    except RunError:
        check()  # if the folder is gone, that is the reason
        raise


def _accept() -> None:
    """Accept any folder."""


@contextlib.contextmanager
def _writing_in(folder: int, path: Path) -> Iterator[Sink]:
    """:func:`writing` into an open folder, by its descriptor."""
    name = f".{path.name[:50]}.{secrets.token_hex(8)}.tmp"  # file names have a maximum length
    # A new file only, and no link: another process may have put something in its place.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _refusals(path):
        handle = os.open(name, flags, 0o600, dir_fd=folder)
    file = os.fdopen(handle, "wb")
    try:
        yield Sink(path, file)
        with _refusals(path):
            file.flush()
            os.fchmod(handle, 0o644)
            # The content must be on disk before the name: after a power failure the new name would
            # otherwise lead to an empty file. The folder's own sync makes the name durable.
            os.fsync(handle)
            file.close()
            os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
    except BaseException:  # also after Ctrl+C
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def write_atomically(path: Path, data: bytes, check: Callable[[], None] | None = None) -> None:
    """Write a whole file as :func:`writing` does.

    Raises:
        RunError: the file system refuses (full, read-only, gone).
    """
    with writing(path, check) as sink:
        sink.write(data)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder.

    No other process may be writing there.

    Raises:
        RunError: the file system refuses.
    """
    with _refusals(folder):
        for path in folder.iterdir():
            is_regular = path.is_file() and not path.is_symlink()
            if is_regular and _LEFTOVER.fullmatch(path.name):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turn an OSError into an error for the user."""
    try:
        yield
    except OSError as error:
        raise RunError(
            str(path),
            f"cannot be written: {error.strerror or error}",
            "free the disk or choose another folder",
        ) from error


def expanded(written: str) -> Path:
    """The path with ``~`` expanded; unchanged if the user is unknown."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)


def json_bytes(document: object) -> bytes:
    """A document as indented JSON in UTF-8, with a newline at the end; NaN is refused."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a checksum of everything else as its last key."""
    return {**document, SEAL: _digest(document)}


def unsealed(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The inverse of :func:`sealed`; a document without a checksum is accepted.

    Raises:
        RunError: the checksum does not match.
    """
    rest = {key: value for key, value in document.items() if key != SEAL}
    if SEAL in document and document[SEAL] != _digest(rest):
        remedy = (
            "restore it or run the audit again in another folder (after an intended edit, "
            f"remove the key {SEAL!r})"
        )
        raise RunError(str(path), "is damaged (its checksum does not match)", remedy)
    return rest


def _digest(document: Mapping[str, Any]) -> str:
    """sha256 (hex) of a document, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(path: Path) -> Any:
    """Read a JSON file of a run folder.

    Raises:
        RunError: it is missing, unreadable or damaged.
    """
    try:
        return json.loads(_content(path))
    except FileNotFoundError as error:
        raise RunError(
            str(path), "no such file", "name a folder that robaudit estimate has written"
        ) from error
    except OSError as error:
        raise RunError(str(path), f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            str(path), "is damaged (not valid JSON)", "run the audit again in another folder"
        ) from error


def _content(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    # Reading a pipe that nobody writes to would block, and a device has no end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "it is not a regular file", str(path))
    try:
        return path.read_bytes()
    except MemoryError:
        raise OSError(None, "it does not fit into memory", str(path)) from None


def file_sha256(path: Path) -> str | None:
    """sha256 (hex) of a file; None when it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
