"""Decided gates as lines of text, with enough digits to show on which side of the threshold a number is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

from robaudit.gates.decide import Covers, Decision, Verdict, overall
from robaudit.stats.intervals import LIKE_THESE, THESE_IMAGES
from robaudit.text import printable

_FEWEST, _MOST = 4, 25
_PLAIN = 1e15  # larger numbers have no four decimals


def lines(decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive") -> list[tuple[Verdict, str]]:
    """A verdict and an aligned line for each gate; last, those for all gates together."""
    cells = [(one.verdict, printable(str(one.gate)), numbers(one), _about(one)) for one in decisions]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    rows = [(row[0], "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])) for row in cells]
    return [*rows, (overall(decisions, inconclusive), _total(decisions, inconclusive))]


def numbers(decision: Decision) -> str:
    """The value and its interval, whose ends are rounded outwards; rounding never hides on which side of the threshold a number is."""
    threshold = decision.gate.threshold
    if decision.count:
        return f"{decision.value:g}"
    if decision.lower is None or decision.upper is None:
        return "~" + number(decision.value, threshold, ROUND_HALF_UP)
    value = number(decision.value, threshold, ROUND_HALF_UP)
    if decision.lower == decision.value == decision.upper:
        return value
    return f"{value} [{number(decision.lower, threshold, ROUND_FLOOR)}, {number(decision.upper, threshold, ROUND_CEILING)}]"


def number(value: float, threshold: float, rounding: str) -> str:
    """Four decimals, or as many more as it takes that rounding does not move it onto or across the threshold."""
    value = float(value)  # the repr of NumPy's numbers is another
    if not math.isfinite(value) or abs(value) >= _PLAIN:
        return repr(value)
    exact, limit = Decimal(repr(value)), Decimal(repr(threshold))
    for digits in range(_FEWEST, _MOST):
        rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding)
        if rounded.compare(limit) == exact.compare(limit):
            return f"{rounded:f}"
    return repr(value)


def _about(decision: Decision) -> str:
    how = ", no interval" if decision.covers is Covers.NOTHING else f", {decision.method}" if decision.exact else ""
    about = decision.method if decision.count else f"{decision.about}{how}"
    return f"{about}; {printable(decision.evidence)}" if decision.evidence else about


def _total(decisions: Sequence[Decision], inconclusive: Verdict) -> str:
    counts = {verdict: sum(one.verdict == verdict for one in decisions) for verdict in ("pass", "fail", "inconclusive")}
    past = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive"}
    counted = ", ".join(f"{count} {past[verdict]}" for verdict, count in counts.items() if count)
    taken = f" (inconclusive counts as {inconclusive})" if counts["inconclusive"] and inconclusive != "inconclusive" else ""
    confidences = dict.fromkeys(
        f"{100 * one.confidence:.6g}" for one in decisions if one.covers is not Covers.NOTHING and not (one.exact or one.count)
    )
    each = f"; intervals {' and '.join(confidences)} %, each gate alone" if confidences else ""
    if any(one.covers is Covers.MEASUREMENT for one in decisions):
        each += f"; for {THESE_IMAGES} only (--population: for {LIKE_THESE})"
    return f"{overall(decisions, inconclusive)}: of {len(decisions)} gate{'s' * (len(decisions) > 1)} {counted}{taken}{each}"
