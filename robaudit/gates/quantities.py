"""Which quantities can a gate be about, what do they mean, and which thresholds make sense (imports nothing heavy)?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from robaudit.errors import SpecError
from robaudit.gates.grammar import Gate

if TYPE_CHECKING:
    from robaudit.stats.groups import QuantityLike

QUANTITIES: Mapping[str, frozenset[str]] = {
    "mean": frozenset(),
    "median": frozenset(),
    "p05": frozenset(),
    "worst_class": frozenset(),
    "class_gap": frozenset(),
    "share_below": frozenset({"t"}),
    "accuracy": frozenset(),
    "noisy_accuracy": frozenset(),
}
"""The quantities of `robaudit gate`, each with the arguments that it needs besides estimator and sigma."""

SHARES = frozenset({"share_below", "accuracy", "noisy_accuracy"})
OF_CLASSES = frozenset({"worst_class", "class_gap"})
_TURNED = {
    "p05": "the 95th percentile: lower is better",
    "worst_class": "the largest class mean: lower is better",
    "share_below": "the share above t: lower is better",
}


def span(quantity: str, scale: QuantityLike) -> tuple[float, float]:
    """The smallest and the largest value that a gate's quantity can have, for results on this scale."""
    if quantity in SHARES:
        return 0.0, 1.0
    return (0.0, scale.high - scale.low) if quantity == "class_gap" else (scale.low, scale.high)


def check_range(gate: Gate, scale: QuantityLike) -> None:
    """Refuse a threshold, or a t, that no result can reach: it is a slip, such as 5 for 5 %.

    Raises:
        SpecError: it lies outside the range.
    """
    low, high = span(gate.quantity, scale)
    if not low <= gate.threshold <= high:
        what = f"{gate.quantity} of {scale.name}" if gate.quantity not in SHARES else gate.quantity
        raise SpecError(f"gate {str(gate)!r}", f"{what} {_range(low, high)}, never {gate.threshold:.15g}", "give a threshold in that range")
    if gate.t is not None and not scale.low <= gate.t <= scale.high:
        raise SpecError(
            f"gate {str(gate)!r}", f"{scale.name} {_range(scale.low, scale.high)}, never {gate.t:.15g}", "give a t in that range"
        )


def meaning(gate: Gate, scale: QuantityLike) -> str:
    """What the quantity is where lower is better; empty where it is what its name says."""
    return "" if scale.higher_is_better else _TURNED.get(gate.quantity, "")


def _range(low: float, high: float) -> str:
    if math.isfinite(low) and math.isfinite(high):
        return f"lies from {low:g} to {high:g}"
    return f"is at most {high:g}" if math.isfinite(high) else f"is at least {low:g}" if math.isfinite(low) else "is any number"
