"""Write text: to standard output and error, to the file of ``-o``, and to the step summary of a
GitHub job."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from robaudit.errors import RobauditError
from robaudit.text import harmless

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


class StandardError(io.TextIOBase):
    """Standard error, looked up at each call.

    Once it cannot be written to (a closed pipe, a terminal that is gone, a full disk), it becomes
    ``/dev/null`` for the rest of the process, so that neither a message nor the end of the process
    fails because of it.
    """

    def write(self, text: str) -> int:
        """Write the text, or drop it if it cannot be written."""
        _attempt("write", text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it if it cannot be written."""
        _attempt("flush")

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        stream = _standard_error()
        return stream is not None and bool(stream.isatty())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Its text encoding."""
        return str(getattr(_standard_error(), "encoding", "utf-8"))


def _standard_error() -> Any:
    """The stream behind :class:`StandardError`; None where the process was started without one."""
    # A progress display replaces sys.stderr by a wrapper.
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


def _attempt(method: str, *arguments: str) -> None:
    """Call a method of standard error; if that fails, drop this and everything later."""
    stream = _standard_error()
    if stream is None:
        return
    try:
        getattr(stream, method)(*arguments)
    except OSError:
        _discard(stream)


def _discard(stream: Any) -> None:
    """Make a stream write to ``/dev/null``; it keeps its number, so child processes follow."""
    # ValueError: the stream is closed, or has no number.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def prepare_output() -> None:
    """Make standard output one that can be printed to.

    If the process was started without one (``>&-``), what is printed is dropped, and the exit code
    still counts. A character that its encoding lacks becomes an escape.
    """
    if sys.stdout is None:
        # Number 1 is free, and would otherwise go to the next file that is opened.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        sys.stdout = os.fdopen(nowhere, "w", encoding="utf-8")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Drop everything printed to standard output from now on."""
    _discard(sys.stdout)


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Continue when the reader of standard output is gone, as in ``robaudit gate ... | head -1``.

    The exit code still counts.
    """
    try:
        yield
    except BrokenPipeError:
        discard_output()
    except SystemExit as exit_:  # how rich reports it
        if not isinstance(exit_.__context__, BrokenPipeError):
            raise
        discard_output()


def put(texts: Iterable[str | bytes]) -> None:
    """Write to standard output.

    Args:
        texts: text is made harmless, and is in whole lines; bytes are written as they are: their
            format escapes what it holds.
    """
    # Files of JSON and CSV are UTF-8 in every locale; a terminal may know less.
    encoding = (sys.stdout.encoding if sys.stdout.isatty() else None) or "utf-8"
    # Text printed before is still in the buffer above this one.
    sys.stdout.flush()
    for piece in texts:
        content = piece
        if isinstance(content, str):
            content = harmless(content).encode(encoding, "backslashreplace")
        sys.stdout.buffer.write(content)
    sys.stdout.flush()


def emit(text: str | bytes, output: Path | None) -> None:
    """Write as :func:`put` does, or to the file of ``-o``; the reader of standard output may leave.

    Raises:
        RobauditError: the file cannot be written; an existing file is left as it was.
    """
    if output is not None:
        write_output(output, [text])
        return
    with reader_may_leave():
        put([text])


def check_output(path: Path) -> None:
    """Refuse a file of ``-o`` that cannot be written, before any work is done.

    Raises:
        RobauditError: it is a folder or write-protected, or its folder does not exist or takes no
            files.
    """
    if path.is_dir():
        raise RobauditError(str(path), "is a folder", "name a file")
    if not path.absolute().parent.is_dir():
        raise RobauditError(
            str(path), "its folder does not exist", "create it first, or name another file"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise RobauditError(str(path), "is write-protected", "name another file")
    # Pipes and devices are written to in place.
    if path.is_file() or not path.exists():
        import tempfile

        # The new file is made beside the old one and renamed, so the folder must take files.
        try:
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass
        except OSError as error:
            raise RobauditError(
                str(path), f"cannot be written: {error.strerror or error}", "name another file"
            ) from error


def write_output(path: Path, pieces: Iterable[str | bytes]) -> None:
    """Write the whole file of ``-o`` or nothing.

    Pipes and devices are not replaced, but written to piece by piece.

    Raises:
        RobauditError: it cannot be written; an existing file is left as it was.
    """
    from robaudit.files import writing

    check_output(path)
    if path.exists() and not path.is_file():
        try:
            with path.open("wb") as device:
                for piece in pieces:
                    # It may be a terminal.
                    device.write(harmless(piece).encode() if isinstance(piece, str) else piece)
        except BrokenPipeError:
            return  # its reader has seen enough
        except OSError as error:
            raise RobauditError(
                str(path), f"cannot be written: {error.strerror or error}", "name another file"
            ) from error
        return
    # A link stays, and its target is replaced.
    target = path.resolve() if path.is_symlink() else path
    with writing(target) as sink:
        for piece in pieces:
            sink.write(piece.encode() if isinstance(piece, str) else piece)


def append_step_summary(text: str) -> str | None:
    """Append Markdown, as much as fits, to the file that ``$GITHUB_STEP_SUMMARY`` names.

    Nothing is done if the variable is not set.

    Returns:
        Why it could not be written, for a warning (the gates are decided all the same); None on
        success.
    """
    from robaudit.report.ci.github import LARGEST, LEFT_OUT
    from robaudit.report.tables import within

    name = os.environ.get(STEP_SUMMARY)
    if not name:
        return None
    path = Path(name)
    try:
        # Earlier commands of the same step may have written to the file.
        size = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(within(text, max(0, LARGEST - size), LEFT_OUT).encode())
    except OSError as error:
        return f"{STEP_SUMMARY}: {path} cannot be written: {error.strerror or error}"
    return None
