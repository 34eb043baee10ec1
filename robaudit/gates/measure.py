"""The quantities of gates: range, value and interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
from robaudit.text import class_name, known_name

SHARES = frozenset({"share_below", "accuracy", "noisy_accuracy", CERTIFIED_ACCURACY})
OF_CLASSES = frozenset({"worst_class", "class_gap"})
_QUANTILES = {"median": 0.5, "p05": 0.05}
_RANKS = "ranks and counts of the images' intervals"


class Method(StrEnum):
    """The method of an interval, where the code depends on it; other methods are free text."""

    EXACT = "exact"
    """The value has no error for these images."""
    OF_THE_RUN = "a count"
    """A count that is not about images: it has no error at all."""
    COUNTED = "counted"
    """Counted without error, apart from images whose value is not known."""
    SAME_MODEL = "the same model"
    """There can be no difference."""
    NONE = "none"
    """There is no interval."""


@dataclass(frozen=True, slots=True)
class ClassPart(Document):
    """A class behind a gate on worst_class or class_gap, with its simultaneous interval."""

    index: int
    name: str | None
    images: int
    value: float
    lower: float | None
    upper: float | None

    @property
    def text(self) -> str:
        """The name of the class, else its index."""
        return class_name(self.index, None if self.name is None else {self.index: self.name})


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity to compare with a threshold.

    Attributes:
        value: the estimate.
        bounds: its interval; None: there is none.
        method: the method of the interval.
        now: present number of draws per image, or of images; 0: the effect of more is none or unknown.
        settled: the interval that endless draws or images would leave, because of images without a value or with an open end; None: the
            value alone.
        classes: the classes behind the value, worst first.
        stuck: the remark where more draws would not narrow the interval.
        images: number of images, including those without a known value; 0: it is not about images.
        remarks: on the comparison, and on errors that the interval does not cover.
    """

    value: float
    bounds: Bounds | None
    method: str
    now: int = 0
    settled: Bounds | None = None
    classes: tuple[ClassPart, ...] = ()
    stuck: str = ""
    images: int = 0
    remarks: tuple[str, ...] = ()


def check_range(gate: Gate, scale: Quantity) -> None:
    """Refuse a threshold, or a t, outside the range of the quantity: a slip, such as 5 for 5 %.

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
        name: the number's name in the gate.

    Raises:
        SpecError: the number is out of range.
    """
    if not low <= number <= high:
        limits = f"is at least {low:g}" if high == math.inf else f"lies from {low:g} to {high:g}"
        raise SpecError(f"gate {str(gate)!r}", f"{what} {limits}, never {number:.15g}", f"give a {name} in that range")


def measure(
    gate: Gate, evidence: Evidence, scale: Quantity, confidence: float, *, population: bool, names: Sequence[str] | None
) -> Measured:
    """The value of the gate's quantity and its interval.

    Args:
        gate: the gate.
        evidence: the rows that it is about.
        scale: range and direction of their values.
        confidence: of the interval.
        population: an interval for the population, else for the measurement of these images.
        names: of the classes.

    Raises:
        SpecError: the group has no such quantity.
        NothingLeftError: it has no finite value.
    """
    if gate.quantity == "accuracy":
        judged = int(evidence.every.judged.sum())
        if not judged:
            raise SpecError(f"gate {str(gate)!r}", "the run has no labels, and so no accuracy", "audit labelled images")
        return counted(int(evidence.every.correct.sum()), judged, confidence, population=population)
    if gate.quantity == "noisy_accuracy":
        images = _label_votes(evidence)
        size, draws, stuck = len(images.values), round(float(evidence.rows.label_draws.sum() / len(images.values))), ""
    else:
        images = evidence.images(scale)
        size, draws, stuck = evidence.size, evidence.draws, _stuck(images, scale)
    bad_end = not scale.higher_is_better and gate.quantity in {"p05", "worst_class", "share_below"}
    remarks = ("lower is better: the bad end is the high end",) if bad_end else ()
    sign = 1.0 if scale.higher_is_better or gate.quantity == "noisy_accuracy" else -1.0
    better = images if sign > 0 else images.mirrored()
    if gate.quantity in OF_CLASSES:
        measured = _of_classes(gate, evidence.by_class(better), confidence, sign, population=population, names=names)
    else:
        measured = _of_images(gate, better, confidence, sign, population=population)
    if gate.quantity != "noisy_accuracy" and (evidence.rows.bounded < len(evidence.rows) or evidence.rows.approximate):
        classes = tuple(replace(part, lower=None, upper=None) for part in measured.classes)
        return Measured(measured.value, None, Method.NONE, classes=classes, images=size, remarks=remarks)
    now = evidence.size if population else 0 if stuck else draws
    caveats = tuple(_caveats(gate, evidence, scale, population=population))
    return replace(measured, now=0 if gate.quantity == "share_below" else now, stuck=stuck, images=size, remarks=(*remarks, *caveats))


def _stuck(images: MeasuredImages, scale: Quantity) -> str:
    """Why more draws would not narrow an interval; empty where they would."""
    if scale.name == LOSS.name:
        return "more copies, or more temperatures and steps, narrow its intervals"
    return "its images stop adaptively: give mc a fixed number of samples, or a smaller tolerance" if images.adaptive else ""


def _caveats(gate: Gate, evidence: Evidence, scale: Quantity, *, population: bool) -> Iterator[str]:
    """Remarks on errors that the interval does not cover, and on what widens it."""
    rows, size = evidence.rows, evidence.size
    if evidence.voted and gate.quantity != "noisy_accuracy":
        yield f"by the votes of its copies, not by the approximation of {evidence.key.estimator}"
    if gate.quantity in OF_CLASSES and (unclassified := evidence.without_class):
        yield f"{unclassified} of {size} images have no label and are in no class"
    if rows.censored:
        yield f"{rows.censored} of {size} images censored at {rows.cap:.4g}"
    if rows.upper_bounds + rows.not_found and gate.quantity != "noisy_accuracy":
        yield "upper bounds: the true values may be as small as the range allows"
    if rows.lower_bounds:
        yield "lower bounds: the true values may be as large as the range allows"
    if rows.not_finite:
        yield f"{rows.not_finite} of {size} images have no finite value: the interval holds whatever those values are"
    if population and not (math.isfinite(scale.low) and math.isfinite(scale.high)) and gate.quantity in OF_CLASSES | {"mean"}:
        yield f"the mean of an unbounded quantity has no interval for {LIKE_THESE} on that side: median and p05 have one"


def _of_images(gate: Gate, better: MeasuredImages, confidence: float, sign: float, *, population: bool) -> Measured:
    """A quantity of all images, which are mirrored by ``sign`` where lower is better."""
    back, t = 1.0 if gate.quantity == "share_below" else sign, sign * float(gate.t or 0.0)

    def bounds(images: MeasuredImages, population: bool) -> Bounds:
        if gate.quantity == "share_below":
            return population_share(images, t, confidence) if population else measured_share(images, t, confidence)
        if (q := _QUANTILES.get(gate.quantity)) is not None:
            return population_quantile(images, q, confidence) if population else measured_quantile(images, q, confidence)
        return population_mean(images, confidence) if population else measured_mean(images, confidence)

    if gate.quantity == "share_below":
        value = float((better.values < t).mean())
    elif gate.quantity in _QUANTILES:
        value = float(np.quantile(better.values, _QUANTILES[gate.quantity]))
    else:
        value = float(better.values.mean())
    ends = _signed(bounds(better, population), back)
    settled = _signed(bounds(better.exact(), False), back)
    ranked = gate.quantity == "share_below" or gate.quantity in _QUANTILES
    return Measured(back * value, ends, _RANKS if ranked else _mean_method(better, population=population), settled=settled)


def measured_warnings(warnings: Sequence[str]) -> Measured:
    """The number of a run's warnings, which has no error, and the warnings as remarks."""
    value = float(len(warnings))
    return Measured(value, (value, value), Method.OF_THE_RUN, remarks=tuple(warnings))


def counted(count: int, total: int, confidence: float, *, population: bool, remarks: tuple[str, ...] = ()) -> Measured:
    """A share of images that were counted without error: exact for these images, Clopper-Pearson for the population.

    Args:
        count, total: the share.
        confidence: of the interval.
        population: for the population.
        remarks: as for :class:`Measured`.
    """
    value = count / total
    if not population:
        return Measured(value, (value, value), Method.EXACT, images=total, remarks=remarks)
    lower, upper = clopper_pearson(count, total, confidence)
    return Measured(value, (float(lower), float(upper)), "Clopper-Pearson", total, images=total, remarks=remarks)


def _label_votes(evidence: Evidence) -> MeasuredImages:
    """The shares of votes for the labels."""
    rows = evidence.rows.take(evidence.rows.label_draws > 0)
    draws, shares, number = rows.label_draws, rows.hits / rows.label_draws, alike(rows.label_draws)
    ends = restated(shares, shares, shares, draws, TAIL, rows.label_split)
    split = None if number is None else antithetic(rows.label_split)
    return MeasuredImages(shares, *ends, 0.0, 1.0, unknown=evidence.rows.not_finite, draws=number, split=split)


def _mean_method(images: MeasuredImages, *, population: bool) -> str:
    return population_mean_method(images) if population else images.method


def _of_classes(
    gate: Gate, parts: Mapping[int, MeasuredImages], confidence: float, sign: float, *, population: bool, names: Sequence[str] | None
) -> Measured:
    """worst_class or class_gap; the intervals of all classes hold simultaneously.

    Args:
        gate: on either quantity.
        parts: the images of each class, mirrored where lower is better.
        confidence: of all intervals together.
        sign: -1 where the images are mirrored.
        population, names: as in :func:`measure`.
    """
    gap = gate.quantity == "class_gap"
    if len(parts) < 1 + gap:
        what = f"the run has images of {len(parts)} {'class' if len(parts) == 1 else 'classes'}"
        raise SpecError(f"gate {str(gate)!r}", what, "a gap needs images of two")
    each = simultaneous(confidence, len(parts))
    ends = [population_mean(images, each) if population else measured_mean(images, each) for images in parts.values()]
    settled = [measured_mean(images.exact(), each) for images in parts.values()]
    means = [float(images.values.mean()) if len(images.values) else math.nan for images in parts.values()]
    known = [mean for mean in means if not math.isnan(mean)] or [math.nan]
    classes = [
        ClassPart(index, known_name(index, names), images.size, sign * mean, *_signed(interval, sign))
        for (index, images), mean, interval in zip(parts.items(), means, ends, strict=True)
    ]
    classes.sort(key=lambda part: (math.isnan(part.value), sign * part.value))

    def together(ends: Sequence[Bounds]) -> Bounds:
        return _gap(ends) if gap else _signed((min(low for low, _ in ends), min(high for _, high in ends)), sign)

    method = f"simultaneous over {len(parts)} classes, {_mean_method(next(iter(parts.values())), population=population)}"
    value = max(known) - min(known) if gap else sign * min(known)
    return Measured(value, together(ends), method, settled=together(settled), classes=tuple(classes))


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
