"""What do ``--set``, ``--sigma`` and ``--estimator`` change in a spec?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from robaudit.errors import SpecError, did_you_mean
from robaudit.spec import DEFAULT_ESTIMATOR, AuditSpec
from robaudit.spec_errors import Location


def put(raw: dict[str, Any], location: Location, value: object) -> None:
    """Set a value of the raw spec by its location, making sections on the way.

    Raises:
        SpecError: the location leads through something that is no section.
    """
    target: Any = raw
    for i, part in enumerate(location[:-1]):
        if isinstance(target, list) and isinstance(part, int) and part < len(target):
            target = target[part]
            continue
        if isinstance(target, dict) and target.get(part) is None:
            target[part] = {}
        if not isinstance(target, dict) or not isinstance(target[part], dict | list):
            where, section = (".".join(map(str, parts)) for parts in (location, location[: i + 1]))
            raise SpecError(where, f"{section} is not a section of the spec", "a section is a mapping (key: value)")
        target = target[part]
    last = location[-1]
    if isinstance(target, list) and not (isinstance(last, int) and last < len(target)):
        raise SpecError(".".join(map(str, location)), f"{last!r} is not an index of the list", f"it has {len(target)} entries, from 0")
    target[last] = value


def apply_setting(raw: dict[str, Any], setting: str) -> None:
    """Apply one ``--set key=value``; the first part of the key is a section of the spec or the name of an estimator.

    Raises:
        SpecError: not of that form, or no such key.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {setting}", "is not of the form key=value", "for example --set mc.samples=2000")
    value = _value(text, f"--set {setting}")
    location: Location = tuple(int(part) if part.isdecimal() else part for part in key.strip().split("."))
    entries = raw.get("estimators")
    if isinstance(entries, list) and location[0] not in AuditSpec.model_fields:
        for i, entry in enumerate(entries):
            name = _name(entry)
            if name == location[0] and len(location) > 1:
                if not isinstance(entry, dict):
                    entries[i] = {name: {}}
                elif entry.get(name, 0) is None:
                    entry[name] = {}
                put(raw, ("estimators", i, *(("options",) if "name" in entries[i] else (name,)), *location[1:]), value)
                return
    if location[0] not in AuditSpec.model_fields:
        known = [_name(entry) for entry in entries] if isinstance(entries, list) else [DEFAULT_ESTIMATOR]
        if location[0] in known and len(location) == 1:
            raise SpecError(f"--set {setting}", "names no option of the estimator", f"for example --set {location[0]}.samples=2000")
        if entries is None and location[0] == DEFAULT_ESTIMATOR:
            raw["estimators"] = [DEFAULT_ESTIMATOR]
            apply_setting(raw, setting)
            return
        remedy = did_you_mean(str(location[0]), [*AuditSpec.model_fields, *known])
        raise SpecError(f"--set {setting}", f"unknown key {location[0]!r}", remedy)
    put(raw, location, value)


def _value(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except Exception as error:  # PyYAML's own constructors raise nearly anything on values that are none
        raise SpecError(where, "the value is not valid YAML", 'quote it, for example --set "model.mean=[0.5]"') from error


def _name(entry: object) -> str:
    if isinstance(entry, dict) and entry:
        return str(entry["name"]) if "name" in entry else str(next(iter(entry)))
    return str(entry)


def choose_estimators(entries: object, names: Sequence[str]) -> list[Any]:
    """The estimators named on the command line (by name or label), with the options the spec gives those it has."""
    listed = entries if isinstance(entries, list) else []
    known = {_name(entry): entry for entry in reversed(listed)} | {label: entry for entry in listed if (label := _label(entry))}
    return [known.get(name, name) for name in names]


def _label(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    options = entry.get("options" if "name" in entry else _name(entry))
    return str(options["label"]) if isinstance(options, dict) and options.get("label") else None
