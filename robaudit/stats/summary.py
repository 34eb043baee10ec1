"""Summaries of the rows of one estimator and noise level: mean, quantiles, shares and accuracies,
each with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from robaudit.estimates import Estimate
from robaudit.numerics.image_intervals import (
    BY_RANKS,
    ROW_CONFIDENCE,
    Floats,
    MeanMethod,
    MeasuredImages,
    measured_mean,
    measured_quantile,
    opened,
    population_mean,
    population_mean_method,
    population_quantile,
    population_share,
)
from robaudit.numerics.intervals import (
    clopper_pearson,
    mean_interval,
    pooled_measurement_error,
    share_variance,
)
from robaudit.quantities import IntervalKind, Quantity
from robaudit.records import Inline, Nested, Record
from robaudit.runs.groups import GroupKey, quantity_of, refuse_no_values
from robaudit.runs.run import Run
from robaudit.runs.serialise import document_json
from robaudit.runs.table import Columns, ResultTable, antithetic, pooled_votes, with_values


@dataclass(frozen=True, slots=True)
class Share(Record):
    """``count`` of ``total`` images, with an interval over images."""

    count: int
    total: int
    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]

    @property
    def value(self) -> float:
        """The share."""
        return self.estimate.value


@dataclass(frozen=True, slots=True)
class Mean(Record):
    """A mean over images.

    Attributes:
        population: the mean with its interval over images
            (:func:`robaudit.numerics.intervals.mean_interval`).
        measurement_error: standard error from the measurement of each image; None where an image
            has none.
        measured: the mean with its interval for exactly these images, by one of
            :class:`robaudit.numerics.image_intervals.MeanMethod`; without an interval where an
            image has none.
    """

    population: Annotated[Estimate, Inline("value", "lower", "upper")]
    measurement_error: float | None
    measured: Annotated[
        Estimate, Inline(measured_lower="lower", measured_upper="upper", measured_by="method")
    ]

    @property
    def value(self) -> float:
        """The mean."""
        return self.population.value


@dataclass(frozen=True, slots=True)
class Quantile(Record):
    """A quantile over images.

    Attributes:
        population: the quantile, by linear interpolation between order statistics, with its
            interval over images (:func:`robaudit.numerics.image_intervals.population_quantile`).
        measured: the quantile with its interval for exactly these images
            (:func:`robaudit.numerics.image_intervals.measured_quantile`). An end is infinite where
            images that are bounded on one side only leave it open. There is no interval where an
            image has none.
        censored: whether it falls on a censored image, so that the true quantile is only known to
            be larger.
    """

    population: Annotated[Estimate, Inline("value", "lower", "upper")]
    measured: Annotated[Estimate, Inline(measured_lower="lower", measured_upper="upper")]
    censored: bool = False

    @property
    def value(self) -> float:
        """The quantile."""
        return self.population.value


def share(count: int, total: int, confidence: float = ROW_CONFIDENCE) -> Share:
    """The share ``count`` of ``total`` >= 1 images with its exact interval."""
    lower, upper = clopper_pearson(count, total, confidence)
    bounds = (float(lower), float(upper))
    return Share(count, total, Estimate.population(count / total, bounds, "Clopper-Pearson"))


def mean_of(rows: Columns, quantity: Quantity) -> Mean:
    """The mean value of rows of one group, with both uncertainties at 95 %.

    They are :func:`robaudit.numerics.image_intervals.population_mean` and, where all rows have an
    interval, :func:`robaudit.numerics.image_intervals.measured_mean`. Where an image is bounded on
    one side only, so is the mean. With censored images, the lower end is for the mean of the
    values.
    """
    images = rows.images(quantity.low, quantity.high)
    all_bounded = rows.bounded == len(rows)
    if rows.censored:
        # A search that found nothing may leave its image open below. The mean of such images is
        # called a lower bound anyway, so its lower end is for the mean of the values.
        lowers = np.where(images.lowers > images.low, images.lowers, images.values)
        images = replace(images, lowers=lowers)
    # Shares of votes have an interval of their own, also where rows have none.
    has_method = all_bounded or images.draws is not None
    method = images.method if has_method else MeanMethod.NONE
    value = float(images.values.mean())
    # Student's t towards an infinite end is good enough for a summary; gates do not trust it.
    population = opened(images, population_mean(images, ROW_CONFIDENCE, light_tails=True))
    measured = None
    if method is not MeanMethod.NONE:
        measured = opened(images, measured_mean(images, ROW_CONFIDENCE))
    # Draws that stopped adaptively are no independent sample, so their standard errors mislead.
    errors = None if rows.adaptive else rows.errors
    return Mean(
        Estimate.population(value, population, population_mean_method(images)),
        None if errors is None else pooled_measurement_error(errors),
        Estimate.measured(value, measured, method),
    )


def quantile_of(rows: Columns, q: float, quantity: Quantity) -> Quantile:
    """The q-quantile of the values, with both uncertainties at 95 %, by the rules of the gates."""
    images = rows.images(quantity.low, quantity.high)
    value = float(np.quantile(rows.values, q))
    population_bounds = population_quantile(images, q, ROW_CONFIDENCE)
    population = Estimate.population(value, population_bounds, BY_RANKS)
    censored = bool(rows.censored) and _is_censored(rows, q)
    if rows.bounded < len(rows):
        return Quantile(population, Estimate(value), censored)
    # An end that depends on an image bounded on one side only is open, not at the end of the range.
    low = -math.inf if np.isneginf(images.lowers).any() else images.low
    high = math.inf if np.isposinf(images.uppers).any() else images.high
    below, above = measured_quantile(replace(images, low=low, high=high), q, ROW_CONFIDENCE)
    is_open = math.isinf(above) and not below > quantity.low
    if rows.censored and is_open:
        # The quantile is the value of a failed search, or lies between one and an upper bound. As
        # for means, the lower end is then for the value.
        below = value
    return Quantile(population, Estimate.measured(value, (below, above), BY_RANKS), censored)


def _is_censored(rows: Columns, q: float) -> bool:
    """Whether both order statistics around the q-quantile are censored values."""
    # NumPy interpolates between the order statistics around (n - 1) q, counted from 0; 1e-9 makes
    # up for the rounding of a whole product.
    place = math.floor((len(rows) - 1) * q + 1e-9)
    uncensored = len(rows) - rows.censored
    return uncensored <= place and bool(np.quantile(rows.values, q) >= rows.cap)


_SHARE = Nested("Share", "value", "lower", "upper", about="A share of noisy copies.")


@dataclass(frozen=True, slots=True)
class NoisyAccuracy(Record):
    """Accuracy under noise: the mean over labelled images of votes[label] / all votes.

    Attributes:
        images: number of images with a label and votes.
        population: the mean with its interval over images.
        std_error: standard error from the draws alone: sqrt(sum of the shares' variances) / images.
        measured: the mean with its interval from the pooled draws, for exactly these images
            (:func:`robaudit.numerics.image_intervals.measured_mean`). Under noise that does the
            same every time the interval is the value itself; where the numbers of antithetic pairs
            differ, there is none.
        right: number of these images that are classified correctly without noise.
        stays_right: accuracy under noise of those images, with its interval over images; None
            without any.
        repaired: the same of the images that are misclassified without noise.
    """

    images: int
    population: Annotated[Estimate, Inline("value", "lower", "upper")]
    std_error: float
    measured: Annotated[Estimate, Inline(measured_lower="lower", measured_upper="upper")]
    right: int
    stays_right: Annotated[Estimate | None, _SHARE]
    repaired: Annotated[Estimate | None, _SHARE]

    @property
    def value(self) -> float:
        """The accuracy."""
        return self.population.value


def noisy_accuracy(rows: Columns) -> NoisyAccuracy | None:
    """Accuracy under noise of the labelled rows.

    None if no row is labelled, if a labelled row has no votes, or if a row stopped adaptively,
    which biases its shares.
    """
    labelled = rows.label >= 0
    all_voted = labelled.any() and (rows.label_draws[labelled] > 0).all()
    if not all_voted or rows.adaptive:
        return None
    draws = rows.label_draws[labelled]
    split = antithetic(rows.label_split[labelled])
    shares = rows.hits[labelled] / draws
    value = float(shares.mean())
    measured = Estimate(value)
    pooled, pairs = pooled_votes(draws, rows.label_split[labelled])
    if rows.of_kind(IntervalKind.EXACT).all():
        measured = Estimate.measured(value, (value, value), "exact")
    elif pooled is not None:
        images = MeasuredImages(shares, shares, shares, 0.0, 1.0, draws=pooled, split=pairs)
        measured = Estimate.measured(value, measured_mean(images, ROW_CONFIDENCE), images.method)
    right = rows.predicted[labelled] == rows.label[labelled]
    # The shares are independent, so their variances add up.
    variance = np.sum(share_variance(shares, draws, split))
    error = float(np.sqrt(variance) / shares.size)
    return NoisyAccuracy(
        images=shares.size,
        population=_over_images(shares),
        std_error=error,
        measured=measured,
        right=int(right.sum()),
        stays_right=_over_images(shares[right]) if right.any() else None,
        repaired=_over_images(shares[~right]) if not right.all() else None,
    )


def _over_images(shares: Floats) -> Estimate:
    """The mean of shares of votes (n,), n >= 1, with its interval over images."""
    bounds = mean_interval(shares, 0.0, 1.0)
    return Estimate.population(float(shares.mean()), bounds, "Gaffke's bounds over images")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary(Record):
    """One estimator at one noise level.

    As in gates, approximations count by the votes of the same copies where there are any
    (:meth:`robaudit.runs.table.Columns.by_votes`).

    Attributes:
        key: estimator, sigma, noise and quantity.
        quantity: the quantity of the values.
        images: number of rows with a finite value; everything below is about them.
        not_finite: number of rows left out because their value is not a finite number.
        with_interval: number of rows with an interval of their own.
        approximate: number of those intervals that cover the draws only, not the estimator's bias.
        by_votes: number of rows that count by the votes of their copies, as their value is an
            approximation.
        open_below, open_above: number of rows that are estimates whose interval has no lower end,
            or no upper end.
        adaptive: number of rows whose sampling stopped adaptively: their values are biased towards
            the side where they stopped.
        mean, median, p05, p95: mean and percentiles over images. ``p05`` is the 5th percentile of
            the values, whichever direction is better.
        minimum: the smallest value.
        below_half, below_ninety: share of images with a value below 0.5 and 0.9; None for a
            quantity without a range of 0 to 1. The interval is of the share with a true value
            below: few draws put values on either side of a threshold.
        noted: number of rows with a note.
        clean_accuracy: share of labelled images predicted correctly without noise; None without
            labels.
        noisy_accuracy: accuracy under noise; None without labels or votes.
        censored: number of images whose true value is only known to be larger.
        cap: the smallest value of a censored image; None without any.
        not_found: number of censored images for which a search found nothing; their true value may
            still be smaller.
        upper_bounds: number of images whose true value is at most their value.
        lower_bounds: number of images whose true value is at least their value.
        confidence: confidence of every interval here.
    """

    key: Annotated[GroupKey, Inline()]
    quantity: Annotated[Quantity, Inline("unit", "higher_is_better")]
    confidence: float = ROW_CONFIDENCE
    images: int
    not_finite: int
    with_interval: int
    approximate: int
    by_votes: int = 0
    adaptive: int
    open_below: int = 0
    open_above: int = 0
    censored: int = 0
    cap: float | None = None
    not_found: int = 0
    upper_bounds: int = 0
    lower_bounds: int = 0
    noted: int
    mean: Mean
    median: Quantile
    p05: Quantile
    p95: Quantile
    minimum: float
    below_half: Annotated[Share | None, Field(serialization_alias="share_below_0.5")]
    below_ninety: Annotated[Share | None, Field(serialization_alias="share_below_0.9")]
    clean_accuracy: Share | None
    noisy_accuracy: NoisyAccuracy | None

    @property
    def of_search(self) -> bool:
        """Whether the values come from a search: the true values may be smaller."""
        return self.upper_bounds + self.not_found > 0

    @property
    def bad_end(self) -> Quantile:
        """The percentile that 95 % of the images are better than: the 5th, or the 95th where lower
        is better."""
        return self.p05 if self.quantity.higher_is_better else self.p95


def summarise(
    table: ResultTable, quantities: Mapping[str, Quantity] | None = None
) -> tuple[GroupSummary, ...]:
    """One summary per estimator and noise level, in the rows' order; estimators, levels and
    quantities are never pooled.

    A group without a finite value is left out, unless there is no other group. The table keeps the
    summaries, so that they are computed once.

    Args:
        table: the results of a run.
        quantities: descriptions, by name, of quantities that are not built in.

    Raises:
        NothingLeftError: no group has a finite value.
        RunError: a quantity without a description.
    """
    memo_key = "summary", *(quantities or {}).values()
    if memo_key not in table.cache:
        measured = with_values(table.values())
        table.cache[memo_key] = tuple(
            _summary(columns, quantity_of(columns.key.quantity, quantities)) for columns in measured
        )
    groups: tuple[GroupSummary, ...] = table.cache[memo_key]
    return groups


def summary_json(groups: Sequence[GroupSummary], **more: Any) -> str:
    """The text of summary.json.

    Args:
        groups: the summaries, one for each estimator and noise level.
        more: JSON values by key, which come first.
    """
    return document_json({**more, "groups": [group.document() for group in groups]})


def summary_of(run: Run) -> tuple[GroupSummary, ...]:
    """Mean, quantiles and shares for each estimator and noise level of a run; computed once."""
    return summarise(run.table, run.quantities)


def _summary(columns: Columns, quantity: Quantity) -> GroupSummary:
    """The summary of one group of rows."""
    rows = columns.by_votes().finite
    values = rows.values
    refuse_no_values(len(rows), rows.not_finite, str(columns.key))

    def below(threshold: float) -> Share | None:
        if not quantity.is_share:
            return None
        number = int((values < threshold).sum())
        if rows.bounded < len(rows):
            return share(number, len(rows))
        images = rows.images(quantity.low, quantity.high)
        bounds = population_share(images, threshold, ROW_CONFIDENCE)
        value = number / len(rows)
        return Share(number, len(rows), Estimate.population(value, bounds, BY_RANKS))

    clean_accuracy = None
    if rows.judged.any():
        clean_accuracy = share(int(rows.correct.sum()), int(rows.judged.sum()))
    return GroupSummary(
        key=columns.key,
        quantity=quantity,
        images=len(rows),
        not_finite=rows.not_finite,
        approximate=rows.approximate,
        adaptive=int(rows.of_kind(IntervalKind.CONFIDENCE_SEQUENCE).sum()),
        with_interval=rows.bounded,
        mean=mean_of(rows, quantity),
        median=quantile_of(rows, 0.5, quantity),
        p05=quantile_of(rows, 0.05, quantity),
        p95=quantile_of(rows, 0.95, quantity),
        minimum=float(values.min()),
        below_half=below(0.5),
        below_ninety=below(0.9),
        noted=rows.noted,
        clean_accuracy=clean_accuracy,
        noisy_accuracy=noisy_accuracy(rows),
        censored=rows.censored,
        cap=rows.cap if rows.censored else None,
        not_found=rows.not_found,
        upper_bounds=rows.upper_bounds,
        lower_bounds=rows.lower_bounds,
        by_votes=int(columns.approximated.sum()),
        open_below=rows.open_below,
        open_above=rows.open_above,
    )
