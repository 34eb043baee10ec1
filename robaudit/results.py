"""Results: the output of an estimator for one image, with the typed parts that other code reads."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Integral, Real
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict

from robaudit.plugins import BrokenContractError, shown
from robaudit.quantities import NO_INTERVAL, Interval, Quantity

LARGEST = 1e150
"""Bound on the numbers of a result, so that they can be squared and summed without overflow."""
MOST_STORED_DRAWS = 2**14
"""The most draws of an image whose bits are stored, in 2,732 characters."""
_MOST_CLASSES = 2**20  # a damaged or hostile file must not fill the memory


def _interval(text: object) -> Interval:
    """The interval in a stored row."""
    if not isinstance(text, str):
        raise ValueError("is not text")  # noqa: TRY004  pydantic reports a ValueError
    return Interval.parse(text)


def _not_too_large(value: float) -> float:
    if abs(value) >= LARGEST:
        raise ValueError("is too large")
    return value


Text = Annotated[str, Strict()]
Shared = Annotated[Text, AfterValidator(sys.intern)]
"""Text that many rows have: they share one object, which halves their memory."""
Count = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Number = Annotated[float, Strict(), Field(gt=-LARGEST, lt=LARGEST)]
WholeOrNot = Annotated[int, Strict(), Field(gt=-(2**63), lt=2**63)] | Number
"""A number; integers stay integers."""
# JSON has no NaN: a row without a value stores null.
Value = Annotated[
    Annotated[float, Strict()],
    BeforeValidator(lambda value: math.nan if value is None else value),
    AfterValidator(_not_too_large),
]
Bits64 = Annotated[
    Text,
    Field(
        pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        max_length=MOST_STORED_DRAWS,
    ),
]
"""Bits as base64. The bound on the length is generous: 2^14 draws take 2,732 characters."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A dataclass that checks its numbers on construction.

    NumPy's numbers become Python's. An optional number that is not finite, or at least
    :data:`LARGEST` in magnitude, becomes None.
    """

    def __post_init__(self) -> None:
        """Check every field that holds numbers.

        Raises:
            BrokenContractError: a field has another type, such as a tensor in place of a number.
        """
        cls: Any = type(self)
        for name, usual, optional, check in _checks(cls):
            value: Any = getattr(self, name)
            kind = type(value)
            # Most values pass here: an audit makes many results, and full checks are slow. Numbers
            # of -1 or less may be valid, but are rare.
            if (optional and value is None) or (kind is usual and -1.0 < value < LARGEST):
                continue
            checked = check(name, value)
            if checked is not value:
                object.__setattr__(self, name, checked)  # the only way into a frozen dataclass

    def document(self) -> dict[str, Any]:
        """The fields as JSON values, without those at their defaults."""
        cls: Any = type(self)
        names, defaults, values = _fields(cls)
        # By identity, which is faster than equality; equal values are merely written, too.
        return {
            name: value
            for name, default, value in zip(names, defaults, values(self), strict=True)
            if value is not default
        }


@dataclass(frozen=True, slots=True)
class Votes(Checked):
    """The votes of the noisy copies for each class.

    A document has the classes that have votes only, and the number of all classes: most of 1,000
    classes have none.

    Attributes:
        counts: by class index.
        lost: copies whose logits were not finite: they vote for no class.
        split: the number of antithetic pairs (draws 2j and 2j + 1) in which a single copy kept the
            class; None: draws are independent.
        bits: which of a fixed number of draws kept the class, written by
            :func:`robaudit.runs.rows.bits_as_text`. None where all or none did, or where they are
            not recorded.
    """

    counts: tuple[Count, ...]
    lost: Count = 0
    split: Count | None = None
    bits: Bits64 | None = None

    @property
    def draws(self) -> int:
        """All copies, including those that voted for no class."""
        return sum(self.counts) + self.lost

    def for_class(self, label: int) -> int:
        """The votes for a class."""
        return self.counts[label] if label < len(self.counts) else 0

    def document(self) -> dict[str, Any]:
        """The fields as JSON values, without those at their defaults."""
        # Without `super()`: slots make another class of this one, which Python 3.11 cannot find.
        document = Checked.document(self)
        voted = {str(index): count for index, count in enumerate(self.counts) if count}
        return {**document, "counts": voted, "classes": len(self.counts)}


def _with_all_counts(document: object) -> object:
    """The document of votes with a count for every class, as robaudit once stored it, too.

    Raises:
        ValueError: the number of classes is missing, or a class is beyond it.
    """
    if not isinstance(document, dict) or not isinstance(document.get("counts"), dict):
        return document
    classes = document.get("classes")
    if type(classes) is not int or not 0 <= classes <= _MOST_CLASSES:
        raise ValueError(f"classes is {shown(classes)}, not a number up to {_MOST_CLASSES:,}")
    counts: list[object] = [0] * classes
    for index, count in document["counts"].items():
        if not _INDEX.fullmatch(index) or int(index) >= classes:
            raise ValueError(f"{shown(index)} is not one of {classes} classes")
        counts[int(index)] = count
    return {**document, "counts": counts}


_INDEX = re.compile("0|[1-9][0-9]{0,6}")


@dataclass(frozen=True, slots=True)
class Certificate(Checked):
    """A proof or a statistical guarantee that the class stays the same within a radius.

    The radius is the value of the result.

    Attributes:
        label: the certified class; None where the estimator abstains.
        alpha: the probability that the certificate is false; None: it is a proof.
        p_lower: the lower bound of the probability of the class under the noise, for a certificate
            of the majority vote.
        kept, draws: the number of noisy copies with that class, and of all copies.
        largest: the largest radius that this many copies can certify, reached if all of them keep
            the class.
        asked: the radius in question, for an estimator that stops once it is decided whether this
            radius is certified.
        p_error: an upper bound of the probability that noise of this level changes the class.
    """

    label: Count | None = None
    alpha: Number | None = None
    p_lower: Number | None = None
    kept: Count | None = None
    draws: Count | None = None
    largest: Number | None = None
    asked: Number | None = None
    p_error: Number | None = None


@dataclass(frozen=True, slots=True)
class Searched(Checked):
    """Details of a search for the nearest flip, or for a noise level.

    Attributes:
        step: the step of the value's grid.
        rounding: the largest error of the value due to rounding in the network's passes.
        p: the probability of keeping the class that defines the noise level searched for.
        label: the class of the majority vote at the image, for a flip of that vote.
        kept, other: the number of noisy copies at the flip with that class, and with the leading
            class there.
    """

    step: Number | None = None
    rounding: Number | None = None
    p: Number | None = None
    label: Count | None = None
    kept: Count | None = None
    other: Count | None = None


@dataclass(frozen=True, slots=True)
class LossNorm(Checked):
    """The target and the maximum of a loss.

    Attributes:
        target: the class for which the cross-entropy is taken.
        highest: the largest loss among all copies and chains.
    """

    target: Count
    highest: Number | None = None


@dataclass(frozen=True, slots=True)
class CleanImage(Checked):
    """How easy the clean image is.

    Attributes:
        margin: the logit of the predicted class (in a result of `difficulty`, of its class) minus
            the largest other logit.
        difficulty: log(p / (1 - p)) of the score p of the predicted class; None in a result of
            `difficulty`, whose value it is.
    """

    margin: Number | None = None
    difficulty: Number | None = None


@dataclass(frozen=True, slots=True)
class NormalFit(Checked):
    """The shape of the margin's distribution, behind a normal fit.

    Attributes:
        skewness: 0 for a normal distribution.
        kurtosis: the excess, 0 for a normal distribution.
        skew_correction: the part of the value that corrects for skewness; None if there is none.
    """

    skewness: Number
    kurtosis: Number
    skew_correction: Number | None = None


@dataclass(frozen=True, slots=True)
class Result(Checked):
    """The output of an estimator for one image: at one noise level, under one noise, or without
    noise.

    Fields up to ``interval`` are columns of samples.csv; samples.json has all of them. The types
    are those of a stored result: :func:`robaudit.runs.rows.read_row` checks them.

    Attributes:
        value: the value, in the units of the estimator's quantity; NaN where it has none.
        lower, upper: 95 % interval; None where none is claimed, or on a side where it is open.
        std_error: standard error of the value, or None.
        flips_to: index of the class to which the image most likely flips; None where no flip was
            seen.
        forwards, backwards: network passes behind the value, shared or not, including the clean
            pass.
        note: a short remark for the reader, usually empty.
        interval: method and coverage of the interval.
        votes, certificate, search, loss, clean, fit: typed parts for gates, statistics and
            ``verify``; None where the estimator has none.
        numbers: further numbers by name, for people; no code reads them.

    Raises:
        BrokenContractError: a field has another type, such as a tensor in place of a number.
    """

    value: Value
    _: KW_ONLY
    lower: Number | None = None
    upper: Number | None = None
    std_error: Number | None = None
    flips_to: Count | None = None
    forwards: Count
    backwards: Count = 0
    note: Shared = ""
    interval: Annotated[Interval, PlainValidator(_interval)] = NO_INTERVAL
    votes: Annotated[Votes, BeforeValidator(_with_all_counts)] | None = None
    certificate: Certificate | None = None
    search: Searched | None = None
    loss: LossNorm | None = None
    clean: CleanImage | None = None
    fit: NormalFit | None = None
    numbers: Mapping[Text, WholeOrNot] = field(default_factory=dict)

    def check(self, quantity: Quantity, classes: int) -> None:
        """Check the result against its quantity and the model's classes.

        Raises:
            BrokenContractError: a value outside the quantity's range or its own interval, or a
                class that the model does not have.
        """
        if math.isfinite(self.value):
            self._check_value(quantity)
        counts = None if self.votes is None else self.votes.counts
        wrong_flip = self.flips_to is not None and self.flips_to >= classes
        wrong_votes = counts and len(counts) != classes
        if wrong_flip or wrong_votes:
            raise BrokenContractError(
                f"flips_to is {self.flips_to} and votes {counts}; the model has {classes} classes"
            )

    def _check_value(self, quantity: Quantity) -> None:
        """Check that a finite value lies in the range of its quantity and in its own interval."""
        if not quantity.low <= self.value <= quantity.high:
            raise BrokenContractError(
                f"value is {self.value:g}; {quantity.name} is from {quantity.low:g} to "
                f"{quantity.high:g}"
            )
        if self.lower is None or self.upper is None:
            return
        if not self.lower <= self.value <= self.upper:
            raise BrokenContractError(
                f"value is {self.value:g}, outside its interval of {self.lower:g} to {self.upper:g}"
            )


PARTS: tuple[str, ...] = ("votes", "certificate", "search", "loss", "clean", "fit")
"""The typed parts of a result."""
_Check = Callable[[str, Any], Any]


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of the fields, their defaults, and a getter of their values."""
    names = tuple(field.name for field in fields(cls))
    return names, tuple(field.default for field in fields(cls)), attrgetter(*names)


@functools.cache
def _checks(cls: type) -> tuple[tuple[str, type, bool, _Check], ...]:
    """The checks of the fields that hold numbers.

    Returns:
        For each such field: its name; the type whose small values need no check (``object``: all
        values are checked); whether it may be None; the check.
    """
    hints = get_type_hints(cls)
    checks = list[tuple[str, type, bool, _Check]]()
    for member in fields(cls):
        hint = hints[member.name]
        optional = type(None) in get_args(hint)
        inner = get_args(hint)[0] if optional else hint
        kind = get_origin(inner) or inner
        check_of_kind = {
            int: _whole,
            float: _finite if optional else _number,
            tuple: _counts,
            Mapping: _numbers,
        }
        check = check_of_kind.get(kind)
        if check is not None:
            usual = kind if kind in (int, float) else object
            checks.append((member.name, usual, optional, check))
    return tuple(checks)


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or int(value) < 0:
        raise BrokenContractError(f"{name} is {shown(value)}, not a whole number, 0 or more")
    return int(value)


def _counts(name: str, value: Any) -> tuple[int, ...]:
    # Almost always so, and faster than a check of each count: a model may have 1,000 classes.
    if type(value) is tuple:
        are_integers = set(map(type, value)) <= {int}
        if are_integers and min(value, default=0) >= 0:
            return value
    return tuple(_whole(name, count) for count in value)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise BrokenContractError(f"{name} is {shown(value)}, not a number")
    return float(value)


def _finite(name: str, value: Any) -> float | None:
    number = _number(name, value)
    return number if -LARGEST < number < LARGEST else None


def _numbers(_: str, values: Mapping[str, Any]) -> Mapping[str, float]:
    """The numbers that JSON can represent; integers stay integers."""
    if not values:
        return values
    numbers: dict[str, float] = {}
    for name, value in values.items():
        # JSON readers may hold integers in 64 bits; larger ones become floats.
        fits = type(value) is int and abs(value) < 2**63
        number = value if fits else _finite(name, value)
        if number is not None:
            numbers[name] = number
    return numbers
