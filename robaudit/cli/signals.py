"""How signals and the clock end the program: in good order, or at once where it does not answer.

Three mechanisms follow each other. A handler raises an exception in the main thread. If that does
not end the program, a thread does (:class:`Watch`), and if no thread can run, another process does
(:mod:`robaudit.cli.watchdog`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from robaudit.cli.watchdog import DEADLINE, GRACE

TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as a shell reports it."""
INTERRUPTED = 128 + signal.SIGINT
"""Exit code after SIGINT (Ctrl-C)."""

_GRACE = 0.7
"""Seconds that a second signal leaves the program to end in good order."""
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""What undoes a progress bar: back to an empty line, with a cursor."""


class Watch:
    """Ends this process after a second signal or a deadline, even while a library computes.

    Python runs the handlers of signals between its own instructions only, and a network may compute
    without end. So a thread ends the process in the usual way, and where compiled code keeps all
    threads from running, a process of its own (:mod:`robaudit.cli.watchdog`) kills it.

    Args:
        last_words: the line to print if the process ends at once, by exit code.
        resumable: the end of that line, about how to go on.
    """

    def __init__(self, last_words: Callable[[int], str], resumable: str) -> None:
        self._last_words = last_words
        self._over = threading.Event()
        script = str(Path(__file__).with_name("watchdog.py"))
        # -I and -S: nothing of the user's environment or of site-packages is run or waited for.
        command = [sys.executable, "-I", "-S", script, str(os.getpid()), resumable]
        self._guard = subprocess.Popen(  # noqa: S603  our own file
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal is for this process
        )
        self._to_guard = cast("IO[bytes]", self._guard.stdin)
        self._from_guard = cast("IO[bytes]", self._guard.stdout)
        # Python writes each signal's number there; a full pipe must not block it.
        os.set_blocking(self._to_guard.fileno(), False)
        self._before = signal.set_wakeup_fd(self._to_guard.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the guard."""
        self._over.set()
        signal.set_wakeup_fd(self._before)
        # The guard ends with its input, and the thread with the guard's output.
        self._to_guard.close()
        self._guard.wait()
        self._thread.join()
        self._from_guard.close()

    def set_deadline(self, seconds: float) -> None:
        """Kill this process after so many seconds; 0: never."""
        # The guard may be gone; the timer of ended_by_clock remains.
        with contextlib.suppress(OSError):
            self._to_guard.write(bytes([DEADLINE]) + struct.pack("<d", seconds))

    def _listen(self) -> None:
        """Wait for the number of a second signal, and end the process if it still runs."""
        number = self._from_guard.read(1)
        if not number and not self._over.is_set():
            # The guard is gone, and a signal would print a warning about its closed pipe.
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_NONBLOCK)
                os.dup2(nowhere, self._to_guard.fileno(), inheritable=False)
                os.close(nowhere)
        if number and not self._over.wait(_GRACE):
            code = 128 + number[0]
            end_at_once(self._last_words(code), code)


_watches: list[Watch] = []
"""The watch of this process, if there is one."""


@contextlib.contextmanager
def ended_by_signals(
    last_words: Callable[[int], str], resumable: str = "", *, watched: bool = True
) -> Iterator[None]:
    """End the block on SIGTERM and SIGINT, however long its current call takes.

    The first SIGTERM raises SystemExit inside the block, and SIGINT does what its handler says:
    files stay intact, locks and the terminal are released. A second signal of either kind ends the
    process within a second (:class:`Watch`).

    A signal that was ignored when the process started stays ignored.

    Args:
        last_words: the line to print if the process ends at once, by exit code.
        resumable: the end of that line, about how to go on.
        watched: whether the block may run code that does not return; without, no process is
            started.
    """
    # Only the main thread may set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGTERM)
    # None: a handler that was not set from Python, which could not be restored.
    handled = previous not in (signal.SIG_IGN, None)
    if handled:
        signal.signal(signal.SIGTERM, _end)
    watch = None
    if watched:
        # If no process can be started, the usual handlers remain.
        with contextlib.suppress(OSError):
            watch = Watch(last_words, resumable)
            _watches.append(watch)
    try:
        yield
    finally:
        if watch is not None:
            _watches.remove(watch)
            watch.close()
        if handled:
            signal.signal(signal.SIGTERM, previous)


def _end(number: int, _: object) -> None:
    """Handle SIGTERM: end in good order; the next SIGTERM kills."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(TERMINATED)


@contextlib.contextmanager
def ended_by_clock(seconds: float | None, line: str, code: int) -> Iterator[None]:
    """End the process if the block is not over after this time, even while a library computes.

    Args:
        seconds: None: no limit.
        line: printed to standard error.
        code: the exit code.
    """
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, end_at_once, (line, code))
    # A daemon does not keep the program from ending.
    timer.daemon = True
    timer.start()
    # The guard comes later than the timer, whose line and exit code are better.
    for watch in _watches:
        watch.set_deadline(seconds + GRACE)
    try:
        yield
    finally:
        timer.cancel()
        for watch in _watches:
            watch.set_deadline(0.0)


def end_at_once(line: str, code: int) -> None:
    """Print a line to standard error and end the process, without waiting for anything.

    Args:
        line: without control characters.
        code: the exit code.
    """
    # Not through sys.stderr: another thread may hold its lock.
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os.write(2, f"{line}\n".encode())
    # Without handlers and destructors, any of which may wait.
    os._exit(code)
