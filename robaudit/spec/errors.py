"""Explain a validation error in one line: the location, the mistake, the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from robaudit.errors import SpecError, did_you_mean
from robaudit.spec.fields import KEY, MISSING_KEY, UNKNOWN_KEY
from robaudit.spec.origin import Location, Origin, key_text

_UNKNOWN, _MISSING = ("extra_forbidden", UNKNOWN_KEY), ("missing", MISSING_KEY)
_UNION_MEMBER = re.compile(r"str|int|float|bool|constrained-\w+|[\w-]+\[.*\]|\[key\]")
_PLAIN = {
    "dict_type": "must be a mapping (key: value)",
    "model_type": "must be a mapping (key: value)",
    "model_attributes_type": "must be a mapping (key: value)",
    "list_type": "must be a list, for example [a, b]",
    "tuple_type": "must be a list, for example [a, b]",
    "too_short": "must have at least {min_length} in the list",
    "too_long": "must have at most {max_length} in the list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def explain(
    error: ValidationError, model: type[BaseModel], where: str | Origin, below: Location = (), *, kind: type[BaseModel] | None = None
) -> SpecError:
    """The most informative of pydantic's errors as one line, with the line number if it is known.

    Args:
        error: pydantic's errors.
        model: the validated model.
        where: the file or option, for the message.
        below: the location of the validated part in the spec, if only a part was validated.
        kind: the section of the data set in a whole spec.
    """
    origin = Origin(where) if isinstance(where, str) else where
    errors = error.errors(include_url=False)
    first = min(errors, key=lambda one: one["type"] not in _UNKNOWN)  # a misspelt key explains a missing one
    own = _location(first)
    location = origin.location((*below, *_plain(own)))
    key = key_text(location)
    place = origin.line(location) or key_text(origin.location(below))
    what, given, owner = first["type"], first.get("input"), _owner(model, own, kind)
    if what in _UNKNOWN:
        return SpecError(place, f"unknown key {key!r}", did_you_mean(str(location[-1]), list(owner.model_fields) if owner else []))
    if what in _MISSING:
        field = owner.model_fields.get(str(own[-1])) if owner else None
        return SpecError(place, f"the key {key!r} is missing", (field.description or "") if field else "")
    places = [origin.location((*below, *_plain(_location(one)))) for one in errors]
    here = dict.fromkeys(_wanted(one) for one, found in zip(errors, places, strict=True) if found == location)
    wanted = " or ".join(here).replace("or must be", "or")
    if given is None:
        wanted = f"is empty; {wanted}"
    elif isinstance(given, str | int | float):
        wanted = f"got {given!r}; {wanted}"
    others = {other for other in places if other != location[: len(other)]}
    more = f" (and {len(others)} more)" if others else ""
    if origin.arguments:
        return SpecError(key or place, wanted + more)
    return SpecError(place, f"{key}: {wanted}{more}" if key else wanted)


def _location(error: ErrorDetails) -> Location:
    """The location of an error: pydantic's, and the key that a validator of a whole section names."""
    key = error.get("ctx", {}).get(KEY)
    return error["loc"] if key is None else (*error["loc"], key)


def _plain(location: Sequence[int | str]) -> Location:
    """The location without pydantic's names for the members of a union."""
    return tuple(part for i, part in enumerate(location) if not (i and isinstance(part, str) and _UNION_MEMBER.fullmatch(part)))


def _wanted(error: ErrorDetails) -> str:
    """The remedy, in plain English."""
    if error["type"] in _PLAIN:
        return _PLAIN[error["type"]].format(**error.get("ctx", {}))
    text = error["msg"].removeprefix("Value error, ")
    return text.replace("Input should", "must").replace("String should", "must")


def _owner(model: type[BaseModel], location: Sequence[int | str], kind: type[BaseModel] | None) -> type[BaseModel] | None:
    """The model that has (or should have) the last part of the location as a field."""
    current: type[BaseModel] | None = model
    for part in location[:-1]:
        if current is not None and isinstance(part, str):
            annotation = current.model_fields[part].annotation if part in current.model_fields else None
            current = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)), None)
            if part == "dataset" and kind is not None:
                current = kind
    return current
