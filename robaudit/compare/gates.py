"""Does a comparison meet its thresholds?

All quantities but the counts are drops: base minus new, turned round where lower is better, so that a positive one is a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from robaudit.compare.paired import Ends
from robaudit.compare.result import Comparison, Difference, GroupComparison
from robaudit.errors import RunError, SpecError, did_you_mean
from robaudit.gates.grammar import Gate
from robaudit.gates.result import ClassPart, Covers, Decision, judge
from robaudit.numerics.intervals import clopper_pearson
from robaudit.reports.names import class_name

QUANTITIES: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("mean_drop", "worst_class_drop", "accuracy_drop", "noisy_accuracy_drop", "newly_flagged", "share_worse"), frozenset()
)
"""The quantities of `robaudit compare`; none needs an argument besides estimator and sigma."""

_MOST = 2**24


def decide(comparison: Comparison, gates: Sequence[Gate], *, population: bool = False, point: bool = False) -> tuple[Decision, ...]:
    """Decide the gates, each on its interval.

    Args:
        comparison: of two runs.
        gates: of our quantities.
        population: by the intervals for images of this kind, else for the measurement of these images.
        point: let a value without an interval decide by itself.

    Raises:
        SpecError: a gate does not say which results it is about, or is about a quantity without an interval.
        RunError: what it is about was not measured.
    """
    return tuple(_decision(gate, comparison, population, point) for gate in gates)


def _decision(gate: Gate, comparison: Comparison, population: bool, point: bool) -> Decision:
    if gate.quantity == "accuracy_drop":
        if gate.estimator is not None or gate.sigma is not None:
            raise SpecError(
                f"gate {str(gate)!r}", "clean accuracy has no estimator and no sigma", f"write {gate.quantity} {gate.relation} ..."
            )
        if comparison.clean_accuracy is None:
            raise RunError(f"gate {str(gate)!r}", "the runs share no sample with a label", "use data with labels")
        confidence = comparison.groups[0].confidence
        return _on(gate, comparison.clean_accuracy, 1.0, confidence, population, point, 0, comparison.samples)
    group = _meant(gate, comparison)
    gate = replace(gate, estimator=group.key.estimator, sigma=group.key.sigma)
    sign, draws = 1.0 if group.higher_is_better else -1.0, group.draws or 0
    if gate.quantity == "mean_drop":
        return _on(gate, group.mean, sign, group.confidence, population, point, draws, group.images, _doubt(group))
    if gate.quantity == "noisy_accuracy_drop":
        if group.noisy_accuracy is None:
            raise RunError(f"gate {str(gate)!r}", f"{group.key} has no votes for labels", "use mc with fixed samples, on data with labels")
        return _on(gate, group.noisy_accuracy, 1.0, group.confidence, population, point, draws, group.images)
    if gate.quantity == "worst_class_drop":
        return _worst_class(gate, group, sign, population, point)
    return _count(gate, group, population, point)


def _meant(gate: Gate, comparison: Comparison) -> GroupComparison:
    """The group that a gate is about; one that it does not name must be the only one."""
    where = f"gate {str(gate)!r}"
    found = list(comparison.groups)
    for name, wanted, present in (
        ("estimator", gate.estimator, [group.key.estimator for group in found]),
        ("sigma", gate.sigma, [group.key.sigma for group in found]),
    ):
        if wanted is None:
            continue
        known = dict.fromkeys(present)
        value = _near(wanted, known)
        if value not in known:
            remedy = did_you_mean(str(wanted), map(str, known)) if name == "estimator" else "it has " + ", ".join(map(str, known))
            raise SpecError(where, f"the comparison has no {name} {wanted}", remedy)
        found = [group for group in found if (group.key.estimator if name == "estimator" else group.key.sigma) == value]
    if not found:
        raise SpecError(where, "the comparison has no such estimator at this sigma")
    if len(found) > 1:
        several = dict.fromkeys(group.key.estimator for group in found)
        name, example = ("estimator", next(iter(several))) if len(several) > 1 else ("sigma", f"{found[0].key.sigma:g}")
        raise SpecError(where, f"the comparison has {len(found)} results it could mean", f"name one: {gate.quantity}({name}={example}) ...")
    return found[0]


def _near(wanted: object, known: Mapping[object, None]) -> object:
    """A noise level as tables print it (8/255 as 0.0314) is the only one within half a percent."""
    if not isinstance(wanted, float) or wanted in known:
        return wanted
    near = [level for level in known if isinstance(level, float) and abs(level - wanted) <= 0.005 * level]
    return near[0] if len(near) == 1 else wanted


def _on(
    gate: Gate,
    found: Difference,
    sign: float,
    confidence: float,
    population: bool,
    point: bool,
    draws: int,
    images: int,
    doubt: str = "",
) -> Decision:
    """A gate on a drop."""
    drop, ends = -sign * found.value + 0.0, found.population if population else found.these
    if ends is None:
        return _by_value(gate, drop, confidence, point)
    ends = turned(ends, sign)
    counted = ends.method == "counted"
    verdict = judge(gate.relation, gate.threshold, ends.lower, ends.upper)
    unit, now = ("images", images) if population else ("draws an image", draws)
    more = _more(gate.threshold, drop, ends, now) if verdict == "inconclusive" else None
    words = f"about {more:,} more {unit} would decide it if the value stayed" if more else ""
    return Decision(
        gate,
        drop,
        ends.lower,
        ends.upper,
        "exact" if counted else ends.method,
        "images of this kind" if population else "these images",
        confidence,
        verdict,
        "; ".join(filter(None, [words, doubt])),
        more,
    )


def _more(threshold: float, value: float, ends: Ends, now: int) -> int | None:
    """By the square root law: so many more that the end that lies beyond the threshold reaches it."""
    gap = abs(value - threshold)
    width = ends.upper - value if value <= threshold else value - ends.lower
    if not now or gap == 0 or not math.isfinite(width) or (width / gap) ** 2 > _MOST:
        return None
    return max(1, math.ceil(now * ((width / gap) ** 2 - 1)))


def _worst_class(gate: Gate, group: GroupComparison, sign: float, population: bool, point: bool) -> Decision:
    parts = tuple(_parts(group, sign, population))
    first = parts[0]
    name = class_name(first.index, None if first.name is None else {first.index: first.name})
    words = "; ".join(filter(None, [f"class {name}, {first.images} images", _doubt(group)]))
    if any(part.lower is None for part in parts):
        return replace(_by_value(gate, first.value, group.confidence, point), evidence=words, classes=parts)
    lower, upper = (max(end for end in ends if end is not None) for ends in zip(*((p.lower, p.upper) for p in parts), strict=True))
    difference = group.classes[0].difference
    ends = difference.population if population else difference.these
    covers: Covers = "images of this kind" if population else "these images"
    method = f"{ends.method if ends else 'none'}, simultaneous over {len(parts)} classes"
    verdict = judge(gate.relation, gate.threshold, lower, upper)
    return Decision(gate, first.value, lower, upper, method, covers, group.confidence, verdict, words, None, parts)


def _parts(group: GroupComparison, sign: float, population: bool) -> Iterator[ClassPart]:
    """Each class's drop, the largest first."""
    for one in group.classes:
        ends = one.difference.population if population else one.difference.these
        lower, upper = (None, None) if ends is None else turned(ends, sign)[:2]
        yield ClassPart(one.index, one.name, one.images, -sign * one.difference.value + 0.0, lower, upper)


def _count(gate: Gate, group: GroupComparison, population: bool, point: bool) -> Decision:
    """newly_flagged and share_worse: samples that are so beyond their intervals."""
    without = group.flagged("newly flagged", "no interval") if gate.quantity == "newly_flagged" else group.images - group.compared
    if gate.quantity == "newly_flagged":
        value = float(group.flagged("newly flagged", "surely", "likely"))
        maybe = group.flagged("newly flagged", "maybe")
        words = f"{maybe} more by their values, but not beyond their intervals" if maybe else ""
        lower = upper = value
    else:
        value = group.worse / group.images
        words = f"{group.worse} of {group.images} samples, each beyond its own 95 % interval"
        lower = upper = value
        if population:
            lower, upper = (float(end) for end in clopper_pearson(group.worse, group.images, group.confidence))
    if group.compared < group.images:
        if gate.quantity == "newly_flagged":
            value += without
        else:
            value = group.declined / group.images
        return _by_value(gate, value, group.confidence, point)
    verdict = judge(gate.relation, gate.threshold, lower, upper)
    over = population and gate.quantity == "share_worse"
    covers: Covers = "images of this kind" if over else "these images"
    method = "clopper-pearson over images" if over else "exact"
    return Decision(gate, value, lower, upper, method, covers, group.confidence, verdict, "; ".join(filter(None, [words, _doubt(group)])))


def _by_value(gate: Gate, value: float, confidence: float, point: bool) -> Decision:
    if not point:
        what = f"{gate.estimator or gate.quantity} has no interval to decide on"
        raise SpecError(f"gate {str(gate)!r}", what, "use an estimator with one such as mc, or let the value decide: --point")
    return Decision(gate, value, None, None, "none", "nothing", confidence, judge(gate.relation, gate.threshold, value, value))


def _doubt(group: GroupComparison) -> str:
    return f"covers the draws of {group.key.estimator} only, not its bias" if group.sampling_only else ""


def turned(ends: Ends, sign: float) -> Ends:
    """The interval of a drop from that of a difference: base - new, or new - base where lower is better."""
    return Ends(-ends.upper + 0.0, -ends.lower + 0.0, ends.method) if sign > 0 else ends
