"""What is known of a gate once it has been decided?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from robaudit.gates.grammar import Gate
from robaudit.stats.groups import json_values

Verdict = Literal["pass", "fail", "inconclusive"]
Covers = Literal["these images", "images of this kind", "nothing"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 1, "inconclusive": 4}


@dataclass(frozen=True, slots=True)
class ClassPart:
    """One class behind a gate on worst_class or class_gap, with its simultaneous interval."""

    index: int
    name: str | None
    images: int
    value: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """One gate, decided.

    Attributes:
        gate: the gate with estimator and sigma filled in.
        value: the estimate.
        lower, upper: its interval; None where it has none. Ends may be infinite.
        method: how the interval was made, in a few words; "none".
        covers: what it covers: the measurement of these images, or these and the choice of the images; "nothing" without interval.
        confidence: of the interval.
        verdict: "pass": all of the interval is on the right side; "fail": all of it is on the wrong side; else "inconclusive".
            Without an interval (``--point``) the value alone decides.
        evidence: a sentence where there is something to add: how many more draws would decide, the class that is worst, ...
        more: further draws an image (with ``covers`` "images of this kind": further images) that would decide it if the value stayed;
            None where it is decided, or where no number would.
        classes: for a gate about classes, worst first.
    """

    gate: Gate
    value: float
    lower: float | None
    upper: float | None
    method: str
    covers: Covers
    confidence: float
    verdict: Verdict
    evidence: str = ""
    more: int | None = None
    classes: tuple[ClassPart, ...] = ()

    def document(self) -> dict[str, Any]:
        """The decision as JSON values."""
        values = json_values({name: getattr(self, name) for name in self.__slots__ if name not in ("gate", "classes")})
        return {
            "gate": str(self.gate),
            **{name: getattr(self.gate, name) for name in ("quantity", "estimator", "sigma", "t", "relation", "threshold")},
            **values,
            "classes": [json_values(asdict(one)) for one in self.classes],
        }


def judge(relation: str, threshold: float, lower: float, upper: float) -> Verdict:
    """Whether all of [lower, upper] is on the right side of the threshold, all on the wrong one, or neither.

    >=: pass if lower >= threshold, fail if upper < threshold. <=: pass if upper <= threshold, fail if lower > threshold.
    """
    if relation == ">=":
        return "pass" if lower >= threshold else "fail" if upper < threshold else "inconclusive"
    return "pass" if upper <= threshold else "fail" if lower > threshold else "inconclusive"


def overall(decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive") -> Verdict:
    """The verdict on all gates: fail if one fails, else inconclusive (or what it counts as) if one is, else pass."""
    verdicts = [inconclusive if one.verdict == "inconclusive" else one.verdict for one in decisions]
    return "fail" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
