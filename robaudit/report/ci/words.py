"""Decided gates and their classes, each in one line of plain text."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, InvalidOperation

from robaudit.gates.decide import Covers, Decision
from robaudit.gates.measure import ClassPart
from robaudit.gates.text import number, numbers
from robaudit.text import clipped, printable

_LONGEST = 2000  # characters of a line


def value_text(decision: Decision) -> str:
    """The value and its interval: ``0.8731 [0.8612, 0.8850]``; ``~0.8731`` without one."""
    try:
        return numbers(decision)
    except InvalidOperation:  # more digits than decimals have
        return f"{decision.value:.6g}" + ("" if decision.lower is None or decision.upper is None else _ends(decision.lower, decision.upper))


def class_value_text(part: ClassPart, threshold: float) -> str:
    """The value of a class and its interval."""
    if math.isnan(part.value):
        return "no finite value"
    try:
        value = number(part.value, threshold, ROUND_HALF_UP)
        if part.lower is None or part.upper is None:
            return f"~{value}"
        return f"{value} [{number(part.lower, threshold, ROUND_FLOOR)}, {number(part.upper, threshold, ROUND_CEILING)}]"
    except InvalidOperation:
        return f"{part.value:.6g}" + ("" if part.lower is None or part.upper is None else _ends(part.lower, part.upper))


def sentence(decision: Decision) -> str:
    """The gate, its verdict, its value, what the interval covers, and the evidence; on one line."""
    added = f"; {decision.evidence}" if decision.evidence else ""
    return clipped(printable(f"{decision.gate}: {decision.verdict}, {value_text(decision)} ({coverage_text(decision)}){added}"), _LONGEST)


def coverage_text(decision: Decision) -> str:
    """What the interval covers, and the method behind it."""
    if decision.covers is Covers.NOTHING:
        return f"{decision.about}; no interval"
    if decision.count:
        return decision.method
    if decision.exact:
        return f"{decision.about}; {decision.method}"
    return f"{decision.about}; {100 * decision.confidence:.4g} % interval, {decision.method}"


def class_text(part: ClassPart) -> str:
    """``class cat``; ``class 3`` where it has no name."""
    return f"class {part.text}"


def _ends(lower: float, upper: float) -> str:
    return f" [{lower:.6g}, {upper:.6g}]"
