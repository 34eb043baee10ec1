"""The JSON schema of a spec, with the options of the installed estimators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from robaudit.spec.model import AuditSpec


def spec_schema(estimators: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec file.

    Args:
        estimators: option models by estimator name.
    """
    schema = AuditSpec.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "robaudit spec"
    definitions = schema["$defs"]
    forms: list[dict[str, Any]] = [{"enum": sorted(estimators)}]
    for name, model in estimators.items():
        options = model.model_json_schema()
        definitions.update(options.pop("$defs", {}))
        definitions[f"{name} options"] = {**options, "title": f"{name} options"}
        value = {"anyOf": [{"$ref": f"#/$defs/{name} options"}, {"type": "null"}]}
        forms.append({"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False})
    definitions["EstimatorSpec"] = {
        "description": "an estimator's name, or its name with options: {mc: {samples: 1000}}",
        "anyOf": forms,
    }
    _accept_short_forms(schema)
    return schema


def _accept_short_forms(schema: dict[str, Any]) -> None:
    """Accept fractions (8/255) for numbers, and a single value for a list, as the spec's reader does."""
    fraction = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*/\s*\d+(\.\d+)?\s*$"}
    for section, key in (("NoiseSpec", "sigma"), ("ModelSpec", "mean"), ("ModelSpec", "std")):
        listed = schema["$defs"][section]["properties"][key]
        number = {"anyOf": [listed["items"], fraction]}
        listed["items"] = number
        described = {k: listed.pop(k) for k in ("description", "default", "title") if k in listed}
        schema["$defs"][section]["properties"][key] = {**described, "anyOf": [dict(listed), number]}
