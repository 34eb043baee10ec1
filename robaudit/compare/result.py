"""The results of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from robaudit.compare.matching import Matching
from robaudit.rows import with_names
from robaudit.stats.flags import Certainty
from robaudit.stats.groups import GroupKey, json_values
from robaudit.text import Names

Pairing = Literal["common random numbers", "unpaired", "the same model"]


class Limits(NamedTuple):
    """The ends of an interval, and how it was computed."""

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
        base, new, value: both values and their difference.
        measured: the interval for exactly these images; None where a row has none.
        population: the interval for the population that the images stand for.
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
            "measurement": None if self.measured is None else json_values(self.measured._asdict()),
            "population": None if self.population is None else json_values(self.population._asdict()),
        }


@dataclass(frozen=True, slots=True)
class ClassChange:
    """One class; its intervals hold simultaneously with those of all classes."""

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
        certainty: "confirmed": both intervals lie entirely on their side of the threshold; "approximate": the same for intervals that
            cover sampling only; "likely": one of them contains the threshold.
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
    certainty: Certainty

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return json_values(asdict(self))

    def named(self, class_names: Names | None) -> dict[str, Any]:
        """The same with the names of the classes, by index."""
        return with_names(self.document(), class_names)


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """One estimator at one noise level.

    Attributes:
        key, unit, higher_is_better: what was measured.
        images: pairs of results; ``not_finite``: pairs left out; ``skipped``: samples of the base run that the new one skipped.
        unknown: the last two by class, -1 for no class; ``unknown_labelled``: those with a label.
        span: the largest difference that two values can have.
        why: why the runs are unpaired; "" if they are not.
        cut: draws per image of both runs, where only the first draws of one are compared.
        counts: bounds on how many samples are truly worse and truly newly flagged.
        draws: per image, where the runs are paired on equally many of each.
        how: how the measurement error of the difference was determined.
        mean: of the values; ``noisy_accuracy``: None without labels or votes.
        variance_saved: 1 - the measurement variance of the mean difference relative to that with independent noise in each run;
            None where not paired or nothing varies.
        classes: largest drop first; by label where there are labels, else by the base run's prediction.
        threshold: what is flagged.
        worse, better: number of samples that changed beyond their individual 95 % intervals.
        declined: number of samples with a worse value, by however little.
        compared: number of samples with an interval of the difference.
        approximate: whether intervals of rows cover the draws only.
        voted: whether values are shares of votes where the rows have approximations (:meth:`robaudit.stats.frame.Columns.by_votes`).
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
    approximate: bool
    voted: bool
    changed: tuple[SampleChange, ...]
    confidence: float = 0.95

    def flagged(self, which: str, *certainties: Certainty) -> int:
        """Number of samples that are newly flagged (or fixed) with one of these certainties."""
        return sum(one.flagged == which and one.certainty in certainties for one in self.changed)

    def document(self, class_names: Names | None = None) -> dict[str, Any]:
        """As JSON values, with the names of the classes (by index) beside those of the samples."""
        plain: tuple[str, ...] = ("unit", "higher_is_better", "confidence", "images", "not_finite", "skipped", "draws", "how", "why")
        plain += ("variance_saved", "threshold")
        counts = {
            f"{name}_{certainty.replace('-', '_')}": self.flagged(which, certainty)
            for name, which in (("newly_flagged", "newly flagged"), ("fixed", "fixed"))
            for certainty in (Certainty.CONFIRMED, Certainty.APPROXIMATE, Certainty.LIKELY)
        }
        return {
            **self.key.document(),
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
            "approximate": self.approximate,
            "voted": self.voted,
            **counts,
            "changed": [one.named(class_names) for one in self.changed],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        matching: how their samples match.
        samples: number that both have.
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
        """Number of samples that are not compared, by reason; pairs without a finite value, summed over all results."""
        matching = self.matching
        return {
            "only_base": len(matching.only_base),
            "only_new": len(matching.only_new),
            "other_images": len(matching.other_images),
            "not_finite": sum(group.not_finite for group in self.groups),
        }

    def document(self, class_names: Names | None = None) -> dict[str, Any]:
        """As JSON values, with the names of the classes (by index) beside those of the samples."""
        matching = self.matching
        return {
            "samples": self.samples,
            "same_model": matching.same_model,
            "same_noise": matching.same_noise,
            "warnings": list(matching.warnings),
            "only_base": matching.only_base,
            "only_new": matching.only_new,
            "skipped": matching.skipped,
            "other_images": matching.other_images,
            "other_labels": matching.other_labels,
            "clean_accuracy": None if self.clean_accuracy is None else self.clean_accuracy.document(),
            "groups": [group.document(class_names) for group in self.groups],
        }
