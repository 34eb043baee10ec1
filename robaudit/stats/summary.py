"""Summaries of the rows of one estimator and noise level: mean, quantiles, shares and accuracies, each with its uncertainty."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.estimators.adaptive import LABEL as ADAPTIVE
from robaudit.numerics.intervals import (
    clopper_pearson,
    mean_interval,
    pooled_measurement_error,
    pooled_measurement_interval,
    quantile_ranks,
)
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey, QuantityLike, json_number, json_values, quantity_of, refuse_no_values

Floats = NDArray[np.float64]
_MOST_CODES = 4096  # different numbers


class Column:
    """Numbers in order: 2 bytes each as long as they are few different ones, as shares of some thousand votes are, else 8."""

    def __init__(self) -> None:
        self._codes: dict[float, int] = {}
        self._places = array("H")
        self._all: array[float] | None = None

    def __len__(self) -> int:
        return len(self._places if self._all is None else self._all)

    def append(self, value: float) -> None:
        """Add one; NaN as :data:`math.nan`."""
        if self._all is None:
            self._places.append(self._codes.setdefault(value, len(self._codes)))
            if len(self._codes) > _MOST_CODES:
                self._all = array("d", self.numbers().tobytes())
                self._codes, self._places = {}, array("H")
        else:
            self._all.append(value)

    @property
    def alike(self) -> bool:
        """Whether all are the same number."""
        return self._all is None and len(self._codes) <= 1

    def numbers(self) -> Floats:
        """All of them; a view where they are stored as they are."""
        if self._all is not None:
            return np.frombuffer(self._all, dtype=np.float64)
        return np.array(list(self._codes), dtype=np.float64)[np.frombuffer(self._places, dtype=np.uint16)]


class Columns:
    """The numbers of rows of one estimator and noise level, at most 48 bytes a row.

    Attributes:
        not_finite: rows that were left out, as their value is no finite number.
        bounded: rows with an interval, be it open to one side.
        sampling_only: rows whose interval covers the draws only.
        noted: rows with a note.
        judged, correct: rows with a label; of those, classified right on the clean image.
        labelled: rows with a label; ``voted``: of those, with votes.
        adaptive: rows that stopped when they had seen enough.
        counted: rows whose value is the share of independent votes for the predicted class; ``successes``: all those votes.
        hits: votes for the labels, of all rows with both.
    """

    def __init__(self) -> None:
        self.not_finite = self.bounded = self.sampling_only = self.noted = self.judged = self.correct = 0
        self.labelled = self.voted = self.counted = self.adaptive = self.successes = self.hits = 0
        self._values, self._lowers, self._uppers, self._errors = Column(), Column(), Column(), Column()
        self._draws, self.label_shares, self.label_draws, self.label_worths = Column(), Column(), Column(), Column()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Columns:
        """The columns of these rows."""
        columns = cls()
        for row in rows:
            columns.add(row)
        return columns

    def __len__(self) -> int:
        return len(self._values)

    def add(self, row: Row) -> None:
        """Take one more row."""
        if not math.isfinite(row.value):
            self.not_finite += 1
            return
        self._values.append(row.value)
        bounded = row.lower is not None or row.upper is not None
        self._lowers.append(row.lower if row.lower is not None else -math.inf if bounded else math.nan)
        self._uppers.append(row.upper if row.upper is not None else math.inf if bounded else math.nan)
        self._errors.append(math.nan if row.std_error is None else row.std_error)
        self.bounded += bounded
        self.sampling_only += row.interval.endswith(":sampling-only")
        self.noted += bool(row.note)
        self.adaptive += row.interval == ADAPTIVE
        self.judged += row.correct is not None
        self.correct += bool(row.correct)
        self.labelled += row.label is not None
        draws = draws_of(row)
        if row.votes and draws:
            self._count(row, row.votes, draws)

    @property
    def values(self) -> Floats:
        """The values."""
        return self._values.numbers()

    @property
    def lowers(self) -> Floats:
        """Lower ends of the intervals; the value itself where there is none."""
        return self._or_value(self._lowers)

    @property
    def uppers(self) -> Floats:
        """Upper ends of the intervals; the value itself where there is none."""
        return self._or_value(self._uppers)

    @property
    def errors(self) -> Floats | None:
        """Standard errors; None where a row has none."""
        errors = self._errors.numbers()
        return None if np.isnan(errors).any() else errors

    @property
    def pooled_draws(self) -> int | None:
        """Votes of one row, where all rows have as many and their values are shares of them."""
        if self.counted < len(self) or not self._draws.alike or not self.counted:
            return None
        return int(self._draws.numbers()[0])

    def _count(self, row: Row, votes: tuple[int, ...], draws: int) -> None:
        worth = worth_of(row)
        for_predicted = votes[row.predicted] if row.predicted < len(votes) else None
        if row.interval != ADAPTIVE and for_predicted is not None and worth == draws and abs(for_predicted / draws - row.value) < 1e-9:
            self.counted += 1
            self.successes += for_predicted
            self._draws.append(draws)
        if row.label is not None:
            hits = votes[row.label] if 0 <= row.label < len(votes) else 0
            self.voted += 1
            self.hits += hits
            self.label_shares.append(hits / draws)
            self.label_draws.append(draws)
            self.label_worths.append(worth)

    def _or_value(self, column: Column) -> Floats:
        ends = column.numbers()
        missing = np.isnan(ends)
        return np.where(missing, self.values, ends) if missing.any() else ends


def draws_of(row: Row) -> int:
    """Noisy copies behind a row with votes: those whose logits were not finite voted for nobody, and count."""
    return sum(row.votes or ()) + int((row.details or {}).get("not_finite", 0))


def worth_of(row: Row) -> float:
    """How many independent copies the votes are worth: all of them, unless the row says otherwise (antithetic pairs)."""
    return float((row.details or {}).get("votes_worth", draws_of(row)))


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


@dataclass(frozen=True, slots=True)
class NoisyAccuracy:
    """Accuracy under noise: the mean over labelled images of votes[label] / all votes.

    Attributes:
        images: how many had a label and votes.
        value: the mean.
        lower, upper: interval over images.
        std_error: from the draws alone: sqrt(sum p (1 - p) / draws) / images; antithetic draws count as what they are worth.
        measured_lower, measured_upper: Clopper-Pearson on the pooled draws: these very images; None when draws differ in number or
            are not independent.
    """

    images: int
    value: float
    lower: float
    upper: float
    std_error: float
    measured_lower: float | None
    measured_upper: float | None

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json_values(asdict(self))


def noisy_accuracy(rows: Columns, confidence: float = 0.95) -> NoisyAccuracy | None:
    """Accuracy under noise of the rows that have a label; None when there is no such row, or one of them has no votes or as many
    as it took to decide about it: those lean."""
    if not rows.labelled or rows.voted < rows.labelled or rows.adaptive:
        return None
    p, draws, worth = (column.numbers() for column in (rows.label_shares, rows.label_draws, rows.label_worths))
    measured: tuple[float | None, float | None] = None, None
    if np.all(draws == draws[0]) and np.all(draws == worth):
        lower, upper = clopper_pearson(rows.hits, int(draws.sum()), confidence)
        measured = float(lower), float(upper)
    error = float(np.sqrt(np.sum(p * (1.0 - p) / worth)) / p.size)
    return NoisyAccuracy(p.size, float(p.mean()), *mean_interval(p, 0.0, 1.0, confidence), error, *measured)


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
        noisy_accuracy: see :class:`robaudit.stats.summary.NoisyAccuracy`; None without labels or votes.
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
