"""Gates on a comparison: drops from base to new, and counts of samples that became worse.

All quantities but the counts are drops: base minus new, negated where lower is better, so a
positive drop is a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from robaudit.compare.result import Comparison, Difference, GroupComparison
from robaudit.errors import RunError
from robaudit.estimates import Bounds, Estimate
from robaudit.gates.decide import Decision, decide_measured
from robaudit.gates.evidence import ANY_VALUES, matching_groups, only_group, refuse_results_of
from robaudit.gates.measure import Basis, ClassPart, Measured, Method, check_between
from robaudit.plugins import reference
from robaudit.spec.gate_grammar import Gate
from robaudit.stats.flags import Certainty
from robaudit.text import count

# Certainties of a sample that changed beyond its own interval.
_SURE = (Certainty.CONFIRMED, Certainty.APPROXIMATE)


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop and the samples behind it.

    Attributes:
        estimate: base - new, negated where lower is better, over the samples with a difference.
        images: number of the samples with a difference.
        unknown: number of samples without a difference.
        span: the largest drop, in either direction, that a sample may have.
    """

    estimate: Estimate
    images: int
    unknown: int
    span: float

    @classmethod
    def from_difference(
        cls,
        difference: Difference,
        sign: float,
        population: bool,
        images: int,
        unknown: int,
        span: float,
        *,
        approximate: bool = False,
    ) -> Drop:
        """The drop of a difference.

        It has no interval where that leaves out a bias (``approximate``).
        """
        change = difference.population if population else difference.measured
        if change is None or approximate:
            change = Estimate(difference.value)
        elif population and not math.isfinite(span) and change.method != Method.SAME_MODEL:
            # A rare image of the population may have changed by any amount.
            change = Estimate.population(
                change.value, (-math.inf, math.inf), "paired images: no bound on a difference"
            )
        # 0.0 is added so that a drop of -0.0 is 0.0, as negated() does.
        drop = change.negated() if sign > 0 else replace(change, value=change.value + 0.0)
        return cls(drop, images, unknown, span)

    @property
    def bounds(self) -> Bounds:
        """The interval with unknown samples at both ends of the range.

        Without an interval it is the whole range.
        """
        return self._widened(self.estimate.bounds or (-self.span, self.span))

    @property
    def limit(self) -> Bounds:
        """The limit of the interval for endless draws."""
        value = self.estimate.value
        if self.estimate.has_interval:
            return self._widened((value, value))
        return self._widened((-self.span, self.span))

    def _widened(self, bounds: Bounds) -> Bounds:
        """The interval of the mean over all samples, the unknown ones at either end."""
        # Without unknown samples, 0 x span would be NaN for an infinite span.
        if not self.unknown:
            return bounds
        lower, upper = bounds
        share = self.unknown / (self.images + self.unknown)
        furthest = self.span * share
        return lower * (1 - share) - furthest, upper * (1 - share) + furthest


def decide(
    comparison: Comparison, gates: Sequence[Gate], *, population: bool = False, point: bool = False
) -> tuple[Decision, ...]:
    """Decide the gates, each by its interval.

    Samples without a difference count at both ends of the range, which widens the interval: a value
    is not a finite number, or the new run skipped the sample. The gates do not cover samples that
    only one run was to audit; the evidence counts them.

    Args:
        comparison: of two runs.
        gates: on the quantities in :data:`QUANTITIES`.
        population: use the intervals for the population, else those for the measurement of these
            images.
        point: let a value without an interval decide.

    Raises:
        SpecError: a gate does not say which results it is about, is about a quantity without an
            interval, or has a threshold outside its range.
        RunError: the quantity of a gate was not measured.
    """
    # compare() gives all groups one confidence.
    basis = Basis(comparison.groups[0].confidence, population, point)
    return tuple(_decision(gate, comparison, basis) for gate in gates)


def _decision(gate: Gate, comparison: Comparison, basis: Basis) -> Decision:
    """Decide a gate; see :func:`decide`."""
    outside = _outside(comparison)
    if gate.quantity == "accuracy_drop":
        refuse_results_of(gate)
        # Samples that the new run skipped may be classified either way.
        accuracy = comparison.clean_accuracy
        unknown = comparison.clean_unknown
        if accuracy is None:
            raise RunError(
                f"gate {str(gate)!r}",
                "the runs share no sample with a label",
                "use data with labels",
            )
        check_between(gate, -1.0, 1.0, gate.quantity, gate.threshold)
        drop = Drop.from_difference(
            accuracy, 1.0, basis.population, comparison.samples, unknown, 1.0
        )
        measured = _measured([drop], 0, basis)
        skipped = _skipped(unknown, comparison.samples + unknown)
        return decide_measured(gate, measured, basis, skipped, *outside)
    group = _group_of(gate, comparison)
    gate = gate.with_result(group.key.estimator, group.key.at)
    measure, limits = _OF_RESULTS[gate.quantity]
    check_between(gate, *limits(group.span), gate.quantity, gate.threshold)
    # A number of samples is about these samples; only a share has a population.
    if gate.quantity == "newly_flagged":
        basis = replace(basis, population=False)
    measured = measure(group, basis)
    return decide_measured(gate, measured, basis, *_remarks(group), *outside)


def _drop(
    difference: Difference, group: GroupComparison, basis: Basis, images: int, unknown: int
) -> Drop:
    """The drop of a difference in a group's own quantity."""
    # A drop is a loss in any quantity, so that thresholds have one sense.
    sign = 1.0 if group.quantity.higher_is_better else -1.0
    return Drop.from_difference(
        difference,
        sign,
        basis.population,
        images,
        unknown,
        group.span,
        approximate=group.approximate,
    )


def _measured(
    drops: Sequence[Drop], draws: int, basis: Basis, classes: tuple[ClassPart, ...] = ()
) -> Measured:
    """The largest of some drops as a quantity to decide on.

    Args:
        drops: the largest first.
        draws: number per image; 0: not known.
        basis: how gates are decided.
        classes: the classes of the drops, if they are of classes.
    """
    first = drops[0]
    images = sum(drop.images for drop in drops)
    size = sum(drop.images + drop.unknown for drop in drops)
    # A class whose samples are all unknown has the whole range; one without an interval has none.
    if any(drop.images and not drop.estimate.has_interval for drop in drops):
        return Measured(Estimate(first.estimate.value), classes=classes, images=size)
    # A count that leaves images out is not exact for all of them.
    method = first.estimate.method if first.estimate.has_interval else ""
    if method == Method.COUNTED and not first.unknown:
        method = Method.EXACT
    if classes:
        method = f"{method}, simultaneous over {len(classes)} classes"
    largest = _largest([drop.bounds for drop in drops])
    limit = _largest([drop.limit for drop in drops])
    return Measured(
        basis.estimate(first.estimate.value, largest, method),
        images if basis.population else draws,
        limit,
        classes,
        images=size,
    )


def _largest(bounds: Sequence[Bounds]) -> Bounds:
    """The interval of the largest of values with these simultaneous intervals."""
    lower = max(lower for lower, _ in bounds)
    upper = max(upper for _, upper in bounds)
    return lower, upper


def _mean(group: GroupComparison, basis: Basis) -> Measured:
    """The drop of the mean."""
    unknown = group.not_finite + group.skipped
    drop = _drop(group.mean, group, basis, group.images, unknown)
    return _measured([drop], group.draws or 0, basis)


def _noisy_accuracy(group: GroupComparison, basis: Basis) -> Measured:
    """The drop of accuracy under noise, over the labelled samples."""
    if group.noisy_accuracy is None:
        raise RunError(
            "gate noisy_accuracy_drop",
            f"{group.key} has no votes for labels",
            f"use {reference()} with fixed samples, on data with labels",
        )
    # Where there are labels, they are the classes.
    labelled = sum(change.images for change in group.classes)
    unknown = sum(number for index, number in group.unknown.items() if index >= 0)
    drop = Drop.from_difference(group.noisy_accuracy, 1.0, basis.population, labelled, unknown, 1.0)
    return _measured([drop], group.draws or 0, basis)


def _worst_class(group: GroupComparison, basis: Basis) -> Measured:
    """The largest drop of a class, which is below a bound if the drop of every class is."""
    unknown = {index: number for index, number in group.unknown.items() if index >= 0}
    drops = []
    names = []
    for change in group.classes:
        without = unknown.pop(change.index, 0)
        drops.append(_drop(change.difference, group, basis, change.images, without))
        names.append((change.index, change.name))
    # The classes that are left have only samples without a difference.
    for index in sorted(unknown):
        names.append((index, None))
        drops.append(
            Drop(
                estimate=Estimate(math.nan),
                images=0,
                unknown=unknown[index],
                span=group.span,
            )
        )
    parts = []
    for (index, name), drop in zip(names, drops, strict=True):
        bounds = drop.bounds if drop.estimate.has_interval or not drop.images else None
        estimate = basis.estimate(drop.estimate.value, bounds, drop.estimate.method)
        parts.append(ClassPart(index, name, drop.images + drop.unknown, estimate))
    return _measured(drops, group.draws or 0, basis, tuple(parts))


def _share_worse(group: GroupComparison, basis: Basis) -> Measured:
    """The share of samples that are worse."""
    bounds: Estimate | None = None
    if group.counts is not None:
        bounds = group.counts.worse_population if basis.population else group.counts.worse
    shown = group.worse / group.size
    return _counted(group, bounds, shown, group.declined / group.images, group.worse)


def _newly_flagged(group: GroupComparison, _: Basis) -> Measured:
    """The number of newly flagged samples."""
    certain = group.flagged("newly flagged", *_SURE)
    likely = group.flagged("newly flagged", Certainty.LIKELY)
    unbounded = certain + group.flagged("newly flagged", Certainty.NO_INTERVAL)
    # Samples without any interval are flagged by their values alone.
    bounds = None if group.counts is None else group.counts.newly_flagged
    return _counted(group, bounds, certain, unbounded, certain, likely)


def _counted(
    group: GroupComparison,
    bounds: Estimate | None,
    value: float,
    unbounded: float,
    certain: int,
    likely: int = 0,
) -> Measured:
    """A number or share of samples within its bounds
    (:func:`robaudit.compare.counts.count_bounds`).

    Args:
        group: the samples.
        bounds: of the number or share; None without any.
        value: the number or share of samples that changed beyond their own intervals.
        unbounded: the value to take where there are no bounds.
        certain: number of samples that changed beyond their own intervals.
        likely: number of samples that may have changed.
    """
    size = group.size
    if bounds is None or group.approximate:
        return Measured(Estimate(float(unbounded)), images=size)
    remark = f"{certain} of {size} samples, each beyond its own 95 % interval"
    if likely:
        remark += f", {likely} more {Certainty.LIKELY}"
    remedy = "samples whose intervals contain the threshold leave it open"
    lower, upper = bounds.bounds or (value, value)
    # Bounds allow for chance, so they may exclude the number of samples that appear to be changed.
    within = min(max(float(value), lower), upper)
    estimate = replace(bounds, value=within)
    return Measured(estimate, remedy=remedy, images=size, remarks=(remark,))


_OF_RESULTS: Mapping[
    str, tuple[Callable[[GroupComparison, Basis], Measured], Callable[[float], Bounds]]
] = {
    "mean_drop": (_mean, lambda span: (-span, span)),
    "worst_class_drop": (_worst_class, lambda span: (-span, span)),
    "noisy_accuracy_drop": (_noisy_accuracy, lambda _: (-1.0, 1.0)),
    "newly_flagged": (_newly_flagged, lambda _: (0.0, math.inf)),
    "share_worse": (_share_worse, lambda _: (0.0, 1.0)),
}
"""The measurement of each quantity of an estimator's results, and its range as a function of the
largest difference of two values."""
QUANTITIES: Mapping[str, frozenset[str]] = dict.fromkeys(
    (*_OF_RESULTS, "accuracy_drop"), frozenset()
)
"""The quantities of ``robaudit compare``, each with its required arguments: none."""


def _group_of(gate: Gate, comparison: Comparison) -> GroupComparison:
    """The group that a gate is about; the gate need not name it if there is no other."""
    groups = {group.key: group for group in comparison.groups}
    return groups[only_group(gate, matching_groups(gate, groups, subject="the comparison"))]


def _remarks(group: GroupComparison) -> list[str]:
    """Remarks on values that votes replace, and on samples without a difference."""
    size = group.size
    remarks = []
    if group.voted:
        remarks.append(
            f"by the votes of its copies, not by the approximation of {group.key.estimator}"
        )
    if group.not_finite:
        remarks.append(
            f"without a finite value in one run or both: {group.not_finite} of {size} samples; "
            f"{ANY_VALUES}"
        )
    return [*remarks, _skipped(group.skipped, size)]


def _skipped(number: int, size: int) -> str:
    """The remark on skipped samples; empty without any."""
    return f"skipped by the new run: {number} of {size} samples; {ANY_VALUES}" if number else ""


def _outside(comparison: Comparison) -> list[str]:
    """Remarks on samples that the gates do not cover."""
    matching = comparison.matching
    numbers = (
        (len(matching.only_base) - len(matching.skipped), "in the base run only"),
        (len(matching.only_new), "in the new run only"),
        (len(matching.other_images), "with another image in each run"),
        (matching.skipped_besides, "skipped by the new run and not in the base run"),
    )
    return [
        f"{count(number, 'sample')} {where}: not covered by this gate"
        for number, where in numbers
        if number
    ]
