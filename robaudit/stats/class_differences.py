"""Differences between classes, and whether they are significant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.estimates import Bounds, Estimate
from robaudit.numerics.image_intervals import ROW_CONFIDENCE, Floats, population_mean, simultaneous
from robaudit.quantities import Quantity
from robaudit.records import Inline, Record
from robaudit.runs.groups import GroupKey, quantity_of, refuse_no_values
from robaudit.runs.table import NO_CLASS, Columns
from robaudit.settings import BY
from robaudit.stats.summary import Mean, Quantile, Share, mean_of, quantile_of, share
from robaudit.text import known_name

By = str
"""``label``, ``predicted``, or a column of the data set."""


class GapVerdict(StrEnum):
    """Whether the gap between classes is significant: p <= 0.05 in a permutation test."""

    SIGNIFICANT = "significant"
    NOT_SIGNIFICANT = "not-significant"
    NOT_TESTED = "not-tested"


PERMUTATIONS = "permutations of the class labels"
"""The method of the intervals of differences."""
ALPHA = 0.05
"""Level of the tests; 1 - confidence of all intervals."""
BLOCK = 1 << 20  # values shuffled at a time: 8 MiB


@dataclass(frozen=True, slots=True)
class ClassStats(Record):
    """One class.

    Attributes:
        index, name: the class; the name is None where unknown.
        images: number of images.
        mean: with its interval over images and its measurement error.
        q25, median, q75: of the values.
        below: share of images below the threshold; None without one.
        difference: mean of this class minus the mean of all other tested images, with its interval,
            simultaneous over the classes, which excludes 0 exactly where the class differs; None
            for a class that is not tested (fewer than 2 images).
        p_value: two-sided permutation p-value of that difference, adjusted for the number of
            classes; None if not tested.
        differs: p_value <= 0.05: "lower" or "higher" than the others; "no" otherwise; None if not
            tested.
    """

    index: int
    name: str | None
    images: int
    mean: Mean
    q25: Quantile
    median: Quantile
    q75: Quantile
    below: Share | None
    difference: Annotated[
        Estimate | None,
        Inline(difference="value", difference_lower="lower", difference_upper="upper"),
    ] = None
    p_value: float | None = None
    differs: Literal["lower", "higher", "no"] | None = None


@dataclass(frozen=True, slots=True)
class Gap(Record):
    """The largest minus the smallest class mean, among classes with at least 2 images.

    Attributes:
        least, most: indices of the least and the most robust class.
        estimate: the gap with its interval for images like these. The lower end is above 0 exactly
            where the gap is significant.
        p_value: of a permutation test: probability of a gap this large where the value does not
            depend on the class.
        null_mean: mean of the gap under that null hypothesis.
        critical: under it, larger gaps have a probability of at most 0.05; they are significant.
        permutations: number of permutations of the class labels.
    """

    least: int
    most: int
    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]
    p_value: float
    null_mean: float
    critical: float
    permutations: int

    @property
    def value(self) -> float:
        """The gap."""
        return self.estimate.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBias(Record):
    """Robustness by class, for one estimator at one noise level.

    Attributes:
        key, quantity: what was measured.
        by: whether classes are the labels or the predictions; or the column that groups the images.
        threshold: of :attr:`ClassStats.below`; None without one.
        classes: by class index.
        gap: None where fewer than two classes have two images.
        left_out: rows without a class (no label) or without a finite value.
        alpha: 1 - confidence of all intervals and decisions.
        verdict: whether the gap is significant.
        of_bounds: some values are only bounds of the true values: differences and gap are between
            the bounds.
        by_votes: number of rows that count by the votes of their copies, as their value is an
            approximation.
    """

    key: Annotated[GroupKey, Inline()]
    quantity: Annotated[Quantity, Inline("unit", "higher_is_better")]
    by: By
    threshold: float | None
    alpha: float = ALPHA
    left_out: int
    by_votes: int = 0
    verdict: GapVerdict
    of_bounds: bool
    gap: Gap | None
    classes: tuple[ClassStats, ...]


def class_bias(
    columns: Columns,
    *,
    by: By = "label",
    groups: Mapping[str, str] | None = None,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    quantity: Quantity | None = None,
    permutations: int = 2000,
    seed: int = 0,
) -> ClassBias:
    """Compare the classes of one group of rows; approximations count by their votes, as in gates.

    One set of shuffles of the class labels (:func:`permutation_null`) gives all p-values, and the
    intervals belong to the same tests: an interval of a class excludes 0 exactly where the class is
    called different, and so does the interval of the gap. The end of an interval that lies away
    from 0 reaches at least as far as the interval of the class mean, or of the mean of all other
    images, allows: few images cannot show everything. The tests ask whether the value depends on
    the class in *any* way: a class that differs only in spread may be called different.

    Args:
        columns: of a result.
        by: classes are the labels, or the predictions on the clean image; or the name of
            ``groups``.
        groups: names of groups by sample id, in place of classes; an image without a name is left
            out.
        threshold: for the share below; None: 0.9 for a quantity from 0 to 1, else none.
        class_names: by class index.
        quantity: what the values are; default: the built-in quantity that the rows name.
        permutations: shuffles, at least 100.
        seed: of the shuffles.

    Raises:
        NothingLeftError: no row has a class and a finite value.
        RobauditError: a threshold that is not a number, or too few permutations.
    """
    quantity = quantity or quantity_of(columns.key.quantity, None)
    if threshold is None and quantity.is_share:
        threshold = 0.9
    if threshold is not None and not math.isfinite(threshold):
        raise RobauditError(
            "threshold", f"{threshold} is not a number to compare with", "for example 0.9"
        )
    if permutations < 100:
        raise RobauditError(
            "permutations", f"{permutations} are too few for a p-value", "at least 100, better 2000"
        )
    finite = columns.by_votes().finite
    refuse_no_values(len(finite), finite.not_finite, "classes")
    class_of = finite.label if by == "label" else finite.predicted
    if groups is not None:
        class_names = sorted(set(groups.values()) - {""})
        places = {name: i for i, name in enumerate(class_names)}
        class_of = np.array(
            [places.get(groups.get(name, ""), NO_CLASS) for name in finite.names], dtype=np.int64
        )
    everyone = finite.take(class_of != NO_CLASS)
    index = class_of[class_of != NO_CLASS]
    if not len(everyone):
        what = f"none of the {len(columns)} samples has a {'label' if groups is None else by}"
        raise NothingLeftError(
            "classes", what, "use " + BY.set_to("predicted") + ", or data with labels"
        )
    members = {int(label): everyone.take(index == label) for label in np.unique(index)}
    classes = [
        _class_stats(label, rows_, known_name(label, class_names), threshold, quantity)
        for label, rows_ in members.items()
    ]
    gap = None
    tested = [i for i, stats in enumerate(classes) if stats.images >= 2]
    if len(tested) >= 2:
        sizes = np.array([classes[i].images for i in tested])
        # The classes themselves and not their name: a column of the data set may have changed
        # since.
        memo_key = ("null", class_of.tobytes(), permutations, seed)
        if memo_key not in columns.memo:
            pooled = np.concatenate([members[classes[i].index].values for i in tested])
            columns.memo[memo_key] = permutation_null(pooled, sizes, permutations, seed)
        null: Null = columns.memo[memo_key]
        each = simultaneous(ROW_CONFIDENCE, len(tested))
        means = [_simultaneous_mean(members[classes[i].index], quantity, each) for i in tested]
        overall = _simultaneous_mean(everyone, quantity, each)
        mean_overall = float(everyone.values.mean())
        for place, (i, mean) in enumerate(zip(tested, means, strict=True)):
            # the mean of fewer images is less certain
            more = len(everyone) / (len(everyone) - classes[i].images)
            others = (mean_overall - overall[0]) * more, (overall[1] - mean_overall) * more
            classes[i] = _tested(classes[i], null, place, mean, others, quantity)
        gap = _gap([classes[i] for i in tested], means, null, quantity, permutations)
    verdict = GapVerdict.NOT_TESTED
    if gap is not None:
        verdict = GapVerdict.SIGNIFICANT if gap.p_value <= ALPHA else GapVerdict.NOT_SIGNIFICANT
    return ClassBias(
        key=columns.key,
        quantity=quantity,
        by=by,
        threshold=threshold,
        classes=tuple(classes),
        gap=gap,
        left_out=len(columns) - len(everyone),
        verdict=verdict,
        of_bounds=any(not stats.mean.population.is_finite for stats in classes),
        by_votes=int(columns.approximated.sum()),
    )


def _class_stats(
    index: int, rows: Columns, name: str | None, threshold: float | None, quantity: Quantity
) -> ClassStats:
    """The statistics of one class."""
    q25, median, q75 = (quantile_of(rows, q, quantity) for q in (0.25, 0.5, 0.75))
    below = None if threshold is None else share(int((rows.values < threshold).sum()), len(rows))
    return ClassStats(index, name, len(rows), mean_of(rows, quantity), q25, median, q75, below)


def _simultaneous_mean(rows: Columns, quantity: Quantity, confidence: float) -> Bounds:
    """The population interval of the mean of a class; where values are only bounds, of the mean of
    the bounds."""
    images = rows.images(quantity.low, quantity.high)
    if not (np.isfinite(images.lowers).all() and np.isfinite(images.uppers).all()):
        images = replace(images, lowers=images.values, uppers=images.values)
    return population_mean(images, confidence, light_tails=True)


def _tested(
    stats: ClassStats, null: Null, place: int, mean: Bounds, others: Bounds, quantity: Quantity
) -> ClassStats:
    """The class with its test.

    Args:
        stats: the class.
        null: the tests of all classes.
        place: index of the class among them.
        mean: the simultaneous interval of its mean.
        others: how far the mean of all other images may lie below and above the observed one.
        quantity: what the values are.
    """
    difference, scale, p = (
        float(each[place]) for each in (null.differences, null.scales, null.p_values)
    )
    differs: Literal["lower", "higher", "no"] = (
        "no" if p > ALPHA else "lower" if difference < 0.0 else "higher"
    )
    lower = difference - null.upper * scale
    upper = difference - null.lower * scale
    if differs != "higher":
        lower = min(lower, difference - max(stats.mean.value - mean[0], others[1]))
    if differs != "lower":
        upper = max(upper, difference + max(mean[1] - stats.mean.value, others[0]))
    width = quantity.high - quantity.low
    estimate = Estimate.population(
        difference, (max(lower, -width), min(upper, width)), PERMUTATIONS
    )
    return replace(stats, difference=estimate, p_value=p, differs=differs)


def _gap(
    tested: Sequence[ClassStats],
    means: Sequence[Bounds],
    null: Null,
    quantity: Quantity,
    permutations: int,
) -> Gap:
    """The gap; ``means`` are the simultaneous intervals of the class means.

    If every class mean is off by the shift that a permutation gives it, the gap of the population
    is at least the observed gap less the range of these shifts, which is at most ``critical`` with
    a probability of 0.95.
    """
    lowest = min(tested, key=lambda stats: stats.mean.value)
    highest = max(tested, key=lambda stats: stats.mean.value)
    least, most = (lowest, highest) if quantity.higher_is_better else (highest, lowest)
    value = highest.mean.value - lowest.mean.value
    farthest = max(upper for _, upper in means) - min(lower for lower, _ in means)
    lower = value - null.critical if null.gap_p_value <= ALPHA else 0.0
    upper = min(max(value + null.critical, farthest), quantity.high - quantity.low)
    return Gap(
        least=least.index,
        most=most.index,
        estimate=Estimate.population(value, (lower, upper), PERMUTATIONS),
        p_value=null.gap_p_value,
        null_mean=null.gap_mean,
        critical=null.critical,
        permutations=permutations,
    )


@dataclass(frozen=True, slots=True)
class Null:
    """The null hypothesis: the value does not depend on the class.

    Under it, the class labels are permuted at random over the images, class sizes kept. It assumes
    nothing about the distribution of the values, which is bounded and piled up at one end, so that
    Welch's t with a few images per class is far from its nominal level.

    Attributes:
        differences: (classes,), observed: mean of the class minus mean of the others.
        scales: (classes,), sqrt(1/n + 1/(N - n)): proportional to the standard deviation of each
            difference under the null.
        p_values: (classes,), two-sided, adjusted for the number of classes.
        lower, upper: under the null, the smallest difference / scale falls below ``lower``, and the
            largest exceeds ``upper``, each with a probability of at most alpha / 2.
        gap_p_value: P[largest minus smallest class mean >= the observed difference].
        gap_mean: mean of that gap under the null.
        critical: larger gaps have a probability of at most alpha under the null.
    """

    differences: Floats
    scales: Floats
    p_values: Floats
    lower: float
    upper: float
    gap_p_value: float
    gap_mean: float
    critical: float


def permutation_null(
    values: Floats, sizes: NDArray[np.int64], permutations: int, seed: int, alpha: float = ALPHA
) -> Null:
    """Shuffle the values over the classes many times and compare.

    The p-value of a class is max-t: how often the largest standardised difference of any class is
    as large, or the smallest as small, twice the smaller of the two. So all p-values hold together,
    however the classes depend on each other. Each side has its own distribution, as values that are
    piled up at one end make means of few images lopsided. p-values are (1 + #{as extreme}) / (1 +
    permutations), which is exact in level.

    Args:
        values: (images,), sorted by class: the first ``sizes[0]`` belong to the first class, and so
            on.
        sizes: (classes,), each >= 1, two classes or more.
        permutations: number of shuffles.
        seed: of the shuffles; the result is a function of the arguments alone.
        alpha: level of the critical values.

    Source: Westfall and Young, "Resampling-Based Multiple Testing" (1993); Phipson and Smyth,
        "Permutation p-values should never be
    zero" (2010).
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    total = values.size
    scales = np.sqrt(total / (sizes * (total - sizes)))
    to_others = total / (total - sizes)  # class mean minus overall mean -> minus mean of the others
    centred = values - values.mean() if np.ptp(values) > 0 else np.zeros_like(values)
    # sums of the same values in another order differ in the last digits
    slack = 1e-10 * float(np.abs(centred).max())
    means = np.add.reduceat(centred, starts) / sizes
    differences = means * to_others
    gap = float(np.ptp(means))
    generator = np.random.default_rng(seed)
    # (block, images)
    pool = np.tile(centred, (max(1, min(permutations, BLOCK // centred.size)), 1))
    lowest = np.empty(permutations)
    highest = np.empty(permutations)
    gaps = np.empty(permutations)
    for begin in range(0, permutations, len(pool)):
        block = pool[: permutations - begin]
        generator.permuted(block, axis=1, out=block)
        shuffled = np.add.reduceat(block, starts, axis=1) / sizes  # (block, classes)
        part = slice(begin, begin + len(block))
        gaps[part] = np.ptp(shuffled, axis=1)
        shuffled *= to_others / scales
        lowest[part] = shuffled.min(axis=1)
        highest[part] = shuffled.max(axis=1)
    tests = differences / scales
    above = _tail(highest, tests, slack)
    below = _tail(-lowest, -tests, slack)
    return Null(
        differences=differences,
        scales=scales,
        p_values=np.minimum(1.0, 2.0 * np.minimum(above, below)),
        lower=-_critical(-lowest, alpha / 2.0, slack),
        upper=_critical(highest, alpha / 2.0, slack),
        gap_p_value=float(_tail(gaps, np.array([gap]), slack)[0]),
        gap_mean=float(gaps.mean()),
        critical=_critical(gaps, alpha, slack),
    )


def _tail(null: Floats, observed: Floats, slack: float) -> Floats:
    """P[null >= observed], for each observed number."""
    count = null.size - np.searchsorted(np.sort(null), observed - slack, side="left")
    return np.asarray((1.0 + count) / (1.0 + null.size), dtype=np.float64)


def _critical(null: Floats, alpha: float, slack: float) -> float:
    """The critical value: exactly the numbers above it have a :func:`_tail` of at most alpha;
    infinite with too few shuffles."""
    most = math.floor(alpha * (1 + null.size) + 1e-9) - 1  # shuffles that may be as large
    return (
        float(np.partition(null, null.size - 1 - most)[null.size - 1 - most]) + slack
        if most >= 0
        else math.inf
    )
