"""The results of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from robaudit.compare.matching import Matching
from robaudit.stats.groups import GroupKey, json_values

Sureness = Literal["surely", "likely", "maybe", "no interval"]
Pairing = Literal["common random numbers", "unpaired", "the same model"]


class Limits(NamedTuple):
    """The ends of an interval, and how it was made."""

    lower: float
    upper: float
    method: str


class Counts(NamedTuple):
    """Bounds on the share of samples that are worse, and on the number of newly flagged ones; None without intervals."""

    worse: Limits | None
    worse_population: Limits | None
    newly_flagged: Limits | None


@dataclass(frozen=True, slots=True)
class Difference:
    """New minus base.

    Attributes:
        base, new, value: the two and their difference.
        measured: the interval for these very images; None where a row has none.
        population: the interval for images of this kind.
    """

    base: float
    new: float
    value: float
    measured: Limits | None
    population: Limits | None

    def document(self) -> dict[str, Any]:
        """As JSON values; an infinite end is null."""
        return {
            **json_values({"base": self.base, "new": self.new, "difference": self.value}),
            "these_images": None if self.measured is None else json_values(self.measured._asdict()),
            "images_of_this_kind": None if self.population is None else json_values(self.population._asdict()),
        }


@dataclass(frozen=True, slots=True)
class ClassChange:
    """One class; its intervals hold together with those of all classes."""

    index: int
    name: str | None
    images: int
    difference: Difference

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {"index": self.index, "name": self.name, "images": self.images, **self.difference.document()}


@dataclass(frozen=True, slots=True)
class SampleChange:
    """One sample.

    Attributes:
        base, new, difference, lower, upper: the values, their difference and its own 95 % interval (None without).
        flagged: newly flagged, fixed, or neither ("").
        sure: how sure that is: "surely" (both intervals lie wholly on their side of the threshold), "likely" (the same of intervals
            that cover sampling only), "maybe"; of a sample that is neither, whether its interval leaves out 0.
    """

    id: str
    label: int | None
    base_predicted: int
    predicted: int
    base: float
    new: float
    difference: float
    lower: float | None
    upper: float | None
    flagged: Literal["newly flagged", "fixed", ""]
    sure: Sureness

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """One estimator at one noise level.

    Attributes:
        key, unit, higher_is_better: what was measured.
        images: pairs of results; ``not_finite``: pairs left out; ``skipped``: samples of the base run that the new one skipped.
        unknown: the last two by class, -1 for none; ``unknown_labelled``: those with a label.
        span: the largest difference that two values can have.
        why: why the runs are unpaired, in words; "" if they are not.
        cut: draws of each image of both runs, where only the first of one are compared.
        counts: bounds on how many samples are truly worse and truly newly flagged.
        draws: of each image, where the runs are paired.
        how: how the measurement's error of the difference was found.
        mean: of the values; ``noisy_accuracy``: None without labels or votes.
        variance_saved: 1 - the measurement's variance of the mean difference over what it would be with noise of its own for each run;
            None where not paired or nothing varies.
        classes: largest drop first; by label where there are labels, else by the base run's prediction.
        threshold: what is flagged.
        worse, better: how many samples changed beyond their intervals (each by itself, 95 %).
        declined: how many samples have a worse value, however little.
        compared: how many samples have an interval of the difference.
        sampling_only: whether intervals of rows cover the draws only.
        changed: samples that are worse beyond their interval, newly flagged or fixed: worst first.
    """

    key: GroupKey
    unit: str
    higher_is_better: bool
    images: int
    not_finite: int
    skipped: int
    unknown: Mapping[int, int]
    unknown_labelled: int
    span: float
    why: str
    cut: tuple[int, int] | None
    counts: Counts
    draws: int | None
    how: Pairing
    mean: Difference
    noisy_accuracy: Difference | None
    variance_saved: float | None
    classes: tuple[ClassChange, ...]
    threshold: float
    worse: int
    better: int
    declined: int
    compared: int
    sampling_only: bool
    changed: tuple[SampleChange, ...]
    confidence: float = 0.95

    def flagged(self, which: str, *sure: Sureness) -> int:
        """How many samples are newly flagged (or fixed), so surely."""
        return sum(one.flagged == which and one.sure in sure for one in self.changed)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        plain: tuple[str, ...] = ("unit", "higher_is_better", "confidence", "images", "not_finite", "skipped", "draws", "how", "why")
        plain += ("variance_saved", "threshold")
        counts = {
            f"{name}_{certainty}": self.flagged(which, certainty)
            for name, which in (("newly_flagged", "newly flagged"), ("fixed", "fixed"))
            for certainty in ("surely", "likely", "maybe")
        }
        return {
            **asdict(self.key),
            **json_values({name: getattr(self, name) for name in plain}),
            "mean": self.mean.document(),
            "noisy_accuracy": None if self.noisy_accuracy is None else self.noisy_accuracy.document(),
            "classes": [one.document() for one in self.classes],
            "worse": self.worse,
            "better": self.better,
            "declined": self.declined,
            "cut": None if self.cut is None else list(self.cut),
            "bounds": {name: None if ends is None else json_values(ends._asdict()) for name, ends in self.counts._asdict().items()},
            "with_interval": self.compared,
            "sampling_only": self.sampling_only,
            **counts,
            "changed": [one.document() for one in self.changed],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        matching: how their samples fit together.
        samples: how many both have.
        clean_accuracy: None without labels.
        clean_unknown: samples with a label that the new run skipped.
        groups: by estimator and noise level, in the new run's order.
    """

    matching: Matching
    samples: int
    clean_accuracy: Difference | None
    clean_unknown: int
    groups: tuple[GroupComparison, ...]

    def left_out(self) -> dict[str, int]:
        """How many samples are not compared, by what they are; pairs without a finite value of all results together."""
        found = self.matching
        return {
            "only_base": len(found.only_base),
            "only_new": len(found.only_new),
            "other_images": len(found.other_images),
            "not_finite": sum(group.not_finite for group in self.groups),
        }

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        found = self.matching
        return {
            "samples": self.samples,
            "same_model": found.same_model,
            "same_noise": found.same_noise,
            "warnings": list(found.warnings),
            "only_base": found.only_base,
            "only_new": found.only_new,
            "skipped": found.skipped,
            "other_images": found.other_images,
            "other_labels": found.other_labels,
            "clean_accuracy": None if self.clean_accuracy is None else self.clean_accuracy.document(),
            "groups": [group.document() for group in self.groups],
        }
