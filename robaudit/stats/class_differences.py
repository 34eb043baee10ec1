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
"""The grouping of the images: ``label``, ``predicted``, or a column of the data set."""


class GapVerdict(StrEnum):
    """Whether the gap between classes is significant: p <= 0.05 in a permutation test."""

    SIGNIFICANT = "significant"
    NOT_SIGNIFICANT = "not-significant"
    NOT_TESTED = "not-tested"


PERMUTATIONS = "permutations of the class labels"
"""The method of the intervals of differences."""
ALPHA = 0.05
"""Level of the tests; 1 - confidence of all intervals."""
ENOUGH = 2
"""Images of a class that is compared with others: a single image has no spread, so its class mean
has no interval over images."""
BLOCK = 1 << 20  # values shuffled at a time: 8 MiB of float64, for a run of any size
_USUAL_THRESHOLD = 0.9  # of a quantity from 0 to 1, as the summary's share below 0.9
_FEWEST_PERMUTATIONS = 100  # the smallest p-value of a class is then 2/101, below ALPHA


@dataclass(frozen=True, slots=True)
class ClassStats(Record):
    """One class.

    Attributes:
        index, name: the class; the name is None where unknown.
        images: number of images.
        mean: with its interval over images and its measurement error.
        q25, median, q75: quartiles of the values.
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

    @property
    def has_enough(self) -> bool:
        """Whether the class has enough images to be compared with others."""
        return self.images >= ENOUGH


@dataclass(frozen=True, slots=True)
class Gap(Record):
    """The largest minus the smallest class mean, among classes with at least 2 images.

    Attributes:
        least, most: indices of the least and the most robust class.
        estimate: the gap with its interval for images like these. The lower end is above 0 exactly
            where the gap is significant.
        p_value: of a permutation test: the probability of a gap this large if the value does not
            depend on the class.
        null_mean: mean of the gap under that null hypothesis.
        critical: the critical value; under the null hypothesis, larger gaps have a probability of
            at most 0.05. They are significant.
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
        threshold: the threshold of :attr:`ClassStats.below`; None without one.
        classes: the classes with images, by index.
        gap: the largest difference of two classes; None where fewer than two classes have two
            images.
        left_out: number of rows without a class (no label) or without a finite value.
        alpha: 1 - confidence of all intervals and decisions.
        verdict: whether the gap is significant.
        of_bounds: whether some values are only bounds of the true values; differences and gap are
            then between the bounds.
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

    @property
    def compared(self) -> tuple[ClassStats, ...]:
        """The classes with enough images to be compared; empty if it is a single one of several."""
        enough = tuple(stats for stats in self.classes if stats.has_enough)
        return () if len(enough) < min(2, len(self.classes)) else enough


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
    intervals belong to the same tests: the interval of a class excludes 0 exactly where the class
    is called different, and the interval of the gap exactly where the gap is significant. The end
    of an interval away from 0 reaches at least as far as the interval of the class mean, or of the
    mean of all other images, allows: few images cannot show everything. The tests ask whether the
    value depends on the class in *any* way: a class that differs only in spread may be called
    different.

    Args:
        columns: the rows of one result.
        by: classes are the labels, or the predictions on the clean image; or the name of
            ``groups``.
        groups: names of groups by sample id, in place of classes; an image without a name is left
            out.
        threshold: for the share below; default: 0.9 for a quantity from 0 to 1, else none.
        class_names: names by class index.
        quantity: the quantity of the values; default: the built-in quantity that the rows name.
        permutations: number of shuffles, at least 100.
        seed: seed of the shuffles.

    Raises:
        NothingLeftError: no row has a class and a finite value.
        RobauditError: a threshold that is not a number, or too few permutations.
    """
    quantity = quantity or quantity_of(columns.key.quantity, None)
    if threshold is None and quantity.is_share:
        threshold = _USUAL_THRESHOLD
    if threshold is not None and not math.isfinite(threshold):
        raise RobauditError(
            "threshold", f"{threshold} is not a number to compare with", "for example 0.9"
        )
    if permutations < _FEWEST_PERMUTATIONS:
        raise RobauditError(
            "permutations", f"{permutations} are too few for a p-value", "at least 100, better 2000"
        )
    finite = columns.by_votes().finite
    refuse_no_values(len(finite), finite.not_finite, "classes")
    class_of = finite.label if by == "label" else finite.predicted
    if groups is not None:
        class_names = sorted(set(groups.values()) - {""})
        class_of = _group_indices(finite.names, groups, class_names)
    everyone = finite.take(class_of != NO_CLASS)
    index = class_of[class_of != NO_CLASS]
    if not len(everyone):
        what = f"none of the {len(columns)} samples has a {'label' if groups is None else by}"
        raise NothingLeftError(
            "classes", what, "use " + BY.set_to("predicted") + ", or data with labels"
        )
    members = {int(label): everyone.take(index == label) for label in np.unique(index)}
    classes = [
        _class_stats(label, class_rows, known_name(label, class_names), threshold, quantity)
        for label, class_rows in members.items()
    ]
    gap = None
    tested = [stats.index for stats in classes if stats.has_enough]
    if len(tested) >= 2:
        # The key holds the classes of all images rather than the name of the grouping: the column
        # of the data set behind it may have changed since.
        memo_key = ("null", class_of.tobytes(), permutations, seed)
        if memo_key not in columns.cache:
            sizes = np.array([len(members[index]) for index in tested])
            pooled = np.concatenate([members[index].values for index in tested])
            columns.cache[memo_key] = permutation_null(pooled, sizes, permutations, seed)
        null: Null = columns.cache[memo_key]
        confidence = simultaneous(ROW_CONFIDENCE, len(tested))
        means = [_simultaneous_mean(members[index], quantity, confidence) for index in tested]
        overall = _simultaneous_mean(everyone, quantity, confidence)
        classes = _with_tests(classes, null, means, everyone.values, overall, quantity)
        compared = [stats for stats in classes if stats.index in tested]
        gap = _gap(compared, means, null, quantity, permutations)
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


def _group_indices(
    ids: Sequence[str], groups: Mapping[str, str], names: Sequence[str]
) -> NDArray[np.int64]:
    """The index in ``names`` of the group of each image; :data:`NO_CLASS` for no group."""
    places = {name: i for i, name in enumerate(names)}
    indices = [places.get(groups.get(sample_id, ""), NO_CLASS) for sample_id in ids]
    return np.array(indices, dtype=np.int64)


def _class_stats(
    index: int, rows: Columns, name: str | None, threshold: float | None, quantity: Quantity
) -> ClassStats:
    """The statistics of one class."""
    below = None
    if threshold is not None:
        below = share(int((rows.values < threshold).sum()), len(rows))
    return ClassStats(
        index=index,
        name=name,
        images=len(rows),
        mean=mean_of(rows, quantity),
        q25=quantile_of(rows, 0.25, quantity),
        median=quantile_of(rows, 0.5, quantity),
        q75=quantile_of(rows, 0.75, quantity),
        below=below,
    )


def _simultaneous_mean(rows: Columns, quantity: Quantity, confidence: float) -> Bounds:
    """The population interval of the mean of a class; where values are only bounds, the interval of
    the mean of the bounds."""
    images = rows.images(quantity.low, quantity.high)
    if not (np.isfinite(images.lowers).all() and np.isfinite(images.uppers).all()):
        images = replace(images, lowers=images.values, uppers=images.values)
    return population_mean(images, confidence, light_tails=True)


def _with_tests(
    classes: Sequence[ClassStats],
    null: Null,
    means: Sequence[Bounds],
    values: Floats,
    overall: Bounds,
    quantity: Quantity,
) -> list[ClassStats]:
    """The classes, those with at least two images with their tests.

    Args:
        classes: all classes.
        null: the tests.
        means: the simultaneous intervals of the means of the tested classes.
        values: the values of all images.
        overall: the simultaneous interval of their mean.
        quantity: the quantity of the values.
    """
    mean_overall = float(values.mean())
    total = len(values)
    with_tests: list[ClassStats] = []
    place = 0
    for stats in classes:
        if not stats.has_enough:
            with_tests.append(stats)
            continue
        # N m = n m_class + (N - n) m_others. With the class mean as observed, the mean of the
        # others is off by N / (N - n) times the error of the overall mean m.
        factor = total / (total - stats.images)
        others = ((mean_overall - overall[0]) * factor, (overall[1] - mean_overall) * factor)
        with_tests.append(_tested(stats, null, place, means[place], others, quantity))
        place += 1
    return with_tests


def _tested(
    stats: ClassStats, null: Null, place: int, mean: Bounds, others: Bounds, quantity: Quantity
) -> ClassStats:
    """The class with its test.

    Args:
        stats: the class.
        null: the tests of all classes.
        place: index of the class among the tested classes.
        mean: the simultaneous interval of its mean.
        others: the distances by which the mean of all other images may lie below and above the
            observed one.
        quantity: the quantity of the values.
    """
    difference = float(null.differences[place])
    scale = float(null.scales[place])
    p = float(null.p_values[place])
    differs: Literal["lower", "higher", "no"] = "no"
    if p <= ALPHA:
        differs = "lower" if difference < 0.0 else "higher"
    # A permutation shifts every class mean, so the critical values of the test bound how far this
    # difference can be from the truth.
    lower = difference - null.upper * scale
    upper = difference - null.lower * scale
    # An end towards 0 belongs to the test, which decides whether 0 is excluded. The other end, and
    # both where the class does not differ, must not be nearer than the class mean or the mean of
    # the others alone allows.
    if differs != "higher":
        mean_below = stats.mean.value - mean[0]
        lower = min(lower, difference - max(mean_below, others[1]))
    if differs != "lower":
        mean_above = mean[1] - stats.mean.value
        upper = max(upper, difference + max(mean_above, others[0]))
    # Two means within the range of the quantity differ by its width at most.
    width = quantity.high - quantity.low
    bounds = (max(lower, -width), min(upper, width))
    estimate = Estimate.population(difference, bounds, PERMUTATIONS)
    return replace(stats, difference=estimate, p_value=p, differs=differs)


def _gap(
    tested: Sequence[ClassStats],
    means: Sequence[Bounds],
    null: Null,
    quantity: Quantity,
    permutations: int,
) -> Gap:
    """The gap between the least and the most robust of the tested classes.

    If every class mean is off by the shift that a permutation gives it, the gap of the population
    is at least the observed gap less the range of these shifts, which is at most ``critical`` with
    a probability of 0.95.

    Args:
        tested: the classes with at least two images.
        means: the simultaneous intervals of their means.
        null: the tests of all classes.
        quantity: the quantity of the values.
        permutations: number of shuffles behind the tests.
    """
    lowest = min(tested, key=lambda stats: stats.mean.value)
    highest = max(tested, key=lambda stats: stats.mean.value)
    least, most = (lowest, highest) if quantity.higher_is_better else (highest, lowest)
    value = highest.mean.value - lowest.mean.value
    # The largest gap that the intervals of all class means together allow.
    farthest = max(upper for _, upper in means) - min(lower for lower, _ in means)
    # A gap is never negative, so 0 is not excluded without significance.
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
    """The tests of the null hypothesis that the value does not depend on the class.

    Under it, the class labels can be permuted at random over the images, with the class sizes kept.
    This assumes nothing about the distribution of the values. They are bounded and often piled up
    at one end, so that Welch's t with a few images per class is far from its nominal level.

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
    """Test the classes by shuffling the values over them many times.

    The p-value of a class is max-t: the share of shuffles in which the largest standardised
    difference of any class is as large, or the smallest as small, and twice the smaller of the two.
    So all p-values hold together, however the classes depend on each other. Each side has its own
    distribution, as values that are piled up at one end make means of few images lopsided. p-values
    are (1 + #{as extreme}) / (1 + permutations), which is exact in level.

    Args:
        values: (images,), sorted by class: the first ``sizes[0]`` belong to the first class, and so
            on.
        sizes: (classes,), each >= 1, two classes or more.
        permutations: number of shuffles.
        seed: of the shuffles; the result is a function of the arguments alone.
        alpha: level of the critical values.

    Source: Westfall and Young, "Resampling-Based Multiple Testing" (1993); Phipson and Smyth,
        "Permutation p-values should never be zero" (2010).
    """
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    total = values.size
    scales = np.sqrt(total / (sizes * (total - sizes)))  # = sqrt(1 / n + 1 / (N - n))
    # m_class - m_others = (m_class - m) N / (N - n), with the overall mean m
    to_others = total / (total - sizes)
    # Centred values keep the sums small. Equal values are exactly 0: their rounded mean may differ
    # from them, and the shuffles would then compare rounding errors.
    centred = values - values.mean() if np.ptp(values) > 0 else np.zeros_like(values)
    # Sums of the same values in another order differ in the last digits, and must count as equal.
    # A mean of n numbers is off by n 1e-16 of the largest at most, and usually by far less.
    slack = 1e-10 * float(np.abs(centred).max())
    means = np.add.reduceat(centred, starts) / sizes
    differences = means * to_others
    gap = float(np.ptp(means))
    generator = np.random.default_rng(seed)
    rows = max(1, min(permutations, BLOCK // centred.size))
    pool = np.tile(centred, (rows, 1))  # (rows, images)
    lowest = np.empty(permutations)
    highest = np.empty(permutations)
    gaps = np.empty(permutations)
    for begin in range(0, permutations, len(pool)):
        block = pool[: permutations - begin]
        # In place: a shuffle of shuffled values is as random as a shuffle of the original ones.
        generator.permuted(block, axis=1, out=block)
        shuffled = np.add.reduceat(block, starts, axis=1) / sizes  # (rows, classes)
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
    # The observed labelling is one of the permutations, hence the 1 (Phipson and Smyth, 2010).
    return np.asarray((1.0 + count) / (1.0 + null.size), dtype=np.float64)


def _critical(null: Floats, alpha: float, slack: float) -> float:
    """The critical value: exactly the numbers above it have a :func:`_tail` of at most alpha;
    infinite with too few shuffles."""
    # (1 + #{as large}) / (1 + shuffles) <= alpha, solved for the number of shuffles that may be as
    # large; 1e-9 makes up for the rounding of a whole product, such as 0.05 * 2000.
    most = math.floor(alpha * (1 + null.size) + 1e-9) - 1
    if most < 0:
        return math.inf
    place = null.size - 1 - most
    return float(np.partition(null, place)[place]) + slack
