"""How robust is the model over all images, for each estimator and noise level?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from robaudit.rows import Row
from robaudit.summary.accuracy import NoisyAccuracy, noisy_accuracy
from robaudit.summary.columns import Columns, Floats
from robaudit.summary.estimates import Mean, Quantile, Share, mean_of, quantile_of, share
from robaudit.summary.groups import GroupKey, QuantityLike, json_number, quantity_of, refuse_no_values


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One estimator at one noise level.

    Attributes:
        key: estimator, sigma, noise and quantity.
        unit, higher_is_better: of the quantity.
        images: rows with a finite value, which everything below is about.
        not_finite: rows left out because their value is no finite number.
        with_interval: how many rows have an interval of their own.
        sampling_only: how many of those intervals cover the draws only, not the estimator's bias.
        adaptive: how many stopped when they had seen enough: their values lean to the side where they stopped.
        mean, median, p05: over images. ``p05`` is the 5th percentile of the values, whichever direction is better.
        minimum: the smallest value.
        below_half, below_ninety: share of images with a value below 0.5 and 0.9.
        noted: rows with a note.
        clean_accuracy: share of labelled images predicted right without noise; None without labels.
        noisy_accuracy: see :class:`robaudit.summary.accuracy.NoisyAccuracy`; None without labels or votes.
        confidence: of every interval here.
    """

    key: GroupKey
    unit: str
    higher_is_better: bool
    images: int
    not_finite: int
    with_interval: int
    sampling_only: int
    adaptive: int
    mean: Mean
    median: Quantile
    p05: Quantile
    minimum: float
    below_half: Share
    below_ninety: Share
    noted: int
    clean_accuracy: Share | None
    noisy_accuracy: NoisyAccuracy | None
    confidence: float = 0.95

    def document(self) -> dict[str, Any]:
        """One entry of ``groups`` in summary.json."""
        return {
            "estimator": self.key.estimator,
            "sigma": self.key.sigma,
            "noise": self.key.noise,
            "quantity": self.key.quantity,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "confidence": self.confidence,
            "images": self.images,
            "not_finite": self.not_finite,
            "with_interval": self.with_interval,
            "sampling_only": self.sampling_only,
            "adaptive": self.adaptive,
            "noted": self.noted,
            "mean": self.mean.document(),
            "median": self.median.document(),
            "p05": self.p05.document(),
            "minimum": json_number(self.minimum),
            "share_below_0.5": self.below_half.document(),
            "share_below_0.9": self.below_ninety.document(),
            "clean_accuracy": None if self.clean_accuracy is None else self.clean_accuracy.document(),
            "noisy_accuracy": None if self.noisy_accuracy is None else self.noisy_accuracy.document(),
        }


class Overview:
    """Takes the rows of a run one by one and summarises them at the end; keeps a few numbers of each.

    Args:
        quantities: range and direction by quantity name; ours are known without it.
        confidence: of the intervals over images. Rows carry 95 % intervals: leave it at .95 for a mixed measurement interval.
    """

    def __init__(self, quantities: Mapping[str, QuantityLike] | None = None, confidence: float = 0.95) -> None:
        self._quantities, self._confidence = quantities, confidence
        self._groups: dict[GroupKey, Columns] = {}

    def add(self, row: Row) -> None:
        """Take one more row."""
        key = GroupKey(row.estimator, row.sigma, row.noise, row.quantity)
        if key not in self._groups:
            self._groups[key] = Columns()
        self._groups[key].add(row)

    def summaries(self) -> tuple[GroupSummary, ...]:
        """One summary per (estimator, sigma), in the rows' order; estimators, sigmas and quantities are never pooled.

        Raises:
            NothingLeftError: a group without one finite value.
            RunError: a quantity nobody describes.
        """
        return tuple(
            _summary(key, rows, quantity_of(key.quantity, self._quantities), self._confidence) for key, rows in self._groups.items()
        )


def summarise(
    rows: Iterable[Row], quantities: Mapping[str, QuantityLike] | None = None, confidence: float = 0.95
) -> tuple[GroupSummary, ...]:
    """The summaries of an :class:`Overview` of these rows; they may be an iterator."""
    overview = Overview(quantities, confidence)
    for row in rows:
        overview.add(row)
    return overview.summaries()


def _summary(key: GroupKey, rows: Columns, quantity: QuantityLike, confidence: float) -> GroupSummary:
    refuse_no_values(len(rows), rows.not_finite, str(key))
    minimum, half, ninety = _least(rows.values)
    return GroupSummary(
        key=key,
        unit=quantity.unit,
        higher_is_better=quantity.higher_is_better,
        images=len(rows),
        not_finite=rows.not_finite,
        sampling_only=rows.sampling_only,
        adaptive=rows.adaptive,
        with_interval=rows.bounded,
        mean=mean_of(rows, quantity, confidence),
        median=quantile_of(rows, 0.5, quantity, confidence),
        p05=quantile_of(rows, 0.05, quantity, confidence),
        minimum=minimum,
        below_half=share(half, len(rows), confidence),
        below_ninety=share(ninety, len(rows), confidence),
        noted=rows.noted,
        clean_accuracy=share(rows.correct, rows.judged, confidence) if rows.judged else None,
        noisy_accuracy=noisy_accuracy(rows, confidence),
        confidence=confidence,
    )


def _least(values: Floats) -> tuple[float, int, int]:
    """The smallest value, and how many are below 0.5 and 0.9."""
    return float(values.min()), int((values < 0.5).sum()), int((values < 0.9).sum())
