"""Deviations of an estimator's values from a reference.

They are bias, RMSE, worst case, rank correlation and coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robaudit.levels import NoiseLevel
from robaudit.quantities import P_ROBUST, IntervalKind, Quantity
from robaudit.records import Record
from robaudit.runs.rows import Row
from robaudit.stats.ranks import rank_correlation
from robaudit.stats.summary import Share, share

Truths = Mapping[tuple[str, NoiseLevel], Share]
"""The reference by (sample id, noise level): the share of noisy copies that keep the class, with
its 95 % Clopper-Pearson interval."""


@dataclass(frozen=True, slots=True)
class Error(Record):
    """Differences of the values from the reference.

    Attributes:
        bias: mean of value - reference.
        bias_error: its standard error over the images.
        rmse: root mean square error, with the reference's own variance subtracted.
        rmse_error: one standard error upwards, from the spread of the squared errors over the
            images; it has no confidence level.
        reference: root mean square standard error of the reference.
        sampling: root mean square of the estimator's own standard errors; None without them.
        worst: the sample with the largest difference.
        worst_value, worst_reference: its value and its reference.
    """

    bias: float
    bias_error: float | None
    rmse: float
    rmse_error: float | None
    reference: float
    sampling: float | None
    worst: str
    worst_value: float
    worst_reference: float


@dataclass(frozen=True, slots=True)
class ReferenceComparison(Record):
    """One estimator at one noise level, compared with the reference.

    Attributes:
        estimator, at, quantity: what was compared.
        images: number of images compared.
        touched: number of these for which some of the reference's copies kept the class and some
            did not.
        mean, reference_mean: over the images; the mean is in the units of the quantity.
        error: None where the quantity is not p_robust.
        rank: Spearman's rank correlation with the reference, +1 where the more robust of two images
            always has the better value; None where either is the same for all images.
        coverage: the intervals that cover the reference, taking its own uncertainty into account
            (:func:`covers`); None without intervals, or where the quantity is another.
        forwards, backwards, seconds: per image, on average.
        kind: the estimator's name in the registry; ``estimator`` is its name in the spec.
        exact: whether every value is exact: the noise does the same to an image every time.
    """

    estimator: str
    at: NoiseLevel
    quantity: str
    images: int
    touched: int
    mean: float
    reference_mean: float
    error: Error | None
    rank: float | None
    coverage: Share | None
    forwards: float
    backwards: float
    seconds: float
    kind: str = ""
    exact: bool = False


def compare(
    rows: Sequence[Row], truths: Sequence[Share], quantity: Quantity, seconds: float, kind: str = ""
) -> ReferenceComparison:
    """Compare an estimator's rows at one noise level with the reference of the same samples.

    Args:
        rows: of one estimator and noise level; at least one.
        truths: the reference, in the same order.
        quantity: what the values mean.
        seconds: the time for all rows.
        kind: the estimator's name in the registry.
    """
    first = rows[0]
    n = len(rows)
    values = np.array([row.value for row in rows])
    references = np.array([truth.value for truth in truths])
    rank = rank_correlation(values, references)
    # +1 where the more robust of two images always has the better value.
    if rank is not None and not quantity.higher_is_better:
        rank = -rank
    # Differences and coverage make sense for the reference's own quantity only.
    error = None
    coverage = None
    if quantity.name == P_ROBUST.name:
        error = _error(rows, truths)
        coverage = _coverage(rows, truths)
    return ReferenceComparison(
        estimator=first.estimator,
        at=first.at,
        quantity=quantity.name,
        images=n,
        touched=sum(0 < truth.count < truth.total for truth in truths),
        mean=float(values.mean()),
        reference_mean=float(references.mean()),
        error=error,
        rank=rank,
        coverage=coverage,
        forwards=sum(row.forwards for row in rows) / n,
        backwards=sum(row.backwards for row in rows) / n,
        seconds=seconds / n,
        kind=kind,
        exact=all(row.interval.kind is IntervalKind.EXACT for row in rows),
    )


def root_mean_square(squares: ArrayLike, correction: float) -> tuple[float, float | None]:
    """The root mean square of differences from the reference, and its standard error.

    They are m = sqrt(mean(squares) - correction), at least 0, and sqrt(m^2 + s) - m, with s the
    standard error of the mean square. The reference errs independently of the values, so
    mean((value - reference)^2) is too large by the reference's mean variance on average: the
    correction, p (1 - p) / (draws - 1) averaged over the images.

    The error is one standard error (for m^2 >> s it is s / (2 m), the delta method), not an
    interval: if a few images carry most of the error and are not in the sample, the squares do not
    show it. In simulations the interval of 1.96 s about m^2 held the truth in .92 of 3,000 cases
    with normal errors and 50 images, .75 with one error in ten ten times as large, and .82 and .45
    with 10 images.

    Args:
        squares: squared differences (images,).
        correction: mean variance of the reference.

    Returns:
        (rmse, error); the error is None with a single image.
    """
    d2 = np.asarray(squares, dtype=np.float64)
    corrected = max(0.0, float(d2.mean()) - correction)  # m^2
    rmse = math.sqrt(corrected)
    if len(d2) <= 1:
        return rmse, None
    s = float(d2.std(ddof=1)) / math.sqrt(len(d2))
    return rmse, math.sqrt(corrected + s) - rmse


def variance(truth: Share) -> float:
    """The unbiased estimate of the variance of a share of draws: p (1 - p) / (draws - 1)."""
    # Of the sample variance, n / (n - 1) p (1 - p), divided by n. A single draw has none: 0.
    return truth.value * (1 - truth.value) / max(1, truth.total - 1)


def covers(
    value: float, interval: tuple[float, float], reference: float, uncertainty: tuple[float, float]
) -> bool:
    """Whether an interval agrees with a reference that has an interval, too.

    The difference of the two has the half width sqrt(estimator's^2 + reference's^2), each on the
    side that faces the other, and the two agree if its interval contains zero. For a reference
    without error this is lower <= reference <= upper. Requiring the reference's value itself would
    count its error against the estimator; accepting every overlap would let intervals pass that are
    too narrow.

    Source: Newcombe, Statistics in Medicine 17 (1998) 873, method 10; Zou and Donner, Statistics in
    Medicine 27 (2008) 1693 (MOVER).
    """
    # MOVER: the ends that face each other are the value's upper and the reference's lower one, or
    # the reverse.
    if reference >= value:
        return reference - value <= math.hypot(interval[1] - value, reference - uncertainty[0])
    return value - reference <= math.hypot(value - interval[0], uncertainty[1] - reference)


def _error(rows: Sequence[Row], truths: Sequence[Share]) -> Error:
    """The differences of p_robust from the reference."""
    d = np.array([row.value - truth.value for row, truth in zip(rows, truths, strict=True)])
    bias_error = None
    if len(d) > 1:
        bias_error = float(d.std(ddof=1)) / math.sqrt(len(d))
    reference_variance = sum(map(variance, truths)) / len(truths)
    rmse, rmse_error = root_mean_square(d**2, reference_variance)
    # Standard errors of some rows alone would not explain the RMSE of all.
    std_errors = [row.std_error for row in rows if row.std_error is not None]
    sampling = None
    if len(std_errors) == len(rows):
        sampling = math.sqrt(sum(se**2 for se in std_errors) / len(std_errors))
    worst = int(np.abs(d).argmax())
    return Error(
        bias=float(d.mean()),
        bias_error=bias_error,
        rmse=rmse,
        rmse_error=rmse_error,
        reference=math.sqrt(reference_variance),
        sampling=sampling,
        worst=rows[worst].sample_id,
        worst_value=rows[worst].value,
        worst_reference=truths[worst].value,
    )


def _coverage(rows: Sequence[Row], truths: Sequence[Share]) -> Share | None:
    """The share of the intervals that cover the reference; None without intervals."""
    covered = 0
    total = 0
    for row, truth in zip(rows, truths, strict=True):
        if row.lower is None or row.upper is None:
            continue
        total += 1
        # An interval that agrees with the reference within the reference's own error covers it.
        uncertainty = truth.estimate.bounds or (truth.value, truth.value)
        covered += covers(row.value, (row.lower, row.upper), truth.value, uncertainty)
    return share(covered, total) if total else None
