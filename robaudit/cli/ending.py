"""What happens when somebody asks the process to end (SIGTERM)?"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

TERMINATED = 128 + signal.SIGTERM
"""Exit code: what a shell gives a process that SIGTERM has ended."""


@contextlib.contextmanager
def ends_when_asked() -> Iterator[None]:
    """While it lasts, SIGTERM raises SystemExit: files are whole or as they were, locks and terminal are given back; nothing is waited for.

    A second SIGTERM ends the process on the spot. One that the process was started to ignore stays ignored.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN or before is None:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(TERMINATED)
