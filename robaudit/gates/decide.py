"""The decision engine: comparison of a quantity and its interval with a threshold.

The same engine serves the gates of a run (:func:`decide`) and of a comparison
(:mod:`robaudit.compare.gate_changes`): verdict, remarks, and the number of further draws or images
that would decide the gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from robaudit.errors import SpecError
from robaudit.estimates import Bounds, Covers, Estimate
from robaudit.gates.evidence import Evidence
from robaudit.gates.measure import Basis, ClassPart, Measured, Method
from robaudit.gates.statistics import check_range, group_of, statistic_of
from robaudit.numerics.image_intervals import these_images
from robaudit.plugins import STATISTICS, BrokenContractError, blaming, entry_point, shown
from robaudit.records import Inline, Record, published
from robaudit.runs.run import Run
from robaudit.settings import POINT, joined
from robaudit.spec.gate_grammar import NO_WARNINGS, Gate

Verdict = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: dict[Verdict, Literal[0, 1, 4]] = {"pass": 0, "fail": 1, "inconclusive": 4}


_POWER = 0.8  # probability of deciding with the number of further draws or images that is reported


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """The decision on a gate.

    Attributes:
        gate: the gate with estimator and noise level filled in.
        estimate: the value with the interval that decides.
        confidence: of the interval.
        verdict: "pass": the whole interval is on the right side; "fail": the whole interval is on
            the wrong side; else "inconclusive". Without an interval that covers the whole error it
            is "inconclusive", unless the value alone decides (``--point``).
        evidence: further remarks: how many more draws would decide the gate, which class is worst,
            ...
        more: further draws per image (with ``covers`` "population": further images) that would
            decide the gate with a probability of 80 % if the value is the true value; None where it
            is decided, or where no number would decide it.
        classes: for a gate about classes, worst first.
        images: number of images that the gate is about; 0: it is not about images.
    """

    gate: Annotated[Gate, Inline()]
    estimate: Annotated[Estimate, Inline("value", "lower", "upper", "method", "covers")]
    confidence: float
    verdict: Verdict
    evidence: str = ""
    more: int | None = None
    images: int = 0
    classes: tuple[ClassPart, ...] = ()

    @property
    @published(after="images")
    def about(self) -> str:
        """The images that the gate is about: ``these 200 images``, ``images like these 200``,
        ``these 9 images of class cat``."""
        known = [part for part in self.classes if not math.isnan(part.value)]
        named = {
            "worst_class": known[:1],
            "worst_class_drop": known[:1],
            "class_gap": [*known[:1], *known[-1:]],
        }.get(self.gate.quantity, [])
        first, *others = [(part.images, f" of class {part.text}") for part in named] or [
            (self.images, "")
        ]
        like = self.estimate.covers is Covers.POPULATION
        return " and ".join(
            [these_images(*first, like=like), *(f"{number:,}{of}" for number, of in others)]
        )

    @property
    def exact(self) -> bool:
        """Whether the value has no error for these images."""
        return self.estimate.method == Method.EXACT

    @property
    def count(self) -> bool:
        """Whether the value is a count, and not about images."""
        return self.estimate.covers is Covers.RUN


def judge(relation: str, threshold: float, lower: float, upper: float) -> Verdict:
    """Whether [lower, upper] is entirely on the right side of the threshold, entirely on the wrong
    side, or neither.

    >=: pass if lower >= threshold, fail if upper < threshold. <=: pass if upper <= threshold, fail
    if lower > threshold.
    """
    if relation == ">=":
        return "pass" if lower >= threshold else "fail" if upper < threshold else "inconclusive"
    return "pass" if upper <= threshold else "fail" if lower > threshold else "inconclusive"


def overall(decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive") -> Verdict:
    """The verdict on all gates: fail if any fails, else inconclusive (or what that counts as) if
    any is, else pass."""
    verdicts = [
        inconclusive if decision.verdict == "inconclusive" else decision.verdict
        for decision in decisions
    ]
    return (
        "fail" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
    )


def decide(
    run: Run,
    gates: Sequence[Gate],
    *,
    population: bool = False,
    point: bool = False,
    confidence: float = 0.95,
    strict: bool = False,
) -> tuple[Decision, ...]:
    """Decide gates on a finished run, each by its interval at this confidence, without a correction
    for their number.

    Args:
        run: the run; its rows are read once, and once more for each result with gates on all of its
            radii or certificates.
        gates: thresholds that the run must meet.
        population: the interval also covers the choice of the images; else it covers the
            measurement of these images only.
        point: values alone decide where no interval covers their whole error; else the gate is
            inconclusive.
        confidence: of the intervals, above .5 and below 1.
        strict: the run must not have warned: the gate ``warnings <= 0`` comes first.

    Returns:
        The decisions, in the order of the gates.

    Raises:
        SpecError: a gate does not say which results it is about, is about results the run does not
            have, or has a threshold outside the range of its quantity.
        NothingLeftError: a group has no finite value.
    """
    check_confidence(confidence)
    basis = Basis(confidence, population, point)
    gates = with_strict(gates, strict)
    results = {key: Evidence(run, columns, basis) for key, columns in run.table.items()}
    decisions = []
    for gate in gates:
        key = group_of(gate, results, results)
        full, evidence = (
            (gate, next(iter(results.values())))
            if key is None
            else (gate.about(key.estimator, key.at), results[key])
        )
        with blaming(
            f"gate statistic {gate.quantity}",
            entry_point(STATISTICS, "gate statistic", gate.quantity),
        ):
            check_range(full, evidence.scale)
            measured = statistic_of(gate).measure(full, evidence)
            if not isinstance(measured, Measured):
                raise BrokenContractError(f"measure() returned {shown(measured)}, not a Measured")
        decisions.append(settle(full, measured, basis))
    return tuple(decisions)


def with_strict(gates: Sequence[Gate], strict: bool) -> Sequence[Gate]:
    """The gates; with ``strict``, after the gate on warnings if it is not among them."""
    return (NO_WARNINGS, *gates) if strict and NO_WARNINGS not in gates else gates


def check_confidence(confidence: float) -> None:
    """Refuse a confidence outside its range.

    Raises:
        SpecError: it is not above 0.5 and below 1.
    """
    if not 0.5 < confidence < 1.0:
        raise SpecError(
            f"confidence {confidence:g}", "is not above 0.5 and below 1", "for example 0.95"
        )


def settle(gate: Gate, measured: Measured, basis: Basis, *remarks: str) -> Decision:
    """Decide a gate by the interval of its quantity or, with ``basis.point``, by the value alone
    where no interval covers its error.

    Args:
        gate: with estimator and noise level filled in.
        measured: the quantity.
        basis: how to decide.
        remarks: added to the evidence; empty ones are left out.
    """
    estimate = measured.estimate
    more: int | None = None
    if estimate.bounds is None:
        what = f"the error of {gate.result or gate.quantity} is not known"
        sentence = f"{what} (" + POINT + ": let the value decide)"
        if basis.point:
            sentence = f"point estimate: {what}"
        verdict = (
            judge(gate.relation, gate.threshold, estimate.value, estimate.value)
            if basis.point
            else "inconclusive"
        )
    else:
        verdict = judge(gate.relation, gate.threshold, *estimate.bounds)
        more, sentence = (
            _more(gate, measured, estimate.bounds, basis)
            if verdict == "inconclusive"
            else (None, "")
        )
    return Decision(
        gate=gate,
        estimate=estimate,
        confidence=basis.confidence,
        verdict=verdict,
        evidence=joined("; ", filter(None, (*measured.remarks, *remarks, sentence))),
        more=more,
        classes=measured.classes,
        images=measured.images,
    )


def _more(gate: Gate, measured: Measured, bounds: Bounds, basis: Basis) -> tuple[int | None, str]:
    """The number of further draws or images that would probably decide the gate, and a sentence
    about it.

    Distances shrink with the square root of the number; where all votes agree, so that the value is
    an end of its interval, with the number itself. The value changes, too: the number that would
    make the interval just reach the threshold decides in half of the cases. With a normal error,
    ((z + .84)/z)^2 times as many decide in 80 % of them, z being the normal quantile of the
    confidence.
    """
    from scipy.special import ndtri

    if not measured.now:
        return None, measured.stuck
    value = measured.estimate.value
    side = int(value < gate.threshold)
    end = bounds[side]
    settled = (measured.settled or (value, value))[side]
    if not (settled - gate.threshold) * (0.5 - side) > 0.0 or math.isinf(end):
        return None, f"no number of {basis.unit} would decide it at this value"
    factor = ((settled - end) / (settled - gate.threshold)) ** (1.0 if value in bounds else 2.0)
    for_power = (1.0 + float(ndtri(_POWER)) / float(ndtri(0.5 + basis.confidence / 2.0))) ** 2
    more = max(1, math.ceil(measured.now * (factor * for_power - 1.0)))
    return (
        more,
        f"about {more:,} more {basis.unit} would decide it with a power of {100 * _POWER:g} % at "
        "this value",
    )
