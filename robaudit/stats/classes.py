"""Differences between classes, and whether they are significant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.quantities import Quantity
from robaudit.rows import Row
from robaudit.stats.groups import Document, GroupKey, one_group, quantity_of, with_values
from robaudit.stats.intervals import Floats, opened, population_mean, simultaneous
from robaudit.stats.summary import Columns, Mean, Quantile, Share, mean_of, quantile_of, share
from robaudit.text import known_name

By = Literal["label", "predicted"]


class GapVerdict(StrEnum):
    """Whether the gap between classes is significant: p <= alpha in a permutation test."""

    SIGNIFICANT = "significant"
    NOT_SIGNIFICANT = "not-significant"
    NOT_TESTED = "not-tested"


BLOCK = 1 << 20  # values shuffled at a time: 8 MiB


@dataclass(frozen=True, slots=True)
class ClassStats(Document):
    """One class.

    Attributes:
        index, name: the class; the name is None where unknown.
        images: number of images.
        mean: with its interval over images and its measurement error.
        q25, median, q75: of the values.
        below: share of images below the threshold; None without one.
        simultaneous_lower, simultaneous_upper: interval of the mean at Holm's first step, confidence 1 - alpha/classes: all
            classes' intervals hold together. None for a class that is not tested (fewer than 2 images).
        p_value: two-sided permutation p-value of this class against the rest; None if not tested.
        p_holm: Holm-adjusted; None if not tested.
        differs: p_holm <= alpha: "lower" or "higher" than the rest; "no" otherwise; None if not tested.
    """

    index: int
    name: str | None
    images: int
    mean: Mean
    q25: Quantile
    median: Quantile
    q75: Quantile
    below: Share | None
    simultaneous_lower: float | None = None
    simultaneous_upper: float | None = None
    p_value: float | None = None
    p_holm: float | None = None
    differs: Literal["lower", "higher", "no"] | None = None


@dataclass(frozen=True, slots=True)
class Gap(Document):
    """The largest minus the smallest class mean, among classes with at least 2 images.

    Attributes:
        least, most: indices of the least and the most robust class.
        value: the gap.
        lower, upper: [max(0, max_k lower_k - min_k upper_k), max_k upper_k - min_k lower_k] of the simultaneous class intervals,
            which contains the gap of the population's class means whenever all of them contain theirs.
        p_value: of a permutation test: probability of a gap this large where the value does not depend on the class.
        null_mean, null_q95: mean and 95 % quantile of the gap under that null hypothesis.
        permutations: of the class labels.
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


@dataclass(frozen=True, slots=True)
class ClassBias:
    """Robustness by class, for one estimator at one noise level.

    Attributes:
        key, unit, higher_is_better: what was measured.
        by: whether classes are the labels or the predictions.
        threshold: of :attr:`ClassStats.below`; None without one.
        classes: by class index.
        gap: None where fewer than two classes have two images.
        left_out: rows without a class (no label) or without a finite value.
        alpha: 1 - confidence of all intervals and decisions.
        verdict: whether the gap is significant at level alpha.
        explanation: the numbers behind the verdict, in words.
    """

    key: GroupKey
    unit: str
    higher_is_better: bool
    by: By
    threshold: float | None
    classes: tuple[ClassStats, ...]
    gap: Gap | None
    left_out: int
    alpha: float
    verdict: GapVerdict
    explanation: str

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            **self.key.document(),
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


def class_bias(
    rows: Sequence[Row],
    *,
    by: By = "label",
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    quantity: Quantity | None = None,
    permutations: int = 2000,
    seed: int = 0,
    alpha: float = 0.05,
) -> ClassBias:
    """Compare the classes of one group of rows.

    The p-values and the null of the gap come from one set of shuffles of the class labels (:func:`permutation_null`).
    They test whether the value depends on the class in *any* way: a class that differs only in spread may be called different.

    Args:
        rows: of one (estimator, sigma).
        by: classes are the labels, or what the model predicts on the clean image.
        threshold: for the share below; None: 0.9 for a quantity that goes from 0 to 1, else none.
        class_names: by class index.
        quantity: what the values are; default: the built-in quantity that the rows name.
        permutations: shuffles, at least 100.
        seed: of the shuffles.
        alpha: 1 - confidence of the intervals; level of the decisions.

    Raises:
        NothingLeftError: no row has a class and a finite value.
        RobauditError: a threshold that is not a number, or too few permutations.
        ValueError: rows of several groups.
    """
    key = one_group(rows, "bias-report")
    quantity = quantity or quantity_of(key.quantity, None)
    if threshold is None and quantity.is_share:
        threshold = 0.9
    if threshold is not None and not math.isfinite(threshold):
        raise RobauditError("threshold", f"{threshold} is not a number to compare with", "for example 0.9")
    if permutations < 100:
        raise RobauditError("permutations", f"{permutations} are too few for a p-value", "at least 100, better 2000")
    members: dict[int, Columns] = {}
    for row in with_values(rows, "bias-report"):
        index = row.label if by == "label" else row.predicted
        if index is not None:
            members.setdefault(index, Columns()).add(row)
    if not members:
        raise NothingLeftError("bias-report", f"none of the {len(rows)} samples has a label", "use --by predicted, or data with labels")
    classes = [_class_stats(index, members[index], known_name(index, class_names), threshold, quantity, alpha) for index in sorted(members)]
    gap = None
    tested = [i for i, one in enumerate(classes) if one.images >= 2]
    if len(tested) >= 2:
        pooled = np.concatenate([members[classes[i].index].values for i in tested])
        null = permutation_null(pooled, np.array([classes[i].images for i in tested]), permutations, seed)
        mean, each = float(pooled.mean()), simultaneous(1.0 - alpha, len(tested))
        for i, p, adjusted in zip(tested, null.p_values, holm(null.p_values), strict=True):
            images = members[classes[i].index].images(quantity.low, quantity.high)
            lower, upper = opened(images, population_mean(images, each, light_tails=True))
            classes[i] = replace(
                classes[i],
                simultaneous_lower=lower,
                simultaneous_upper=upper,
                p_value=float(p),
                p_holm=float(adjusted),
                differs="no" if adjusted > alpha else "lower" if classes[i].mean.value < mean else "higher",
            )
        gap = _gap([classes[i] for i in tested], null, quantity, permutations)
    verdict, explanation = verdict_on(classes, gap, alpha)
    left_out = len(rows) - sum(map(len, members.values()))
    by_index = tuple(classes)
    return ClassBias(key, quantity.unit, quantity.higher_is_better, by, threshold, by_index, gap, left_out, alpha, verdict, explanation)


def _class_stats(index: int, rows: Columns, name: str | None, threshold: float | None, quantity: Quantity, alpha: float) -> ClassStats:
    """The statistics of one class by itself."""
    q25, median, q75 = (quantile_of(rows, q, quantity, 1.0 - alpha) for q in (0.25, 0.5, 0.75))
    below = None if threshold is None else share(int((rows.values < threshold).sum()), len(rows), 1.0 - alpha)
    return ClassStats(index, name, len(rows), mean_of(rows, quantity, 1.0 - alpha), q25, median, q75, below)


def _gap(tested: Sequence[ClassStats], null: Null, quantity: Quantity, permutations: int) -> Gap:
    lowest = min(tested, key=lambda one: one.mean.value)
    highest = max(tested, key=lambda one: one.mean.value)
    least, most = (lowest, highest) if quantity.higher_is_better else (highest, lowest)
    lowers = [one.simultaneous_lower for one in tested if one.simultaneous_lower is not None]
    uppers = [one.simultaneous_upper for one in tested if one.simultaneous_upper is not None]
    return Gap(
        least=least.index,
        most=most.index,
        value=highest.mean.value - lowest.mean.value,
        lower=max(0.0, max(lowers) - min(uppers)),
        upper=max(uppers) - min(lowers),
        p_value=null.gap_p_value,
        null_mean=null.gap_mean,
        null_q95=null.gap_q95,
        permutations=permutations,
    )


@dataclass(frozen=True, slots=True)
class Null:
    """The null hypothesis: the value does not depend on the class.

    Under it, the class labels are permuted at random over the images, class sizes kept. It assumes nothing about the distribution of
    the values, which is bounded and piled up at one end, so that Welch's t with a few images per class is far from its nominal level.

    Attributes:
        p_values: (classes,), two-sided, class against the rest.
        gap_p_value: P[largest minus smallest class mean >= the observed one].
        gap_mean, gap_q95: mean and 95 % quantile of that gap under the null.
    """

    p_values: Floats
    gap_p_value: float
    gap_mean: float
    gap_q95: float


def permutation_null(values: Floats, sizes: NDArray[np.int64], permutations: int, seed: int) -> Null:
    """Shuffle the values over the classes many times and compare.

    p-values are (1 + #{as extreme}) / (1 + permutations), which is exact in level. That cannot go below 1/(1 + permutations),
    too coarse for Holm over hundreds of classes, so where fewer than 10 shuffles are as extreme, the tail of the Pearson III
    curve through the exact first three moments of the null takes over, kept within the Clopper-Pearson interval of the count.

    Args:
        values: (images,), sorted by class: the first ``sizes[0]`` belong to the first class, and so on.
        sizes: (classes,), each >= 1, two classes or more.
        permutations: number of shuffles.
        seed: of the shuffles; the result is a function of the arguments alone.

    Source: Phipson and Smyth, "Permutation p-values should never be zero" (2010); Mielke and Berry on Pearson III.
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    centred = values - values.mean()
    slack = 1e-10 * (float(np.abs(centred).max()) or 1.0)  # sums of the same values in another order differ in the last digits
    observed = np.add.reduceat(centred, starts) / sizes
    gap = float(np.ptp(observed))
    generator = np.random.default_rng(seed)
    pool = np.tile(centred, (max(1, min(permutations, BLOCK // centred.size)), 1))  # (block, images)
    extreme = np.zeros(sizes.size, dtype=np.int64)
    gaps = np.empty(permutations)
    for begin in range(0, permutations, len(pool)):
        block = pool[: permutations - begin]
        generator.permuted(block, axis=1, out=block)
        means = np.add.reduceat(block, starts, axis=1) / sizes  # (block, classes)
        extreme += np.count_nonzero(np.abs(means) >= np.abs(observed) - slack, axis=0)
        gaps[begin : begin + len(block)] = np.ptp(means, axis=1)
    return Null(
        p_values=_p_values(extreme, permutations, observed, centred, sizes),
        gap_p_value=(1 + int(np.count_nonzero(gaps >= gap - slack))) / (1 + permutations),
        gap_mean=float(gaps.mean()),
        gap_q95=float(np.quantile(gaps, 0.95)),
    )


def holm(p_values: Floats) -> Floats:
    """Holm's step-down adjusted p-values: reject all that are <= alpha, and the probability of any false rejection is <= alpha.

    p_(i) sorted: adjusted_(i) = min(1, max_{j <= i} (K - j + 1) p_(j)). Valid under any dependence.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _p_values(extreme: NDArray[np.int64], permutations: int, observed: Floats, centred: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Monte-Carlo p-values, with the moment tail where the count is too small to resolve them."""
    from scipy.special import betaincinv

    counted = (1.0 + extreme) / (1.0 + permutations)
    floor = np.where(extreme == 0, 0.0, betaincinv(np.maximum(extreme, 1.0), permutations - extreme + 1.0, 0.025))
    tail = np.array([_moment_tail(abs(t), centred, int(n)) for t, n in zip(observed, sizes, strict=True)])
    return np.where(extreme < 10, np.clip(tail, floor, counted), counted)


def _moment_tail(t: float, centred: Floats, n: int) -> float:
    """P[|mean of n of the values drawn without replacement| >= t] by Pearson III on its exact mean, variance and skewness."""
    from scipy.special import gammainc, gammaincc, ndtr

    N = centred.size
    m2, m3 = float(np.mean(centred**2)), float(np.mean(centred**3))
    variance = m2 / n * (N - n) / (N - 1)
    if variance <= 0.0 or N < 3:
        return 1.0
    skew = m3 * (N - n) * (N - 2 * n) / (n**2 * (N - 1) * (N - 2)) / variance**1.5
    z = t / variance**0.5
    if abs(skew) < 1e-4:
        return float(2.0 * ndtr(-z))
    shape = 4.0 / skew**2  # z = (G - shape) / sqrt(shape) * sign(skew), G ~ Gamma(shape)
    right = float(gammaincc(shape, shape + z * shape**0.5))
    return right + float(gammainc(shape, max(0.0, shape - z * shape**0.5)))


def verdict_on(classes: Sequence[ClassStats], gap: Gap | None, alpha: float) -> tuple[GapVerdict, str]:
    """The verdict on the gap, and the numbers behind it."""
    alone = sum(one.p_value is None for one in classes)
    more = f" {alone} of the {len(classes)} classes had a single image: listed, not tested." if alone and gap is not None else ""
    if gap is None:
        return GapVerdict.NOT_TESTED, "At least two classes with two images each are needed."
    differing = sum(one.differs in ("lower", "higher") for one in classes)
    counted = {0: "no class differs", 1: "1 class differs"}.get(differing, f"{differing} classes differ")
    significant = gap.p_value <= alpha
    return GapVerdict.SIGNIFICANT if significant else GapVerdict.NOT_SIGNIFICANT, (
        f"Gap {gap.value:.3g} among {len(classes) - alone} classes, "
        f"p = {gap.p_value:.2g}; with permuted class labels {gap.null_mean:.3g} on average, 95 % quantile {gap.null_q95:.3g} "
        f"({gap.permutations} permutations). "
        f"Class by class (Holm-adjusted), {counted} significantly from the rest.{more}"
    )
