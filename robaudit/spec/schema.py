"""The JSON schema of a spec, with the options of the installed estimators and kinds of noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from robaudit.levels import GAUSSIAN, LevelName
from robaudit.plugins import reference
from robaudit.spec.model import (
    IN_MEMORY,
    AuditSpec,
    EstimatorSpec,
    Levels,
    dataset_kind,
    dataset_kinds,
)
from robaudit.text import unwrapped


def spec_schema(
    estimators: Mapping[str, type[BaseModel]],
    noises: Mapping[str, tuple[LevelName, type[BaseModel]]] | None = None,
) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec file.

    Args:
        estimators: option models by estimator name.
        noises: level name and option model by kind of noise; without any, a noise may have any
            options.
    """
    schema = AuditSpec.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "robaudit spec"
    definitions = schema["$defs"]
    # Pydantic sees only the base of all kinds of data: name the installed ones instead.
    del definitions["BaseDatasetSpec"]
    kinds_of_data = [_dataset(definitions, kind) for kind in dataset_kinds()]
    schema["properties"]["dataset"] = {
        "description": schema["properties"]["dataset"]["description"],
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds_of_data],
    }
    for form in definitions["ModelSpec"]["properties"]["format"]["anyOf"]:
        if IN_MEMORY in form.get("enum", ()):  # files cannot name it
            form["enum"].remove(IN_MEMORY)
    # An estimator is a name, or an object with its name as the only key.
    forms: list[dict[str, Any]] = [{"enum": sorted(estimators)}]
    for name, model in estimators.items():
        options = {"$ref": f"#/$defs/{_options(definitions, name, model)}"}
        forms.append(
            {
                "type": "object",
                "properties": {name: {"anyOf": [options, {"type": "null"}]}},
                "required": [name],
                "additionalProperties": False,
            }
        )
    definitions["EstimatorSpec"] = {
        "description": f"an estimator's name, or its name with options: {{{reference()}: "
        "{draws: 1000}}",
        "anyOf": forms,
    }
    if noises:
        kinds = [_noise(definitions, kind, level, model) for kind, (level, model) in noises.items()]
        definitions["NoiseSpec"] = {
            "description": definitions["NoiseSpec"]["description"],
            "anyOf": kinds,
        }
    long: dict[str, Any] = _with_long_lines(schema)
    return long


def _with_long_lines(schema: Any) -> Any:
    """The schema with each paragraph of its descriptions on one line: they are docstrings, wrapped
    for readers of the code."""
    if isinstance(schema, list):
        return [_with_long_lines(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    long = {key: _with_long_lines(value) for key, value in schema.items()}
    if isinstance(schema.get("description"), str):
        long["description"] = unwrapped(schema["description"])
    return long


def _dataset(definitions: dict[str, Any], kind: str) -> str:
    """Add the definition of a kind of data set and return its name."""
    model = dataset_kind(kind)
    section = model.model_json_schema()
    definitions.update(section.pop("$defs", {}))
    definitions[model.__name__] = {**section, "required": ["kind", *section.get("required", ())]}
    return model.__name__


def _options(definitions: dict[str, Any], name: str, model: type[BaseModel]) -> str:
    """Add the definition of an estimator's options and return its name."""
    options = model.model_json_schema()
    entry = EstimatorSpec.model_json_schema()["properties"]
    definitions.update(options.pop("$defs", {}))
    del entry["label"]["default"]  # it is the estimator's name, not the empty text
    options["properties"] = {
        "label": entry["label"],
        "noise": entry["noise"],
        **options.get("properties", {}),
    }
    definitions[f"{name} options"] = {**options, "title": f"{name} options"}
    return f"{name} options"


def _noise(
    definitions: dict[str, Any], kind: str, level: LevelName, model: type[BaseModel]
) -> dict[str, Any]:
    """The schema of a kind of noise."""
    options = model.model_json_schema()
    definitions.update(options.pop("$defs", {}))
    name = options["properties"].pop("name", {"type": "string"})
    properties = {
        "kind": {"const": kind},
        "name": {"anyOf": [name, {"type": "array", "items": name}]},
        level.value: TypeAdapter(Levels).json_schema(),
    }
    required = [key for key in options.get("required", ()) if key != "name"]
    required.append(level.value)
    if kind != GAUSSIAN:  # the default
        required.append("kind")
    return {
        **options,
        "title": f"{kind} noise",
        "properties": {**properties, **options["properties"]},
        "required": required,
    }
