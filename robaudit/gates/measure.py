"""A quantity of a gate, measured: value, interval, and how it was made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from robaudit.errors import SpecError
from robaudit.estimates import Bounds, Covers, Estimate
from robaudit.numerics.image_intervals import simultaneous
from robaudit.numerics.intervals import clopper_pearson
from robaudit.records import Inline, Record
from robaudit.runs.info import UntilDecided
from robaudit.spec.gate_grammar import Gate
from robaudit.text import class_name


@dataclass(frozen=True, slots=True)
class Basis:
    """The rules for deciding gates.

    Attributes:
        confidence: of the intervals.
        population: use the intervals for the population, else those for the measurement of these
            images.
        point: let the value alone decide where no interval covers its whole error.
        schedule: of analyses of a growing run, of which ``confidence`` is the one of each; None: it
            is analysed once.
    """

    confidence: float
    population: bool = False
    point: bool = False
    schedule: UntilDecided | None = None

    def shared(self, number: int) -> float:
        """The confidence of each of ``number`` intervals that hold together."""
        if self.schedule is None:
            return simultaneous(self.confidence, number)
        return self.schedule.each_of(number)

    @property
    def covers(self) -> Covers:
        """What the intervals cover."""
        return Covers.POPULATION if self.population else Covers.MEASUREMENT

    def estimate(self, value: float, bounds: Bounds | None, method: str) -> Estimate:
        """A value with the interval ``bounds``, if there is one, and the coverage of the basis."""
        return Estimate.from_bounds(value, bounds, method, self.covers)

    @property
    def unit(self) -> str:
        """What could be added to narrow the intervals."""
        # Images are the units of a population; its interval shrinks with their number.
        return "images" if self.population else "draws per image"


class Method(StrEnum):
    """The method of an interval, where the code depends on it; other methods are free text."""

    # Gates and comparisons print other words for values with these methods.
    EXACT = "exact"
    """The value has no error for these images."""
    OF_THE_RUN = "a count"
    """A count that is not about images: it has no error at all."""
    COUNTED = "counted"
    """Counted without error, apart from images whose value is not known."""
    SAME_MODEL = "the same model"
    """There can be no difference."""


@dataclass(frozen=True, slots=True)
class ClassPart(Record):
    """A class behind a gate on worst_class or class_gap, with its simultaneous interval."""

    index: int
    name: str | None
    images: int
    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]

    @property
    def value(self) -> float:
        """The value of the class; NaN where it is not known."""
        return self.estimate.value

    @property
    def text(self) -> str:
        """The name of the class, else its index."""
        return class_name(self.index, None if self.name is None else {self.index: self.name})


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity to compare with a threshold.

    Attributes:
        estimate: the value with the interval that decides gates.
        number: present number of draws per image, or of images. 0: the effect of a larger number is
            none, or is not known.
        limit: the limit of the interval for endless draws or images; it is wider than the value
            if images have no value or an open end. Default: the value alone.
        classes: the classes behind the value, worst first.
        remedy: the remark where a larger number would not narrow the interval.
        images: number of images, including those without a known value; 0: it is not about images.
        remarks: on the comparison, and on errors that the interval does not cover.
    """

    estimate: Estimate
    number: int = 0
    limit: Bounds | None = None
    classes: tuple[ClassPart, ...] = ()
    remedy: str = ""
    images: int = 0
    remarks: tuple[str, ...] = ()


def check_between(
    gate: Gate, low: float, high: float, what: str, number: float, name: str = "threshold"
) -> None:
    """Refuse a number of a gate that lies outside a range.

    Args:
        gate: for the message.
        low, high: the range; either may be infinite.
        what: the name of the quantity with this range.
        number: the number to check.
        name: the number's name in the gate.

    Raises:
        SpecError: the number is out of range.
    """
    # 15 digits show any double that a user may have written, without digits from rounding.
    if not low <= number <= high:
        limits = f"is at least {low:g}" if high == math.inf else f"lies from {low:g} to {high:g}"
        raise SpecError(
            f"gate {str(gate)!r}",
            f"{what} {limits}, never {number:.15g}",
            f"give a {name} in that range",
        )


def counted_share(count: int, total: int, basis: Basis, remarks: tuple[str, ...] = ()) -> Measured:
    """A share of images, counted without error.

    It is exact for these images, and has Clopper-Pearson's interval for the population.

    Args:
        count, total: the share's numerator and denominator.
        basis: of the decision.
        remarks: as for :class:`Measured`.
    """
    value = count / total
    # No draw enters a count of clean images: only the choice of the images leaves it uncertain.
    if not basis.population:
        return Measured(
            Estimate.measured(value, (value, value), Method.EXACT), images=total, remarks=remarks
        )
    lower, upper = clopper_pearson(count, total, basis.confidence)
    estimate = Estimate.population(value, (float(lower), float(upper)), "Clopper-Pearson")
    return Measured(estimate, total, images=total, remarks=remarks)
