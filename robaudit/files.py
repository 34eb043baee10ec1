"""How is a file written so that a reader sees the old one or the new one, never half of one?"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robaudit.errors import RunError


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary neighbour, fsync, rename over ``path``, fsync the folder.

    Raises:
        RunError: the file system refuses (full, read-only, gone); the old file is untouched.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
        temporary = None
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise RunError(str(path), f"cannot be written: {error.strerror or error}", "free the disk or choose another folder") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def expanded(written: str) -> Path:
    """The path with ``~`` as the user's home; left as it is where there is no such user."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)


def json_bytes(document: object) -> bytes:
    """JSON as we write it: indented, UTF-8, newline at the end, no NaN."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read a JSON file of a run folder.

    Raises:
        RunError: missing, unreadable or damaged.
    """
    try:
        return json.loads(_content(path))
    except FileNotFoundError as error:
        raise RunError(str(path), "no such file", "name a folder that robaudit estimate has written") from error
    except OSError as error:
        raise RunError(str(path), f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(str(path), "is damaged (not valid JSON)", "run the audit again in another folder") from error


def _content(path: Path) -> bytes:
    """The bytes of a regular file: a pipe could be waited for forever, and a device has no end."""
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


def with_checksum(document: object) -> bytes:
    """A JSON document on one line, after a line with its sha256."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n"


def read_with_checksum(path: Path) -> Any:
    """The inverse of :func:`with_checksum`.

    Raises:
        RunError: unreadable, truncated or changed.
    """
    try:
        digest, _, rest = _content(path).partition(b"\n")
    except OSError as error:
        raise RunError(str(path), f"cannot be read: {error.strerror or error}") from error
    body = rest.removesuffix(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise RunError(
            str(path), "is damaged (its checksum does not match)", "delete this file and run the same command: its samples are redone"
        )
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RunError(
            str(path), "is damaged (not valid JSON)", "delete this file and run the same command: its samples are redone"
        ) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it dies with the process.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(str(folder), f"cannot be written: {error.strerror or error}", "choose another --out") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(str(folder), "another robaudit is writing here", "wait for it, or choose another --out") from error
        yield
    finally:
        os.close(handle)
