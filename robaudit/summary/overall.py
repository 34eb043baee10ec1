"""How robust is the model over all images, for each estimator and noise level?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robaudit.rows import Row
from robaudit.summary.accuracy import NoisyAccuracy, noisy_accuracy
from robaudit.summary.estimates import Mean, Quantile, Share, mean_of_rows, quantile_of_rows, share
from robaudit.summary.groups import GroupKey, QuantityLike, group_rows, json_number, quantity_of, with_values


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


def summarise(
    rows: Sequence[Row], quantities: Mapping[str, QuantityLike] | None = None, confidence: float = 0.95
) -> tuple[GroupSummary, ...]:
    """One summary per (estimator, sigma), in the rows' order; estimators, sigmas and quantities are never pooled.

    Args:
        rows: results of one run.
        quantities: range and direction by quantity name; ours are known without it.
        confidence: of the intervals over images. Rows carry 95 % intervals: leave it at .95 for a mixed measurement interval.

    Raises:
        NothingLeftError: a group without one finite value.
        RunError: a quantity nobody describes.
    """
    return tuple(_summary(key, members, quantity_of(key.quantity, quantities), confidence) for key, members in group_rows(rows).items())


def _summary(key: GroupKey, members: Sequence[Row], quantity: QuantityLike, confidence: float) -> GroupSummary:
    rows = with_values(members, str(key))
    values = np.array([row.value for row in rows])
    judged = [row.correct for row in rows if row.correct is not None]
    return GroupSummary(
        key=key,
        unit=quantity.unit,
        higher_is_better=quantity.higher_is_better,
        images=len(rows),
        not_finite=len(members) - len(rows),
        sampling_only=sum(row.interval.endswith(":sampling-only") for row in rows),
        with_interval=sum(row.lower is not None and row.upper is not None for row in rows),
        mean=mean_of_rows(rows, quantity, confidence),
        median=quantile_of_rows(rows, 0.5, quantity, confidence),
        p05=quantile_of_rows(rows, 0.05, quantity, confidence),
        minimum=float(values.min()),
        below_half=share(int((values < 0.5).sum()), len(rows), confidence),
        below_ninety=share(int((values < 0.9).sum()), len(rows), confidence),
        noted=sum(bool(row.note) for row in rows),
        clean_accuracy=share(sum(judged), len(judged), confidence) if judged else None,
        noisy_accuracy=noisy_accuracy(rows, confidence),
        confidence=confidence,
    )
