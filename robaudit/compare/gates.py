"""Gates on a comparison: drops from base to new, and counts of samples that became worse.

All quantities but the counts are drops: base minus new, negated where lower is better, so a positive drop is a loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from robaudit.compare.result import Comparison, Difference, GroupComparison, Limits
from robaudit.errors import RunError
from robaudit.gates.decide import Basis, Decision, settle
from robaudit.gates.evidence import matching_groups, only_group, refuse_results_of
from robaudit.gates.measure import ClassPart, Measured, Method, check_between
from robaudit.spec.gates import Gate
from robaudit.stats.flags import Certainty
from robaudit.stats.intervals import Bounds
from robaudit.text import count

QUANTITIES: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("mean_drop", "worst_class_drop", "accuracy_drop", "noisy_accuracy_drop", "newly_flagged", "share_worse"), frozenset()
)
"""The quantities of `robaudit compare`; none needs an argument besides estimator and noise level."""

_SURE = (Certainty.CONFIRMED, Certainty.APPROXIMATE)
_WHATEVER = "the interval holds whatever their values are"


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop and the samples behind it.

    Attributes:
        value: base - new, negated where lower is better.
        limits: the interval over the samples that have a difference; None where there is none.
        images: number of those samples; ``unknown``: number of further samples, with any drop up to ``span`` in either direction.
    """

    value: float
    limits: Limits | None
    images: int
    unknown: int
    span: float

    @classmethod
    def of(
        cls, difference: Difference, sign: float, population: bool, images: int, unknown: int, span: float, *, approximate: bool = False
    ) -> Drop:
        """The drop of a difference; without limits where they leave out a bias (``approximate``), with infinite limits for a population of
        unbounded values: a rare image may have changed by any amount."""
        limits = None if approximate else difference.population if population else difference.measured
        if limits is not None and population and not math.isfinite(span) and limits.method != Method.SAME_MODEL:
            limits = Limits(-math.inf, math.inf, "paired images: no bound on a difference")
        if limits is not None and sign > 0:
            limits = Limits(-limits.upper + 0.0, -limits.lower + 0.0, limits.method)
        return cls(-sign * difference.value + 0.0, limits, images, unknown, span)

    def bounds(self, limits: Bounds | None = None) -> Bounds:
        """The interval from :attr:`limits`, or from other limits, with unknown samples at both ends of the range."""
        lower, upper = limits or (self.limits.ends if self.limits else (-self.span, self.span))
        share = self.unknown / (self.images + self.unknown)
        return (lower * (1 - share) - self.span * share, upper * (1 - share) + self.span * share) if self.unknown else (lower, upper)

    @property
    def settled(self) -> Bounds:
        """The interval that endless draws would leave."""
        return self.bounds(None if self.limits is None else (self.value, self.value))


def decide(comparison: Comparison, gates: Sequence[Gate], *, population: bool = False, point: bool = False) -> tuple[Decision, ...]:
    """Decide the gates, each by its interval.

    Samples without a difference, because a value is not a finite number or the new run skipped them, count at both ends of the range, which
    widens the interval. The gates do not cover samples that only one run was to audit; the evidence counts them.

    Args:
        comparison: of two runs.
        gates: on the quantities in :data:`QUANTITIES`.
        population: use the intervals for the population, else those for the measurement of these images.
        point: let a value without an interval decide.

    Raises:
        SpecError: a gate does not say which results it is about, is about a quantity without an interval, or has a threshold
            outside its range.
        RunError: the quantity of a gate was not measured.
    """
    basis = Basis(comparison.groups[0].confidence, population, point)
    return tuple(_decision(gate, comparison, basis) for gate in gates)


def _decision(gate: Gate, comparison: Comparison, basis: Basis) -> Decision:
    apart = _apart(comparison)
    if gate.quantity == "accuracy_drop":
        refuse_results_of(gate)
        accuracy, unknown = comparison.clean_accuracy, comparison.clean_unknown
        if accuracy is None:
            raise RunError(f"gate {str(gate)!r}", "the runs share no sample with a label", "use data with labels")
        check_between(gate, -1.0, 1.0, gate.quantity, gate.threshold)
        drop = Drop.of(accuracy, 1.0, basis.population, comparison.samples, unknown, 1.0)
        return settle(gate, _measured([drop], 0, basis), basis, _skipped(unknown, comparison.samples + unknown), *apart)
    group = _group_of(gate, comparison)
    gate = gate.about(group.key.estimator, group.key.at)
    _check_range(gate, group.span)
    remarks = [*_left_out(group), *apart]
    caveat = f"by the votes of its copies, not by the approximation of {group.key.estimator}" if group.voted else ""
    draws = group.draws or 0
    if gate.quantity == "mean_drop":
        drop = _drop(group.mean, group, basis, group.images, group.not_finite + group.skipped)
        return settle(gate, _measured([drop], draws, basis), basis, caveat, *remarks)
    if gate.quantity == "noisy_accuracy_drop":
        if group.noisy_accuracy is None:
            raise RunError(f"gate {str(gate)!r}", f"{group.key} has no votes for labels", "use mc with fixed samples, on data with labels")
        labelled = sum(change.images for change in group.classes)  # where there are labels, they are the classes
        drop = Drop.of(group.noisy_accuracy, 1.0, basis.population, labelled, group.unknown_labelled, 1.0)
        return settle(gate, _measured([drop], draws, basis), basis, *remarks)
    if gate.quantity == "worst_class_drop":
        return _worst_class(gate, group, basis, caveat, *remarks)
    return _count(gate, group, basis, caveat, *remarks)


def _drop(difference: Difference, group: GroupComparison, basis: Basis, images: int, unknown: int) -> Drop:
    sign = 1.0 if group.higher_is_better else -1.0
    return Drop.of(difference, sign, basis.population, images, unknown, group.span, approximate=group.approximate)


def _measured(drops: Sequence[Drop], draws: int, basis: Basis, classes: tuple[ClassPart, ...] = ()) -> Measured:
    """The largest drop as a quantity to decide on; ``draws``: per image."""
    first, known = drops[0], [drop.limits for drop in drops if drop.images]
    images, size = sum(drop.images for drop in drops), sum(drop.images + drop.unknown for drop in drops)
    if None in known:
        return Measured(first.value, None, Method.NONE, classes=classes, images=size)
    ends, settled = [drop.bounds() for drop in drops], [drop.settled for drop in drops]
    method = "" if first.limits is None else first.limits.method
    if method == Method.COUNTED and not first.unknown:
        method = Method.EXACT
    if classes:
        method = f"{method}, simultaneous over {len(classes)} classes"
    worst, at_best = ((max(low for low, _ in bounds), max(high for _, high in bounds)) for bounds in (ends, settled))
    return Measured(first.value, worst, method, images if basis.population else draws, at_best, classes, images=size)


def _worst_class(gate: Gate, group: GroupComparison, basis: Basis, *remarks: str) -> Decision:
    """The decision on the largest drop of a class, which is below a bound if the drop of every class is."""
    unknown = {index: number for index, number in group.unknown.items() if index >= 0}
    drops = [_drop(change.difference, group, basis, change.images, unknown.pop(change.index, 0)) for change in group.classes]
    names = [(change.index, change.name) for change in group.classes] + [(index, None) for index in sorted(unknown)]
    drops += [Drop(math.nan, None, 0, unknown[index], group.span) for index in sorted(unknown)]
    parts = []
    for (index, name), drop in zip(names, drops, strict=True):
        ends = (None, None) if drop.images and drop.limits is None else drop.bounds()
        parts.append(ClassPart(index, name, drop.images + drop.unknown, drop.value, *ends))
    return settle(gate, _measured(drops, group.draws or 0, basis, tuple(parts)), basis, *remarks)


def _count(gate: Gate, group: GroupComparison, basis: Basis, *remarks: str) -> Decision:
    """The decision on newly_flagged or share_worse, by bounds on the number of samples (:func:`robaudit.compare.counts.counted`)."""
    flags = gate.quantity == "newly_flagged"
    ends = group.counts.newly_flagged if flags else group.counts.worse_population if basis.population else group.counts.worse
    size = group.images + group.not_finite + group.skipped
    if ends is None or group.approximate:
        value = float(group.flagged("newly flagged", *_SURE, Certainty.NO_INTERVAL)) if flags else group.declined / group.images
        return settle(gate, Measured(value, None, Method.NONE, images=size), basis, *remarks)
    certain = group.flagged("newly flagged", *_SURE) if flags else group.worse
    likely = group.flagged("newly flagged", Certainty.LIKELY) if flags else 0
    about = f"{certain} of {size} samples, each beyond its own 95 % interval" + (f", {likely} more {Certainty.LIKELY}" if likely else "")
    value = min(max(float(certain) if flags else certain / size, ends.lower), ends.upper)
    stuck = "samples whose intervals contain the threshold leave it open"
    measured = Measured(value, ends.ends, ends.method, stuck=stuck, images=size)
    return settle(gate, measured, replace(basis, population=basis.population and not flags), about, *remarks)


def _check_range(gate: Gate, span: float) -> None:
    """Refuse a threshold outside the range of the quantity: a slip, such as 5 for 5 %.

    Args:
        gate: on a quantity of a comparison.
        span: the largest possible difference of two values; may be infinite.

    Raises:
        SpecError: it lies outside the range.
    """
    widest = span if gate.quantity in ("mean_drop", "worst_class_drop") else math.inf if gate.quantity == "newly_flagged" else 1.0
    low = 0.0 if gate.quantity in ("share_worse", "newly_flagged") else -widest
    check_between(gate, low, widest, gate.quantity, gate.threshold)


def _group_of(gate: Gate, comparison: Comparison) -> GroupComparison:
    """The group that a gate is about; the gate may leave out its name only if there is no other."""
    groups = {(group.key.estimator, group.key.at): group for group in comparison.groups}
    return groups[only_group(gate, matching_groups(gate, groups, subject="the comparison"))]


def _left_out(group: GroupComparison) -> list[str]:
    """Remarks on samples without a difference."""
    size = group.images + group.not_finite + group.skipped
    not_finite = f"without a finite value in one run or both: {group.not_finite} of {size} samples; {_WHATEVER}" if group.not_finite else ""
    return [not_finite, _skipped(group.skipped, size)]


def _skipped(number: int, size: int) -> str:
    return f"skipped by the new run: {number} of {size} samples; {_WHATEVER}" if number else ""


def _apart(comparison: Comparison) -> list[str]:
    """Remarks on samples that the gates do not cover."""
    matching = comparison.matching
    return [
        f"{count(number, 'sample')} {where}: not covered by this gate"
        for number, where in (
            (len(matching.only_base) - len(matching.skipped), "in the base run only"),
            (len(matching.only_new), "in the new run only"),
            (len(matching.other_images), "with another image in each run"),
            (matching.skipped_besides, "skipped by the new run and not in the base run"),
        )
        if number
    ]
