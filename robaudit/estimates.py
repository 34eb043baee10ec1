"""A value with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

Bounds = tuple[float, float]
"""The lower and the upper end of an interval; either may be infinite."""
NO_METHOD = "none"
"""The method where there is no interval."""


class Covers(StrEnum):
    """The coverage of an interval."""

    MEASUREMENT = "measurement"
    """The noise draws on the images that were audited."""
    POPULATION = "population"
    """The noise draws, and the choice of the images from the population that they represent."""
    RUN = "run"
    """The run itself: the value is a count."""
    NOTHING = "nothing"
    """There is no interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval.

    Attributes:
        value: the estimate.
        lower, upper: the ends of its interval, which may be infinite; None without an interval.
        method: the method of the interval, in a few words; "none" without one.
        covers: what the interval covers: the measurement of these images, or also their choice;
            "nothing" without an interval.
    """

    value: float
    lower: float | None = None
    upper: float | None = None
    method: str = NO_METHOD
    covers: Covers = Covers.NOTHING

    @classmethod
    def from_bounds(
        cls, value: float, bounds: Bounds | None, method: str, covers: Covers
    ) -> Estimate:
        """The value with this interval, or without one where ``bounds`` is None."""
        if bounds is None:
            return cls(value)
        return cls(value, bounds[0], bounds[1], method, covers)

    @classmethod
    def measured(cls, value: float, bounds: Bounds | None, method: str) -> Estimate:
        """The value with an interval for exactly these images, or without one where ``bounds`` is
        None."""
        return cls.from_bounds(value, bounds, method, Covers.MEASUREMENT)

    @classmethod
    def population(cls, value: float, bounds: Bounds | None, method: str) -> Estimate:
        """The value with an interval for the population of such images, or without one where
        ``bounds`` is None."""
        return cls.from_bounds(value, bounds, method, Covers.POPULATION)

    @property
    def bounds(self) -> Bounds | None:
        """Both ends of the interval; None without one."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Lower and upper, each None without an interval."""
        return self.lower, self.upper

    @property
    def below(self) -> float:
        """The distance from the lower end to the value; infinite without an interval."""
        return math.inf if self.lower is None else self.value - self.lower

    @property
    def above(self) -> float:
        """The distance from the value to the upper end; infinite without an interval."""
        return math.inf if self.upper is None else self.upper - self.value

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return self.bounds is not None

    @property
    def is_finite(self) -> bool:
        """Whether there is an interval and both of its ends are finite."""
        return self.bounds is not None and all(map(math.isfinite, self.bounds))

    @property
    def is_exact(self) -> bool:
        """Whether the value is its whole interval."""
        return self.lower == self.value == self.upper

    def with_bounds(self, bounds: Bounds | None) -> Estimate:
        """The same value with another interval of the same method, or without one."""
        return Estimate.from_bounds(self.value, bounds, self.method, self.covers)

    def over(self, number: float) -> Estimate:
        """The estimate divided by a positive number."""
        bounds = self.bounds
        if bounds is not None:
            bounds = (bounds[0] / number, bounds[1] / number)
        return Estimate.from_bounds(self.value / number, bounds, self.method, self.covers)

    def negated(self) -> Estimate:
        """The estimate of the negative of the value."""
        bounds = self.bounds
        if bounds is not None:
            # + 0.0 turns -0.0 into 0.0, which tables and JSON would show.
            bounds = (-bounds[1] + 0.0, -bounds[0] + 0.0)
        return Estimate.from_bounds(-self.value + 0.0, bounds, self.method, self.covers)
