"""How is a number printed so that it never claims more than was measured?

Three rules. A value at the end of its range whose interval ends there too prints as a bound: 10,000 of 10,000 is ">= 0.9996",
never "1.0"; so does one whose interval is open to one side. Digits follow the width of the interval, whose ends round outwards.
A value without an interval carries a "~".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

NO_INTERVAL = "~"
MOST_DIGITS = 6


def estimate(value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """The value alone: a bound at the ends of [low, high], "~0.873" without an interval, else "0.873"."""
    if lower is None and upper is None:
        at_end = {high: f">{high - 0.001:.3f}", low: f"<{low + 0.001:.3f}"}.get(value) if math.isfinite(value) else None
        return NO_INTERVAL + (at_end or plain(value, low, high))
    lower, upper = -math.inf if lower is None else lower, math.inf if upper is None else upper
    digits = _digits(upper - lower)
    if math.isinf(upper - lower):
        return f"<= {_towards(upper, digits, math.ceil)}" if math.isinf(lower) else f">= {_towards(lower, digits, math.floor)}"
    if value >= high and upper >= high:
        return ">= " + _inside(_towards(lower, digits, math.floor), lower < high, high, -(10**-MOST_DIGITS))
    if value <= low and lower <= low:
        return "<= " + _inside(_towards(upper, digits, math.ceil), upper > low, low, 10**-MOST_DIGITS)
    return plain(value, low, high, digits)


def with_interval(
    value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0, *, tight: bool = False
) -> str:
    """The value and its interval: "0.873 [0.791, 0.930]" (``tight``: "[0.791,0.930]"); a bound stands alone: it says the same."""
    text = estimate(value, lower, upper, low, high)
    if lower is None or upper is None or text.startswith(("<=", ">=")):
        return text
    digits = _digits(upper - lower)
    return f"{text} [{_towards(lower, digits, math.floor)},{'' if tight else ' '}{_towards(upper, digits, math.ceil)}]"


def short(value: float, lower: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """Two digits for a narrow column, without the leading zero: ".58"; ">.99" at the upper end (or where rounding would reach it)."""
    text = f"{value:.2f}"
    if lower == -math.inf:
        text = f"<{text}"
    elif value < high and float(text) >= high:
        text = ">" + _inside(_towards(value, 2, math.floor), True, high, -0.01)
    elif value >= high and lower is not None:
        text = ">" + _towards(min(lower, math.nextafter(high, low)), 2, math.floor)
    elif value > low and float(text) <= low:
        text = "<" + _inside(_towards(value, 2, math.ceil), True, low, 0.01)
    return text.replace("0.", ".", 1) if text.lstrip("<>-").startswith("0.") else text


def plain(value: float, low: float = 0.0, high: float = 1.0, digits: int = 3) -> str:
    """Fixed digits, more of them where rounding would put the value at the end of a range that it has not reached."""
    while digits < MOST_DIGITS and low < value < high and float(f"{value:.{digits}f}") in (low, high):
        digits += 1
    text = f"{value:.{digits}f}"
    if low < value < high and float(text) in (low, high):
        return f"<{high:g}" if float(text) == high else f">{low:g}"
    return text


def percent(count: int, total: int, lower: float, upper: float, *, tight: bool = False) -> str:
    """A share in percent: "12.5%"; none or all of them print as a bound, "<= 0.1%" or ">= 99.9%" (``tight``: "<=1%")."""
    step, gap = (1, "") if tight else (10, " ")
    if count == 0:
        return f"<={gap}{math.ceil(upper * 100 * step) / step:g}%"
    if count == total:
        return f">={gap}{math.floor(lower * 100 * step) / step:g}%"
    share = 100 * count / total
    return "<0.1%" if share < 0.05 else ">99.9%" if share >= 99.95 else f"{share:.1f}%"


def p_value(p: float) -> str:
    """Two digits or so, and never 0."""
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def sigmas(values: Iterable[float]) -> dict[float, str]:
    """The shortest texts (three digits or more) that tell the noise levels apart."""
    known = sorted(set(values))
    for digits in range(3, 17):
        texts = [f"{sigma:.{digits}g}" for sigma in known]
        if len(set(texts)) == len(known):
            return dict(zip(known, texts, strict=True))
    return {sigma: repr(sigma) for sigma in known}


def duration(seconds: float | None) -> str:
    """Seconds for a column: "0.42", "12.3", "1,234"; empty where not measured."""
    if seconds is None:
        return ""
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}" if seconds < 1000 else f"{seconds:,.0f}"


def _inside(text: str, inside: bool, end: float, step: float) -> str:
    """The text, or the last number before the end of the range where rounding has reached an end that the value has not."""
    return f"{end + step:.{len(text.partition('.')[2])}f}" if inside and float(text) == end else text


def _digits(width: float) -> int:
    """Three digits, or as many as the width of the interval needs to show."""
    return 3 if not 0.0 < width < 1.0 else min(MOST_DIGITS, max(3, math.ceil(-math.log10(width))))


def _towards(value: float, digits: int, away: Callable[[float], int]) -> str:
    """Fixed digits, rounded down or up; what float arithmetic added in the last place does not count."""
    if not math.isfinite(value):
        return f"{value:g}"
    scale = 10**digits
    return f"{away(round(value * scale, 6)) / scale:.{digits}f}"
