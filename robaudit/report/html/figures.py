"""How is a number of a run written for people, so that it never claims more than was measured?"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from robaudit.report import numbers
from robaudit.summary.accuracy import NoisyAccuracy
from robaudit.summary.estimates import Mean, Quantile, Share
from robaudit.summary.groups import QuantityLike

NONE = "–"
_NUMBER = re.compile(r"(~)?(>=|<=|>|<)? ?(-?[\d.]+)")


def signs(text: str) -> str:
    """``>= `` and ``<= `` as one sign each."""
    return text.replace(">= ", "≥ ").replace("<= ", "≤ ").replace(">=", "≥ ").replace("<=", "≤ ")


def number(value: float, lower: float | None, upper: float | None, quantity: QuantityLike) -> str:
    """The value alone: a bound at the ends of its range, a dash where that bound says nothing, ``~`` without an interval."""
    text = numbers.estimate(value, lower, upper, quantity.low, quantity.high)
    return NONE if _empty(text, quantity.low, quantity.high) else signs(text)


def interval(lower: float | None, upper: float | None) -> str:
    """``0.425 to 0.665``, rounded outwards; a dash where there is none."""
    if lower is None or upper is None:
        return NONE
    digits = _digits(lower, upper)
    low, high = (_end(end, digits, way) for end, way in ((lower, ROUND_FLOOR), (upper, ROUND_CEILING)))
    if not math.isfinite(lower) and not math.isfinite(upper):
        return NONE
    return f"at most {high}" if not math.isfinite(lower) else f"at least {low}" if not math.isfinite(upper) else f"{low} to {high}"


def difference(value: float, lower: float, upper: float) -> str:
    """A difference with its sign, and as many digits as its interval."""
    text = f"{value:+.{_digits(lower, upper)}f}"
    return text if float(text) else text[1:]


def rank(correlation: float | None) -> str:
    """A rank correlation; 1.000 is said of equal orders only."""
    if correlation is None:
        return NONE
    text = f"{correlation:.3f}"
    return ">0.999" if correlation < 1 and text == "1.000" else text


def percent(value: float, lower: float | None, upper: float | None) -> str:
    """A probability as ``54.6%``, as far as its interval tells: ``≥ 99.96%``, never 100% for what was measured with noise."""
    text = numbers.estimate(value, lower, upper)
    match = _NUMBER.fullmatch(text)
    if match is None or _empty(text, 0.0, 1.0):
        return NONE
    sign = {">=": "≥ ", "<=": "≤ ", None: ""}.get(match[2], match[2])
    return f"{match[1] or ''}{sign}{Decimal(match[3]).scaleb(2):f}%"


def noisy_percent(one: NoisyAccuracy) -> str:
    """Accuracy under noise; where every copy is right, or none, it is bounded by its measurement, as a mean is."""
    at_end = one.value in (0.0, 1.0) and one.measured_lower is not None and one.measured_upper is not None
    return percent(one.value, *((one.measured_lower, one.measured_upper) if at_end else (one.lower, one.upper)))


def percents(lower: float | None, upper: float | None) -> str:
    """The interval of a probability, ``42.5% to 66.5%``, rounded outwards."""
    if lower is None or upper is None or not math.isfinite(upper - lower):
        return NONE
    low, high = (_end(end * 100, 1, way) for end, way in ((lower, ROUND_FLOOR), (upper, ROUND_CEILING)))
    return f"{low}% to {high}%"


def share(one: Share) -> str:
    """A share of images in percent; none or all of them as a bound."""
    return signs(numbers.percent(one.count, one.total, one.lower, one.upper))


def mean(one: Mean, quantity: QuantityLike, *, marked: bool = False) -> str:
    """A mean; ``~`` (``marked``) where images have no interval of their own. At the end of its range it is bounded by its measurement."""
    return _marked(number(one.value, *_ends(one, quantity), quantity), marked=marked)


def mean_percent(one: Mean, quantity: QuantityLike, *, marked: bool = False) -> str:
    """The same of a probability, in percent."""
    return _marked(percent(one.value, *_ends(one, quantity)), marked=marked)


def quantile(one: Quantile, quantity: QuantityLike) -> str:
    """A quantile, as far as these images were measured."""
    return number(one.value, one.measured_lower, one.measured_upper, quantity)


def count(number_: int, noun: str) -> str:
    """``1 image``, ``1,200 images``."""
    return f"{number_:,} {noun}" + "s" * (number_ != 1)


def odds(log10: float, way: str = "") -> str:
    """A probability given by its log10 as ``1 of 1,600``: two digits, rounded to the side of ``way`` (that of the probability)."""
    if not math.isfinite(log10):
        return "never" if log10 < 0 else NONE
    many = Decimal(10) ** Decimal(repr(-round(float(log10), 9)))
    step = Decimal(1).scaleb(max(many.adjusted() - 1, -1))
    rounding = {"up": ROUND_FLOOR, "down": ROUND_CEILING}.get(way, ROUND_HALF_EVEN)
    return f"1 of {(many / step).quantize(Decimal(1), rounding=rounding) * step:,f}"


def grey_levels(sigma: float) -> str:
    """A noise level in the units of a screen: ``about 13 of 255 grey levels``."""
    return f"about {sigma * 255:.2g} of 255 grey levels" if sigma * 255 < 99.5 else f"about {sigma * 255:.0f} of 255 grey levels"


def upper_end(one: Mean) -> float:
    """What a mean that is open below is at most: as far as these images were measured."""
    return one.upper if one.measured_upper is None else one.measured_upper


def _ends(one: Mean, quantity: QuantityLike) -> tuple[float | None, float | None]:
    """The interval that tells the digits of a mean, and bounds it at the end of its range or where it is open: there, that of these
    images, if they were measured."""
    if one.value in (quantity.low, quantity.high) or not math.isfinite(one.upper - one.lower):
        return one.measured_lower, one.measured_upper
    return one.lower, one.upper


def _marked(text: str, *, marked: bool) -> str:
    return text if not marked or text == NONE or text.startswith(numbers.NO_INTERVAL) else numbers.NO_INTERVAL + text


def _empty(text: str, low: float, high: float) -> bool:
    """Whether a text is a bound that reads as the end of the range, which says nothing."""
    if text.startswith(">="):
        return float(text[2:]) <= low
    return text.startswith("<=") and float(text[2:]) >= high


def _digits(lower: float, upper: float) -> int:
    """Three digits, or as many as the width of the interval needs to show."""
    return 3 if not 0 < upper - lower < 1 else min(numbers.MOST_DIGITS, max(3, math.ceil(-math.log10(upper - lower))))


def _end(value: float, digits: int, way: str) -> str:
    if not math.isfinite(value):
        return str(value)
    step = Decimal(1).scaleb(-digits)
    return f"{Decimal(repr(round(float(value), digits + 6))).quantize(step, rounding=way) + 0:f}"
