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
from robaudit.gates.measure import ClassPart, Measured, Method, check_between, counted
from robaudit.names import ResultName
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
    simultaneous,
)
from robaudit.plugins import STATISTICS, load_object, reference
from robaudit.quantities import LOSS, Quantity
from robaudit.runs.groups import GroupKey
from robaudit.runs.table import alike, antithetic
from robaudit.spec.gate_grammar import Gate
from robaudit.text import known_name


def _share(_: Quantity) -> Bounds:
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
    judged = int(evidence.every.judged.sum())
    if not judged:
        raise SpecError(
            f"gate {str(gate)!r}",
            "the run has no labels, and so no accuracy",
            "audit labelled images",
        )
    return counted(int(evidence.every.correct.sum()), judged, evidence.basis)


# --- of the images


OfImages = Callable[[Gate, Evidence, MeasuredImages, float], Measured]
"""Measures images that are mirrored where lower is better, and so have to be mirrored back by the
sign."""


def _of_images(
    of: OfImages,
    gate: Gate,
    evidence: Evidence,
    *,
    bad_end: bool = False,
    means: bool = False,
    more: bool = True,
) -> Measured:
    """A statistic of the images' values.

    Args:
        of: measures the images.
        gate, evidence: see :class:`Statistic`.
        bad_end: it is about the least robust images.
        means: it has no interval for a population of unbounded values.
        more: the number of draws or images is known that would decide a gate on it.
    """
    rows = evidence.rows
    scale = evidence.scale
    images = evidence.images()
    population = evidence.basis.population
    remarks = (
        ["lower is better: the bad end is the high end"]
        if bad_end and not scale.higher_is_better
        else []
    )
    measured = of(
        gate, evidence, *((images, 1.0) if scale.higher_is_better else (images.mirrored(), -1.0))
    )
    if rows.bounded < len(rows) or rows.approximate:
        classes = tuple(replace(part, estimate=Estimate(part.value)) for part in measured.classes)
        return Measured(
            Estimate(measured.estimate.value),
            classes=classes,
            images=evidence.size,
            remarks=tuple(remarks),
        )
    stuck = ""
    if scale.name == LOSS.name:
        stuck = "more copies, or more temperatures and steps, narrow its intervals"
    elif images.adaptive:
        estimator = ResultName.parse(evidence.key.estimator).estimator
        stuck = (
            f"its images stop adaptively: give {estimator} a fixed number of samples, or a "
            "smaller tolerance"
        )
    remarks += _caveats(evidence, classes=bool(measured.classes))
    if population and means and not (math.isfinite(scale.low) and math.isfinite(scale.high)):
        remarks.append(
            f"the mean of an unbounded quantity has no interval for {LIKE_THESE} on that side: "
            "median and p05 have one"
        )
    now = 0 if not more else evidence.size if population else 0 if stuck else evidence.draws
    return replace(measured, now=now, stuck=stuck, images=evidence.size, remarks=tuple(remarks))


def _caveats(evidence: Evidence, *, classes: bool) -> Iterator[str]:
    """Remarks on errors that the interval does not cover, and on what widens it."""
    rows = evidence.rows
    size = evidence.size
    if evidence.voted:
        yield f"by the votes of its copies, not by the approximation of {evidence.key.estimator}"
    if classes and (unclassified := evidence.without_class):
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
    confidence = evidence.basis.confidence
    quantile = population_quantile if evidence.basis.population else measured_quantile
    ends = quantile(better, q, confidence)
    settled = measured_quantile(better.exact(), q, confidence)
    value = sign * float(np.quantile(better.values, q))
    return Measured(
        evidence.basis.estimate(value, _signed(ends, sign), BY_RANKS),
        settled=_signed(settled, sign),
    )


def _share_below(gate: Gate, evidence: Evidence, better: MeasuredImages, sign: float) -> Measured:
    confidence = evidence.basis.confidence
    t = sign * gate.arguments["t"]
    ends = (population_share if evidence.basis.population else measured_share)(
        better, t, confidence
    )
    estimate = evidence.basis.estimate(float((better.values < t).mean()), ends, BY_RANKS)
    return Measured(estimate, settled=measured_share(better.exact(), t, confidence))


def _mean(_: Gate, evidence: Evidence, better: MeasuredImages, sign: float) -> Measured:
    confidence = evidence.basis.confidence
    (ends, method) = _mean_of(better, evidence, confidence)
    settled = measured_mean(better.exact(), confidence)
    estimate = evidence.basis.estimate(
        sign * float(better.values.mean()), _signed(ends, sign), method
    )
    return Measured(estimate, settled=_signed(settled, sign))


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
    number = alike(rows.label_draws)
    ends = restated(shares, shares, shares, draws, TAIL, rows.label_split)
    split = None if number is None else antithetic(rows.label_split)
    images = MeasuredImages(
        shares, *ends, 0.0, 1.0, unknown=evidence.rows.not_finite, draws=number, split=split
    )
    now = evidence.size if evidence.basis.population else round(float(draws.mean()))
    return replace(
        _mean(gate, evidence, images, 1.0),
        now=now,
        images=len(shares),
        remarks=tuple(evidence.without_value),
    )


def _of_classes(
    gap: bool, gate: Gate, evidence: Evidence, better: MeasuredImages, sign: float
) -> Measured:
    """worst_class or class_gap; the intervals of all classes hold simultaneously."""
    parts = evidence.by_class(better)
    if len(parts) < 1 + gap:
        what = f"the run has images of {len(parts)} {'class' if len(parts) == 1 else 'classes'}"
        raise SpecError(f"gate {str(gate)!r}", what, "a gap needs images of two")
    basis = evidence.basis
    names = evidence.run.class_names
    each = simultaneous(basis.confidence, len(parts))
    ends, methods = zip(
        *(_mean_of(images, evidence, each) for images in parts.values()), strict=True
    )
    method = f"simultaneous over {len(parts)} classes, {methods[0]}"
    settled = [measured_mean(images.exact(), each) for images in parts.values()]
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
    classes.sort(key=lambda part: (math.isnan(part.value), sign * part.value))

    def together(ends: Sequence[Bounds]) -> Bounds:
        return (
            _gap(ends)
            if gap
            else _signed((min(low for low, _ in ends), min(high for _, high in ends)), sign)
        )

    value = max(known) - min(known) if gap else sign * min(known)
    return Measured(
        basis.estimate(value, together(ends), method),
        settled=together(settled),
        classes=tuple(classes),
    )


def _gap(bounds: Sequence[Bounds]) -> Bounds:
    """The largest difference of two classes: no class is compared with itself."""
    lowers = [lower for lower, _ in bounds]
    uppers = [upper for _, upper in bounds]
    highest = int(np.argmax(uppers))
    lowest = int(np.argmin(lowers))
    upper = max(
        uppers[highest] - min(lowers[:highest] + lowers[highest + 1 :]),
        max(uppers[:lowest] + uppers[lowest + 1 :]) - lowers[lowest],
    )
    return max(0.0, max(lowers) - min(uppers)), upper


def _signed(bounds: Bounds, sign: float) -> Bounds:
    return bounds if sign > 0 else (-bounds[1], -bounds[0])


# --- all of them


def _range(scale: Quantity) -> Bounds:
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
    partial(_of_images, _share_below, bad_end=True, more=False), arguments=(Argument("t", _range),)
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
    if results is None:
        return matching[0]
    voted = [key for key in matching if results[key].has_votes]
    if not voted:
        if others := [key for key in fitting if results[key].has_votes]:
            what = f"there is no fixed number of votes for the labels in {_named(matching)}"
            raise SpecError(where, what, f"ask for {_named(others)}")
        raise SpecError(where, *statistic.lacking)
    return only_group(gate, voted)


def _named(keys: Iterable[GroupKey]) -> str:
    return " or ".join(f"{key.estimator} at {key.at}" for key in keys)


def check_range(gate: Gate, scale: Quantity) -> None:
    """Refuse a threshold, or an argument, outside the range of the statistic: a slip, such as 5 for
    5 %.

    Raises:
        SpecError: it lies outside the range.
    """
    statistic = statistic_of(gate)
    what = (
        gate.quantity
        if statistic.of_the_run or statistic.needs
        else f"{gate.quantity} of {scale.name}"
    )
    check_between(gate, *statistic.limits(scale), what, gate.threshold)
    for argument in statistic.arguments:
        of_argument = argument.what or scale.name
        check_between(
            gate, *argument.limits(scale), of_argument, gate.arguments[argument.name], argument.name
        )
