"""Numbers as text that claims no more than was measured.

Rules. A value at the end of its range whose interval ends there too prints as a bound: 10,000 of 10,000 is ">= 0.9996",
never "1.0"; so does one whose interval is open on one side. A value that is its whole interval is exact, and prints as it is.
Digits follow the width of the interval, whose ends round outwards. A value without an interval carries a "~".

A terminal shows ``0.873 [0.791, 0.930]`` (the functions down to :func:`duration`); a page shows value and interval in columns of
their own, with a dash where there is nothing to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robaudit.quantities import Quantity
    from robaudit.stats.flags import Flag
    from robaudit.stats.summary import Mean, NoisyAccuracy, Quantile, Share

from robaudit.levels import LevelName, NoiseLevel

NO_INTERVAL = "~"
NONE = "–"
MOST_DIGITS = 6
_MOST_CHANGE_DIGITS = 12
_NUMBER = re.compile(r"(~)?(>=|<=|>|<)? ?(-?[\d.]+)")


def estimate(value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """The value alone: a bound at the ends of [low, high], "~0.873" without an interval, else "0.873"."""
    if lower is None and upper is None:
        at_end = {high: f">{high - 0.001:.3f}", low: f"<{low + 0.001:.3f}"}.get(value) if math.isfinite(value) else None
        return NO_INTERVAL + (at_end or plain(value, low, high))
    lower, upper = -math.inf if lower is None else lower, math.inf if upper is None else upper
    digits = _digits(upper - lower) if math.isfinite(upper - lower) else _digits_of(upper if math.isinf(lower) else lower)
    below, above = _outwards(lower, upper, digits)
    if math.isinf(upper - lower):
        return f"<= {above}" if math.isinf(lower) else f">= {below}"
    if value == lower == upper:
        return plain(value, low, high, digits)
    if value >= high and upper >= high:
        return ">= " + _inside(below, lower < high, high, -(10**-MOST_DIGITS))
    if lower <= low and (value <= low or value == upper):
        return "<= " + _inside(above, upper > low, low, 10**-MOST_DIGITS)
    return plain(value, low, high, digits)


def with_interval(
    value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0, *, tight: bool = False
) -> str:
    """The value and its interval: "0.873 [0.791, 0.930]" (``tight``: "[0.791,0.930]"); a bound or an exact value stands alone.

    A value that is a lower bound keeps the lower end of its interval: ">= 2.717 [1.886, ...]".
    """
    text = estimate(value, lower, upper, low, high)
    if lower is not None and math.isfinite(lower) and lower < value < high and (upper is None or math.isinf(upper)):
        return f">= {_rounded(value, _digits_of(value), ROUND_FLOOR)} [{text.removeprefix('>= ')},{'' if tight else ' '}...]"
    if lower is None or upper is None or text.startswith(("<=", ">=")) or (value == lower == upper and value in (low, high)):
        return text
    below, above = _outwards(lower, upper, _digits(upper - lower))
    return f"{text} [{below},{'' if tight else ' '}{above}]"


def mean_estimate(one: Mean, low: float = 0.0, high: float = 1.0, *, tight: bool = False) -> str:
    """A mean with its interval over images, for a terminal; that of upper bounds keeps its upper end: "<= 0.520 [..., 0.581]"."""
    if one.lower == -math.inf and one.measured_upper == one.value < one.upper < math.inf:
        value, upper = (_rounded(end, _digits_of(one.value), ROUND_CEILING) for end in (one.value, one.upper))
        return f"<= {value} [...,{'' if tight else ' '}{upper}]"
    return with_interval(one.value, one.lower, one.upper, low, high, tight=tight)


def quantile_estimate(one: Quantile, low: float = 0.0, high: float = 1.0) -> str:
    """A quantile, for a terminal: "> 4.200" where it falls on a censored image."""
    return f"> {plain(one.value, low, high)}" if one.censored else estimate(one.value, one.measured_lower, one.measured_upper, low, high)


def sample_value(one: Flag, low: float = 0.0, high: float = 1.0, *, tight: bool = False) -> str:
    """The value of a sample with its interval, for a terminal: "> 4.200" where it is censored."""
    return f"> {plain(one.value, low, high)}" if one.censored else with_interval(one.value, one.lower, one.upper, low, high, tight=tight)


def short_quantile(one: Quantile, low: float = 0.0, high: float = 1.0) -> str:
    """A quantile as :func:`short` has it; ">.58" where it is only known to be as large, or larger."""
    if one.censored:
        return f">{short(one.value, one.value, low, high)}"
    text = short(one.value, one.measured_lower, low, high)
    return f">{text}" if one.measured_upper == math.inf and text[0] not in "<>" else text


def short(value: float, lower: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """Two digits for a narrow column, without the leading zero: ".58"; ">.99" at the upper end (or where rounding would reach it)."""
    text = f"{value:.2f}"
    if lower == -math.inf:
        text = f"<{text}"
    elif value < high and float(text) >= high:
        text = ">" + _inside(_rounded(value, 2, ROUND_FLOOR), True, high, -0.01)
    elif value >= high and lower is not None:
        text = ">" + _rounded(min(lower, math.nextafter(high, low)), 2, ROUND_FLOOR)
    elif value > low and float(text) <= low:
        text = "<" + _inside(_rounded(value, 2, ROUND_CEILING), True, low, 0.01)
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


def share_estimate(one: Share, *, tight: bool = False) -> str:
    """A share in percent with its interval: "61.0% [50.7%, 70.6%]" (``tight``: "61.0% [51,71]"); a bound stands alone."""
    text = percent(one.count, one.total, one.lower, one.upper)
    if one.count in (0, one.total):
        return text
    low, high = _outwards(100 * one.lower, 100 * one.upper, 0 if tight else 1)
    return f"{text} [{low},{high}]" if tight else f"{text} [{low}%, {high}%]"


def change(value: float, ends: tuple[float, float] | None) -> str:
    """A signed difference: ``-0.0415 [-0.0425, -0.0405]``, ends rounded outwards; ``~-0.0415`` without an interval."""
    if ends is None:
        return f"~{value:+.4f}"
    if ends == (0.0, 0.0):
        return "0 [0, 0]"
    return f"{value:+.{_change_digits(ends)}f} {change_interval(ends)}"


def change_interval(ends: tuple[float, float] | None) -> str:
    """``[-0.0425, -0.0405]``; no digit hides which side of 0 an end is on."""
    if ends is None:
        return "none"
    if ends == (0.0, 0.0):
        return "[0, 0]"
    digits = _change_digits(ends)
    return f"[{_signed(ends[0], digits, ROUND_FLOOR)}, {_signed(ends[1], digits, ROUND_CEILING)}]"


def p_value(p: float) -> str:
    """A p-value with about two digits, never 0."""
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def level_numbers(levels: Iterable[NoiseLevel]) -> dict[NoiseLevel, str]:
    """The numbers of noise levels as the shortest texts (three digits or more) that tell those of one name apart."""
    found = {}
    by_name: dict[LevelName, list[NoiseLevel]] = {}
    for at in dict.fromkeys(levels):
        by_name.setdefault(at.name, []).append(at)
    for some in by_name.values():
        different = len({at.level for at in some})
        digits = next((n for n in range(3, 17) if len({f"{at.level:.{n}g}" for at in some}) == different), 17)
        found.update({at: f"{at.level:.{digits}g}" for at in some})
    return found


def level_texts(levels: Iterable[NoiseLevel]) -> dict[NoiseLevel, str]:
    """The same with what the levels are: "sigma 0.05", "rain severity 3"."""
    return {at: at.worded(text) for at, text in level_numbers(levels).items()}


def duration(seconds: float | None) -> str:
    """Seconds for a column: "0.42", "12.3", "1,234"; empty where not measured."""
    if seconds is None:
        return ""
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}" if seconds < 1000 else f"{seconds:,.0f}"


def signs(text: str) -> str:
    """``>=`` and ``<=`` replaced by their mathematical signs."""
    return text.replace(">= ", "≥ ").replace("<= ", "≤ ").replace(">=", "≥ ").replace("<=", "≤ ")


def number(value: float, lower: float | None, upper: float | None, quantity: Quantity) -> str:
    """The value alone: a bound at the ends of its range, a dash where that bound says nothing, ``~`` without an interval."""
    text = estimate(value, lower, upper, quantity.low, quantity.high)
    return NONE if _empty(text, quantity.low, quantity.high) else signs(text)


def interval(lower: float | None, upper: float | None) -> str:
    """``0.425 to 0.665``, rounded outwards; a dash where there is none."""
    if lower is None or upper is None or not (math.isfinite(lower) or math.isfinite(upper)):
        return NONE
    low, high = _outwards(lower, upper, _digits(upper - lower))
    return f"at most {high}" if not math.isfinite(lower) else f"at least {low}" if not math.isfinite(upper) else f"{low} to {high}"


def difference(value: float, lower: float, upper: float) -> str:
    """A difference with its sign, and as many digits as its interval."""
    text = f"{value:+.{_digits(upper - lower)}f}"
    return text if float(text) else text[1:]


def rank(correlation: float | None) -> str:
    """A rank correlation; only equal orders print as 1.000."""
    if correlation is None:
        return NONE
    text = f"{correlation:.3f}"
    return ">0.999" if correlation < 1 and text == "1.000" else text


def probability(value: float, lower: float | None, upper: float | None) -> str:
    """A probability as ``54.6%``, as far as its interval tells: ``≥ 99.96%``, never 100% for what was measured with noise."""
    text = estimate(value, lower, upper)
    match = _NUMBER.fullmatch(text)
    if match is None or _empty(text, 0.0, 1.0):
        return NONE
    sign = {">=": "≥ ", "<=": "≤ ", None: ""}.get(match[2], match[2])
    return f"{match[1] or ''}{sign}{Decimal(match[3]).scaleb(2):f}%"


def percents(lower: float | None, upper: float | None) -> str:
    """The interval of a probability, ``42.5% to 66.5%``, rounded outwards."""
    if lower is None or upper is None or not math.isfinite(upper - lower):
        return NONE
    low, high = _outwards(lower * 100, upper * 100, 1)
    return f"{low}% to {high}%"


def noisy_percent(one: NoisyAccuracy) -> str:
    """Accuracy under noise; where every copy is right, or none, it is bounded by its measurement, as a mean is."""
    at_end = one.value in (0.0, 1.0) and one.measured_lower is not None and one.measured_upper is not None
    return probability(one.value, *((one.measured_lower, one.measured_upper) if at_end else (one.lower, one.upper)))


def span(values: Collection[int]) -> str:
    """``200``, or ``180 to 200`` where the numbers differ."""
    least, most = min(values), max(values)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def sample_number(one: Flag, quantity: Quantity) -> str:
    """The value of a sample alone; ``> 4.200`` where it is censored."""
    return sample_value(one, quantity.low, quantity.high) if one.censored else number(one.value, one.lower, one.upper, quantity)


def share(one: Share) -> str:
    """A share of images in percent; none or all of them as a bound."""
    return signs(percent(one.count, one.total, one.lower, one.upper))


def mean(one: Mean, quantity: Quantity, *, marked: bool = False) -> str:
    """A mean; ``~`` (``marked``) where images have no interval of their own. At the end of its range it is bounded by its measurement."""
    return _marked(number(one.value, *_ends(one, quantity), quantity), marked=marked)


def mean_percent(one: Mean, quantity: Quantity, *, marked: bool = False) -> str:
    """The mean of a probability, in percent."""
    return _marked(probability(one.value, *_ends(one, quantity)), marked=marked)


def quantile(one: Quantile, quantity: Quantity) -> str:
    """A quantile, as far as these images were measured; ``> 4.200`` where it falls on a censored image."""
    if one.censored:
        return quantile_estimate(one, quantity.low, quantity.high)
    return number(one.value, one.measured_lower, one.measured_upper, quantity)


def odds(log10: float, way: str = "") -> str:
    """A probability given by its log10 as ``1 of 1,600``: two digits, rounded to the side of ``way`` (that of the probability)."""
    if not math.isfinite(log10):
        return "never" if log10 < 0 else NONE
    many = Decimal(10) ** Decimal(repr(-round(float(log10), 9)))
    step = Decimal(1).scaleb(max(many.adjusted() - 1, -1))
    rounding = {"up": ROUND_FLOOR, "down": ROUND_CEILING}.get(way, ROUND_HALF_EVEN)
    return f"1 of {(many / step).quantize(Decimal(1), rounding=rounding) * step:,f}"


def grey_levels(sigma: float) -> str:
    """A noise level in the units of a display: ``about 13 of 255 grey levels``."""
    return f"about {sigma * 255:.2g} of 255 grey levels" if sigma * 255 < 99.5 else f"about {sigma * 255:.0f} of 255 grey levels"


def upper_end(one: Mean) -> float:
    """The upper bound of a mean whose interval is open below: that of these images, if measured."""
    return one.upper if one.measured_upper is None else one.measured_upper


def _ends(one: Mean, quantity: Quantity) -> tuple[float | None, float | None]:
    """The interval that sets the digits of a mean; that of these images where the mean is at the end of its range or is open."""
    if one.value in (quantity.low, quantity.high) or not math.isfinite(one.upper - one.lower):
        return one.measured_lower, one.measured_upper
    return one.lower, one.upper


def _marked(text: str, *, marked: bool) -> str:
    return text if not marked or text == NONE or text.startswith(NO_INTERVAL) else NO_INTERVAL + text


def _empty(text: str, low: float, high: float) -> bool:
    """Whether a text is a bound that the range implies, which says nothing."""
    if text.startswith(">="):
        return float(text[2:]) <= low
    return text.startswith("<=") and float(text[2:]) >= high


def _inside(text: str, inside: bool, end: float, step: float) -> str:
    """The text, or the last number before the end of the range where rounding has reached an end that the value has not."""
    return f"{end + step:.{len(text.partition('.')[2])}f}" if inside and float(text) == end else text


def _digits(width: float) -> int:
    """Three digits, or as many as the width of the interval needs to show."""
    return 3 if not 0.0 < width < 1.0 else min(MOST_DIGITS, max(3, math.ceil(-math.log10(width))))


def _digits_of(bound: float) -> int:
    """Three digits, or as many as a bound below .01 needs to show two that are not 0: no width tells how many."""
    return 3 if not 0.0 < abs(bound) < 1.0 else min(MOST_DIGITS, max(3, math.ceil(-math.log10(abs(bound))) + 1))


def _change_digits(ends: tuple[float, float]) -> int:
    """One more than the width needs: a change is read beside another one."""
    width = ends[1] - ends[0]
    return min(MOST_DIGITS, max(3, math.ceil(-math.log10(width)) + 1)) if 0 < width < 1 else 4 if width == 0 else 3


def _outwards(lower: float, upper: float, digits: int) -> tuple[str, str]:
    return _rounded(lower, digits, ROUND_FLOOR), _rounded(upper, digits, ROUND_CEILING)


def _rounded(value: float, digits: int, way: str) -> str:
    """Fixed digits, rounded down or up; what float arithmetic added in the last place does not count."""
    if not math.isfinite(value):
        return str(float(value))
    return f"{Decimal(repr(round(float(value), digits + 6))).quantize(Decimal(1).scaleb(-digits), rounding=way) + 0:f}"


def _signed(value: float, digits: int, way: str) -> str:
    """With a sign, and more digits as long as rounding puts it on the other side of 0."""
    if not math.isfinite(value):
        return f"{value:+}"
    for more in range(digits, _MOST_CHANGE_DIGITS):
        rounded = float(_rounded(value, more, way))
        if (rounded > 0) == (value > 0) and (rounded < 0) == (value < 0):
            return f"{rounded + 0.0:+.{more}f}"
    return f"{value:+.2g}"
