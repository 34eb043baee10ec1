"""The contract of estimators: what a class must declare and return, and errors that name the plugin at fault."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING

from robaudit import plugins
from robaudit.errors import EstimatorError
from robaudit.estimators.base import Estimate, Estimator
from robaudit.names import Part, PartName
from robaudit.plugins import BrokenContractError, is_ours, shown
from robaudit.quantities import Interval, Quantity

if TYPE_CHECKING:
    from robaudit.estimators.work import Work

_NUMBER, _COUNT = "it must be a number", "it must be a whole number, 0 or more"
_FIELDS = {
    **dict.fromkeys(("value", "lower", "upper", "std_error"), _NUMBER),
    **dict.fromkeys(("forwards", "backwards", "not_finite"), _COUNT),
    "flips_to": "it must be the index of a class, or None",
    "interval": "it must be a robaudit.Interval",
    "note": "it must be text",
    "votes": "it must be a tuple of counts, one for each class",
    "split": f"{_COUNT}, or None",
    "details": "it must be a mapping of names to numbers",
}


@contextmanager
def blaming(name: str, cls: type[Estimator], but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn an exception in the code of somebody else's estimator into one that names it: :func:`robaudit.plugins.blaming`."""
    with plugins.blaming(f"estimator {name}", cls, EstimatorError, but):
        yield


def check_class(name: str, cls: type[Estimator]) -> None:
    """Check that a class declares what an estimator must.

    Raises:
        EstimatorError: it does not.
    """
    with blaming(name, cls):
        if inspect.isabstract(cls):
            raise BrokenContractError(f"does not define {' and '.join(sorted(cls.__abstractmethods__))}")
        for attribute, kind in (("quantity", Quantity), ("summary", str), ("prefer", str), ("source", str), ("interval", Interval)):
            if not isinstance(getattr(cls, attribute, None), kind):
                raise BrokenContractError(f"declares no {attribute}: a class attribute, {'text' if kind is str else f'a {kind.__name__}'}")
        needs = getattr(cls, "needs", None)
        if not (isinstance(needs, frozenset) and needs <= {"logits", "gradients", "labels"}):
            raise BrokenContractError('declares no needs: a class attribute, a frozenset of "logits", "gradients" and "labels"')


def check_passes(name: str, estimator: Estimator) -> None:
    """Check that an estimator with its options says what it costs.

    Raises:
        EstimatorError: it raises an exception, or returns something other than two counts.
    """
    with blaming(name, type(estimator)):
        passes = estimator.passes(10)
        if not (isinstance(passes, tuple) and len(passes) == 2 and all(map(_is_count, passes))):
            raise BrokenContractError(f"passes() returned {shown(passes)}, not two counts: (forwards, backwards)")


def check_parts(name: str, estimator: Estimator) -> None:
    """Check that an estimator with its options says which values it gives.

    Raises:
        EstimatorError: it raises an exception, or names something other than distinct parts.
    """
    with blaming(name, type(estimator)):
        parts = estimator.parts
        if not (isinstance(parts, tuple) and all(isinstance(part, Part) for part in parts)):
            what = f"a {type(parts).__name__}" if isinstance(parts, list) else shown(parts)
            raise BrokenContractError(f"parts is {what}, not a tuple of robaudit.Part")
        if not all(isinstance(part.name, PartName) and _is_number(part.number) and not math.isnan(part.number) for part in parts):
            raise BrokenContractError(f"parts is {shown(parts)}; each has a robaudit.PartName and a number")
        if twice := next((part for i, part in enumerate(parts) if str(part) in map(str, parts[:i])), None):
            raise BrokenContractError(f"parts names {twice} twice")


def checked_estimates(name: str, estimator: Estimator, work: Work) -> list[tuple[Estimate, ...]]:
    """What the estimator says of each image of a chunk, in order: one value for each of its parts, or one where it has none.

    The notes of an image tell how many copies :meth:`Work.noisy` found without finite logits.

    Raises:
        EstimatorError: a plugin raised an exception, or returned something other than one Estimate for each image and part.
    """
    work.lost.clear()
    with blaming(name, type(estimator)):
        found = estimator.estimate(work)
        if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
            raise BrokenContractError(f"estimate() returned {shown(found)}, not a list of Estimates")
        listed = list(found)
        if len(listed) != len(work.x):
            raise BrokenContractError(f"estimate() returned {len(listed)} estimates for {len(work.x)} image{'s' * (len(work.x) != 1)}")
        parts = estimator.parts
        estimates = [_values(sample_id, one, parts) for sample_id, one in zip(work.ids, listed, strict=True)]
        for sample_id, values in zip(work.ids, estimates, strict=True):
            for one in values:
                _check(sample_id, one, work.classes)
                if not is_ours(type(estimator)):
                    _check_range(sample_id, one, estimator.quantity)
            if len({(one.forwards, one.backwards) for one in values}) > 1:
                what = f"the values of {sample_id} state different passes"
                raise BrokenContractError(f"{what}; they come from one computation, and each states all of its passes")
    for image, lost in (+work.lost).items():
        remark = f"{lost} noisy copies gave non-finite logits, counted as flips"
        estimates[image] = tuple(replace(one, note="; ".join(filter(None, [one.note, remark]))) for one in estimates[image])
    return estimates


def _values(sample_id: str, found: object, parts: Sequence[Part]) -> tuple[Estimate, ...]:
    """The values of an image, one for each part; whatever stands in place of an Estimate is left to :func:`_check`."""
    if not parts:
        return (found,)  # type: ignore[return-value]
    if not isinstance(found, tuple | list):
        what = "an Estimate" if isinstance(found, Estimate) else shown(found)
        raise BrokenContractError(f"estimate() returned {what} for {sample_id}, not a tuple of {len(parts)} Estimates")
    if len(found) != len(parts):
        what = f"estimate() returned {len(found)} value{'s' * (len(found) != 1)} for {sample_id}"
        raise BrokenContractError(f"{what}, and has {len(parts)} part{'s' * (len(parts) != 1)}: {', '.join(map(str, parts))}")
    return tuple(found)


def _check(sample_id: str, estimate: object, classes: int) -> None:
    """Check that each field of an estimate has the type and the length that a row needs."""
    if not isinstance(estimate, Estimate):
        raise BrokenContractError(f"estimate() returned {shown(estimate)} for {sample_id}, not an Estimate")
    votes, details = estimate.votes, estimate.details
    fits = {
        "value": _is_number(estimate.value),
        **{name: (end := getattr(estimate, name)) is None or _is_number(end) for name in ("lower", "upper", "std_error")},
        **{name: _is_count(getattr(estimate, name)) for name in ("forwards", "backwards", "not_finite")},
        "flips_to": estimate.flips_to is None or (_is_count(estimate.flips_to) and estimate.flips_to < classes),
        "split": estimate.split is None or _is_count(estimate.split),
        "interval": isinstance(estimate.interval, Interval),
        "note": isinstance(estimate.note, str),
        "votes": votes is None or (isinstance(votes, tuple) and len(votes) == classes and all(map(_is_count, votes))),
        "details": details is None or (isinstance(details, Mapping) and all(map(_is_number, details.values()))),
    }
    for name, fit in fits.items():
        if not fit:
            raise BrokenContractError(f"{name} of {sample_id} is {shown(getattr(estimate, name))}; {_FIELDS[name]}")


def _check_range(sample_id: str, estimate: Estimate, quantity: Quantity) -> None:
    """Check that a value and its interval are possible; a value that is not finite is reported by the engine, which may skip the image."""
    value, lower, upper = (getattr(estimate, name) for name in ("value", "lower", "upper"))
    if math.isfinite(value) and not quantity.low <= value <= quantity.high:
        raise BrokenContractError(f"value of {sample_id} is {value:g}; {quantity.name} is from {quantity.low:g} to {quantity.high:g}")
    if lower is not None and upper is not None and math.isfinite(value) and not lower <= value <= upper:
        raise BrokenContractError(f"the interval of {sample_id} is {lower:g} to {upper:g}, and its value is {value:g}, outside of it")


def _is_number(value: object) -> bool:
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def _is_count(value: object) -> bool:
    return (type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))) and int(value) >= 0
