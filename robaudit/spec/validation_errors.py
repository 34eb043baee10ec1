"""Explain a validation error in one line: the location, the mistake, the remedy."""

from __future__ import annotations

import re
from datetime import date

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from robaudit.errors import SpecError
from robaudit.spec.fields import KEY, MISSING_KEY, UNKNOWN_KEY, unquoted
from robaudit.spec.origin import Location, Origin, key_text

_UNION_MEMBER = re.compile(r"str|int|float|bool|constrained-\w+|[\w-]+\[.*\]|\[key\]")
"""Names of types that pydantic inserts into the location of an error."""
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
"""Remedies by pydantic's type of error, where its own words are for programmers."""


def explain(error: ValidationError, where: str | Origin, below: Location = ()) -> SpecError:
    """The most informative of pydantic's errors as one line, with the line number if it is known.

    Args:
        error: pydantic's errors.
        where: the file or option, for the message.
        below: the location of the validated part in the spec, if only a part was validated.
    """
    origin = Origin(where) if isinstance(where, str) else where
    errors = error.errors(include_url=False)
    locations = [(*below, *_location(detail)) for detail in errors]
    places = [origin.location(location) for location in locations]
    # The first error, but an unknown key comes before it: a misspelt key explains a missing one.
    first = min(range(len(errors)), key=lambda i: errors[i]["type"] != UNKNOWN_KEY)
    kind = errors[first]["type"]
    location = places[first]
    value = errors[first].get("input")
    key = key_text(location)
    place = origin.option(locations[first]) or origin.line(location)
    place = place or key_text(origin.location(below))
    if kind == UNKNOWN_KEY:
        return SpecError(place, f"unknown key {key!r}", errors[first]["msg"])
    if kind == MISSING_KEY:
        return SpecError(place, f"the key {key!r} is missing", errors[first]["msg"])
    # A union gives an error for each of its members, all at one location.
    remedies = dict.fromkeys(
        wanted(detail) for detail, at in zip(errors, places, strict=True) if at == location
    )
    message = " or ".join(remedies).replace("or must be", "or")
    if value is None:
        message = f"is empty; {message}"
    elif isinstance(value, str | int | float):
        message = f"got {value!r}; {message}"
    # Errors about an enclosing part are consequences of this one.
    others = {other for other in places if other != location[: len(other)]}
    number_of_others = f" (and {len(others)} more)" if others else ""
    if origin.arguments:
        return SpecError(key or place, message + number_of_others)
    return SpecError(place, f"{key}: {message}{number_of_others}" if key else message)


def _location(error: ErrorDetails) -> Location:
    """The location of an error in the spec.

    It is pydantic's location without the names of union members, and with the key that a validator
    names.
    """
    parts: list[int | str] = []
    for i, part in enumerate(error["loc"]):
        is_type = isinstance(part, str) and _UNION_MEMBER.fullmatch(part)
        if i == 0 or not is_type:  # no section has the name of a type
            parts.append(part)
    key = error.get("ctx", {}).get(KEY)
    if key is not None:
        parts.append(key)
    return tuple(parts)


def wanted(error: ErrorDetails) -> str:
    """The remedy for an error, in plain English: "must be a number"."""
    value = error.get("input")
    if error["type"] == "string_type" and isinstance(value, bool | int | float | date):
        return unquoted(value)
    if error["type"] in _PLAIN:
        return _PLAIN[error["type"]].format(**error.get("ctx", {}))
    text = error["msg"].removeprefix("Value error, ")
    return text.replace("Input should", "must").replace("String should", "must")
