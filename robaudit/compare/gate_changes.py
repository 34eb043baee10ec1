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
from robaudit.gates.decide import Decision, settle
from robaudit.gates.evidence import ANY_VALUES, matching_groups, only_group, refuse_results_of
from robaudit.gates.measure import Basis, ClassPart, Measured, Method, check_between
from robaudit.plugins import reference
from robaudit.spec.gate_grammar import Gate
from robaudit.stats.flags import Certainty
from robaudit.text import count

_SURE = (Certainty.CONFIRMED, Certainty.APPROXIMATE)


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop and the samples behind it.

    Attributes:
        estimate: base - new, negated where lower is better, over the samples that have a
            difference.
        images: number of those samples; ``unknown``: number of further samples, with any drop up to
            ``span`` in either direction.
    """

    estimate: Estimate
    images: int
    unknown: int
    span: float

    @classmethod
    def of(
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
        """The drop of a difference; without limits where they leave out a bias (``approximate``),
        with infinite limits for a population of unbounded values: a rare image may have changed by
        any amount."""
        change = difference.population if population else difference.measured
        if change is None or approximate:
            change = Estimate(difference.value)
        elif population and not math.isfinite(span) and change.method != Method.SAME_MODEL:
            change = Estimate.population(
                change.value, (-math.inf, math.inf), "paired images: no bound on a difference"
            )
        return cls(
            change.negated() if sign > 0 else replace(change, value=change.value + 0.0),
            images,
            unknown,
            span,
        )

    @property
    def bounds(self) -> Bounds:
        """The interval with unknown samples at both ends of the range; the whole range without
        one."""
        return self._widened(self.estimate.bounds or (-self.span, self.span))

    @property
    def settled(self) -> Bounds:
        """The interval that endless draws would leave."""
        value = self.estimate.value
        return self._widened(
            (value, value) if self.estimate.has_interval else (-self.span, self.span)
        )

    def _widened(self, bounds: Bounds) -> Bounds:
        if not self.unknown:
            return bounds
        lower, upper = bounds
        share = self.unknown / (self.images + self.unknown)
        return lower * (1 - share) - self.span * share, upper * (1 - share) + self.span * share


def decide(
    comparison: Comparison, gates: Sequence[Gate], *, population: bool = False, point: bool = False
) -> tuple[Decision, ...]:
    """Decide the gates, each by its interval.

    Samples without a difference, because a value is not a finite number or the new run skipped
    them, count at both ends of the range, which widens the interval. The gates do not cover samples
    that only one run was to audit; the evidence counts them.

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
    basis = Basis(comparison.groups[0].confidence, population, point)
    return tuple(_decision(gate, comparison, basis) for gate in gates)


def _decision(gate: Gate, comparison: Comparison, basis: Basis) -> Decision:
    apart = _apart(comparison)
    if gate.quantity == "accuracy_drop":
        refuse_results_of(gate)
        accuracy = comparison.clean_accuracy
        unknown = comparison.clean_unknown
        if accuracy is None:
            raise RunError(
                f"gate {str(gate)!r}",
                "the runs share no sample with a label",
                "use data with labels",
            )
        check_between(gate, -1.0, 1.0, gate.quantity, gate.threshold)
        drop = Drop.of(accuracy, 1.0, basis.population, comparison.samples, unknown, 1.0)
        return settle(
            gate,
            _measured([drop], 0, basis),
            basis,
            _skipped(unknown, comparison.samples + unknown),
            *apart,
        )
    group = _group_of(gate, comparison)
    gate, (measure, limits) = (
        gate.about(group.key.estimator, group.key.at),
        _OF_RESULTS[gate.quantity],
    )
    check_between(gate, *limits(group.span), gate.quantity, gate.threshold)
    if gate.quantity == "newly_flagged":  # a number of these images
        basis = replace(basis, population=False)
    return settle(gate, measure(group, basis), basis, *_remarks(group), *apart)


def _drop(
    difference: Difference, group: GroupComparison, basis: Basis, images: int, unknown: int
) -> Drop:
    sign = 1.0 if group.quantity.higher_is_better else -1.0
    return Drop.of(
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
    """The largest drop as a quantity to decide on; ``draws``: per image."""
    first = drops[0]
    images = sum(drop.images for drop in drops)
    size = sum(drop.images + drop.unknown for drop in drops)
    if any(drop.images and not drop.estimate.has_interval for drop in drops):
        return Measured(Estimate(first.estimate.value), classes=classes, images=size)
    ends = [drop.bounds for drop in drops]
    settled = [drop.settled for drop in drops]
    method = first.estimate.method if first.estimate.has_interval else ""
    if method == Method.COUNTED and not first.unknown:
        method = Method.EXACT
    if classes:
        method = f"{method}, simultaneous over {len(classes)} classes"
    worst, at_best = (
        (max(low for low, _ in bounds), max(high for _, high in bounds))
        for bounds in (ends, settled)
    )
    worst_drop = basis.estimate(first.estimate.value, worst, method)
    return Measured(
        worst_drop, images if basis.population else draws, at_best, classes, images=size
    )


def _mean(group: GroupComparison, basis: Basis) -> Measured:
    drop = _drop(group.mean, group, basis, group.images, group.not_finite + group.skipped)
    return _measured([drop], group.draws or 0, basis)


def _noisy_accuracy(group: GroupComparison, basis: Basis) -> Measured:
    if group.noisy_accuracy is None:
        raise RunError(
            "gate noisy_accuracy_drop",
            f"{group.key} has no votes for labels",
            f"use {reference()} with fixed samples, on data with labels",
        )
    # where there are labels, they are the classes
    labelled = sum(change.images for change in group.classes)
    unknown = sum(number for index, number in group.unknown.items() if index >= 0)
    drop = Drop.of(group.noisy_accuracy, 1.0, basis.population, labelled, unknown, 1.0)
    return _measured([drop], group.draws or 0, basis)


def _worst_class(group: GroupComparison, basis: Basis) -> Measured:
    """The largest drop of a class, which is below a bound if the drop of every class is."""
    unknown = {index: number for index, number in group.unknown.items() if index >= 0}
    drops = [
        _drop(change.difference, group, basis, change.images, unknown.pop(change.index, 0))
        for change in group.classes
    ]
    names = [(change.index, change.name) for change in group.classes] + [
        (index, None) for index in sorted(unknown)
    ]
    drops += [Drop(Estimate(math.nan), 0, unknown[index], group.span) for index in sorted(unknown)]
    parts = []
    for (index, name), drop in zip(names, drops, strict=True):
        bounds = drop.bounds if drop.estimate.has_interval or not drop.images else None
        estimate = basis.estimate(drop.estimate.value, bounds, drop.estimate.method)
        parts.append(ClassPart(index, name, drop.images + drop.unknown, estimate))
    return _measured(drops, group.draws or 0, basis, tuple(parts))


def _share_worse(group: GroupComparison, basis: Basis) -> Measured:
    counts = group.counts
    ends = None if counts is None else counts.worse_population if basis.population else counts.worse
    return _counted(
        group, ends, group.worse / group.size, group.declined / group.images, group.worse
    )


def _newly_flagged(group: GroupComparison, _: Basis) -> Measured:
    certain = group.flagged("newly flagged", *_SURE)
    likely = group.flagged("newly flagged", Certainty.LIKELY)
    without = certain + group.flagged("newly flagged", Certainty.NO_INTERVAL)
    return _counted(
        group,
        None if group.counts is None else group.counts.newly_flagged,
        certain,
        without,
        certain,
        likely,
    )


def _counted(
    group: GroupComparison,
    ends: Estimate | None,
    value: float,
    without: float,
    certain: int,
    likely: int = 0,
) -> Measured:
    """A number or share of samples within its bounds (:func:`robaudit.compare.counts.counted`).

    Args:
        group: the samples.
        ends: the bounds.
        value: the number or share of samples that changed beyond their own intervals.
        without: the value without bounds.
        certain: number of samples that changed beyond their own intervals; ``likely``: of those
            that may have changed.
    """
    size = group.size
    if ends is None or group.approximate:
        return Measured(Estimate(float(without)), images=size)
    about = f"{certain} of {size} samples, each beyond its own 95 % interval" + (
        f", {likely} more {Certainty.LIKELY}" if likely else ""
    )
    stuck = "samples whose intervals contain the threshold leave it open"
    lower, upper = ends.bounds or (value, value)
    estimate = replace(ends, value=min(max(float(value), lower), upper))
    return Measured(estimate, stuck=stuck, images=size, remarks=(about,))


_OF_RESULTS: Mapping[
    str, tuple[Callable[[GroupComparison, Basis], Measured], Callable[[float], Bounds]]
] = {
    "mean_drop": (_mean, lambda span: (-span, span)),
    "worst_class_drop": (_worst_class, lambda span: (-span, span)),
    "noisy_accuracy_drop": (_noisy_accuracy, lambda _: (-1.0, 1.0)),
    "newly_flagged": (_newly_flagged, lambda _: (0.0, math.inf)),
    "share_worse": (_share_worse, lambda _: (0.0, 1.0)),
}
"""What measures a quantity of an estimator's results, and its range by the largest difference of
two values."""
QUANTITIES: Mapping[str, frozenset[str]] = dict.fromkeys(
    (*_OF_RESULTS, "accuracy_drop"), frozenset()
)
"""The quantities of `robaudit compare`; none needs an argument besides estimator and noise
level."""


def _group_of(gate: Gate, comparison: Comparison) -> GroupComparison:
    """The group that a gate is about; the gate may leave out its name only if there is no other."""
    groups = {group.key: group for group in comparison.groups}
    return groups[only_group(gate, matching_groups(gate, groups, subject="the comparison"))]


def _remarks(group: GroupComparison) -> list[str]:
    """Remarks on values that are not the rows' own, and on samples without a difference."""
    by_votes = (
        f"by the votes of its copies, not by the approximation of {group.key.estimator}"
        if group.voted
        else ""
    )
    size = group.size
    not_finite = (
        f"without a finite value in one run or both: {group.not_finite} of {size} samples; "
        f"{ANY_VALUES}"
        if group.not_finite
        else ""
    )
    return [by_votes, not_finite, _skipped(group.skipped, size)]


def _skipped(number: int, size: int) -> str:
    return f"skipped by the new run: {number} of {size} samples; {ANY_VALUES}" if number else ""


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
