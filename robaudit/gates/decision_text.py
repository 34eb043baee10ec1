"""Decisions on gates as lines of text, with enough digits to show on which side of the threshold a
number is."""

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

_FEWEST = 4
_MOST = 25
_LONGEST = 2000  # characters of a sentence
_PLAIN = 1e15  # larger numbers have no four decimals


def lines(
    decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive"
) -> list[tuple[Verdict, str]]:
    """A verdict and an aligned line for each gate, then for all gates together."""
    cells = [
        (decision.verdict, printable(str(decision.gate)), numbers(decision), _about(decision))
        for decision in decisions
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    rows = []
    for row in cells:
        aligned = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        rows.append((row[0], "  ".join(aligned) + "  " + row[3]))
    return [*rows, (overall(decisions, inconclusive), _total(decisions, inconclusive))]


def numbers(decision: Decision) -> str:
    """The value and its interval, with ends rounded outwards; rounding never hides on which side of
    the threshold a number is."""
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
    exact = Decimal(repr(value))
    limit = Decimal(repr(threshold))
    with suppress(InvalidOperation):  # more digits than a Decimal has
        for digits in range(_FEWEST, _MOST):
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


def _about(decision: Decision) -> str:
    how = (
        ", no interval"
        if decision.estimate.covers is Covers.NOTHING
        else f", {decision.estimate.method}"
        if decision.exact
        else ""
    )
    about = decision.estimate.method if decision.count else f"{decision.about}{how}"
    return about + "; " + changed(decision.evidence, printable) if decision.evidence else about


def _total(decisions: Sequence[Decision], inconclusive: Verdict) -> str:
    counts = {
        verdict: sum(decision.verdict == verdict for decision in decisions)
        for verdict in ("pass", "fail", "inconclusive")
    }
    past = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive"}
    counted = ", ".join(f"{count} {past[verdict]}" for verdict, count in counts.items() if count)
    taken = (
        f" (inconclusive counts as {inconclusive})"
        if counts["inconclusive"] and inconclusive != "inconclusive"
        else ""
    )
    confidences = dict.fromkeys(
        f"{100 * decision.confidence:.6g}"
        for decision in decisions
        if decision.estimate.covers is not Covers.NOTHING and not (decision.exact or decision.count)
    )
    each = f"; intervals {' and '.join(confidences)} %, each gate alone" if confidences else ""
    if any(decision.estimate.covers is Covers.MEASUREMENT for decision in decisions):
        each += f"; for {THESE_IMAGES} only (" + POPULATION + f": for {LIKE_THESE})"
    gates = f"gate{'s' * (len(decisions) > 1)}"
    start = f"{overall(decisions, inconclusive)}: of {len(decisions)} {gates} {counted}{taken}"
    return start + each
