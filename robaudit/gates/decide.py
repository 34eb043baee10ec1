"""Does a run pass its gates?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from robaudit.errors import SpecError
from robaudit.gates.enough import smallest_factor
from robaudit.gates.evidence import Evidence, gather, meant, refuse_accuracy_of, without_interval
from robaudit.gates.grammar import Gate
from robaudit.gates.measuring import Measured, measure
from robaudit.gates.quantities import OF_CLASSES, check_range, meaning
from robaudit.gates.result import Decision, Verdict, judge
from robaudit.reports.names import class_name
from robaudit.store.run import Run
from robaudit.summary.groups import QuantityLike

_CHANCE = 0.8  # of deciding with as many more as are named
_IF_TRUE = "in 4 of 5 cases if the value is the true one"
_IF_NO_IMAGE = "if no image changed sides"


def decide(
    run: Run, gates: Sequence[Gate], *, population: bool = False, point: bool = False, confidence: float = 0.95
) -> tuple[Decision, ...]:
    """Decide gates on a finished run, each by its interval at the confidence asked for (no correction for their number).

    Args:
        run: the run; its rows are gone through once.
        gates: what it must meet.
        population: the interval also covers the choice of the images; else it covers the measurement of these images only.
        point: values without an interval decide by themselves.
        confidence: of the intervals, above .5 and below 1.

    Returns:
        The decisions, in the order of the gates.

    Raises:
        SpecError: a gate says not which results it means, means some the run has not, or has a threshold that none can reach; or its
            results have no interval and ``point`` is False.
        NothingLeftError: a group has no finite value.
    """
    check_confidence(confidence)
    groups = gather(run, gates)
    decisions = []
    for gate in gates:
        if gate.quantity == "accuracy":
            refuse_accuracy_of(gate)
            found, full = next(iter(groups.values())), gate
        else:
            found = meant(gate, run, groups)
            full = replace(gate, estimator=found.key.estimator, sigma=found.key.sigma)
        scale = found.scale(run.quantities)
        check_range(full, scale)
        measured = measure(full, found, scale, confidence, population=population, names=run.class_names)
        if not measured.bounded and not point:
            raise without_interval(full, found.key.estimator)
        decisions.append(_decision(full, measured, found, scale, confidence, population=population))
    return tuple(decisions)


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is none.

    Raises:
        SpecError: it is not above .5 and below 1.
    """
    if not 0.5 < confidence < 1.0:
        raise SpecError(f"confidence {confidence:g}", "is not above 0.5 and below 1", "for example 0.95")


def _decision(gate: Gate, measured: Measured, found: Evidence, scale: QuantityLike, confidence: float, *, population: bool) -> Decision:
    said = [meaning(gate, scale), _worst_class(gate, measured)]
    if not measured.bounded:
        said.append(f"by the value alone: {found.key.estimator} has no interval; its error is not known")
        return Decision(
            gate, measured.value, None, None, "none", "nothing", confidence, _verdict_of(gate, measured.value, measured.value),
            "; ".join(filter(None, said)), None, measured.classes,
        )  # fmt: skip
    lower, upper = measured.ends(1.0)
    verdict = _verdict_of(gate, lower, upper)
    if gate.quantity != "accuracy":
        said += _doubts(gate, found)
        said.append(_open_end(gate, scale) if population else "")
    more = None
    if verdict == "inconclusive":
        more, words = _more(gate, measured, found, confidence, population=population)
        said.append(words)
    return Decision(
        gate=gate,
        value=measured.value,
        lower=lower,
        upper=upper,
        method=measured.method,
        covers="images of this kind" if population else "these images",
        confidence=confidence,
        verdict=verdict,
        evidence="; ".join(filter(None, said)),
        more=more,
        classes=measured.classes,
    )


def _verdict_of(gate: Gate, lower: float, upper: float) -> Verdict:
    return judge(gate.relation, gate.threshold, lower, upper)


def _worst_class(gate: Gate, measured: Measured) -> str:
    """Which classes it comes from."""
    known = [one for one in measured.classes if not math.isnan(one.value)]
    if gate.quantity not in OF_CLASSES or not known:
        return ""
    first, last = (f"{class_name(one.index, None if one.name is None else {one.index: one.name})}" for one in (known[0], known[-1]))
    return f"class {first}, {known[0].images} images" if gate.quantity == "worst_class" else f"classes {first} and {last}"


def _doubts(gate: Gate, found: Evidence) -> list[str]:
    """What the interval does not cover, or counts in."""
    rows, said = found.columns, []
    if rows.sampling_only and gate.quantity != "noisy_accuracy":
        said.append(f"covers the draws of {found.key.estimator} only, not its bias")
    if gate.quantity in OF_CLASSES and (none := found.without_class):
        said.append(f"{none} of {found.size} images have no label and are in no class")
    if rows.not_finite:
        said.append(f"{rows.not_finite} of {found.size} images have no finite value: the interval holds whatever they may be")
    return said


def _open_end(gate: Gate, scale: QuantityLike) -> str:
    """Why the mean of a population has no end where its range has none."""
    if gate.quantity not in OF_CLASSES | {"mean"} or (math.isfinite(scale.low) and math.isfinite(scale.high)):
        return ""
    return "the mean of an unbounded quantity has no population interval on that side: median and p05 have"


def _more(gate: Gate, measured: Measured, found: Evidence, confidence: float, *, population: bool) -> tuple[int | None, str]:
    """How many further draws or images would probably decide it, in a number and in words.

    The value moves with them, too: so many that its interval would just reach to the threshold decide in half of the cases. Where the
    error is normal, ((z + .84)/z)^2 times as many decide in 80 % of them, z being that of the confidence; by simulation in more for
    quantiles and classes. A share of images depends on those near t, of which the interval knows little.
    """
    unit, now = ("images", found.size) if population else ("draws an image", measured.draws)
    factor = None if not now else smallest_factor(lambda n: _verdict_of(gate, *measured.ends(n)) != "inconclusive")
    if factor is not None:
        more = max(1, math.ceil(now * (factor * _sure(confidence) - 1.0)))
        return more, f"about {more:,} more {unit} would decide it {_IF_NO_IMAGE if gate.quantity == 'share_below' else _IF_TRUE}"
    if not now:
        return None, "its images stop by themselves: give mc a fixed number of samples, or a smaller tolerance"
    return None, f"no number of {unit} would decide it if the value stayed"


def _sure(confidence: float) -> float:
    """How many times as much decides with a chance of 80 % as with one of a half: ((z + .84)/z)^2."""
    from scipy.special import ndtri

    z = float(ndtri(0.5 + confidence / 2.0))
    return (1.0 + float(ndtri(_CHANCE)) / z) ** 2
