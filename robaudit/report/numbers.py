"""Numbers as text that claims no more than was measured.

Terminal, pages, pictures, Markdown, LaTeX and JUnit print the same texts. Their rules:

- A value carries its interval, ``0.873 [0.791, 0.930]``, also at the end of its range: 10,000 of
  10,000 is ``1.0000 [0.9996, 1.0000]``.
- Where there is no room for intervals, a value at the end of its range still carries one, so that
  nothing prints as a bare 1.
- A value whose interval is open on one side is a bound, ``>= 0.9996``.
- A value that is its whole interval is exact, and prints as it is.
- Digits follow the width of the interval.
- Values round half up by their shortest decimal, ends of intervals outwards.
- A value without an interval carries a "~".
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robaudit.estimates import Estimate
    from robaudit.stats.flags import Flag
    from robaudit.stats.summary import Mean, Quantile, Share

from robaudit.levels import LevelName, NoiseLevel

NO_INTERVAL = "~"
NONE = "–"
MOST_DIGITS = 6
_LARGEST_COUNT = 1e7
# A difference may be far below its interval, and still needs the digits that show its sign.
_MOST_CHANGE_DIGITS = 12
_NUMBER = re.compile(r"(~)?(>=|<=|>|<)? ?(-?[\d.]+)")


# --- values with intervals


def estimate(
    value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0
) -> str:
    """The value without its interval, "0.873"; at an end of [low, high] with it; "~0.873" if there
    is no interval."""
    text = with_interval(value, lower, upper, low, high)
    return text if value in (low, high) else beside(value, lower, upper, low, high)


def beside(
    value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0
) -> str:
    """The value where its interval is shown beside it: "1.000"; a bound where the interval is open
    on one side."""
    if lower is None and upper is None:
        return NO_INTERVAL + (_at_end(value, low, high) or plain(value, low, high))
    lower = -math.inf if lower is None else lower
    upper = math.inf if upper is None else upper
    # A bound is rounded away from the values that it leaves possible, so that it stays true.
    if math.isinf(upper - lower):
        if math.isinf(lower):
            return f"<= {_rounded(upper, _digits_of(upper), ROUND_CEILING)}"
        return f">= {_rounded(lower, _digits_of(lower), ROUND_FLOOR)}"
    if _is_upper_bound(value, lower, upper, low, high):
        return f"<= {_ends_text(lower, upper, low, high)[1]}"
    return plain(value, low, high, _digits(upper - lower))


def _at_end(value: float, low: float, high: float) -> str:
    """An approximation at an end of its range, ">0.999"; empty for any other value.

    Nothing is known of its error, so it must not print as certainty.
    """
    if not math.isfinite(value):
        return ""
    if value == low:
        return f"<{low + 0.001:.3f}"
    return f">{high - 0.001:.3f}" if value == high else ""


def with_interval(
    value: float, lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0
) -> str:
    """The value and its interval: "0.873 [0.791, 0.930]"; an exact value at the end of its range
    alone.

    A value that is a lower bound keeps the lower end of its interval: ">= 2.717 [1.886, ...]".
    """
    text = beside(value, lower, upper, low, high)
    has_lower = lower is not None and math.isfinite(lower)
    has_upper = upper is not None and math.isfinite(upper)
    if has_lower and not has_upper and lower is not None and lower < value < high:
        bound = _rounded(value, _digits_of(value), ROUND_FLOOR)
        return f">= {bound} [{text.removeprefix('>= ')}, ...]"
    if lower is None or upper is None or math.isinf(upper - lower):
        return text
    is_exact = value == lower == upper
    if is_exact and value in (low, high):
        return text
    if _is_upper_bound(value, lower, upper, low, high):
        return text
    return f"{text} {ends(lower, upper, low, high)}"


def ends(lower: float | None, upper: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """An interval alone: "[0.791, 0.930]", "[0.791, ...]" where it is open; a dash where there is
    none."""
    if lower is None or upper is None:
        return NONE
    if math.isinf(lower) and math.isinf(upper):
        return NONE
    if math.isinf(lower):
        return f"[..., {_rounded(upper, _digits_of(upper), ROUND_CEILING)}]"
    if math.isinf(upper):
        return f"[{_rounded(lower, _digits_of(lower), ROUND_FLOOR)}, ...]"
    below, above = _ends_text(lower, upper, low, high)
    return f"[{below}, {above}]"


def mean_estimate(mean: Mean, low: float = 0.0, high: float = 1.0) -> str:
    """A mean with its interval over images; a mean of upper bounds keeps its upper end: "<= 0.520
    [..., 0.581]"."""
    lower, upper = mean.population.ends
    is_open_below = lower == -math.inf and upper is not None
    # the mean itself is the bound of these images; the interval adds the choice of images
    if is_open_below and upper is not None and mean.measured.upper == mean.value < upper < math.inf:
        digits = _digits_of(mean.value)
        value = _rounded(mean.value, digits, ROUND_CEILING)
        return f"<= {value} [..., {_rounded(upper, digits, ROUND_CEILING)}]"
    return with_interval(mean.value, lower, upper, low, high)


def quantile_estimate(quantile: Quantile, low: float = 0.0, high: float = 1.0) -> str:
    """A quantile: "> 4.200" where it falls on a censored image."""
    if quantile.censored:
        return f"> {plain(quantile.value, low, high)}"
    return estimate(quantile.value, *quantile.measured.ends, low, high)


def sample_value(sample: Flag, low: float = 0.0, high: float = 1.0) -> str:
    """The value of a sample with its interval: "> 4.200" where it is censored."""
    if sample.censored:
        return f"> {plain(sample.value, low, high)}"
    return with_interval(sample.value, *sample.estimate.ends, low, high)


def plain(value: float, low: float = 0.0, high: float = 1.0, digits: int = 3) -> str:
    """Fixed digits, with more of them where rounding would put an inner value at an end of the
    range."""
    if not math.isfinite(value):
        return str(value)
    is_inside = low < value < high
    while digits < MOST_DIGITS and is_inside and float(_nearest(value, digits)) in (low, high):
        digits += 1
    text = _nearest(value, digits)
    if is_inside and float(text) == high:
        return f"<{high:g}"
    if is_inside and float(text) == low:
        return f">{low:g}"
    return text


# --- shares in percent


def percent(value: float, lower: float | None, upper: float | None) -> str:
    """A probability in percent, with its interval beside it: ``54.6%``; ``~54.6%`` without an
    interval."""
    # The decimal text is multiplied, not the number: a share rounds alike in both notations.
    match = _NUMBER.fullmatch(beside(value, lower, upper))
    if match is None:
        return NONE
    return f"{match[1] or ''}{match[2] or ''}{Decimal(match[3]).scaleb(2):f}%"


def with_percents(value: float, lower: float, upper: float) -> str:
    """A probability with its interval: ``61.0% [50.7%, 70.6%]``."""
    return f"{percent(value, lower, upper)} {percent_ends(lower, upper)}"


def percent_ends(lower: float, upper: float) -> str:
    """The interval of a probability alone: ``[50.7%, 70.6%]``."""
    low, high = (f"{Decimal(text).scaleb(2):f}" for text in _ends_text(lower, upper, 0.0, 1.0))
    return f"[{low}%, {high}%]"


def percents(probability: Estimate) -> str:
    """A probability in percent with its interval: ``61.0% [50.7%, 70.6%]``; ``~61.0%`` without
    one."""
    if probability.bounds is None:
        return percent(probability.value, None, None)
    return with_percents(probability.value, *probability.bounds)


def share(part: Share) -> str:
    """A share of images without its interval: ``12.5%``; a share of none or all with it: ``0.0%
    [0.0%, 1.9%]``."""
    if part.count in (0, part.total):
        return percents(part.estimate)
    return percent(part.value, *part.estimate.ends)


def exact_percent(value: float) -> str:
    """A share in percent that is exact, and so has no interval."""
    return percent(value, value, value)


# --- differences


def change(value: float, lower: float | None, upper: float | None) -> str:
    """A signed difference: ``-0.0415 [-0.0425, -0.0405]``, ends rounded outwards; ``~-0.0415``
    without an interval."""
    if lower is None or upper is None:
        return f"~{value:+.4f}"
    if lower == upper == 0.0:
        return "0 [0, 0]"
    digits = _change_digits(lower, upper)
    # the sign says nothing where the interval contains both
    most = digits + 2 if lower <= 0.0 <= upper else _MOST_CHANGE_DIGITS
    return f"{_signed(value, digits, ROUND_HALF_UP, most)} {change_interval(lower, upper)}"


def gap(estimate: Estimate) -> str:
    """A gap between classes with its interval: ``0.511 [0.292, 0.730]``; no digit hides that the
    lower end is above 0."""
    lower, upper = estimate.bounds or (0.0, math.inf)
    digits = _digits(upper - lower)
    # a gap is significant where its lower end is above 0: 0.000 would say the opposite
    while lower > 0 and digits < _MOST_CHANGE_DIGITS:
        if float(_rounded(lower, digits, ROUND_FLOOR)) != 0:
            break
        digits += 1
    below, above = _outwards(lower, upper, digits)
    return f"{_nearest(estimate.value, digits)} [{below}, {above}]"


def change_interval(lower: float, upper: float) -> str:
    """``[-0.0425, -0.0405]``; no digit hides which side of 0 an end is on."""
    if lower == upper == 0.0:
        return "[0, 0]"
    digits = _change_digits(lower, upper)
    return f"[{_signed(lower, digits, ROUND_FLOOR)}, {_signed(upper, digits, ROUND_CEILING)}]"


def rough_interval(lower: float | None, upper: float | None, digits: int = 3) -> str:
    """An interval to some significant digits: ``[0.12, 0.34]``, ``[0.12, ...]`` where it is open;
    empty without one."""
    if lower is None or upper is None:
        return ""
    below, above = ("..." if math.isinf(end) else f"{end:.{digits}g}" for end in (lower, upper))
    return f"[{below}, {above}]"


def p_value(p: float) -> str:
    """A p-value with about two digits, never 0."""
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


# --- noise levels, times, odds


def level_numbers(levels: Iterable[NoiseLevel]) -> dict[NoiseLevel, str]:
    """The numbers of noise levels as the shortest texts (three digits or more) that tell levels of
    one name apart."""
    by_name: dict[LevelName | None, list[NoiseLevel]] = {}
    for at in dict.fromkeys(levels):
        by_name.setdefault(at.name, []).append(at)
    texts = {}
    for same_name in by_name.values():
        digits = _telling_digits([at.number for at in same_name])
        texts.update({at: _general(at.number, digits) for at in same_name})
    return texts


def _general(value: float, digits: int) -> str:
    """A number to some significant digits; one that people count, such as 1000 photons, without an
    exponent."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and value < _LARGEST_COUNT else text


def _telling_digits(values: Collection[float]) -> int:
    """The fewest significant digits, three or more, that tell the numbers apart."""
    different = len(set(values))
    for digits in range(3, 17):
        if len({f"{value:.{digits}g}" for value in values}) == different:
            return digits
    return 17  # always enough: 17 digits give back every double


def level_texts(levels: Iterable[NoiseLevel]) -> dict[NoiseLevel, str]:
    """The numbers with what they measure: "sigma 0.05", "rain severity 3"."""
    return {at: at.worded(text) for at, text in level_numbers(levels).items()}


def duration(seconds: float | None) -> str:
    """Seconds for a column: "0.42", "12.3", "1,234"; empty where not measured."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.2f}"
    return f"{seconds:.1f}" if seconds < 1000 else f"{seconds:,.0f}"


def signs(text: str) -> str:
    """``>=`` and ``<=`` replaced by their mathematical signs."""
    return text.replace(">= ", "≥ ").replace("<= ", "≤ ").replace(">=", "≥ ").replace("<=", "≤ ")


def span(values: Collection[int]) -> str:
    """``200``, or ``180 to 200`` where the numbers differ."""
    least = min(values)
    most = max(values)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def odds(log10: float, way: str = "") -> str:
    """A probability given by its log10 as ``1 of 1,600``: two digits, rounded so that the
    probability goes ``way``."""
    if not math.isfinite(log10):
        return "never" if log10 < 0 else NONE
    many = Decimal(10) ** Decimal(repr(-round(float(log10), 9)))
    # the place of the second digit; one decimal at most, as in "1 of 1.3"
    step = Decimal(1).scaleb(max(many.adjusted() - 1, -1))
    # a larger probability is 1 of fewer
    rounding = {"up": ROUND_FLOOR, "down": ROUND_CEILING}.get(way, ROUND_HALF_UP)
    return f"1 of {(many / step).quantize(Decimal(1), rounding=rounding) * step:,f}"


def grey_levels(sigma: float) -> str:
    """A noise level in the units of a display: ``about 13 of 255 grey levels``."""
    levels = sigma * 255
    # two significant digits, without an exponent from 100 on
    text = f"{levels:.2g}" if levels < 99.5 else f"{levels:.0f}"
    return f"about {text} of 255 grey levels"


# --- digits and rounding


def _is_upper_bound(value: float, lower: float, upper: float, low: float, high: float) -> bool:
    """Whether the value is the end of an interval that says nothing below it."""
    return lower <= low < value == upper < high


def _inside(text: str, inside: bool, end: float, step: float) -> str:
    """The text, or the last number before the end of the range where rounding has reached an end
    that the value has not."""
    if inside and float(text) == end:
        decimals = len(text.partition(".")[2])
        return f"{end + step:.{decimals}f}"
    return text


def _digits(width: float) -> int:
    """Three digits, or as many as the width of the interval needs to show."""
    if not 0.0 < width < 1.0:
        return 3
    return min(MOST_DIGITS, max(3, math.ceil(-math.log10(width))))


def _digits_of(bound: float) -> int:
    """Three digits, or as many as a bound below .01 needs to show two significant ones."""
    if not 0.0 < abs(bound) < 1.0:
        return 3
    return min(MOST_DIGITS, max(3, math.ceil(-math.log10(abs(bound))) + 1))


def _change_digits(lower: float, upper: float) -> int:
    """One more than the width needs: changes are compared with each other."""
    width = upper - lower
    if math.isinf(width):
        return _digits_of(next(filter(math.isfinite, (lower, upper)), 1.0))
    if width == 0:
        return 4
    if not 0 < width < 1:
        return 3
    return min(MOST_DIGITS, max(3, math.ceil(-math.log10(width)) + 1))


def _ends_text(lower: float, upper: float, low: float, high: float) -> tuple[str, str]:
    """The ends of an interval, rounded outwards, but never onto a bound of the range that the
    interval does not reach."""
    below, above = _outwards(lower, upper, _digits(upper - lower))
    step = 10**-MOST_DIGITS
    return _inside(below, lower < high, high, -step), _inside(above, upper > low, low, step)


def _outwards(lower: float, upper: float, digits: int) -> tuple[str, str]:
    return _rounded(lower, digits, ROUND_FLOOR), _rounded(upper, digits, ROUND_CEILING)


def _nearest(value: float, digits: int) -> str:
    return _rounded(value, digits, ROUND_HALF_UP)


def _rounded(value: float, digits: int, way: str) -> str:
    """Fixed digits, rounded ``way``; float errors in the last place do not count."""
    if not math.isfinite(value):
        return str(float(value))
    # Six further digits: 0.1 + 0.2 is 0.3, and its ceiling is no 0.301. The decimal is taken from
    # the shortest text of the double, because its exact value would round 0.5375 down.
    decimal = Decimal(repr(round(float(value), digits + 6)))
    quantized = decimal.quantize(Decimal(1).scaleb(-digits), rounding=way)
    return f"{quantized + 0:f}"  # + 0: no "-0.000"


def _signed(value: float, digits: int, way: str, most: int = _MOST_CHANGE_DIGITS) -> str:
    """A signed number, with up to ``most`` digits as long as rounding would change its sign."""
    if not math.isfinite(value):
        return "..."
    for places in range(digits, most):
        rounded = float(_rounded(value, places, way))
        if (rounded > 0) == (value > 0) and (rounded < 0) == (value < 0):
            return f"{rounded + 0.0:+.{places}f}"
    return f"{value:+.2g}" if most == _MOST_CHANGE_DIGITS else f"{0.0:+.{digits}f}"
