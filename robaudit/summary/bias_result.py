"""What does a bias report hold?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from robaudit.summary.estimates import Mean, Quantile, Share
from robaudit.summary.groups import GroupKey, json_values

By = Literal["label", "predicted"]


@dataclass(frozen=True, slots=True)
class ClassStats:
    """One class.

    Attributes:
        index, name: the class; the name is None where unknown.
        images: how many.
        mean: with its interval over images and its measurement error.
        q25, median, q75: of the values.
        below: share of images below the threshold.
        simultaneous_lower, simultaneous_upper: interval of the mean at Holm's first step, confidence 1 - alpha/classes: all
            classes' intervals hold together. None for a class out of the tests (fewer than 2 images).
        p_value: two-sided permutation p-value of this class against the rest; None out of the tests.
        p_holm: Holm-adjusted; None out of the tests.
        differs: p_holm <= alpha: "lower" or "higher" than the rest; "no" otherwise; None out of the tests.
    """

    index: int
    name: str | None
    images: int
    mean: Mean
    q25: Quantile
    median: Quantile
    q75: Quantile
    below: Share
    simultaneous_lower: float | None = None
    simultaneous_upper: float | None = None
    p_value: float | None = None
    p_holm: float | None = None
    differs: Literal["lower", "higher", "no"] | None = None

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: value.document() if isinstance(value, Mean | Quantile | Share) else value for key, value in values.items()}


@dataclass(frozen=True, slots=True)
class Gap:
    """The largest minus the smallest class mean, among classes with at least 2 images.

    Attributes:
        least, most: index of the least and of the most robust class.
        value: the gap.
        lower, upper: [max(0, max_k lower_k - min_k upper_k), max_k upper_k - min_k lower_k] of the simultaneous class intervals,
            which holds the gap of the population's class means whenever they all hold.
        p_value: how often chance alone gives a gap this large.
        null_mean, null_q95: the gap that chance alone gives, on average and at most in 95 % of shuffles.
        permutations: how many shuffles.
    """

    least: int
    most: int
    value: float
    lower: float
    upper: float
    p_value: float
    null_mean: float
    null_q95: float
    permutations: int

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class ClassBias:
    """Robustness by class, for one estimator at one noise level.

    Attributes:
        key, unit, higher_is_better: what was measured.
        by: whether classes are the labels or the predictions.
        threshold: of :attr:`ClassStats.below`.
        classes: by class index.
        gap: None where fewer than two classes have two images.
        left_out: rows without a class (no label) or without a finite value.
        alpha: 1 - confidence of all intervals and decisions.
        verdict: "real" (chance rarely gives such a gap), "noise" (chance alone gives it), "untested".
        explanation: the verdict in a sentence.
    """

    key: GroupKey
    unit: str
    higher_is_better: bool
    by: By
    threshold: float
    classes: tuple[ClassStats, ...]
    gap: Gap | None
    left_out: int
    alpha: float
    verdict: Literal["real", "noise", "untested"]
    explanation: str

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            **asdict(self.key),
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "by": self.by,
            "threshold": self.threshold,
            "alpha": self.alpha,
            "left_out": self.left_out,
            "verdict": self.verdict,
            "explanation": self.explanation,
            "gap": None if self.gap is None else self.gap.document(),
            "classes": [one.document() for one in self.classes],
        }
