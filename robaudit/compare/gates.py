"""Does a comparison meet its thresholds?

All quantities but the counts are drops: base minus new, turned round where lower is better, so that a positive one is a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from robaudit.compare.drops import Drop, How, by_value, on_drop, on_worst_class
from robaudit.compare.result import Comparison, Difference, GroupComparison
from robaudit.compare.thresholds import check_gate
from robaudit.errors import RunError, SpecError, did_you_mean
from robaudit.gates.grammar import Gate
from robaudit.gates.result import Covers, Decision, judge
from robaudit.text import count

QUANTITIES: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("mean_drop", "worst_class_drop", "accuracy_drop", "noisy_accuracy_drop", "newly_flagged", "share_worse"), frozenset()
)
"""The quantities of `robaudit compare`; none needs an argument besides estimator and sigma."""

_HELD = "the interval holds whatever they may be"


def decide(comparison: Comparison, gates: Sequence[Gate], *, population: bool = False, point: bool = False) -> tuple[Decision, ...]:
    """Decide the gates, each on its interval.

    Samples without a difference, as a value is no finite number or the new run skipped them, count at both ends of the range: they
    widen the interval. Samples that one run was not asked for are none of a gate's; its evidence names them.

    Args:
        comparison: of two runs.
        gates: of our quantities.
        population: by the intervals for images of this kind, else for the measurement of these images.
        point: let a value without an interval decide by itself.

    Raises:
        SpecError: a gate does not say which results it is about, is about a quantity without an interval, or has a threshold that
            none can reach.
        RunError: what it is about was not measured.
    """
    return tuple(_decision(gate, comparison, population, point) for gate in gates)


def _decision(gate: Gate, comparison: Comparison, population: bool, point: bool) -> Decision:
    how = How(comparison.groups[0].confidence, population, point)
    apart = _apart(comparison)
    if gate.quantity == "accuracy_drop":
        if gate.estimator is not None or gate.sigma is not None:
            raise SpecError(
                f"gate {str(gate)!r}", "clean accuracy has no estimator and no sigma", f"write {gate.quantity} {gate.relation} ..."
            )
        accuracy = comparison.clean_accuracy
        if accuracy is None:
            raise RunError(f"gate {str(gate)!r}", "the runs share no sample with a label", "use data with labels")
        check_gate(gate, 1.0)
        words = _skipped(comparison.clean_unknown, comparison.samples + comparison.clean_unknown)
        return _on(gate, accuracy, 1.0, how, 0, (comparison.samples, comparison.clean_unknown, 1.0), words, *apart)
    group = _meant(gate, comparison)
    gate = replace(gate, estimator=group.key.estimator, sigma=group.key.sigma)
    check_gate(gate, group.span)
    notes = (*_without(group), *apart)
    sign, draws = 1.0 if group.higher_is_better else -1.0, group.draws or 0
    if gate.quantity == "mean_drop":
        return _on(gate, group.mean, sign, how, draws, (group.images, group.not_finite + group.skipped, group.span), _doubt(group), *notes)
    if gate.quantity == "noisy_accuracy_drop":
        if group.noisy_accuracy is None:
            raise RunError(f"gate {str(gate)!r}", f"{group.key} has no votes for labels", "use mc with fixed samples, on data with labels")
        labelled = sum(one.images for one in group.classes)  # there are labels, so classes are these
        return _on(gate, group.noisy_accuracy, 1.0, how, draws, (labelled, group.unknown_labelled, 1.0), *notes)
    if gate.quantity == "worst_class_drop":
        return on_worst_class(gate, group, how, _doubt(group), *notes)
    return _count(gate, group, how, _doubt(group), *notes)


def _on(gate: Gate, found: Difference, sign: float, how: How, draws: int, about: tuple[int, int, float], *notes: str) -> Decision:
    """On the drop of a difference of so many images, with so many more unknown, whose drops reach so far."""
    ends = how.of(found)
    if ends is None:
        return by_value(gate, -sign * found.value + 0.0, how, *notes)
    return on_drop(gate, Drop.of(found.value, ends, sign, *about), how, draws, *notes)


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


def _count(gate: Gate, group: GroupComparison, how: How, *notes: str) -> Decision:
    """newly_flagged and share_worse: how many samples are so at least and at most (:mod:`robaudit.compare.counts`)."""
    flags = gate.quantity == "newly_flagged"
    ends = group.counts.newly_flagged if flags else group.counts.worse_population if how.population else group.counts.worse
    if ends is None:
        value = float(group.flagged("newly flagged", "surely", "likely", "no interval")) if flags else group.declined / group.images
        return by_value(gate, value, how, *notes)
    sure = group.flagged("newly flagged", "surely", "likely") if flags else group.worse
    maybe = group.flagged("newly flagged", "maybe") if flags else 0
    size = group.images + group.not_finite + group.skipped
    words = [f"{sure} of {size} samples, each beyond its own 95 % interval" + (f", {maybe} more by their values" if maybe else "")]
    value = min(max(float(sure) if flags else sure / size, ends.lower), ends.upper)
    verdict = judge(gate.relation, gate.threshold, ends.lower, ends.upper)
    if verdict == "inconclusive":
        words.append("samples that may be so, or not, leave it open")
    covers: Covers = "these images" if flags else how.covers
    evidence = "; ".join(filter(None, [*words, *notes]))
    return Decision(gate, value, ends.lower, ends.upper, ends.method, covers, how.confidence, verdict, evidence)


def _without(group: GroupComparison) -> list[str]:
    """What is said of samples without a difference."""
    size = group.images + group.not_finite + group.skipped
    lost = f"without a finite value in one run or both: {group.not_finite} of {size} samples; {_HELD}" if group.not_finite else ""
    return [lost, _skipped(group.skipped, size)]


def _skipped(number: int, size: int) -> str:
    return f"skipped by the new run: {number} of {size} samples; {_HELD}" if number else ""


def _apart(comparison: Comparison) -> list[str]:
    """What is said of samples that the gates are not about."""
    found = comparison.matching
    return [
        f"{count(number, 'sample')} {words}: nothing is said of them"
        for number, words in (
            (len(found.only_base) - len(found.skipped), "in the base run only"),
            (len(found.only_new), "in the new run only"),
            (len(found.other_images), "with another image in each run"),
            (found.skipped_besides, "skipped by the new run and not in the base run"),
        )
        if number
    ]


def _doubt(group: GroupComparison) -> str:
    return f"covers the draws of {group.key.estimator} only, not its bias" if group.sampling_only else ""
