"""The command line in a process of its own, forked from this one, which has imported torch
already."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from robaudit.cli import main, parser

_BROKEN = 70


class Command:
    """A command that has been started.

    Attributes:
        pid: of its process.
        out, err: the files that it prints to.
        megabytes: the most memory that it had at once, once it has ended.
    """

    def __init__(self, words: list[str], pid: int, out: Path, err: Path) -> None:
        self.words = words
        self.pid = pid
        self.out = out
        self.err = err
        self.megabytes = 0.0
        self._code: int | None = None

    def ended(self, *, wait: bool = False) -> bool:
        """Whether it has ended; with ``wait``, once it has."""
        if self._code is None:
            pid, status, usage = os.wait4(self.pid, 0 if wait else os.WNOHANG)
            if pid:
                self._code, self.megabytes = (
                    os.waitstatus_to_exitcode(status),
                    usage.ru_maxrss / 1024,
                )
        return self._code is not None

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended(wait=True)

    def answer(self) -> subprocess.CompletedProcess[str]:
        """Its exit code and what it printed, once it has ended."""
        self.ended(wait=True)
        out, err = (path.read_text("utf-8", "backslashreplace") for path in (self.out, self.err))
        return subprocess.CompletedProcess(self.words, self._code or 0, out, err)


def robaudit(
    folder: Path, *args: str | Path, path: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """``robaudit ARGS`` in a folder; packages in ``path`` are installed for it. Without gradients:
    autograd does not survive a fork."""
    with started(folder, *args, path=path) as command:
        return command.answer()


@contextlib.contextmanager
def started(
    folder: Path,
    *args: str | Path,
    path: Sequence[Path] = (),
    before: Callable[[], object] = lambda: None,
) -> Iterator[Command]:
    """The same while it runs; it is killed at the end of the block. ``before`` is called first, in
    its process."""
    words = ["robaudit", *map(str, args)]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "out")
        err = Path(place, "err")
        with out.open("w") as out_file, err.open("w") as err_file:
            child = os.fork()
            if child == 0:
                code = _BROKEN
                try:
                    before()
                    code = _child(folder, words, path, out_file.fileno(), err_file.fileno())
                finally:
                    os._exit(code)
        command = Command(words, child, out, err)
        try:
            yield command
        finally:
            if not command.ended():
                command.kill()


def _child(folder: Path, command: list[str], path: Sequence[Path], out: int, err: int) -> int:
    os.chdir(folder)
    for stream, number in ((out, 1), (err, 2)):
        os.dup2(stream, number)
    sys.path[:0] = map(str, path)
    if path:  # the parser has the commands of installed packages
        parser.program.cache_clear()
        parser._show.cache_clear()
    importlib.invalidate_caches()
    sys.argv = command
    with (
        warnings.catch_warnings(),
        open(1, "w", closefd=False) as sys.stdout,
        open(2, "w", closefd=False) as sys.stderr,
    ):
        warnings.resetwarnings()
        try:
            with contextlib.suppress(BrokenPipeError):
                main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:  # noqa: BLE001  as the interpreter would: whatever it is, it is printed
            traceback.print_exc()
    return _BROKEN
