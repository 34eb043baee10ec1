"""The time that a part may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class TimeIsUpError(BaseException):
    """A part has not ended by itself when its time was over.

    Not an Exception: what a part catches of a single measurement must not include it.
    """


class Clock:
    """Counts down.

    Args:
        seconds: from now on.
        now: the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = now() + seconds

    def left(self) -> float:
        """Seconds that are left; 0 if none are."""
        return max(0.0, self._end - self._now())


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeIsUpError` in the block after so many seconds.

    Only in the main thread, the only one that receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
