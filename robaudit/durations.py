"""Durations as people write and read them."""

from __future__ import annotations

import re

from robaudit.errors import RobauditError

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_LONGEST = 1000 * _DAY
_DAYS, _HOURS, _MINUTES, _SECONDS = (_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s")
_STEPS = (  # durations below this are rounded to so many seconds and written in one unit or two
    (100.0, 1.0, _SECONDS, _SECONDS),
    (10 * _MINUTE, 10.0, _MINUTES, _SECONDS),
    (100 * _MINUTE, _MINUTE, _MINUTES, _SECONDS),
    (10 * _HOUR, 10 * _MINUTE, _HOURS, _MINUTES),
    (72 * _HOUR, _HOUR, _HOURS, _MINUTES),
    (10 * _DAY, 6 * _HOUR, _DAYS, _HOURS),
)

_WRITTEN = re.compile(r"(?:(\d{1,9}(?:\.\d{1,9})?)h)?(?:(\d{1,9}(?:\.\d{1,9})?)m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?", re.ASCII)
_LONGEST_BUDGET = 1e8


def parse_duration(text: str, where: str = "--budget") -> float:
    """Seconds of a duration: 90s, 10m, 2h, 1h30m, 1.5h, 2m30s.

    Args:
        text: what the user wrote.
        where: the option, for the message.

    Raises:
        RobauditError: it is not a duration, is zero, or is longer than about three years.
    """
    match = _WRITTEN.fullmatch(text.strip().lower().replace("min", "m"))
    total = 0.0
    if match is not None:
        total = sum(float(part or 0) * unit for part, unit in zip(match.groups(), (_HOUR, _MINUTE, 1.0), strict=True))
    if not 0 < total <= _LONGEST_BUDGET:
        raise RobauditError(f"{where} {text}", "is not a duration", "give one such as 90s, 10m, 2h or 1h30m")
    return total


def duration_text(seconds: float) -> str:
    """A duration to two figures or so: ``71 s``, ``4 min 10 s``, ``12 min``, ``3 h 20 min``, ``27 h``, ``3 days 6 h``."""
    if not seconds < _LONGEST:
        return f"over {_LONGEST / _DAY:.0f} days"
    for below, step, large, small in _STEPS:
        if seconds < below - step / 2:
            whole, rest = divmod(max(1.0, round(seconds / step)) * step, large[0])
            parts = (whole, large[1]), (rest / small[0], small[1])
            return " ".join(f"{number:.0f} {unit}" for number, unit in parts if number)
    return f"{seconds / _DAY:.0f} days"
