"""Samples that are not robust, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

import numpy as np

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.estimates import Estimate
from robaudit.quantities import LOG10_P_FAIL, LOSS, IntervalKind, Quantity
from robaudit.records import Inline, Record
from robaudit.runs.groups import GroupKey, quantity_of, refuse_no_values
from robaudit.runs.table import NO_CLASS, Columns, Ints
from robaudit.settings import ESTIMATOR, ONLY

_EVEN_ODDS = {LOG10_P_FAIL.name: math.log10(0.5), LOSS.name: math.log(2.0)}


class Certainty(StrEnum):
    """Whether a sample is beyond the threshold, by its value and its interval."""

    CONFIRMED = "confirmed"
    """Its whole interval is beyond."""
    APPROXIMATE = "approximate"
    """The same for an interval that covers sampling only, not the estimator's bias."""
    LIKELY = "likely"
    """Its value is beyond, but its interval contains the threshold."""
    UNDECIDED = "undecided"
    """Its interval contains the threshold, and its value is not beyond, or is only a bound, and the
    true value may be better."""
    NO = "no"
    """Its whole interval is on the robust side."""
    NO_INTERVAL = "no interval"
    """Without an interval nothing is known."""


@dataclass(frozen=True, slots=True)
class Flag(Record):
    """One sample.

    Attributes:
        estimate: its value with the interval of its row, infinite where an end is open.
        certainty: whether it is beyond the threshold.
        censored: whether the true value is only known to be larger.
    """

    id: str
    label: int | None
    predicted: int
    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]
    flips_to: int | None
    certainty: Certainty
    censored: bool = False

    @property
    def value(self) -> float:
        """The value of its row."""
        return self.estimate.value


@dataclass(frozen=True, slots=True)
class Flagged(Record):
    """The non-robust samples of one estimator at one noise level.

    Attributes:
        key, quantity: what was measured.
        threshold: a sample is non-robust when its value is below it (above it, where lower is
            better); infinite where there is none.
        samples: the non-robust samples, or the ``bottom`` least robust; worst first.
        total: samples considered, after the filter.
        filtered: samples that ``only`` excluded.
        not_finite: samples without a finite value, which are never ranked.
        beyond: how many of ``total`` have a value beyond the threshold, listed or not.
        confirmed, approximate, likely: how many of these are of each certainty; the rest of them
            have no interval.
        bounds: how many of these are only bounds, and the true value may be better: they are
            undecided.
        undecided: how many of the others have an interval that contains the threshold.
        with_interval: how many of ``total`` have an interval.
        censored: how many of ``total`` have a true value that is only known to be larger.
    """

    key: Annotated[GroupKey, Inline()]
    quantity: Annotated[Quantity, Inline("unit", "higher_is_better")]
    threshold: float
    bottom: int | None
    only: Literal["correct", "wrong"] | None
    total: int
    filtered: int
    not_finite: int
    beyond: int
    confirmed: int
    approximate: int
    likely: int
    undecided: int
    with_interval: int
    censored: int = 0
    bounds: int = 0
    samples: tuple[Flag, ...] = ()

    @property
    def has_threshold(self) -> bool:
        """Whether there is a threshold; without one no sample is flagged."""
        return math.isfinite(self.threshold)


def usual_threshold(quantity: Quantity) -> float:
    """The threshold of even odds.

    0.5: beyond it, more than half of the noisy copies change class; log10(0.5) for the failure
    probability. For a loss log 2: beyond it, the network gives the class less than half. Any other
    quantity without a range of 0 to 1 has no threshold: it is infinite, and nothing is beyond.
    """
    nothing = -math.inf if quantity.higher_is_better else math.inf
    return _EVEN_ODDS.get(quantity.name, 0.5 if quantity.is_share else nothing)


def check_threshold(below: float, quantity: Quantity, where: str, of: str) -> None:
    """Refuse a threshold of flagged samples that lies outside the quantity's range.

    Raises:
        RobauditError: it is out of range, or not a number.
    """
    if not math.isfinite(below):
        raise RobauditError(where, f"{below} is not a number to compare with", "for example 0.5")
    if not quantity.low <= below <= quantity.high:
        what = f"{below:.15g} is outside the range of {of}, {quantity.low:g} to {quantity.high:g}"
        raise RobauditError(
            where, what, "give a threshold in that range, or choose results with " + ESTIMATOR
        )


def flag(
    columns: Columns,
    *,
    below: float = 0.5,
    bottom: int | None = None,
    only: Literal["correct", "wrong"] | None = None,
    quantity: Quantity | None = None,
) -> Flagged:
    """List the non-robust samples of one group of rows, worst first; ties keep the rows' order.

    Without ``bottom``: every sample beyond ``below``. With ``bottom=N``: the N least robust, beyond
    it or not. Where lower is better, all comparisons are reversed: beyond means above ``below``.

    Args:
        columns: of a result.
        below: the threshold, in units of the quantity.
        bottom: length of the list, at least 1.
        only: samples classified correctly (or wrongly) on the clean image; samples without a label
            are filtered out.
        quantity: what the values are; default: the built-in quantity that the rows name.

    Raises:
        NothingLeftError: the filter left no sample. (That no sample is beyond the threshold is a
            valid result.)
        RobauditError: a threshold that is not a number, or a count below 1.
    """
    quantity = quantity or quantity_of(columns.key.quantity, None)
    if not math.isfinite(below) and below != usual_threshold(quantity):
        raise RobauditError("below", f"{below} is not a number to compare with", "for example 0.5")
    if bottom is not None and bottom < 1:
        raise RobauditError("bottom", f"{bottom} samples cannot be listed", "1 or more")
    finite = columns.finite
    refuse_no_values(len(finite), finite.not_finite, "flagged")
    considered = (
        finite
        if only is None
        else finite.take(finite.judged & (finite.correct == (only == "correct")))
    )
    if not len(considered):
        raise NothingLeftError(
            "flagged",
            f"none of the {len(finite)} samples is known to be {only}",
            "leave " + ONLY + " out",
        )
    sign = 1.0 if quantity.higher_is_better else -1.0
    values = sign * considered.values
    certainties = certainties_of(considered, below, sign)
    ranked = np.argsort(values, kind="stable")
    beyond = int((values < sign * below).sum())
    bounds = sum(certainties[i] is Certainty.UNDECIDED for i in ranked[:beyond])
    return Flagged(
        key=columns.key,
        quantity=quantity,
        threshold=below,
        bottom=bottom,
        only=only,
        samples=_flags(considered, ranked[: bottom or beyond], certainties),
        total=len(considered),
        filtered=len(finite) - len(considered),
        not_finite=finite.not_finite,
        beyond=beyond,
        confirmed=certainties.count(Certainty.CONFIRMED),
        approximate=certainties.count(Certainty.APPROXIMATE),
        likely=certainties.count(Certainty.LIKELY),
        undecided=certainties.count(Certainty.UNDECIDED) - bounds,
        with_interval=len(considered) - certainties.count(Certainty.NO_INTERVAL),
        censored=considered.censored,
        bounds=bounds,
    )


def _flags(columns: Columns, places: Ints, certainties: Sequence[Certainty]) -> tuple[Flag, ...]:
    listed = columns.take(places)
    censored = listed.is_censored
    lower = np.where(censored & np.isnan(listed.lower), listed.values, listed.lower)
    numbers = zip(
        listed.label,
        listed.predicted,
        listed.values,
        lower,
        listed.upper,
        listed.flips_to,
        strict=True,
    )
    return tuple(
        Flag(
            name,
            _class(label),
            int(predicted),
            _estimate(value, low, high),
            _class(to),
            certainties[i],
            bool(is_censored),
        )
        for name, i, is_censored, (label, predicted, value, low, high, to) in zip(
            listed.names, places, censored, numbers, strict=True
        )
    )


def _estimate(value: float, lower: float, upper: float) -> Estimate:
    """The value of a row with its interval, where NaN is no end; a single end leaves the other
    open."""
    if math.isnan(lower) and math.isnan(upper):
        return Estimate(float(value))
    bounds = (
        -math.inf if math.isnan(lower) else float(lower),
        math.inf if math.isnan(upper) else float(upper),
    )
    return Estimate.measured(float(value), bounds, "of the row")


def _class(index: int) -> int | None:
    return None if index == NO_CLASS else int(index)


def certainties_of(columns: Columns, below: float, sign: float) -> list[Certainty]:
    """The certainty of each row: whether it is beyond the threshold.

    Args:
        columns: results with a finite value.
        below: the threshold.
        sign: 1 where higher is better, else -1.
    """
    lower, upper = columns.ends
    worst, best = (lower, upper) if sign > 0 else (-upper, -lower)
    edge = sign * below
    covered = columns.covers_bias
    bounds = columns.of_kind(
        IntervalKind.CENSORED, IntervalKind.LOWER_BOUND if sign > 0 else IntervalKind.UPPER_BOUND
    )
    masks = [
        np.isnan(lower),
        (best < edge) & covered,
        best < edge,
        (sign * columns.values < edge) & ~bounds,
        worst < edge,
    ]
    kinds = [
        Certainty.NO_INTERVAL,
        Certainty.CONFIRMED,
        Certainty.APPROXIMATE,
        Certainty.LIKELY,
        Certainty.UNDECIDED,
        Certainty.NO,
    ]
    places = np.select(masks, list(range(len(masks))), len(masks))
    return [kinds[place] for place in places]
