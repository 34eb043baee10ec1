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
"""Thresholds of quantities that do not range from 0 to 1: a failure probability of one half, and
the cross-entropy of a class with a softmax of one half, -log(1/2)."""


class Certainty(StrEnum):
    """Whether a sample is beyond the threshold, by its value and its interval."""

    CONFIRMED = "confirmed"
    """Its whole interval is beyond."""
    APPROXIMATE = "approximate"
    """Its whole interval is beyond, but covers sampling only, not the estimator's bias."""
    LIKELY = "likely"
    """Its value is beyond, but its interval contains the threshold."""
    UNDECIDED = "undecided"
    """Its interval contains the threshold, and its value is not beyond; or its value is beyond, but
    only a bound, and the true value may be better."""
    NO = "no"
    """Its whole interval is on the robust side."""
    NO_INTERVAL = "no interval"
    """It has no interval, so its certainty is unknown."""


@dataclass(frozen=True, slots=True)
class Flag(Record):
    """One sample.

    Attributes:
        correct: whether it is classified correctly without noise; None without a label.
        estimate: its value with the interval of its row, infinite where an end is open.
        certainty: whether it is beyond the threshold.
        censored: whether the true value is only known to be larger.
    """

    id: str
    label: int | None
    predicted: int
    correct: bool | None
    estimate: Annotated[Estimate, Inline("value", "lower", "upper")]
    flips_to: int | None
    certainty: Certainty
    censored: bool = False

    @property
    def value(self) -> float:
        """The value of its row."""
        return self.estimate.value

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be misclassified without noise."""
        return self.correct is False

    @property
    def is_repaired(self) -> bool:
        """Whether it is misclassified without noise, and noise turns it into its label."""
        return self.is_wrong and self.flips_to == self.label


@dataclass(frozen=True, slots=True)
class Flagged(Record):
    """The non-robust samples of one estimator at one noise level.

    Attributes:
        key, quantity: what was measured.
        threshold: a sample is non-robust when its value is below it (above it, where lower is
            better); infinite where there is none.
        bottom: length of the list; None: all samples beyond the threshold.
        only: whether only correctly, or only wrongly, classified samples were considered.
        samples: the non-robust samples, or the ``bottom`` least robust; worst first.
        total: number of samples considered, after the filter.
        filtered: number of samples that ``only`` excluded.
        not_finite: number of samples without a finite value, which are never ranked.
        beyond: number of samples of ``total`` with a value beyond the threshold, listed or not.
        wrong: number of samples of ``beyond`` that are misclassified without noise.
        repaired: number of samples of ``wrong`` that flip to their label.
        confirmed, approximate, likely: number of samples of ``beyond`` with each certainty; the
            rest of them have no interval.
        broken: number of samples of ``confirmed`` that are not known to be misclassified without
            noise.
        bounds: number of samples of ``beyond`` whose value is only a bound; the true value may be
            better, so they are undecided.
        undecided: number of the other samples whose interval contains the threshold.
        with_interval: number of samples of ``total`` with an interval.
        censored: number of samples of ``total`` whose true value is only known to be larger.
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
    wrong: int
    repaired: int
    confirmed: int
    approximate: int
    likely: int
    broken: int
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

    It is 0.5, beyond which more than half of the noisy copies change class, and log10(0.5) for the
    failure probability. For a loss it is log 2, beyond which the network gives the class a softmax
    below one half. Other quantities without a range of 0 to 1 have no threshold: it is infinite, so
    that no value is beyond.
    """
    unreachable = -math.inf if quantity.higher_is_better else math.inf
    return _EVEN_ODDS.get(quantity.name, 0.5 if quantity.is_share else unreachable)


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
        columns: the rows of one result.
        below: the threshold, in units of the quantity.
        bottom: length of the list, at least 1.
        only: consider only samples classified correctly (or wrongly) on the clean image; samples
            without a label are filtered out.
        quantity: the quantity of the values; default: the built-in quantity that the rows name.

    Raises:
        NothingLeftError: the filter left no sample. (That no sample is beyond the threshold is a
            valid result.)
        RobauditError: a threshold that is not a number, or a count below 1.
    """
    quantity = quantity or quantity_of(columns.key.quantity, None)
    # An infinite usual threshold means that the quantity has none, and that nothing is beyond.
    if not math.isfinite(below) and below != usual_threshold(quantity):
        raise RobauditError("below", f"{below} is not a number to compare with", "for example 0.5")
    if bottom is not None and bottom < 1:
        raise RobauditError("bottom", f"{bottom} samples cannot be listed", "1 or more")
    finite = columns.finite
    refuse_no_values(len(finite), finite.not_finite, "flagged")
    considered = finite
    if only is not None:
        considered = finite.take(finite.judged & (finite.correct == (only == "correct")))
    if not len(considered):
        raise NothingLeftError(
            "flagged",
            f"none of the {len(finite)} samples is known to be {only}",
            "leave " + ONLY + " out",
        )
    # With this sign larger is better for every quantity, and "beyond" means smaller.
    sign = 1.0 if quantity.higher_is_better else -1.0
    values = sign * considered.values
    certainties = certainties_of(considered, below, sign)
    ranked = np.argsort(values, kind="stable")
    beyond = int((values < sign * below).sum())
    wrong = (considered.judged & ~considered.correct)[ranked[:beyond]]
    turned = considered.take(ranked[:beyond])
    confirmed = np.array([certainties[i] is Certainty.CONFIRMED for i in ranked[:beyond]], np.bool_)
    # A value beyond the threshold is undecided only if it is a bound.
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
        wrong=int(wrong.sum()),
        repaired=int((wrong & (turned.flips_to == turned.label)).sum()),
        confirmed=certainties.count(Certainty.CONFIRMED),
        approximate=certainties.count(Certainty.APPROXIMATE),
        likely=certainties.count(Certainty.LIKELY),
        broken=int((confirmed & ~wrong).sum()),
        undecided=certainties.count(Certainty.UNDECIDED) - bounds,
        with_interval=len(considered) - certainties.count(Certainty.NO_INTERVAL),
        censored=considered.censored,
        bounds=bounds,
    )


def _flags(columns: Columns, places: Ints, certainties: Sequence[Certainty]) -> tuple[Flag, ...]:
    """The samples of some rows, by their places, with the certainties of all rows."""
    listed = columns.take(places)
    names = listed.names
    censored = listed.is_censored
    # The search of a censored image reached its value, so the true one is at least as large.
    lower = np.where(censored & np.isnan(listed.lower), listed.values, listed.lower)
    return tuple(
        Flag(
            id=names[i],
            label=_class(listed.label[i]),
            predicted=int(listed.predicted[i]),
            correct=bool(listed.correct[i]) if listed.judged[i] else None,
            estimate=_estimate(listed.values[i], lower[i], listed.upper[i]),
            flips_to=_class(listed.flips_to[i]),
            certainty=certainties[place],
            censored=bool(censored[i]),
        )
        for i, place in enumerate(places)
    )


def _estimate(value: float, lower: float, upper: float) -> Estimate:
    """The value of a row with its interval; an end of NaN is missing.

    Without either end there is no interval; with a single end it is open on the other side.
    """
    if math.isnan(lower) and math.isnan(upper):
        return Estimate(float(value))
    bounds = (
        -math.inf if math.isnan(lower) else float(lower),
        math.inf if math.isnan(upper) else float(upper),
    )
    return Estimate.measured(float(value), bounds, "of the row")


def _class(index: int) -> int | None:
    """The class index of a column as a row has it: None where unknown."""
    return None if index == NO_CLASS else int(index)


def certainties_of(columns: Columns, below: float, sign: float) -> list[Certainty]:
    """The certainty of each row: whether it is beyond the threshold.

    Args:
        columns: results with a finite value.
        below: the threshold.
        sign: 1 where higher is better, else -1.
    """
    lower, upper = columns.ends
    # Where lower is better, changed signs turn "above" into "below".
    worst, best = (lower, upper) if sign > 0 else (-upper, -lower)
    edge = sign * below
    # Values whose true value may be better: a value beyond the threshold then shows nothing.
    bound_kind = IntervalKind.LOWER_BOUND if sign > 0 else IntervalKind.UPPER_BOUND
    may_be_better = columns.of_kind(IntervalKind.CENSORED, bound_kind)
    # The first mask that holds decides.
    rules = [
        (np.isnan(lower), Certainty.NO_INTERVAL),
        ((best < edge) & columns.covers_bias, Certainty.CONFIRMED),
        (best < edge, Certainty.APPROXIMATE),
        ((sign * columns.values < edge) & ~may_be_better, Certainty.LIKELY),
        (worst < edge, Certainty.UNDECIDED),
    ]
    masks = [mask for mask, _ in rules]
    kinds = [*(certainty for _, certainty in rules), Certainty.NO]
    places = np.select(masks, list(range(len(masks))), len(masks))
    return [kinds[place] for place in places]
