"""How long is "1h30m"?"""

from __future__ import annotations

import re

from robaudit.errors import RobauditError

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(?:(\d{1,9}(?:\.\d{1,9})?)h)?(?:(\d{1,9}(?:\.\d{1,9})?)m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?", re.ASCII)
_LONGEST = 1e8


def seconds(text: str, where: str = "--budget") -> float:
    """Seconds of a duration: 90s, 10m, 2h, 1h30m, 1.5h, 2m30s.

    Raises:
        RobauditError: it is none, is zero, or is longer than about three years.
    """
    match = _PARTS.fullmatch(text.strip().lower().replace("min", "m"))
    total = 0.0 if match is None else sum(float(part or 0) * unit for part, unit in zip(match.groups(), _SECONDS.values(), strict=True))
    if not 0 < total <= _LONGEST:
        raise RobauditError(f"{where} {text}", "is no duration", "give one such as 90s, 10m, 2h or 1h30m")
    return total


def text(total: float) -> str:
    """The inverse of :func:`seconds` for whole seconds: 5400 is 1h30m; below one second two digits: 0.25s."""
    if 0 < total < 1:
        return f"{float(f'{total:.2g}'):.10f}".rstrip("0").rstrip(".") + "s"
    rest, parts = round(total), []
    for unit, size in _SECONDS.items():
        number, rest = divmod(rest, int(size))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
