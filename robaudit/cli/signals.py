"""How signals and the clock end the program: in good order, or at once where it does not answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as a shell reports it."""
INTERRUPTED = 128 + signal.SIGINT
"""Exit code after SIGINT (Ctrl-C)."""

_GRACE = 0.7
"""Seconds that a second signal leaves the program to end in good order."""
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""What undoes a progress bar: back to an empty line, with a cursor."""


@contextlib.contextmanager
def ended_by_signals(last_words: Callable[[int], str]) -> Iterator[None]:
    """End the block on SIGTERM and SIGINT, however long its current call takes.

    The first SIGTERM raises SystemExit inside the block, and SIGINT does what its handler says: files
    stay intact, locks and the terminal are released. Python runs handlers between its own
    instructions only, so a network that computes without end would never notice. A second signal
    of either kind therefore ends the process within a second, from a thread of its own.

    A signal that was ignored when the process started stays ignored.

    Args:
        last_words: the line to print if the process ends at once, by exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGTERM)
    heeded = previous not in (signal.SIG_IGN, None)
    if heeded:
        signal.signal(signal.SIGTERM, _end)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    over = threading.Event()
    threading.Thread(target=_watch, args=(reading, over, last_words), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writing)
        if heeded:
            signal.signal(signal.SIGTERM, previous)


def _end(number: int, _: object) -> None:
    """End in good order; the next SIGTERM kills."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(TERMINATED)


def _watch(reading: int, over: threading.Event, last_words: Callable[[int], str]) -> None:
    """Read the numbers of signals, one byte each, and end the process after the second."""
    seen = 0
    with os.fdopen(reading, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] not in (signal.SIGINT, signal.SIGTERM):
                continue
            seen += 1
            if seen < 2:
                continue
            if not over.wait(_GRACE):
                code = 128 + number[0]
                end_at_once(last_words(code), code)
            return


@contextlib.contextmanager
def ended_by_clock(seconds: float | None, line: str, code: int) -> Iterator[None]:
    """End the process if the block is not over after this time, whatever it is doing.

    Args:
        seconds: None: no limit.
        line: printed to standard error.
        code: the exit code.
    """
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, end_at_once, (line, code))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_at_once(line: str, code: int) -> None:
    """Print a line to standard error and end the process, without waiting for anything.

    Args:
        line: without control characters.
        code: the exit code.
    """
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os.write(2, f"{line}\n".encode())
    os._exit(code)
