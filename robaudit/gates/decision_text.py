"""Decisions on gates as lines of text.

Numbers have enough digits to show on which side of the threshold they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation

from robaudit.estimates import Covers, Estimate
from robaudit.gates.decide import Decision, Verdict, overall
from robaudit.gates.measure import ClassPart
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES
from robaudit.settings import POPULATION, changed
from robaudit.text import clipped, printable

# Decimals of a number: usually, and at most where fewer would move it across the threshold.
_DECIMALS = 4
_MOST_DECIMALS = 25
_LONGEST = 2000  # characters of a sentence
_PLAIN = 1e15  # doubles from here on are .125 apart or more: they have no four decimals


def lines(
    decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive"
) -> list[tuple[Verdict, str]]:
    """A verdict and an aligned line for each gate, then for all gates together."""
    cells = [
        (decision.verdict, printable(str(decision.gate)), numbers(decision), _subject(decision))
        for decision in decisions
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    rows = []
    for *aligned, subject in cells:
        padded = [cell.ljust(width) for cell, width in zip(aligned, widths, strict=True)]
        rows.append("  ".join([*padded, subject]))
    verdicts = [decision.verdict for decision in decisions]
    total = (overall(decisions, inconclusive), _total(decisions, inconclusive))
    return [*zip(verdicts, rows, strict=True), total]


def numbers(decision: Decision) -> str:
    """The value and its interval.

    Ends are rounded outwards. Rounding never moves a number across the threshold.
    """
    threshold = decision.gate.threshold
    estimate = decision.estimate
    if decision.count:
        return f"{estimate.value:g}"
    if estimate.is_exact:
        return number(estimate.value, threshold, ROUND_HALF_UP)
    return _interval(estimate, threshold)


def number(value: float, threshold: float, rounding: str) -> str:
    """Four decimals, or as many as it takes to keep rounding from moving the number onto or across
    the threshold."""
    value = float(value)  # NumPy's numbers have another repr
    if not math.isfinite(value) or abs(value) >= _PLAIN:
        return repr(value)
    # Decimals compare the digits that are printed, which a comparison of doubles would not.
    exact = Decimal(repr(value))
    limit = Decimal(repr(threshold))
    with suppress(InvalidOperation):  # more digits than a Decimal has
        for digits in range(_DECIMALS, _MOST_DECIMALS):
            rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding)
            if rounded.compare(limit) == exact.compare(limit):
                return f"{rounded:f}"
    return repr(value)


def class_numbers(part: ClassPart, threshold: float) -> str:
    """The value of a class and its interval."""
    if math.isnan(part.value):
        return "no finite value"
    return _interval(part.estimate, threshold)


def _interval(estimate: Estimate, threshold: float) -> str:
    middle = number(estimate.value, threshold, ROUND_HALF_UP)
    if estimate.bounds is None:
        return f"~{middle}"
    lower, upper = estimate.bounds
    return (
        f"{middle} [{number(lower, threshold, ROUND_FLOOR)}, "
        f"{number(upper, threshold, ROUND_CEILING)}]"
    )


def sentence(decision: Decision) -> str:
    """The gate, its verdict, its value, the coverage of the interval, and the evidence, on one
    line."""
    added = f"; {decision.evidence}" if decision.evidence else ""
    return clipped(
        printable(
            f"{decision.gate}: {decision.verdict}, {numbers(decision)} "
            f"({coverage_text(decision)}){added}"
        ),
        _LONGEST,
    )


def coverage_text(decision: Decision) -> str:
    """The coverage of the interval, and the method behind it."""
    if decision.estimate.covers is Covers.NOTHING:
        return f"{decision.about}; no interval"
    if decision.count:
        return decision.estimate.method
    if decision.exact:
        return f"{decision.about}; {decision.estimate.method}"
    return (
        f"{decision.about}; {100 * decision.confidence:.4g} % interval, {decision.estimate.method}"
    )


def _subject(decision: Decision) -> str:
    """The images that the decision is about, how far its value is certain, and the evidence."""
    if decision.count:
        subject = decision.estimate.method
    elif decision.estimate.covers is Covers.NOTHING:
        subject = f"{decision.about}, no interval"
    elif decision.exact:
        subject = f"{decision.about}, {decision.estimate.method}"
    else:
        subject = decision.about
    if not decision.evidence:
        return subject
    return subject + "; " + changed(decision.evidence, printable)


def _total(decisions: Sequence[Decision], inconclusive: Verdict) -> str:
    """The verdict on all gates, the number of each verdict, and what the intervals are about."""
    counts = {
        verdict: sum(decision.verdict == verdict for decision in decisions)
        for verdict in ("pass", "fail", "inconclusive")
    }
    participles = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive"}
    counted = ", ".join(
        f"{count} {participles[verdict]}" for verdict, count in counts.items() if count
    )
    taken = ""
    if counts["inconclusive"] and inconclusive != "inconclusive":
        taken = f" (inconclusive counts as {inconclusive})"
    # Counts and exact values have no confidence.
    uncertain = [
        decision
        for decision in decisions
        if not (decision.estimate.covers is Covers.NOTHING or decision.exact or decision.count)
    ]
    confidences = dict.fromkeys(f"{100 * decision.confidence:.4g}" for decision in uncertain)
    scope = ""
    if confidences:
        scope = f"; intervals {' and '.join(confidences)} %, each gate alone"
    if any(decision.estimate.covers is Covers.MEASUREMENT for decision in decisions):
        scope += f"; for {THESE_IMAGES} only (" + POPULATION + f": for {LIKE_THESE})"
    gates = "gate" if len(decisions) == 1 else "gates"
    verdicts = f"{overall(decisions, inconclusive)}: of {len(decisions)} {gates} {counted}{taken}"
    # Joined with +, which keeps the words of both doors.
    return verdicts + scope
