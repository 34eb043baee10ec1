"""Quantities of gates: range, value, and how their intervals shrink with more draws or more images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from robaudit.documents import Document
from robaudit.errors import SpecError
from robaudit.gates.evidence import Evidence
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import LOSS, Quantity
from robaudit.spec.gates import CERTIFIED_ACCURACY, SCORES, WARNINGS, Gate
from robaudit.stats.frame import alike, antithetic
from robaudit.stats.intervals import (
    LIKE_THESE,
    TAIL,
    Bounds,
    MeanMethod,
    MeasuredImages,
    known_population_mean,
    measured_mean,
    measured_quantile,
    measured_share,
    population_mean_method,
    population_quantile,
    population_share,
    repeated_mean,
    restated,
    simultaneous,
)
from robaudit.text import class_name, known_name

SHARES = frozenset({"share_below", "accuracy", "noisy_accuracy", CERTIFIED_ACCURACY})
OF_CLASSES = frozenset({"worst_class", "class_gap"})
_QUANTILES = {"median": 0.5, "p05": 0.05}
_LOWER_IS_BETTER = {
    "p05": "the 95th percentile: lower is better",
    "worst_class": "the largest class mean: lower is better",
    "share_below": "the share above t: lower is better",
}
_METHODS = {
    MeanMethod.POOLED: "pooled Clopper-Pearson",
    MeanMethod.PAIRS: "pooled antithetic pairs",
    MeanMethod.MOVER: "MOVER",
    MeanMethod.MEAN_OF_ENDS: "mean of intervals",
    MeanMethod.NONE: "none",
}
_STOPPED = "its images stop adaptively: give mc a fixed number of samples, or a smaller tolerance"

_LONGER = "more copies, or more temperatures and steps, narrow its intervals"


class Method(StrEnum):
    """How an interval was made, where the code depends on it; others are free text."""

    EXACT = "exact"
    """The value has no error for these images."""
    OF_THE_RUN = "a count"
    """Not of the images: it has no error at all."""
    COUNTED = "counted"
    """Counted without error, apart from images whose value is not known."""
    SAME_MODEL = "the same model"
    """There can be no difference."""
    NONE = "none"
    """There is no interval."""


@dataclass(frozen=True, slots=True)
class ClassPart(Document):
    """One class behind a gate on worst_class or class_gap, with its simultaneous interval."""

    index: int
    name: str | None
    images: int
    value: float
    lower: float | None
    upper: float | None

    @property
    def text(self) -> str:
        """The name, or the index of a class without one."""
        return class_name(self.index, None if self.name is None else {self.index: self.name})


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity to compare with a threshold.

    Attributes:
        value: the estimate.
        bounds: its interval with a multiple of the draws (or images); 1.0: as it is. None: there is no interval.
        method: how the interval was made.
        now: present number of draws per image, or of images; 0: more of them would change nothing.
        classes: those that it is computed from, worst first.
        stuck: the remark where more would not narrow the interval.
        images: number of images that it is about, those without a known value included; 0: it is not about images.
        remarks: what it compares, and what the interval does not cover.
    """

    value: float
    bounds: Callable[[float], Bounds] | None
    method: str
    now: int
    classes: tuple[ClassPart, ...] = ()
    stuck: str = ""
    images: int = 0
    remarks: tuple[str, ...] = ()


def check_range(gate: Gate, scale: Quantity) -> None:
    """Refuse a threshold, or a t, outside the range of the quantity: it is a slip, such as 5 for 5 %.

    Raises:
        SpecError: it lies outside the range.
    """
    if gate.quantity in SCORES:
        check_between(gate, *score_range(gate.quantity), gate.quantity, gate.threshold)
    elif gate.quantity == WARNINGS:
        check_between(gate, 0.0, math.inf, "a number of warnings", gate.threshold)
    elif gate.quantity in SHARES:
        check_between(gate, 0.0, 1.0, gate.quantity, gate.threshold)
    else:
        low, high = (0.0, scale.high - scale.low) if gate.quantity == "class_gap" else (scale.low, scale.high)
        check_between(gate, low, high, f"{gate.quantity} of {scale.name}", gate.threshold)
    if gate.t is not None:
        check_between(gate, scale.low, scale.high, scale.name, gate.t, "t")
    if gate.radius is not None:
        check_between(gate, 0.0, math.inf, "a radius", gate.radius, "radius")


def score_range(score: str) -> Bounds:
    """The range of a score of radii."""
    if score.startswith("easy_less_hard"):
        return -math.inf, math.inf
    return (-math.inf, 1.0) if score == "r_squared" else (0.0, 1.0) if score.startswith("relative_variation") else (0.0, math.inf)


def check_between(gate: Gate, low: float, high: float, what: str, number: float, name: str = "threshold") -> None:
    """Refuse a number of a gate that lies outside a range.

    Args:
        gate: for the message.
        low, high: the range; either may be infinite.
        what: the quantity with this range.
        number: the number to check.
        name: what the number is in the gate.

    Raises:
        SpecError: it does.
    """
    if low <= number <= high:
        return
    reach = f"lies from {low:g} to {high:g}" if math.isfinite(low) and math.isfinite(high) else "is any number"
    if math.isfinite(low) != math.isfinite(high):
        reach = f"is at most {high:g}" if math.isfinite(high) else f"is at least {low:g}"
    raise SpecError(f"gate {str(gate)!r}", f"{what} {reach}, never {number:.15g}", f"give a {name} in that range")


def measure(
    gate: Gate, evidence: Evidence, scale: Quantity, confidence: float, *, population: bool, names: Sequence[str] | None
) -> Measured:
    """The value of the gate's quantity and its interval.

    Args:
        gate: whose quantity.
        evidence: the rows that it is about.
        scale: range and direction of their values.
        confidence: of the interval.
        population: an interval for the population, else for the measurement of these images.
        names: of the classes.

    Raises:
        SpecError: the group has no such quantity.
        NothingLeftError: it has no finite value.
    """
    made = _measure(gate, evidence, scale, confidence, population=population, names=names)
    judged = {"accuracy": evidence.every.judged, "noisy_accuracy": evidence.rows.label_draws > 0}
    images = int(judged[gate.quantity].sum()) if gate.quantity in judged else evidence.size
    remarks = [] if scale.higher_is_better or gate.quantity not in _LOWER_IS_BETTER else [_LOWER_IS_BETTER[gate.quantity]]
    if made.bounds is not None and gate.quantity != "accuracy":
        remarks += _caveats(gate, evidence, scale, population=population)
    return replace(made, images=images, remarks=tuple(remarks))


def _caveats(gate: Gate, evidence: Evidence, scale: Quantity, *, population: bool) -> Iterator[str]:
    """What the interval does not cover, and what widens it."""
    rows = evidence.rows
    if evidence.voted and gate.quantity != "noisy_accuracy":
        yield f"by the votes of its copies, not by the approximation of {evidence.key.estimator}"
    if gate.quantity in OF_CLASSES and (unclassified := evidence.without_class):
        yield f"{unclassified} of {evidence.size} images have no label and are in no class"
    if rows.censored:
        yield f"{rows.censored} of {evidence.size} images {'not found up to' if rows.not_found else 'censored at'} {rows.cap:.4g}"
    if rows.upper_bounds + rows.not_found and gate.quantity != "noisy_accuracy":
        yield "upper bounds: the true values may be as small as the range allows"
    if rows.lower_bounds:
        yield "lower bounds: the true values may be as large as the range allows"
    if rows.not_finite:
        yield f"{rows.not_finite} of {evidence.size} images have no finite value: the interval holds whatever those values are"
    if population and not (math.isfinite(scale.low) and math.isfinite(scale.high)) and gate.quantity in OF_CLASSES | {"mean"}:
        yield f"the mean of an unbounded quantity has no interval for {LIKE_THESE} on that side: median and p05 have one"


def _measure(
    gate: Gate, evidence: Evidence, scale: Quantity, confidence: float, *, population: bool, names: Sequence[str] | None
) -> Measured:
    now = evidence.size if population else evidence.draws
    if gate.quantity == "accuracy":
        return _accuracy(gate, evidence, confidence, population=population)
    if gate.quantity == "noisy_accuracy":
        return _noisy_accuracy(evidence, confidence, population=population)
    images = evidence.images(scale)
    stuck = _LONGER if scale.name == LOSS.name else _STOPPED
    if (images.adaptive or scale.name == LOSS.name) and not population:
        now = 0
    sign = 1.0 if scale.higher_is_better else -1.0
    better = images if sign > 0 else images.mirrored()
    classes: tuple[ClassPart, ...] = ()
    bounds: Callable[[float], Bounds]
    if gate.quantity in OF_CLASSES:
        value, bounds, method, classes = _of_classes(gate, evidence.by_class(better), confidence, sign, population=population, names=names)
    elif gate.quantity == "mean":
        value, method = float(images.values.mean()), _mean_method(images, population=population)
        bounds = _mean_bounds(images, confidence, population=population)
    elif gate.quantity == "share_below":
        t = sign * float(gate.t or 0.0)
        value, method = float((better.values < t).mean()), "counts of the images' intervals"

        def bounds(factor: float) -> Bounds:
            if population:
                return population_share(better, t, confidence, factor)
            return measured_share(better.with_draws(factor), t, confidence)
    else:
        q = _QUANTILES[gate.quantity]
        value, method = sign * float(np.quantile(better.values, q)), "ranks of the images' intervals"

        def bounds(factor: float) -> Bounds:
            if population:
                return _signed(population_quantile(better, q, confidence, factor), sign)
            return _signed(measured_quantile(better.with_draws(factor), q, confidence), sign)

    if evidence.rows.bounded < len(evidence.rows) or evidence.rows.approximate:
        classes = tuple(replace(one, lower=None, upper=None) for one in classes)
        return Measured(value, None, Method.NONE, 0, classes)
    return Measured(value, bounds, method, now, classes, stuck)


def _accuracy(gate: Gate, evidence: Evidence, confidence: float, *, population: bool) -> Measured:
    judged = int(evidence.every.judged.sum())
    if not judged:
        raise SpecError(f"gate {str(gate)!r}", "the run has no labels, and so no accuracy", "audit labelled images")
    return counted(int(evidence.every.correct.sum()), judged, confidence, population=population, images=evidence.size)


def measured_warnings(warnings: Sequence[str]) -> Measured:
    """The number of a run's warnings, which has no error, and the warnings as remarks."""
    value = float(len(warnings))
    return Measured(value, lambda _: (value, value), Method.OF_THE_RUN, 0, remarks=tuple(warnings))


def counted(count: int, total: int, confidence: float, *, population: bool, images: int, remarks: tuple[str, ...] = ()) -> Measured:
    """A share of images that were counted without error: for these images it is exact, for others like them Clopper-Pearson's.

    Args:
        count, total: the share.
        confidence: of the interval.
        population: for the population.
        images: of the run, to say how many more would decide.
        remarks: as for :class:`Measured`.
    """
    value = count / total
    if not population:
        return Measured(value, lambda _: (value, value), Method.EXACT, 0, images=images, remarks=remarks)

    def bounds(factor: float) -> Bounds:
        lower, upper = clopper_pearson(count * factor, total * factor, confidence)
        return float(lower), float(upper)

    return Measured(value, bounds, "Clopper-Pearson", images, images=images, remarks=remarks)


def _noisy_accuracy(evidence: Evidence, confidence: float, *, population: bool) -> Measured:
    """All votes pooled where there are equally many per image; else MOVER over the images' own intervals."""
    rows = evidence.rows.take(evidence.rows.label_draws > 0)
    draws, split = rows.label_draws, antithetic(rows.label_split)
    shares = rows.hits / draws
    value = float(shares.mean())
    images = MeasuredImages(shares, shares, shares, 0.0, 1.0, unknown=evidence.rows.not_finite)
    if population:
        bounds = _mean_bounds(images, confidence, population=True)
        return Measured(value, bounds, population_mean_method(images), evidence.size)
    if (number := alike(draws)) is not None:
        pooled = replace(images, draws=number, split=split)
        return Measured(value, _mean_bounds(pooled, confidence, population=False), _METHODS[pooled.method], number)

    def by_image(factor: float) -> Bounds:
        lowers, uppers = restated(shares, shares, shares, draws * factor, TAIL, None if split is None else split * factor)
        return measured_mean(replace(images, lowers=lowers, uppers=uppers), confidence)

    return Measured(value, by_image, _METHODS[MeanMethod.MOVER], round(float(draws.mean())))


def _mean_bounds(images: MeasuredImages, confidence: float, *, population: bool) -> Callable[[float], Bounds]:
    """The interval of a mean, as a function of the multiple of draws or images."""
    if not population:
        return lambda factor: measured_mean(images.with_draws(factor), confidence)
    known = known_population_mean(images, confidence)
    return lambda factor: repeated_mean(images, known, factor)


def _mean_method(images: MeasuredImages, *, population: bool) -> str:
    return population_mean_method(images) if population else _METHODS[images.method]


def _of_classes(
    gate: Gate,
    parts: Mapping[int, MeasuredImages],
    confidence: float,
    sign: float,
    *,
    population: bool,
    names: Sequence[str] | None,
) -> tuple[float, Callable[[float], Bounds], str, tuple[ClassPart, ...]]:
    """Value, interval, method and classes of worst_class or class_gap; the intervals of all classes hold simultaneously.

    Args:
        gate: which of the two.
        parts: the images of each class, mirrored where lower is better.
        confidence: of all intervals together.
        sign: -1 where they are mirrored.
        population, names: as in :func:`measure`.
    """
    gap = gate.quantity == "class_gap"
    if len(parts) < 1 + gap:
        raise SpecError(
            f"gate {str(gate)!r}",
            f"the run has images of {len(parts)} {'class' if len(parts) == 1 else 'classes'}",
            "a gap needs images of two",
        )
    each = simultaneous(confidence, len(parts))
    bounds_of = [_mean_bounds(one, each, population=population) for one in parts.values()]

    def bounds(factor: float) -> Bounds:
        all_bounds = [of(factor) for of in bounds_of]
        return _gap(all_bounds) if gap else _signed((min(low for low, _ in all_bounds), min(high for _, high in all_bounds)), sign)

    means = {index: float(one.values.mean()) if len(one.values) else math.nan for index, one in parts.items()}
    known = [mean for mean in means.values() if not math.isnan(mean)] or [math.nan]
    value = max(known) - min(known) if gap else sign * min(known)
    classes = []
    for (index, one), of in zip(parts.items(), bounds_of, strict=True):
        classes.append(ClassPart(index, known_name(index, names), one.size, sign * means[index], *_signed(of(1.0), sign)))
    classes.sort(key=lambda one: (math.isnan(one.value), sign * one.value))
    method = _mean_method(next(iter(parts.values())), population=population)  # the same for all
    return value, bounds, f"simultaneous over {len(parts)} classes, {method}", tuple(classes)


def _gap(bounds: Sequence[Bounds]) -> Bounds:
    """The largest difference of two classes: no class is compared with itself."""
    lowers, uppers = [lower for lower, _ in bounds], [upper for _, upper in bounds]
    highest, lowest = int(np.argmax(uppers)), int(np.argmin(lowers))
    upper = max(
        uppers[highest] - min(lowers[:highest] + lowers[highest + 1 :]), max(uppers[:lowest] + uppers[lowest + 1 :]) - lowers[lowest]
    )
    return max(0.0, max(lowers) - min(uppers)), upper


def _signed(bounds: Bounds, sign: float) -> Bounds:
    return bounds if sign > 0 else (-bounds[1], -bounds[0])
