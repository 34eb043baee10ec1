"""What are a mean, a quantile and a share of images, each with its uncertainty?

Two uncertainties, never mixed: ``lower``/``upper`` cover the *choice of images* (how the number would differ on other images
of the same kind), ``measured_*`` cover the *measurement* of these very images (how it would differ with other noise draws).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robaudit.numerics.intervals import (
    clopper_pearson,
    mean_interval,
    pooled_measurement_error,
    pooled_measurement_interval,
    quantile_ranks,
)
from robaudit.summary.columns import Columns, Floats
from robaudit.summary.groups import QuantityLike, json_values

_ENDLESS = 1e300


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``total`` images, with the Clopper-Pearson interval over images."""

    count: int
    total: int
    value: float
    lower: float
    upper: float

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over images.

    Attributes:
        value: the mean.
        lower, upper: interval over images (:func:`robaudit.numerics.intervals.mean_interval`).
        measurement_error: standard error from the measurement of each image; None where an image has none.
        measured_lower, measured_upper: interval of the mean over these very images; None where an image has none.
        measured_by: how that interval was made: clopper-pearson:pooled, mover, mean of intervals, none.
    """

    value: float
    lower: float
    upper: float
    measurement_error: float | None
    measured_lower: float | None
    measured_upper: float | None
    measured_by: str

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile over images.

    Attributes:
        value: linear interpolation between order statistics.
        lower, upper: order statistics of the images' own bounds: covers the choice of images, whatever the distribution, and
            each image's measurement. The end of the range where there are too few images.
        measured_lower, measured_upper: the same quantile of the images' lower and of their upper bounds: these very images.
            None where an image has none.
    """

    value: float
    lower: float
    upper: float
    measured_lower: float | None
    measured_upper: float | None

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


def share(count: int, total: int, confidence: float = 0.95) -> Share:
    """``count`` of ``total`` >= 1 with its exact interval."""
    lower, upper = clopper_pearson(count, total, confidence)
    return Share(count, total, count / total, float(lower), float(upper))


def mean_of(rows: Columns, quantity: QuantityLike, confidence: float = 0.95) -> Mean:
    """The mean value of rows of one group, with both uncertainties.

    The measurement interval is, in this order: Clopper-Pearson on the pooled votes where every image has as many draws as the
    others and its value is the share of them (the sum of unequal binomials varies less than the pooled binomial: conservative);
    else MOVER on the rows' own 95 % intervals; else none. Images that stopped by themselves lean to the side where they stopped, all
    alike, and so does their mean: there both intervals are those of the images' lower ends below and of their upper ends above.
    Where an image is only bounded on one side, so is the mean.
    """
    values, errors = rows.values, rows.errors
    mean, interval = float(values.mean()), mean_interval(values, quantity.low, quantity.high, confidence)
    if rows.bounded == len(rows) and rows.adaptive:
        lows, highs = rows.lowers, rows.uppers
        ends = (mean_interval(side.clip(quantity.low, quantity.high), quantity.low, quantity.high, confidence) for side in (lows, highs))
        return Mean(mean, next(ends)[0], next(ends)[1], None, float(lows.mean()), float(highs.mean()), "mean of intervals")
    if rows.bounded == len(rows) and not np.isfinite([rows.lowers.min(), rows.uppers.max()]).all():
        open_below, open_above = np.isneginf(rows.lowers.min()), np.isposinf(rows.uppers.max())
        interval = (-math.inf if open_below else interval[0], math.inf if open_above else interval[1])
    error = None if errors is None else pooled_measurement_error(errors)
    if rows.pooled_draws is not None:
        lower, upper = clopper_pearson(rows.successes, rows.pooled_draws * len(rows), confidence)
        return Mean(mean, *interval, error, float(lower), float(upper), "clopper-pearson:pooled")
    if rows.bounded == len(rows):
        return Mean(mean, *interval, error, *pooled_measurement_interval(values, rows.lowers, rows.uppers), "mover")
    return Mean(mean, *interval, error, None, None, "none")


def quantile_of(rows: Columns, q: float, quantity: QuantityLike, confidence: float = 0.95) -> Quantile:
    """The q-quantile of the values, with both uncertainties."""
    first, last = quantile_ranks(len(rows), q, confidence)
    below, lower = _ordered(rows.lowers, q, first - 1)
    above, upper = _ordered(rows.uppers, q, last - 1)
    measured = (below, above) if rows.bounded == len(rows) else (None, None)
    ends = quantity.low if lower is None else lower, quantity.high if upper is None else upper
    return Quantile(float(np.quantile(rows.values, q)), *ends, *measured)


def _ordered(numbers: Floats, q: float, place: int) -> tuple[float, float | None]:
    """The q-quantile of numbers, and the one at a place in their order (None where there is no such place)."""
    ranked = np.sort(numbers)
    there = float(ranked[place]) if 0 <= place < len(ranked) else None
    if np.isfinite(ranked[[0, -1]]).all():
        return float(np.quantile(ranked, q, overwrite_input=True)), there
    found = float(np.quantile(ranked.clip(-_ENDLESS, _ENDLESS), q))  # infinite ends of intervals have no differences
    return math.copysign(math.inf, found) if abs(found) > _ENDLESS / len(ranked) / 1e9 else found, there
