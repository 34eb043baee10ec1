"""How many times as many draws or images would decide a gate?"""

from __future__ import annotations

from collections.abc import Callable

_MOST = 2.0**24


def smallest_factor(decided: Callable[[float], bool]) -> float | None:
    """The smallest factor that decides, to a percent; None: none does up to 2^24.

    Args:
        decided: whether so many times as many would decide; once they do, more do, too.
    """
    high = 2.0
    while not decided(high):
        high *= 2.0
        if high > _MOST:
            return None
    low = high / 2.0
    while high - low > 0.01 * low:
        middle = (low + high) / 2.0
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high
