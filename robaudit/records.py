"""Records: dataclasses that pydantic writes as JSON objects, and the JSON schemas of these
objects."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from robaudit.levels import LevelName, NoiseLevel
from robaudit.text import Names, first_paragraph, known_name

CLASSES = frozenset({"label", "predicted", "flips_to", "base_predicted", "certified_class"})
"""Keys of class indices; in JSON each is followed by the name of the class."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Inline:
    """Annotates a field whose members are written in place of the field.

    All of them are null where the field is None.

    Args:
        names: attributes of the field's value, under their own names. Without names and keys: all
            members of the record.
        keys: attributes by the key to write; ``part.name`` is the attribute of an attribute.
    """

    def __init__(self, *names: str, **keys: str) -> None:
        self.attributes = {**{name: name for name in names}, **keys}


class Nested:
    """Annotates a field that is written as an object of some of its attributes, and as null where
    it is None.

    Args:
        title: the name of the object in a JSON schema.
        names: attributes of the field's value.
        about: describes the object in the schema.
    """

    def __init__(self, title: str, *names: str, about: str = "") -> None:
        self.title = title
        self.names = names
        self.about = about

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The schema of the object."""
        owner = _without_none(source)
        members = _chosen(owner, {name: name for name in self.names})
        schema = _written_as(members, self.title, self.about, handler)
        return schema if owner is source else core_schema.nullable_schema(schema)


def published(*, after: str = "", key: str = "") -> Callable[[Function], Function]:
    """Mark the function of a property as a member of its record.

    Args:
        after: the key that it follows; empty: it comes first.
        key: its key; by default the name of the property.
    """

    def mark(function: Function) -> Function:
        # Attributes of a function survive both property and cached_property.
        function.__dict__["published"] = (after, key)
        return function

    return mark


class Record:
    """A dataclass that is written as a JSON object: its fields in order, each under its name.

    Annotations of a field change this: :class:`Inline`, :class:`Nested`, and pydantic's
    ``Field(exclude=True)`` and ``Field(serialization_alias="key")``. Properties that are
    :func:`published` are written, too. A noise level is always written as its three columns, a
    class index is followed by the name of the class, and numbers that are not finite are null.
    """

    __slots__ = ()

    def document(self, names: Names | None = None) -> dict[str, Any]:
        """The record as JSON values.

        Args:
            names: class names by index; each class is followed by its name.
        """
        written = _adapter(type(self)).dump_python(
            self, mode="json", context=names, warnings=False, fallback=_other
        )
        document: dict[str, Any] = _finite(written)
        return document

    @classmethod
    def json_members(cls) -> tuple[Member, ...]:
        """The members in order."""
        return tuple(_members(cls))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The schema of the JSON object; it writes records and does not read them."""
        reference = f"{cls.__module__}.{cls.__qualname__}"
        return _written_as(cls.json_members(), reference, first_paragraph(cls), handler)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a record.

    Attributes:
        key: its key in the JSON object.
        read: returns its value, given the record.
        type: the type of the value.
        about: its description.
    """

    key: str
    read: Callable[[Any], Any]
    type: Any  # also an annotated type or a union, which no class is
    about: str = ""


def _members(cls: Any) -> list[Member]:
    """The members of a record, from its fields and its published properties."""
    descriptions: dict[str, str] = {}
    names: dict[str, None] = {}
    # Base classes come first, so that a subclass overrides their descriptions.
    for base in reversed(cls.__mro__):
        descriptions.update(_attributes(base.__doc__ or ""))
        names.update(dict.fromkeys(vars(base)))
    hints = get_type_hints(cls, include_extras=True)
    members: list[Member] = []
    for field in fields(cls):
        about = descriptions.get(field.name, "")
        members += _members_of_field(field.name, hints[field.name], about)
    for name in names:
        function = _function(getattr(cls, name, None))
        if "published" in getattr(function, "__dict__", ()):
            after, key = function.__dict__["published"]
            keys = [member.key for member in members]
            place = keys.index(after) + 1 if after else 0
            hint = get_type_hints(function, include_extras=True)["return"]
            members[place:place] = _members_of_field(name, hint, first_paragraph(function), key)
    return members


def _members_of_field(name: str, hint: Any, about: str, key: str = "") -> Iterable[Member]:
    """The members that a field is written as: usually one, none if it is excluded."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
    if _without_none(kind) is NoiseLevel:
        marks = [Inline()]
    member = Member(key or name, attrgetter(name), hint, about)
    for mark in marks:
        if isinstance(mark, Inline):
            return _inlined(member, kind, mark)
        if isinstance(mark, FieldInfo):
            if mark.exclude:
                return ()
            # The alias is used up here; pydantic must not meet it again below the member's key.
            others = [other for other in marks if other is not mark]
            plain = Annotated[kind, *others] if others else kind
            return (replace(member, key=mark.serialization_alias or member.key, type=plain),)
    return (member,)


def _inlined(member: Member, kind: Any, mark: Inline) -> Iterator[Member]:
    """The members of a member's value, each null where the value is None."""
    owner = _without_none(kind)
    may_be_none = owner is not kind
    for inner in _chosen(owner, mark.attributes):
        # The default argument binds this round's member: a closure would see the last one.
        def read(record: Any, inner: Member = inner) -> Any:
            value = member.read(record)
            return None if value is None else inner.read(value)

        inner_type = inner.type | None if may_be_none else inner.type
        yield Member(inner.key, read, inner_type, inner.about)


def _chosen(owner: Any, attributes: Mapping[str, str]) -> Iterator[Member]:
    """Some attributes of a class as members, or all of its members if none are named."""
    if owner is NoiseLevel:
        # Its three columns differ from its attributes: "none" stands for no noise, 0 for no level.
        for key, kind in (("noise", str), ("level_name", LevelName), ("level", float)):
            yield Member(key, partial(_column, key), kind)
    elif not attributes:
        yield from owner.json_members()
    for key, path in attributes.items():
        hint, about = _attribute(owner, path)
        yield from _members_of_field(path, hint, about, key)


def _column(key: str, at: NoiseLevel) -> Any:
    """One of the three columns of a noise level."""
    return at.document()[key]


def _attribute(owner: Any, path: str) -> tuple[Any, str]:
    """The type and the description of a field or a property of a class, or of one of its parts."""
    name, _, rest = path.partition(".")
    function = _function(getattr(owner, name, None))
    if function is not None:
        hint = get_type_hints(function, include_extras=True)["return"]
        about = first_paragraph(function)
    else:
        hint = get_type_hints(owner, include_extras=True)[name]
        about = dict(_attributes(owner.__doc__ or "")).get(name, "")
    if not rest:
        return hint, about
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return _attribute(_without_none(plain), rest)


def _function(attribute: Any) -> Any:
    """The function of a property, cached or not; None for anything else."""
    if isinstance(attribute, property):
        return attribute.fget
    return attribute.func if isinstance(attribute, cached_property) else None


def _without_none(kind: Any) -> Any:
    """``T`` for ``T | None``; any other type unchanged."""
    parts = get_args(kind)
    others = [part for part in parts if part is not NoneType]
    is_optional = len(parts) == 2 and len(others) == 1
    return others[0] if is_optional else kind


def _written_as(
    members: Iterable[Member], reference: str, about: str, handler: GetCoreSchemaHandler
) -> core_schema.CoreSchema:
    """The schema that writes an object of these members.

    Args:
        members: the members in order.
        reference: the name of the object in a JSON schema.
        about: describes the object there.
        handler: pydantic's, for the schemas of the members.
    """
    members = tuple(members)

    def write(record: Any, info: core_schema.SerializationInfo) -> dict[str, Any]:
        return with_names({member.key: member.read(record) for member in members}, info.context)

    keys = {
        member.key: core_schema.typed_dict_field(
            _schema_of(member.type, handler), metadata=_described(member.about)
        )
        for member in members
    }
    # As :func:`with_names` writes them; the order of a schema's properties says nothing.
    for key in sorted(CLASSES & keys.keys()):
        keys[f"{key}_name"] = core_schema.typed_dict_field(handler.generate_schema(str | None))
    typed = core_schema.typed_dict_schema(keys, metadata=_described(about))
    serialization = core_schema.plain_serializer_function_ser_schema(
        write, info_arg=True, return_schema=typed
    )
    return core_schema.any_schema(ref=reference, serialization=serialization)


def _schema_of(kind: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """The schema of a member."""
    # Pydantic has no schema for NumPy's arrays; :func:`_other` writes them as lists.
    is_array = hasattr(get_origin(kind), "tolist")
    return core_schema.any_schema() if is_array else handler.generate_schema(kind)


def _described(about: str) -> dict[str, Any]:
    """The metadata with which pydantic describes a part of a JSON schema.

    Readers of JSON see null instead of None, and names without Sphinx's roles and quotes.
    """
    text = re.sub(r":\w+:`[~.\w]*?(\w+)`", r"\1", about).replace("``", "").replace("None", "null")
    return {"pydantic_js_updates": {"description": text}} if text else {}


def _attributes(docstring: str) -> Iterator[tuple[str, str]]:
    """The name and description of each attribute in a class docstring."""
    listed = inspect.cleandoc(docstring).partition("Attributes:\n")[2].partition("\n\n")[0]
    # An entry begins with four spaces; its further lines are indented deeper.
    for entry in re.split(r"\n    (?=\S)", "\n" + listed)[1:]:
        names, _, text = " ".join(entry.split()).partition(": ")
        yield from ((name, text) for name in names.split(", "))


def _adapter(record: type[Record]) -> TypeAdapter[Any]:
    """The pydantic adapter that writes a record, built once for each class."""
    if record not in _ADAPTERS:
        _ADAPTERS[record] = TypeAdapter(record)
    return _ADAPTERS[record]


_ADAPTERS: dict[type[Record], TypeAdapter[Any]] = {}


def json_schema(record: type[Record]) -> dict[str, Any]:
    """The JSON schema of a record's objects; its docstring describes the keys."""
    return _adapter(record).json_schema(mode="serialization", schema_generator=_JsonSchema)


class _JsonSchema(GenerateJsonSchema):
    """Schemas with nullable numbers and without titles that repeat the keys."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {**super().float_schema(schema), "type": ["number", "null"]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        return inner if inner.get("type") == ["number", "null"] else super().nullable_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_values(value: Any, names: Names | None = None) -> Any:
    """A value as JSON values; numbers that are not finite are null.

    Args:
        value: a record, a named tuple, a noise level, a mapping or a sequence of such values, or a
            value of a type that JSON has.
        names: class names by index.
    """
    match value:
        case Record():
            return value.document(names)
        case NoiseLevel():
            return value.document()
        case Mapping():
            return {
                f"{key:g}" if isinstance(key, float) else str(key): json_values(item, names)
                for key, item in value.items()
            }
        case tuple() if hasattr(value, "_asdict"):  # a named tuple, as a plugin's section may have
            return json_values(value._asdict(), names)
        case tuple() | list():
            return [json_values(item, names) for item in value]
    return _finite(to_jsonable_python(value, fallback=_other))


def _finite(value: Any) -> Any:
    """JSON values with null for NaN and infinity, which JSON lacks."""
    # Pydantic replaces them only when it writes JSON text, not when it dumps Python values.
    match value:
        case float():
            return json_number(value)
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
    return value


def columns_of(record: Record) -> dict[str, Any]:
    """The members of a record by key, as Python values, for a table; a part that is a record is a
    mapping of its members."""
    values = {member.key: member.read(record) for member in record.json_members()}
    return {
        key: columns_of(value) if isinstance(value, Record) else value
        for key, value in values.items()
    }


def json_number(value: float | None) -> float | None:
    """A float for JSON; NaN and infinity, which JSON lacks, become None."""
    return None if value is None or not math.isfinite(value) else float(value)


def _other(value: Any) -> Any:
    """The Python value of a NumPy array or number, which pydantic does not know."""
    return value.tolist()


def with_names(values: Mapping[str, Any], names: Names | None) -> dict[str, Any]:
    """Values by key; each class (label, predicted, ...) is followed by its name, or None.

    Args:
        values: the values of a result or a sample.
        names: class names by index.
    """
    named: dict[str, Any] = {}
    for key, value in values.items():
        named[key] = value
        if key in CLASSES:
            named[f"{key}_name"] = known_name(value, names)
    return named
