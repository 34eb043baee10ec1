"""Dataclasses as JSON documents, and their JSON schemas."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import reduce
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from robaudit.levels import LevelName, NoiseLevel
from robaudit.quantities import Quantity
from robaudit.text import Names, known_name

CLASSES = frozenset({"label", "predicted", "flips_to", "base_predicted", "certified_class"})
"""Keys of class indices: each is followed by the name of the class."""
_COLUMNS = frozenset({"key", "at"})


class Document:
    """A dataclass that is written as a JSON object.

    Attributes:
        members: the members of the object, in order: an attribute's name, or ``key=name`` for another key; ``part.name`` reads a nested
            attribute; ``*name`` inlines the attribute's own members, as is always done for ``key`` and ``at``. Empty: all fields.
    """

    __slots__ = ()
    members: ClassVar[str] = ""

    def document(self, names: Names | None = None) -> dict[str, Any]:
        """The members as JSON values: see :func:`json_values`.

        Args:
            names: class names by index; each class is followed by its name.
        """
        return _object(self, names)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """The schema of the JSON object, not of the dataclass."""
        members = {
            key: core_schema.typed_dict_field(
                handler.generate_schema(member.type),
                metadata={"pydantic_js_updates": {"description": _plain(member.about)} if member.about else {}},
            )
            for key, member in _schema_members(cls).items()
        }
        about = inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]
        reference = f"{cls.__module__}.{cls.__qualname__}"
        return core_schema.typed_dict_schema(members, ref=reference, metadata={"pydantic_js_updates": {"description": _plain(about)}})


def json_schema(document: type[Document]) -> dict[str, Any]:
    """The JSON schema of a class's documents; its docstring describes the keys."""
    return TypeAdapter(document).json_schema(mode="serialization", schema_generator=_JsonSchema)


class _JsonSchema(GenerateJsonSchema):
    """Schemas with nullable numbers and without titles that repeat the keys."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {**super().float_schema(schema), "type": ["number", "null"]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        return inner if inner.get("type") == ["number", "null"] else super().nullable_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_number(value: float | None) -> float | None:
    """A float for JSON; NaN and infinity, which JSON lacks, become None."""
    return None if value is None or not math.isfinite(value) else float(value)


def json_values(value: Any, names: Names | None = None) -> Any:
    """A result as JSON values.

    Dataclasses and named tuples become objects, other sequences and arrays lists, members of enumerations their values, quantities their
    names, and numbers that are not finite null.

    Args:
        value: a result, or a part of it.
        names: class names by index.
    """
    result = value
    match value:
        case Enum():
            result = value.value
        case float():
            result = json_number(value)
        case Quantity():
            result = value.name
        case NoiseLevel():
            result = value.document()
        case Document():
            result = value.document(names)
        case Mapping():
            result = {f"{key:g}" if isinstance(key, float) else json_values(key): json_values(item, names) for key, item in value.items()}
        case tuple() | list():
            result = json_values(value._asdict(), names) if hasattr(value, "_asdict") else [json_values(item, names) for item in value]
        case _ if is_dataclass(value):
            result = _object(value, names)
        case _ if hasattr(value, "tolist"):  # an array
            result = json_values(value.tolist())
    return result


def _object(value: Any, names: Names | None) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, name in _members(type(value)):
        member = json_values(attrgetter(name)(value), names)
        document |= {key: member} if key else member
    return with_names(document, names)


def _members(cls: Any) -> tuple[tuple[str, str], ...]:
    """The key and attribute of each member; an empty key inlines the attribute's own members."""
    members = []
    for text in getattr(cls, "members", "").split() or [field.name for field in fields(cls)]:
        key, _, name = text.rpartition("=")
        last = name.rpartition(".")[2]
        members.append(("" if last in _COLUMNS or name.startswith("*") else key or last, name.removeprefix("*")))
    return tuple(members)


class _Member(NamedTuple):
    type: Any
    about: str = ""


def _schema_members(cls: Any) -> dict[str, _Member]:
    """Type and description of each key of a class's documents."""
    if cls is NoiseLevel:
        return {"noise": _Member(str), "level_name": _Member(LevelName), "level": _Member(float)}
    if (types := getattr(cls, "json_types", None)) is not None:
        return {key: _Member(*typed) for key, typed in types().items()}
    if not is_dataclass(cls):  # a typed dictionary
        return {key: _Member(hint) for key, hint in get_type_hints(cls).items()}
    schema = dict[str, _Member]()
    for key, path in _members(cls):
        member = reduce(lambda owner, name: _member(owner.type, name), path.split("."), _Member(cls))
        schema |= {key: member} if key else _schema_members(member.type)
    for key in CLASSES & schema.keys():
        schema[f"{key}_name"] = _Member(str | None)
    return schema


def _member(owner: Any, name: str) -> _Member:
    computed = getattr(owner, name, None)
    if isinstance(computed, property):
        return _Member(get_type_hints(computed.fget)["return"], inspect.cleandoc(computed.__doc__ or "").partition("\n")[0])
    return _Member(get_type_hints(owner, include_extras=True)[name], dict(_attributes(owner.__doc__ or "")).get(name, ""))


def _plain(text: str) -> str:
    """A line of a docstring for readers of JSON."""
    return re.sub(r":\w+:`[~.\w]*?(\w+)`", r"\1", text).replace("``", "").replace("None", "null")


def _attributes(docstring: str) -> Iterator[tuple[str, str]]:
    """The name and description of each attribute in a class docstring."""
    listed = inspect.cleandoc(docstring).partition("Attributes:\n")[2].partition("\n\n")[0]
    for entry in re.split(r"\n    (?=\S)", "\n" + listed)[1:]:
        names, _, text = " ".join(entry.split()).partition(": ")
        yield from ((name, text) for name in names.split(", "))


def with_names(values: Mapping[str, Any], names: Names | None) -> dict[str, Any]:
    """Values by name; each class (label, predicted, ...) is followed by its name, or None.

    Args:
        values: of a result or sample.
        names: class names by index.
    """
    named: dict[str, Any] = {}
    for key, value in values.items():
        named[key] = value
        if key in CLASSES:
            named[f"{key}_name"] = known_name(value, names)
    return named
