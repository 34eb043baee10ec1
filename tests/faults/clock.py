"""A clock that goes on by the same step whenever it is read, so that what depends on time is the same every time.

It takes the place of `time.perf_counter` when this module is imported, which must be before anyone keeps that function; until it is
told to tick it shows the time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

_clock: Callable[[], float] = time.perf_counter


def tick(step: float) -> None:
    """From now on, every look at the clock is so many seconds after the one before."""
    global _clock  # noqa: PLW0603  there is one clock
    ticks = itertools.count()
    _clock = lambda: step * next(ticks)  # noqa: E731  as short as a definition


def _now() -> float:
    return _clock()


setattr(time, "perf_counter", _now)  # noqa: B010  mypy: it is a function
