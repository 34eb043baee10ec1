"""The field types of a spec: numbers such as 8/255, counts, sizes in bytes, and frozen sections."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from robaudit.errors import SpecError, did_you_mean

KEY = "about_key"
"""The entry of a validator's error context that names the key."""
UNKNOWN_KEY = "unknown_key"
"""The type of an error about a key that a section does not have."""
MISSING_KEY = "missing_key"
"""The type of an error about a required key."""
WRONG_KEY = "wrong_key"
"""The type of an error about the value of a key."""


def about_key(kind: str, key: str, text: str = "") -> PydanticCustomError:
    """An error about one key, from a validator of a whole section.

    Args:
        kind: UNKNOWN_KEY, MISSING_KEY, or WRONG_KEY.
        key: the key.
        text: what is wrong with it; for an unknown or missing key, what would be right.
    """
    return PydanticCustomError(kind, "{text}", {KEY: key, "text": text})


def unquoted(value: bool | float | date) -> str:
    """What would be right in place of a value that YAML does not read as text."""
    remedy = "must be text: put it in quotes"
    if isinstance(value, bool):
        words = "yes, on and true" if value else "no, off and false"
        remedy += f" (without them, YAML reads {words} as one value)"
    return remedy


def as_number(value: object) -> object:
    """Read ``8/255`` as a number; refuse YAML's true, false, yes and no.

    Anything else is passed on to the type check.
    """
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004  pydantic reports a ValueError
    if isinstance(value, str) and value.count("/") == 1:
        over, under = value.split("/")
        try:
            return float(over) / float(under)
        except (ValueError, ZeroDivisionError):
            return value
    return value


def number(where: str, value: object) -> float:
    """The value of an option or an argument as a finite number; "8/255" is understood.

    Raises:
        SpecError: it is not a finite number.
    """
    with contextlib.suppress(ValueError):
        parsed = as_number(value)
        if isinstance(parsed, str | int | float) and math.isfinite(float(parsed)):
            return float(parsed)
    raise SpecError(where, f"{value!r} is not a number", "for example 0.5 or 8/255")


def level(where: str, value: object) -> float:
    """The value of an option or an argument as a noise level.

    Raises:
        SpecError: it is not a positive number.
    """
    with contextlib.suppress(SpecError):
        parsed = number(where, value)
        if parsed > 0:
            return parsed
    raise SpecError(
        where, f"{value!r} is not a positive number", "give one noise level, such as 0.05 or 8/255"
    )


def as_bytes(value: object) -> object:
    """Read ``4GB``, ``512 MiB`` or ``1.5g`` as a number of bytes; refuse other text.

    Anything else is passed on to the type check.
    """
    if not isinstance(value, str):
        return value
    # Bounded digits: the size fits into a float, and no text makes the match slow.
    match = re.fullmatch(
        r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?\s*", value, re.ASCII | re.IGNORECASE
    )
    if match is None:
        raise ValueError("must be an amount of memory such as 4GB or 512MiB")
    base = 1024 if match[3] else 1000
    exponent = " kmgt".index(match[2].lower() or " ")
    return round(float(match[1]) * base**exponent)


def _no_bool(value: object) -> object:
    """Refuse YAML's true, false, yes and no, which Python treats as the numbers 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004  pydantic reports a ValueError
    return value


def as_tuple(value: object) -> object:
    """Read a single value as a list of one."""
    if value is None or isinstance(value, list | tuple):
        return value
    return (value,)


class _SingleToo:
    """Annotates a tuple of any length that also accepts a single value for a tuple of one."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema of the tuple, after a validator; JSON schemas show both forms."""
        listed = handler(source)
        (item,) = listed["items_schema"]
        either = core_schema.union_schema([item, listed])
        return core_schema.no_info_before_validator_function(
            as_tuple, listed, json_schema_input_schema=either
        )


T = TypeVar("T")
OneOrMore = Annotated[tuple[T, ...], _SingleToo()]
"""A list of any length, or a single value."""
_Fraction = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*/\s*\d+(\.\d+)?\s*$")]
# JSON schemas describe the fractions, which pydantic cannot know from the validators.
Number = Annotated[
    float,
    Field(allow_inf_nan=False),
    BeforeValidator(as_number, json_schema_input_type=float | _Fraction),
]
Positive = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    BeforeValidator(as_number, json_schema_input_type=Annotated[float, Field(gt=0)] | _Fraction),
]
Whole = Annotated[int, BeforeValidator(_no_bool)]
Count = Annotated[int, Field(gt=0), BeforeValidator(_no_bool)]
Bytes = Annotated[int, Field(gt=0, lt=2**63), BeforeValidator(as_bytes), BeforeValidator(_no_bool)]
"""A size in bytes; 4GB (4 * 10^9) and 4GiB (4 * 2^30) are accepted."""


def _renamed(
    options: Mapping[Any, Any], renamed: Mapping[str, str], fields: Collection[str]
) -> dict[Any, Any]:
    """The options under their present names.

    Raises:
        PydanticCustomError: an option has both of its names.
    """
    present = dict[Any, Any]()
    for key, value in options.items():
        name = renamed.get(key, key)
        if key in fields or name not in fields:
            present[key] = value
            continue
        if name in options:
            what = f"is the former name of {name}, which is given, too: leave one out"
            raise about_key(WRONG_KEY, str(key), what)
        present[name] = value
    return present


SAMPLES_ARE_DRAWS: Mapping[str, str] = {"samples": "draws"}
"""The former name of a number of draws, by which it is still accepted: a sample is a member of the
data set."""


class SpecSection(BaseModel):
    """A section of the spec, or the options of a plugin: frozen, unknown keys are errors.

    Class attributes:
        renamed: former names of keys, which are still accepted, and their present names.
    """

    renamed: ClassVar[Mapping[str, str]] = {}

    # Pydantic warns of fields that begin with model_ unless no namespace is protected.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        """Refuse an unknown key, with the nearest known key, and a missing key, with its
        description."""
        if not isinstance(value, Mapping):
            return value
        fields = cls.model_fields
        options = _renamed(value, cls.renamed, fields)
        # Unknown keys first: a misspelt key explains a missing one.
        if cls.model_config.get("extra") == "forbid":
            unknown = next((key for key in options if key not in fields), None)
            if unknown:
                hint = did_you_mean(str(unknown), fields)
                raise about_key(UNKNOWN_KEY, str(unknown), hint)
        for key, field in fields.items():
            if field.is_required() and key not in options:
                raise about_key(MISSING_KEY, key, field.description or "")
        return options
