"""The decision engine: comparison of a quantity and its interval with a threshold.

The same engine serves the gates of a run (:func:`decide`) and of a comparison
(:mod:`robaudit.compare.gate_changes`): verdict, remarks, and the number of further draws or images
that would decide the gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from robaudit.errors import SpecError
from robaudit.estimates import Bounds, Covers, Estimate
from robaudit.gates.evidence import Evidence
from robaudit.gates.measure import Basis, ClassPart, Measured, Method
from robaudit.gates.statistics import check_range, group_of, statistic_of
from robaudit.numerics.image_intervals import these_images
from robaudit.plugins import STATISTICS, BrokenContractError, blaming, entry_point, shown
from robaudit.records import Inline, Record, published
from robaudit.runs.info import UntilDecided
from robaudit.runs.run import Run
from robaudit.settings import POINT, joined
from robaudit.spec.gate_grammar import NO_WARNINGS, Gate

Verdict = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: dict[Verdict, Literal[0, 1, 4]] = {"pass": 0, "fail": 1, "inconclusive": 4}

# A decision states how many further draws or images would decide the gate with this probability.
# 80 % is the usual power of planned experiments.
_POWER = 0.8


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
        evidence: remarks on the value, and what would decide the gate.
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
        """The images that the gate is about, such as ``these 9 images of class cat``."""
        known = [part for part in self.classes if not math.isnan(part.value)]
        # Classes come worst first. The gap is between the worst and the best.
        named: list[ClassPart] = []
        if self.gate.quantity in ("worst_class", "worst_class_drop"):
            named = known[:1]
        elif self.gate.quantity == "class_gap":
            named = [*known[:1], *known[-1:]]
        subjects = [(part.images, f" of class {part.text}") for part in named]
        first, *others = subjects or [(self.images, "")]
        like = self.estimate.covers is Covers.POPULATION
        further = [f"{number:,}{suffix}" for number, suffix in others]
        return " and ".join([these_images(*first, like=like), *further])

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
        if lower >= threshold:
            return "pass"
        return "fail" if upper < threshold else "inconclusive"
    if upper <= threshold:
        return "pass"
    return "fail" if lower > threshold else "inconclusive"


def overall(decisions: Sequence[Decision], inconclusive: Verdict = "inconclusive") -> Verdict:
    """The verdict on all gates: fail if any fails, else inconclusive if any is, else pass.

    ``inconclusive`` is the verdict that an inconclusive gate counts as.
    """
    verdicts = [
        inconclusive if decision.verdict == "inconclusive" else decision.verdict
        for decision in decisions
    ]
    if "fail" in verdicts:
        return "fail"
    return "inconclusive" if "inconclusive" in verdicts else "pass"


def decide(
    run: Run,
    gates: Sequence[Gate],
    *,
    population: bool = False,
    point: bool = False,
    confidence: float = 0.95,
    schedule: UntilDecided | None = None,
    strict: bool = False,
) -> tuple[Decision, ...]:
    """Decide gates on a run, each by its own interval at this confidence.

    The confidence is not corrected for the number of gates.

    Args:
        run: the run; its rows are read once, and once more for each result with gates on all of its
            radii or certificates.
        gates: thresholds that the run must meet.
        population: the interval also covers the choice of the images; else it covers the
            measurement of these images only.
        point: values alone decide where no interval covers their whole error; else the gate is
            inconclusive.
        confidence: of the intervals, above .5 and below 1.
        schedule: of analyses of a growing run: the intervals of all of them hold together with its
            confidence, in place of ``confidence``.
        strict: the run must not have warned: the gate ``warnings <= 0`` comes first.

    Returns:
        The decisions, in the order of the gates.

    Raises:
        SpecError: a gate does not say which results it is about, is about results the run does not
            have, or has a threshold outside the range of its quantity.
        NothingLeftError: a group has no finite value.
    """
    check_confidence(confidence)
    if schedule is not None:
        confidence = schedule.each
    basis = Basis(confidence, population, point, schedule)
    gates = with_strict(gates, strict)
    results = {key: Evidence(run, columns, basis) for key, columns in run.table.items()}
    decisions = []
    for gate in gates:
        key = group_of(gate, results, results)
        if key is None:
            # A statistic of the run reads no values, so any result can stand for the run.
            full = gate
            evidence = next(iter(results.values()))
        else:
            full = gate.with_result(key.estimator, key.at)
            evidence = results[key]
        with blaming(
            f"gate statistic {gate.quantity}",
            entry_point(STATISTICS, "gate statistic", gate.quantity),
        ):
            check_range(full, evidence.scale)
            measured = statistic_of(gate).measure(full, evidence)
            if not isinstance(measured, Measured):
                raise BrokenContractError(f"measure() returned {shown(measured)}, not a Measured")
        decision = decide_measured(full, measured, basis)
        why_not = "" if decision.count else _why_not_yet(run, basis)
        if why_not:
            remarks = [part for part in (why_not, decision.evidence) if part]
            sentence = joined("; ", remarks)
            decision = replace(decision, verdict="inconclusive", evidence=sentence, more=None)
        decisions.append(decision)
    return tuple(decisions)


def _why_not_yet(run: Run, basis: Basis) -> str:
    """Why no gate on the results of an unfinished run may be decided; empty if it may."""
    info = run.info
    if basis.schedule is not None and info.is_between_looks:
        return "between two analyses of its schedule: run robaudit estimate again"
    # A random subset is computed in random order, so that a part of it is one, too.
    is_random = basis.population and bool(info.spec.get("dataset", {}).get("sample"))
    if info.images_to_come and not is_random:
        return f"{info.images_to_come:,} images have no result yet"
    return ""


def with_strict(gates: Sequence[Gate], strict: bool) -> Sequence[Gate]:
    """The gates, preceded by the gate on warnings if ``strict`` asks for it and it is missing."""
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


def decide_measured(gate: Gate, measured: Measured, basis: Basis, *remarks: str) -> Decision:
    """Decide a gate by the interval of its quantity, or by the value alone.

    The value alone decides with ``basis.point`` where no interval covers the quantity's error.

    Args:
        gate: with estimator and noise level filled in.
        measured: the quantity.
        basis: how to decide.
        remarks: added to the evidence; empty ones are left out.
    """
    estimate = measured.estimate
    more: int | None = None
    sentence = ""
    verdict: Verdict = "inconclusive"
    if estimate.bounds is not None:
        verdict = judge(gate.relation, gate.threshold, *estimate.bounds)
        if verdict == "inconclusive":
            more, sentence = _further(gate, measured, estimate.bounds, basis)
    else:
        unknown = f"the error of {gate.result or gate.quantity} is not known"
        if basis.point:
            verdict = judge(gate.relation, gate.threshold, estimate.value, estimate.value)
            sentence = f"point estimate: {unknown}"
        else:
            sentence = f"{unknown} (" + POINT + ": let the value decide)"
    evidence = [remark for remark in (*measured.remarks, *remarks, sentence) if remark]
    return Decision(
        gate=gate,
        estimate=estimate,
        confidence=basis.confidence,
        verdict=verdict,
        evidence=joined("; ", evidence),
        more=more,
        classes=measured.classes,
        images=measured.images,
    )


def _further(
    gate: Gate, measured: Measured, bounds: Bounds, basis: Basis
) -> tuple[int | None, str]:
    """The number of further draws or images that would probably decide the gate, and a sentence
    about it.

    Both are computed as if the present value were the true one. The number is None where the
    statistic gives none, or where no number would decide.
    """
    from scipy.special import ndtri

    if not measured.number:
        return None, measured.remedy
    value = measured.estimate.value
    # The end beyond the threshold keeps the gate open: the lower one (0) or the upper one (1).
    side = int(value < gate.threshold)
    end = bounds[side]
    limit = (measured.limit or (value, value))[side]
    # Images without a value, or with an open end, keep this end from ever passing the threshold.
    limit_decides = (limit - gate.threshold) * (0.5 - side) > 0.0
    if not limit_decides or math.isinf(end):
        return None, f"no number of {basis.unit} would decide it at this value"
    # The distance from an end to its limit shrinks with the square root of the number. Where all
    # votes agree, so that the value is an end of its interval, it shrinks with the number itself:
    # Clopper-Pearson's end is then about log(2 / alpha) / n away, alpha being the error.
    exponent = 1.0 if value in bounds else 2.0
    factor = ((limit - end) / (limit - gate.threshold)) ** exponent
    # The value changes, too: the number that makes the interval just reach the threshold decides in
    # half of the cases. With a normal error, ((z + .84) / z)^2 times as many decide in 80 % of
    # them; z is the normal quantile of the confidence, .84 the quantile of the power.
    for_power = (1.0 + float(ndtri(_POWER)) / float(ndtri(0.5 + basis.confidence / 2.0))) ** 2
    more = max(1, math.ceil(measured.number * (factor * for_power - 1.0)))
    power = f"a power of {100 * _POWER:g} %"
    return more, f"about {more:,} more {basis.unit} would decide it with {power} at this value"
