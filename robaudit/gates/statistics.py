"""The statistics of gates on a run: the range, the results and the measurement of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from robaudit.errors import SpecError
from robaudit.estimates import Bounds, Covers, Estimate
from robaudit.gates.evidence import Evidence, matching_groups, only_group, refuse_results_of
from robaudit.gates.measure import ClassPart, Measured, Method, check_between, counted_share
from robaudit.numerics.image_intervals import (
    BY_RANKS,
    LIKE_THESE,
    TAIL,
    MeasuredImages,
    measured_mean,
    measured_quantile,
    measured_share,
    population_mean,
    population_mean_method,
    population_quantile,
    population_share,
    restated,
)
from robaudit.plugins import STATISTICS, load_object, reference
from robaudit.quantities import LOSS, Quantity
from robaudit.runs.groups import GroupKey
from robaudit.runs.table import pooled_votes
from robaudit.spec.gate_grammar import Gate
from robaudit.text import known_name


def _share(_: Quantity) -> Bounds:
    """The range of a share, for results of any quantity."""
    return 0.0, 1.0


@dataclass(frozen=True, slots=True)
class Argument:
    """A number that a statistic needs: ``t`` of ``share_below(t=0.5)``.

    Attributes:
        name: as gates write it.
        limits: its range, for results of a quantity.
        what: what has this range, for messages; None: the quantity.
    """

    name: str
    limits: Callable[[Quantity], Bounds]
    what: str | None = None


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of gates on a run.

    Register one under the entry-point group ``robaudit.statistics``; the built-in ones are
    registered the same way.

    Attributes:
        measure: its value and its interval, from the rows of a result; :class:`SpecError` if they
            have none.
        limits: its range, for results of a quantity.
        needs: the quantities that it is about; empty: all.
        votes: it needs votes for the labels.
        lacking: problem and remedy for a run without such results.
        of_the_run: it takes no estimator and no noise level.
        arguments: the numbers that it needs.
    """

    measure: Callable[[Gate, Evidence], Measured]
    limits: Callable[[Quantity], Bounds] = _share
    needs: Collection[str] = ()
    votes: bool = False
    lacking: tuple[str, str] = "", ""
    of_the_run: bool = False
    arguments: Sequence[Argument] = ()


# --- of the run


def _warnings(_: Gate, evidence: Evidence) -> Measured:
    """The number of a run's warnings, which has no error, and the warnings as remarks."""
    warnings = evidence.run.info.warnings
    value = float(len(warnings))
    return Measured(
        Estimate(value, value, value, Method.OF_THE_RUN, Covers.RUN), remarks=tuple(warnings)
    )


def _accuracy(gate: Gate, evidence: Evidence) -> Measured:
    """The share of labelled images whose clean prediction is the label."""
    judged = int(evidence.all_rows.judged.sum())
    if not judged:
        raise SpecError(
            f"gate {str(gate)!r}",
            "the run has no labels, and so no accuracy",
            "audit labelled images",
        )
    return counted_share(int(evidence.all_rows.correct.sum()), judged, evidence.basis)


# --- of the images


OfImages = Callable[[Gate, Evidence, MeasuredImages, float], Measured]
"""Measures images whose values are mirrored where lower is better, so that higher is always better.

The last argument is the sign that mirrors a result back.
"""


def _of_images(
    measure: OfImages,
    gate: Gate,
    evidence: Evidence,
    *,
    bad_end: bool = False,
    means: bool = False,
    countable: bool = True,
) -> Measured:
    """A statistic of the images' values.

    Args:
        measure: measures the images.
        gate, evidence: see :class:`Statistic`.
        bad_end: it is about the least robust images.
        means: it has no interval for a population of unbounded values.
        countable: the number of draws or images that would decide a gate on it can be computed.
    """
    rows = evidence.rows
    scale = evidence.scale
    images = evidence.images()
    population = evidence.basis.population
    remarks = []
    if bad_end and not scale.higher_is_better:
        remarks.append("lower is better: the bad end is the high end")
    if scale.higher_is_better:
        measured = measure(gate, evidence, images, 1.0)
    else:
        measured = measure(gate, evidence, images.mirrored(), -1.0)
    # An interval that leaves out the bias of an approximation must not decide a gate.
    if rows.bounded < len(rows) or rows.approximate:
        classes = tuple(replace(part, estimate=Estimate(part.value)) for part in measured.classes)
        return Measured(
            Estimate(measured.estimate.value),
            classes=classes,
            images=evidence.size,
            remarks=tuple(remarks),
        )
    remedy = _why_draws_do_not_help(evidence, images)
    remarks += _caveats(evidence, classes=bool(measured.classes))
    bounded_scale = math.isfinite(scale.low) and math.isfinite(scale.high)
    if population and means and not bounded_scale:
        # One image in a thousand may carry such a mean and not have been drawn.
        remarks.append(
            f"the mean of an unbounded quantity has no interval for {LIKE_THESE} on that side: "
            "median and p05 have one"
        )
    number = 0
    if countable and population:
        number = evidence.size
    elif countable and not remedy:
        number = evidence.draws
    return replace(
        measured, number=number, remedy=remedy, images=evidence.size, remarks=tuple(remarks)
    )


def _why_draws_do_not_help(evidence: Evidence, images: MeasuredImages) -> str:
    """What to do where a larger number of draws would not narrow the intervals; else empty."""
    # The passes of a loss are copies times temperatures and steps: their number says too little.
    if evidence.scale.name == LOSS.name:
        return "more copies, or more temperatures and steps, narrow its intervals"
    if images.adaptive:
        return "its images stopped adaptively: audit them without a flag"
    return ""


def _caveats(evidence: Evidence, *, classes: bool) -> Iterator[str]:
    """Remarks on errors that the interval does not cover, and on what widens it."""
    rows = evidence.rows
    size = evidence.size
    if evidence.voted:
        yield f"by the votes of its copies, not by the approximation of {evidence.key.estimator}"
    unclassified = evidence.without_class
    if classes and unclassified:
        yield f"{unclassified} of {size} images have no label and are in no class"
    if rows.censored:
        yield f"{rows.censored} of {size} images censored at {rows.cap:.4g}"
    if rows.upper_bounds + rows.not_found:
        yield "upper bounds: the true values may be as small as the range allows"
    if rows.lower_bounds:
        yield "lower bounds: the true values may be as large as the range allows"
    yield from evidence.without_value


def _quantile(
    q: float, _: Gate, evidence: Evidence, better: MeasuredImages, sign: float
) -> Measured:
    """A quantile of the images' values, counted from the worst."""
    confidence = evidence.basis.confidence
    quantile = population_quantile if evidence.basis.population else measured_quantile
    ends = quantile(better, q, confidence)
    # Exact images: what endless draws would leave of the interval.
    limits = measured_quantile(better.exact(), q, confidence)
    value = sign * float(np.quantile(better.values, q))
    return Measured(
        evidence.basis.estimate(value, _signed(ends, sign), BY_RANKS),
        limit=_signed(limits, sign),
    )


def _share_below(gate: Gate, evidence: Evidence, better: MeasuredImages, sign: float) -> Measured:
    """The share of images that are worse than the gate's argument ``t``."""
    confidence = evidence.basis.confidence
    t = sign * gate.arguments["t"]
    share = population_share if evidence.basis.population else measured_share
    ends = share(better, t, confidence)
    value = float((better.values < t).mean())
    estimate = evidence.basis.estimate(value, ends, BY_RANKS)
    return Measured(estimate, limit=measured_share(better.exact(), t, confidence))


def _mean(_: Gate, evidence: Evidence, better: MeasuredImages, sign: float) -> Measured:
    """The mean of the images' values."""
    confidence = evidence.basis.confidence
    ends, method = _mean_of(better, evidence, confidence)
    limits = measured_mean(better.exact(), confidence)
    mean = sign * float(better.values.mean())
    estimate = evidence.basis.estimate(mean, _signed(ends, sign), method)
    return Measured(estimate, limit=_signed(limits, sign))


def _mean_of(images: MeasuredImages, evidence: Evidence, confidence: float) -> tuple[Bounds, str]:
    """The interval of a mean and its method."""
    if evidence.basis.population:
        return population_mean(images, confidence), population_mean_method(images)
    return measured_mean(images, confidence), images.method


def _noisy_accuracy(gate: Gate, evidence: Evidence) -> Measured:
    """The mean share of votes for the labels, which have no bias."""
    rows = evidence.rows.take(evidence.rows.label_draws > 0)
    draws = rows.label_draws
    shares = rows.hits / rows.label_draws
    # The stored intervals are of the votes for the prediction; those for the label need their own.
    ends = restated(shares, shares, shares, draws, TAIL, rows.label_split)
    pooled, split = pooled_votes(draws, rows.label_split)
    unknown = evidence.rows.not_finite
    images = MeasuredImages(shares, *ends, 0.0, 1.0, unknown=unknown, draws=pooled, split=split)
    number = evidence.size if evidence.basis.population else round(float(draws.mean()))
    return replace(
        _mean(gate, evidence, images, 1.0),
        number=number,
        images=len(shares),
        remarks=tuple(evidence.without_value),
    )


def _of_classes(
    gap: bool, gate: Gate, evidence: Evidence, better: MeasuredImages, sign: float
) -> Measured:
    """worst_class or class_gap; the intervals of all classes hold simultaneously."""
    parts = evidence.by_class(better)
    needed = 2 if gap else 1
    if len(parts) < needed:
        what = f"the run has images of {len(parts)} {'class' if len(parts) == 1 else 'classes'}"
        raise SpecError(f"gate {str(gate)!r}", what, "a gap needs images of two")
    basis = evidence.basis
    names = evidence.run.class_names
    # The worst class is known only from the values: its interval must hold whichever it is.
    class_confidence = basis.shared(len(parts))
    intervals = [_mean_of(images, evidence, class_confidence) for images in parts.values()]
    ends = [bounds for bounds, _ in intervals]
    method = f"simultaneous over {len(parts)} classes, {intervals[0][1]}"
    limits = [measured_mean(images.exact(), class_confidence) for images in parts.values()]
    # A class may have only images without a finite value.
    means = [
        float(images.values.mean()) if len(images.values) else math.nan for images in parts.values()
    ]
    known = [mean for mean in means if not math.isnan(mean)] or [math.nan]
    classes = [
        ClassPart(
            index,
            known_name(index, names),
            images.size,
            basis.estimate(sign * mean, _signed(bounds, sign), method),
        )
        for (index, images), mean, bounds in zip(parts.items(), means, ends, strict=True)
    ]
    # Worst first; classes without a value last.
    classes.sort(key=lambda part: (math.isnan(part.value), sign * part.value))
    if gap:
        value = max(known) - min(known)
        bounds = _gap(ends)
        limit = _gap(limits)
    else:
        value = sign * min(known)
        bounds = _signed(_smallest(ends), sign)
        limit = _signed(_smallest(limits), sign)
    return Measured(
        basis.estimate(value, bounds, method),
        limit=limit,
        classes=tuple(classes),
    )


def _smallest(bounds: Sequence[Bounds]) -> Bounds:
    """The interval of the smallest of values with these simultaneous intervals."""
    return min(lower for lower, _ in bounds), min(upper for _, upper in bounds)


def _gap(bounds: Sequence[Bounds]) -> Bounds:
    """The interval of the largest difference between two classes, from simultaneous intervals."""
    lowers = [lower for lower, _ in bounds]
    uppers = [upper for _, upper in bounds]
    highest = int(np.argmax(uppers))
    lowest = int(np.argmin(lowers))
    # A class differs from itself by 0, so the widest pair must be of two classes: the class of the
    # highest upper end with another's lower end, or the class of the lowest lower end with
    # another's upper end.
    upper = max(
        uppers[highest] - min(lowers[:highest] + lowers[highest + 1 :]),
        max(uppers[:lowest] + uppers[lowest + 1 :]) - lowers[lowest],
    )
    return max(0.0, max(lowers) - min(uppers)), upper


def _signed(bounds: Bounds, sign: float) -> Bounds:
    """The interval mirrored back, if the values were mirrored."""
    return bounds if sign > 0 else (-bounds[1], -bounds[0])


# --- all of them


def _range(scale: Quantity) -> Bounds:
    """The range of the quantity, for statistics in its unit."""
    return scale.low, scale.high


MEAN = Statistic(partial(_of_images, _mean, means=True), _range)
MEDIAN = Statistic(partial(_of_images, partial(_quantile, 0.5)), _range)
P05 = Statistic(partial(_of_images, partial(_quantile, 0.05), bad_end=True), _range)
WORST_CLASS = Statistic(
    partial(_of_images, partial(_of_classes, False), bad_end=True, means=True), _range
)
CLASS_GAP = Statistic(
    partial(_of_images, partial(_of_classes, True), means=True),
    lambda scale: (0.0, scale.high - scale.low),
)
SHARE_BELOW = Statistic(
    partial(_of_images, _share_below, bad_end=True, countable=False),
    arguments=(Argument("t", _range),),
)
ACCURACY = Statistic(_accuracy, of_the_run=True)
WARNINGS = Statistic(_warnings, lambda _: (0.0, math.inf), of_the_run=True)
NOISY_ACCURACY = Statistic(
    _noisy_accuracy,
    votes=True,
    lacking=(
        "there are no results with labels and a fixed number of votes",
        f"audit labelled images with {reference()}",
    ),
)


def statistic_of(gate: Gate) -> Statistic:
    """The statistic that a gate compares with its threshold.

    Raises:
        RobauditError: its plugin does not import, or is no statistic.
    """
    return load_object(STATISTICS, "gate statistic", gate.quantity, Statistic)


def group_of(
    gate: Gate, keys: Iterable[GroupKey], results: Mapping[GroupKey, Evidence] | None = None
) -> GroupKey | None:
    """The result that a gate is about; None for a gate on warnings or on the accuracy without
    noise.

    Args:
        gate: the gate.
        keys: of all results.
        results: their rows; None before they are computed.

    Raises:
        SpecError: no results match, or several.
    """
    statistic = statistic_of(gate)
    where = f"gate {str(gate)!r}"
    if statistic.of_the_run:
        refuse_results_of(gate)
        return None
    fitting = [key for key in keys if not statistic.needs or key.quantity in statistic.needs]
    if statistic.needs and not fitting:
        raise SpecError(where, *statistic.lacking)
    matching = matching_groups(gate, fitting)
    if not statistic.votes:
        return only_group(gate, matching)
    # Before the run no votes are known: the checks that need none are done.
    if results is None:
        return matching[0]
    voted = [key for key in matching if results[key].has_votes]
    if voted:
        return only_group(gate, voted)
    others = [key for key in fitting if results[key].has_votes]
    if others:
        what = f"there is no fixed number of votes for the labels in {_named(matching)}"
        raise SpecError(where, what, f"ask for {_named(others)}")
    raise SpecError(where, *statistic.lacking)


def _named(keys: Iterable[GroupKey]) -> str:
    return " or ".join(f"{key.estimator} at {key.at}" for key in keys)


def check_range(gate: Gate, scale: Quantity) -> None:
    """Refuse a threshold, or an argument, outside the range of the statistic.

    It is a slip, such as 5 for 5 %.

    Raises:
        SpecError: it lies outside the range.
    """
    statistic = statistic_of(gate)
    what = gate.quantity
    if not (statistic.of_the_run or statistic.needs):
        what = f"{gate.quantity} of {scale.name}"
    check_between(gate, *statistic.limits(scale), what, gate.threshold)
    for argument in statistic.arguments:
        what = argument.what or scale.name
        number = gate.arguments[argument.name]
        check_between(gate, *argument.limits(scale), what, number, argument.name)
