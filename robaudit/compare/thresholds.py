"""Can a threshold be reached at all?"""

from __future__ import annotations

import math

from robaudit.errors import RobauditError, SpecError
from robaudit.spec_gates import Gate
from robaudit.stats.groups import QuantityLike


def check_threshold(below: float, quantity: QuantityLike, where: str, of: str) -> None:
    """Refuse a threshold of flagged samples that lies outside the quantity's range.

    Raises:
        RobauditError: it does, or is no number.
    """
    if not math.isfinite(below):
        raise RobauditError(where, f"{below} is not a number to compare with", "for example 0.5")
    if not quantity.low <= below <= quantity.high:
        what = f"{below:.15g} is outside the range of {of}, {quantity.low:g} to {quantity.high:g}"
        raise RobauditError(where, what, "give a threshold in that range, or choose results with --estimator")


def check_gate(gate: Gate, span: float) -> None:
    """Refuse a gate's threshold that no comparison can reach: it is a slip, such as 5 for 5 %.

    Args:
        gate: of the quantities of a comparison.
        span: the largest difference that two values can have; infinite where there is none.

    Raises:
        SpecError: it lies outside the range.
    """
    if gate.quantity == "share_worse":
        low, high = 0.0, 1.0
    elif gate.quantity == "newly_flagged":
        low, high = 0.0, math.inf
    else:
        widest = span if gate.quantity in ("mean_drop", "worst_class_drop") else 1.0
        low, high = -widest, widest
    if not low <= gate.threshold <= high:
        words = f"lies from {low:g} to {high:g}" if math.isfinite(high) else f"is at least {low:g}"
        raise SpecError(f"gate {str(gate)!r}", f"{gate.quantity} {words}, never {gate.threshold:.15g}", "give a threshold in that range")
