"""What does a list of flagged samples hold?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from robaudit.summary.groups import GroupKey, json_values

Certainty = Literal["surely", "likely", "maybe", "no", "no interval"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One sample.

    Attributes:
        certainty: whether it is beyond the threshold: "surely" (its whole interval is), "likely" (the same of an
            interval that covers sampling only, not the estimator's bias), "maybe" (the interval straddles the
            threshold), "no" (its whole interval is on the robust side), "no interval" (none is claimed, so nothing is sure).
    """

    id: str
    label: int | None
    predicted: int
    value: float
    lower: float | None
    upper: float | None
    flips_to: int | None
    certainty: Certainty

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class Flagged:
    """The non-robust samples of one estimator at one noise level.

    Attributes:
        key, unit, higher_is_better: what was measured.
        threshold: a sample is non-robust when its value is below it (above it, where lower is better).
        samples: the non-robust ones, or the ``bottom`` least robust; worst first (by class first with ``per_class``).
        robust: the ``top`` most robust, best first (by class first with ``per_class``).
        total: samples considered, after the filter.
        filtered: samples that ``only`` took out.
        not_finite: samples without a finite value, which are never ranked.
        beyond: how many of ``total`` have a value beyond the threshold, listed or not.
        surely: how many of those beyond their whole interval.
        likely: the same, where the intervals cover sampling only.
        maybe: how many of ``total`` have an interval that straddles the threshold, whichever side the value is on.
        with_interval: how many of ``total`` have an interval.
    """

    key: GroupKey
    unit: str
    higher_is_better: bool
    threshold: float
    bottom: int | None
    top: int | None
    per_class: bool
    by: Literal["label", "predicted"]
    only: Literal["correct", "wrong"] | None
    samples: tuple[Flag, ...]
    robust: tuple[Flag, ...]
    total: int
    filtered: int
    not_finite: int
    beyond: int
    surely: int
    likely: int
    maybe: int
    with_interval: int

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in {"key", "samples", "robust"}}
        listed = {"samples": [one.document() for one in self.samples], "robust": [one.document() for one in self.robust]}
        return {**asdict(self.key), **plain, **listed}
