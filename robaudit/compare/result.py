"""The results of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from robaudit.compare.matching import Matching
from robaudit.estimates import Estimate
from robaudit.quantities import Quantity
from robaudit.records import Inline, Nested, Record, published
from robaudit.runs.groups import GroupKey
from robaudit.stats.flags import Certainty

Pairing = Literal["common random numbers", "unpaired", "the same model"]


_Limits = Nested(
    "Limits", "lower", "upper", "method", about="The ends of an interval, and how it was computed."
)


@dataclass(frozen=True, slots=True)
class Counts(Record):
    """Bounds on the share of samples that are worse, and on the number of newly flagged samples.

    Attributes:
        worse: of these samples.
        worse_population: of the population that the samples are drawn from.
        newly_flagged: of these samples.
    """

    worse: Annotated[Estimate, _Limits]
    worse_population: Annotated[Estimate, _Limits]
    newly_flagged: Annotated[Estimate, _Limits]


@dataclass(frozen=True, slots=True)
class Difference(Record):
    """A difference: new minus base.

    Attributes:
        base, new: both values.
        measured: the difference with its interval for exactly these images; None where a row has
            no interval.
        population: the difference with its interval for the population of the images.
    """

    base: float
    new: float
    measured: Annotated[Estimate | None, _Limits, Field(serialization_alias="measurement")]
    population: Annotated[Estimate, _Limits]

    @property
    @published(after="new", key="difference")
    def value(self) -> float:
        """New minus base."""
        return self.population.value


@dataclass(frozen=True, slots=True)
class ClassChange(Record):
    """The change of a class; the intervals hold simultaneously for all classes."""

    index: int
    name: str | None
    images: int
    difference: Annotated[Difference, Inline()]


@dataclass(frozen=True, slots=True)
class SampleChange(Record):
    """The change of a sample.

    Attributes:
        base, new, difference: the values, and their difference with its 95 % interval.
        flagged: newly flagged, fixed, or neither ("").
        certainty: "confirmed": both intervals lie entirely on their side of the threshold.
            "approximate": the same, for intervals that cover sampling only. "likely": an interval
            contains the threshold.
    """

    id: str
    label: int | None
    base_predicted: int
    predicted: int
    base: float
    new: float
    difference: Annotated[Estimate, Inline(difference="value", lower="lower", upper="upper")]
    flagged: Literal["newly flagged", "fixed", ""]
    certainty: Certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupComparison(Record):
    """The comparison of the results of an estimator at a noise level.

    Attributes:
        key, quantity: estimator, noise level, and the quantity of the values.
        confidence: of the intervals; single samples have 95 % intervals.
        images: number of pairs of finite results.
        not_finite: number of pairs left out, because a value is not finite.
        skipped: number of samples of the base run that the new run skipped.
        unknown: number of samples left out or skipped by class, -1 for no class.
        draws: number per image, where the same number for each image is compared one by one.
        how: the method for the measurement error of the difference.
        why: the reason if the runs are unpaired; else "".
        variance_saved: 1 - the measurement variance of the mean difference relative to that with
            independent noise in each run. None: the runs are not paired, or nothing varies.
        threshold: of flagged samples.
        mean: of the values.
        noisy_accuracy: accuracy under noise; None without labels or votes.
        classes: largest drop first; by label where there are labels, else by the base run's
            prediction.
        worse, better: number of samples that changed beyond their individual 95 % intervals.
        declined: number of samples with a worse value, by however little.
        cut: draws per image of both runs, where only the first draws of either are compared.
        counts: bounds on how many samples are truly worse and truly newly flagged; None without
            intervals.
        compared: number of samples with an interval of the difference.
        approximate: whether intervals of rows cover the draws only.
        voted: whether votes replace the rows' approximations
            (:meth:`robaudit.runs.table.Columns.by_votes`).
        changed: samples that are worse beyond their interval, newly flagged or fixed; worst first.
    """

    key: Annotated[GroupKey, Inline()]
    quantity: Annotated[Quantity, Inline("unit", "higher_is_better")]
    confidence: float = 0.95
    images: int
    not_finite: int
    skipped: int
    unknown: Annotated[Mapping[int, int], Field(exclude=True)]
    draws: int | None
    how: Pairing
    why: str
    variance_saved: float | None
    threshold: float
    mean: Difference
    noisy_accuracy: Difference | None
    classes: tuple[ClassChange, ...]
    worse: int
    better: int
    declined: int
    cut: tuple[int, int] | None
    counts: Annotated[Counts | None, Field(serialization_alias="bounds")]
    compared: Annotated[int, Field(serialization_alias="with_interval")]
    approximate: bool
    voted: bool
    changed: tuple[SampleChange, ...]

    # Gates count the samples without a difference, too: a run that fails on images must not pass.
    @property
    def size(self) -> int:
        """Number of samples, including those without a difference."""
        return self.images + self.not_finite + self.skipped

    @property
    def span(self) -> float:
        """The largest possible difference of two values."""
        return self.quantity.high - self.quantity.low

    def flagged(self, which: str, *certainties: Certainty) -> int:
        """Number of samples that are newly flagged (or fixed) with one of these certainties."""
        return sum(
            change.flagged == which and change.certainty in certainties for change in self.changed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Record):
    """The comparison of two runs.

    Attributes:
        matching: the match between their samples.
        samples: number of samples that both have.
        clean_accuracy: accuracy without noise; None without labels.
        clean_unknown: number of labelled samples that the new run skipped.
        groups: by estimator and noise level, in the new run's order.
    """

    samples: int
    matching: Annotated[
        Matching,
        Inline(
            "same_model",
            "same_images",
            "same_noise",
            "warnings",
            "only_base",
            "only_new",
            "skipped",
            "other_images",
            "other_labels",
        ),
    ]
    clean_accuracy: Difference | None
    clean_unknown: Annotated[int, Field(exclude=True)]
    groups: tuple[GroupComparison, ...]

    def left_out(self) -> dict[str, int]:
        """Number of samples that are not compared, by reason.

        Pairs without a finite value are summed over all results.
        """
        matching = self.matching
        return {
            "only_base": len(matching.only_base),
            "only_new": len(matching.only_new),
            "other_images": len(matching.other_images),
            "not_finite": sum(group.not_finite for group in self.groups),
        }
