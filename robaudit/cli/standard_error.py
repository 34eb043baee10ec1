"""How does work go on when nobody reads what it says any more?"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any


class StandardError(io.TextIOBase):
    """Standard error as it is at the moment.

    Once it cannot be written (a closed pipe, a terminal that is gone, a full disk) it becomes ``/dev/null``, for the rest of the
    process: neither a line nor the end of the process trips over it.
    """

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        _try("write", text)
        return len(text)

    def flush(self) -> None:
        """Write what waits, or drop it."""
        _try("flush")

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        stream = _stream()
        return stream is not None and bool(stream.isatty())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """How it writes text."""
        return str(getattr(_stream(), "encoding", "utf-8"))


def _stream() -> Any:
    """None where the process was started without one."""
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # a progress display puts itself in its place


def _try(method: str, *arguments: str) -> None:
    stream = _stream()
    if stream is None:
        return
    try:
        getattr(stream, method)(*arguments)
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
