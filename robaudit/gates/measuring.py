"""What is the value of a gate's quantity, and how do the ends of its interval move with more draws or more images?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robaudit.errors import SpecError
from robaudit.gates.evidence import Evidence
from robaudit.gates.grammar import Gate
from robaudit.gates.images import Images, normal_scale
from robaudit.gates.population import (
    accuracy_population,
    imagined,
    mean_method,
    mean_now,
    mean_population,
    quantile_population,
    share_population,
)
from robaudit.gates.quantities import OF_CLASSES
from robaudit.gates.result import ClassPart
from robaudit.gates.these import Ends, classes_these, each_class, mean_these, quantile_these, share_these, widened
from robaudit.numerics.intervals import clopper_pearson, pooled_measurement_interval
from robaudit.stats.groups import QuantityLike

_QUANTILES = {"median": 0.5, "p05": 0.05}


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity of a group.

    Attributes:
        value: the estimate.
        ends: its interval with so many times the draws (or images); 1.0: as it is.
        method: how it was made.
        draws: of an image now; 0: draws change nothing.
        classes: behind it, worst first.
        bounded: False: the rows have no intervals to make one from.
    """

    value: float
    ends: Callable[[float], Ends]
    method: str
    draws: int
    classes: tuple[ClassPart, ...] = ()
    bounded: bool = True


def measure(
    gate: Gate, found: Evidence, scale: QuantityLike, confidence: float, *, population: bool, names: Sequence[str] | None
) -> Measured:
    """The value of the gate's quantity and its interval.

    Raises:
        SpecError: the group has no such quantity.
        NothingLeftError: it has no finite value.
    """
    if gate.quantity == "accuracy":
        return _accuracy(gate, found, confidence, population=population)
    if gate.quantity == "noisy_accuracy":
        return _noisy_accuracy(found, confidence, population=population)
    images = found.images(scale)
    bounded = found.columns.bounded == len(found.columns)
    better = images if scale.higher_is_better else images.turned()
    sign = 1.0 if scale.higher_is_better else -1.0
    draws = found.draws if not images.adaptive else 0

    def grown(some: Images, factor: float) -> Images:
        return some.with_images(factor) if population else some.with_draws(factor)

    if gate.quantity in OF_CLASSES:
        parts = found.by_class(better)
        if len(parts) < 1 + (gate.quantity == "class_gap"):
            raise SpecError(f"gate {str(gate)!r}", f"the run has images of {len(parts)} classes", "a gap needs images of two")
        each = each_class(confidence, len(parts))
        now = [mean_now(one, each) for one in parts.values()] if population else []

        def all_ends(factor: float) -> list[Ends]:
            if population:
                return [imagined(one.with_images(factor), ends) for one, ends in zip(parts.values(), now, strict=True)]
            return classes_these([one.with_draws(factor) for one in parts.values()], confidence)

        means = [float(one.values.mean()) if len(one.values) else np.nan for one in parts.values()]
        combine = _gap if gate.quantity == "class_gap" else lambda ends: _turned(_worst(ends), sign)
        known = [mean for mean in means if not np.isnan(mean)] or [np.nan]
        value = max(known) - min(known) if gate.quantity == "class_gap" else sign * min(known)
        classes = _class_parts(parts, means, all_ends(1.0), sign, names, bounded=bounded)
        method = f"{len(parts)} classes at once, {_mean_method(images, each, population=population)}"
        return Measured(value, lambda factor: combine(all_ends(factor)), method, draws, classes, bounded)
    if gate.quantity == "mean":
        of_mean = mean_population if population else mean_these
        return Measured(
            float(images.values.mean()),
            lambda factor: of_mean(grown(images, factor), confidence),
            _mean_method(images, confidence, population=population),
            draws,
            bounded=bounded,
        )
    method = "ranks of the images' intervals"
    if gate.quantity == "share_below":
        t = sign * float(gate.t or 0.0)
        of_share = share_population if population else share_these
        return Measured(
            float((better.values < t).mean()),
            lambda factor: of_share(grown(better, factor), t, confidence),
            "counts of the images' intervals",
            draws,
            bounded=bounded,
        )
    q = _QUANTILES[gate.quantity]
    of_quantile = quantile_population if population else quantile_these
    return Measured(
        sign * float(np.quantile(better.values, q)),
        lambda factor: _turned(of_quantile(grown(better, factor), q, confidence), sign),
        method,
        draws,
        bounded=bounded,
    )


def _accuracy(gate: Gate, found: Evidence, confidence: float, *, population: bool) -> Measured:
    if not found.judged:
        raise SpecError(f"gate {str(gate)!r}", "the run has no labels, and so no accuracy", "audit labelled images")
    value = found.correct / found.judged
    if not population:
        return Measured(value, lambda _: (value, value), "exact", 0)
    return Measured(value, lambda n: accuracy_population(found.correct, found.judged, n, confidence), "Clopper-Pearson", 0)


def _noisy_accuracy(found: Evidence, confidence: float, *, population: bool) -> Measured:
    """Pooled Clopper-Pearson where all votes are independent and as many for each image; else MOVER over the images' own."""
    shares, draws, worth = (c.numbers() for c in (found.columns.label_shares, found.columns.label_draws, found.columns.label_worths))
    value = float(shares.mean())
    images = Images(shares, shares, shares, 0.0, 1.0, unknown=found.columns.not_finite)
    if population:
        method = mean_method(images, confidence)
        return Measured(value, lambda n: mean_population(images.with_images(n), confidence), method, found.draws)
    if np.all(draws == draws[0]) and np.all(draws == worth):
        alike = replace(images, draws=int(draws[0]))
        return Measured(value, lambda n: mean_these(alike.with_draws(n), confidence), "pooled Clopper-Pearson", int(draws[0]))

    def ends(factor: float) -> Ends:
        lower, upper = pooled_measurement_interval(shares, *clopper_pearson(shares * worth * factor, worth * factor))
        wide = normal_scale(confidence)
        return widened(images, (max(0.0, value - (value - lower) * wide), min(1.0, value + (upper - value) * wide)))

    return Measured(value, ends, "MOVER", round(float(draws.mean())))


def _mean_method(images: Images, confidence: float, *, population: bool) -> str:
    if population:
        return mean_method(images, confidence)
    return "pooled Clopper-Pearson" if images.draws is not None else "mean of intervals" if images.adaptive else "MOVER"


def _worst(ends: Sequence[Ends]) -> Ends:
    return min(lower for lower, _ in ends), min(upper for _, upper in ends)


def _gap(ends: Sequence[Ends]) -> Ends:
    """The largest difference of two classes: no class is set against itself."""
    lowers, uppers = [lower for lower, _ in ends], [upper for _, upper in ends]
    highest, lowest = int(np.argmax(uppers)), int(np.argmin(lowers))
    upper = max(
        uppers[highest] - min(lowers[:highest] + lowers[highest + 1 :]), max(uppers[:lowest] + uppers[lowest + 1 :]) - lowers[lowest]
    )
    return max(0.0, max(lowers) - min(uppers)), upper


def _turned(ends: Ends, sign: float) -> Ends:
    return ends if sign > 0 else (-ends[1], -ends[0])


def _class_parts(
    parts: Mapping[int, Images], means: Sequence[float], ends: Sequence[Ends], sign: float, names: Sequence[str] | None, *, bounded: bool
) -> tuple[ClassPart, ...]:
    found = []
    for (index, one), mean, both in sorted(zip(parts.items(), means, ends, strict=True), key=lambda part: (np.isnan(part[1]), part[1])):
        name = names[index] if names is not None and 0 <= index < len(names) else None
        lower, upper = _turned(both, sign)
        found.append(ClassPart(index, name, one.size, sign * mean, lower if bounded else None, upper if bounded else None))
    return tuple(found)
