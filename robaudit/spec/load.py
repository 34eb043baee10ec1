"""Read a YAML file and the command line's changes to it into an AuditSpec, with errors that name the line."""

from __future__ import annotations

import io
import stat
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from robaudit.errors import SpecError, did_you_mean
from robaudit.levels import GAUSSIAN, LEVEL_KEYS, LevelName
from robaudit.plugins import ESTIMATORS, NOISES, refuse_unknown
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.errors import explain
from robaudit.spec.model import DEFAULT_ESTIMATOR, IN_MEMORY, AuditSpec, noise_entries
from robaudit.spec.origin import Location, Origin

_MAX_BYTES, _MAX_NODES, _MAX_DEPTH = 2**20, 20_000, 50
_LONGEST_TEXT = 5000  # a path has at most 4096


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses a key that appears twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Any] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key.start_mark)
        if key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} appears twice", key.start_mark)
        seen.add(key.value)
    loader.flatten_mapping(node)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_spec(
    path: Path,
    *,
    text: str | None = None,
    settings: Sequence[str] = (),
    sigmas: Sequence[str] = (),
    noises: Sequence[str] = (),
    levels: Sequence[str] = (),
    estimators: Sequence[str] = (),
    overrides: Mapping[Location, Any] | None = None,
) -> AuditSpec:
    """Read a spec file and apply the command line's changes.

    Args:
        path: the YAML file; paths in it are relative to its folder.
        text: its content, if the file is still to be written.
        settings: ``key=value`` with dotted keys (``model.mean=[0.5]``, ``mc.samples=2000``), values in YAML.
        sigmas: replace the levels of the noises whose level is a standard deviation.
        noises: restrict the noises to these labels.
        levels: replace the levels of the noises, which must all have levels of one name.
        estimators: replace the spec's list; estimators listed in the spec keep their options.
        overrides: further values by location, for example ``{("run", "seed"): 3}``.

    Raises:
        SpecError: the file is missing, is not YAML, or is not a valid spec; the line is named. Names of estimators and noises are
            looked up; their options are checked when they are built, which imports torch.
    """
    raw, lines = read_document(path, text)
    single = isinstance(raw.get("estimators"), str | dict)
    if single:
        raw["estimators"] = [raw["estimators"]]
    for location, value in (overrides or {}).items():
        put(raw, *_within_sample(raw, location, value))
    known = [label for _, entry in noise_entries(raw.get("noise")) if isinstance(entry, dict) for label in _noise_labels(entry)]
    choose_noise(raw, noises, levels, sigmas)
    if estimators:
        raw["estimators"] = choose_estimators(raw.get("estimators"), estimators)
    for setting in settings:
        apply_setting(raw, setting)
    if noises:
        _keep_to(raw, noises, [label for label in known if label not in noises])
    if noises:  # a new list: its entries have no lines
        lines = {
            location: line for location, line in lines.items() if location[:1] not in (("noise",), ("estimators",)) or len(location) == 1
        }
    moved: dict[Location, Location] = {("noise", i): ("noise", *place) for i, (place, _) in enumerate(noise_entries(raw.get("noise")))}
    moved |= {("estimators", 0): ("estimators",)} if single else {}
    origin = Origin(str(path), path.resolve().parent, path.stem, lines, moved)
    spec = validated(raw, origin)
    _refuse_memory(spec)
    for i, noise in enumerate(spec.noise):
        refuse_unknown(NOISES, "noise kind", noise.kind, origin.place(("noise", i, "kind")))
    for i, one in enumerate(spec.estimators):
        where = f"estimators[{i}]" if estimators else origin.place(("estimators", i))
        refuse_unknown(ESTIMATORS, "estimator", one.name, where)
    return spec


def validated(document: Mapping[str, Any], origin: Origin) -> AuditSpec:
    """The spec in a document of plain values.

    Args:
        document: as read from YAML or JSON.
        origin: where it comes from.

    Raises:
        SpecError: it is not a valid spec.
    """
    try:
        return AuditSpec.model_validate(document, context={BASE_DIR: origin.folder}).coming(origin)
    except ValidationError as error:
        raise explain(error, origin) from error


def _refuse_memory(spec: AuditSpec) -> None:
    """Refuse kinds and formats that only a Python program can pass to an audit."""
    for location, kind in ((("dataset", "kind"), spec.dataset.kind), (("model", "format"), spec.model.format)):
        if kind == IN_MEMORY:
            what = f"{kind} stands for objects of a Python program, which a file cannot name"
            raise SpecError(spec.origin.place(location), what, "name files, or call robaudit.audit(net, dataset, ...)")


def read_document(path: Path, text: str | None = None) -> tuple[dict[str, Any], dict[Location, int]]:
    """The mapping in a YAML file, and the line of every key in it.

    Args:
        path: the file.
        text: its content, if the file is still to be written.

    Raises:
        SpecError: the file is missing, or holds no mapping in YAML.
    """
    return _parse(_read(path) if text is None else text, str(path))


def _read(path: Path) -> str:
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise SpecError(str(path), "is a folder", "name a spec file, for example spec.yaml")
        if not stat.S_ISREG(about.st_mode):  # a pipe may never be written to, and a device has no end
            raise SpecError(str(path), "is not a regular file", "save the spec as a file")
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise SpecError(str(path), "is larger than 1 MB", "a spec is a short YAML file")
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise SpecError(
            str(path), "no such file", did_you_mean(path.name, siblings) if siblings else "name an existing spec file"
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(str(path), "is not UTF-8 text", "a spec is a YAML text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise SpecError(str(path), getattr(error, "strerror", None) or "cannot be read", "name a readable spec file") from error


def _parse(text: str, where: str) -> tuple[dict[str, Any], dict[Location, int]]:
    lines: dict[Location, int] = {}
    try:
        raw = _loaded(text, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SpecError(f"{where}:{mark.line + 1}" if mark else where, f"not valid YAML: {error.problem or error.context}") from error
    except Exception as error:  # PyYAML's constructors raise nearly anything on malformed values
        raise SpecError(where, f"not valid YAML: {str(error) or type(error).__name__}") from error
    if not isinstance(raw, dict):
        raise SpecError(where, "is not a mapping", "a spec has the sections model, dataset, noise, estimators and run")
    return cast(dict[str, Any], raw), lines


def _loaded(text: str, lines: dict[Location, int]) -> Any:
    """The value of a YAML text; the lines of its keys are added to ``lines``."""
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    _index(node, (), lines, [0])
    return loader.construct_document(node)


def _index(node: yaml.Node, location: Location, lines: dict[Location, int], count: list[int]) -> None:
    """Record the line of every key, and refuse oversized documents, counting aliases as written out."""
    count[0] += 1
    if count[0] > _MAX_NODES or len(location) > _MAX_DEPTH:
        raise yaml.YAMLError("too many or too deeply nested values")
    lines.setdefault(location, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*location, str(key.value))
            lines[place] = key.start_mark.line + 1
            _refuse_text(key)
            _index(value, place, lines, count)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            _index(value, (*location, i), lines, count)
    else:
        _refuse_text(node)


def _refuse_text(node: yaml.Node) -> None:
    """Refuse lone surrogates, which no file or terminal can represent, and text longer than any path."""
    try:
        if len(str(node.value).encode()) > _LONGEST_TEXT:
            raise yaml.YAMLError(f"a value has more than {_LONGEST_TEXT} characters (line {node.start_mark.line + 1})")
    except UnicodeEncodeError:
        raise yaml.YAMLError(f"contains a lone surrogate ({node.value!r}); use whole Unicode characters") from None


def _within_sample(raw: Mapping[str, Any], location: Location, value: Any) -> tuple[Location, Any]:
    """Turn ``--limit N`` of a random subset into a smaller subset with the same seed, contained in the larger one."""
    dataset = raw.get("dataset")
    sample = dataset.get("sample") if isinstance(dataset, dict) else None
    if location == ("dataset", "limit") and isinstance(sample, dict):
        size = sample.get("size")
        return ("dataset", "sample", "size"), min(size, value) if isinstance(size, int) else size
    return location, value


def put(raw: dict[str, Any], location: Location, value: object) -> None:
    """Set a value of the raw spec by its location, creating missing sections.

    Raises:
        SpecError: a part of the location is not a section.
    """
    target: Any = raw
    for i, part in enumerate(location[:-1]):
        if isinstance(target, list) and isinstance(part, int) and part < len(target):
            target = target[part]
            continue
        if isinstance(target, dict) and target.get(part) is None:
            target[part] = {}
        if not isinstance(target, dict) or not isinstance(target[part], dict | list):
            raise _no_section(location, i + 1)
        target = target[part]
    last = location[-1]
    if type(target) not in (dict, list):
        raise _no_section(location, len(location) - 1)
    if isinstance(target, list) and not (isinstance(last, int) and last < len(target)):
        raise SpecError(".".join(map(str, location)), f"{last!r} is not an index of the list", f"it has {len(target)} entries, from 0")
    target[last] = value


def _no_section(location: Location, length: int) -> SpecError:
    where, section = (".".join(map(str, parts)) for parts in (location, location[:length]))
    return SpecError(where, f"{section} is not a section of the spec", "a section is a mapping (key: value)")


def apply_setting(raw: dict[str, Any], setting: str) -> None:
    """Apply one ``--set key=value``; the first part of the key is a section of the spec, or the name or label of an estimator.

    Raises:
        SpecError: it is not of that form, or there is no such key.
    """
    location, value = read_setting(setting, "mc.samples=2000")
    text = setting.partition("=")[2]
    entries = raw.get("estimators")
    if isinstance(entries, list) and location[0] not in AuditSpec.model_fields:
        for i, entry in enumerate(entries):
            name = _name(entry)
            if location[0] in (name, _label(entry)) and len(location) > 1:
                if not isinstance(entry, dict):
                    entries[i] = {name: {}}
                elif entry.get(name, 0) is None:
                    entry[name] = {}
                put(raw, ("estimators", i, *(("options",) if "name" in entries[i] else (name,)), *location[1:]), value)
                return
    if location[0] not in AuditSpec.model_fields:
        known = [_label(entry) or _name(entry) for entry in entries] if isinstance(entries, list) else [DEFAULT_ESTIMATOR]
        if location[0] in known and len(location) == 1:
            raise SpecError(f"--set {setting}", "does not name an option of the estimator", f"for example --set {location[0]}.samples=2000")
        if entries is None and location[0] == DEFAULT_ESTIMATOR:
            raw["estimators"] = [DEFAULT_ESTIMATOR]
            apply_setting(raw, setting)
            return
        sections = [name for name in AuditSpec.model_fields if isinstance(raw.get(name), dict)]
        inside = [f"{name}.{location[0]}" for name in sections if location[0] in raw[name]]
        remedy = f"write --set {inside[0]}={text}" if inside else did_you_mean(str(location[0]), [*AuditSpec.model_fields, *known])
        raise SpecError(f"--set {setting}", f"unknown key {location[0]!r}", remedy)
    put(raw, location, value)


def read_setting(setting: str, example: str) -> tuple[Location, Any]:
    """The location and the value of one ``--set key=value``.

    Raises:
        SpecError: it is not of that form; ``example`` is.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {setting}", "is not of the form key=value", f"for example --set {example}")
    return tuple(int(part) if part.isdecimal() else part for part in key.strip().split(".")), _value(text, f"--set {setting}")


def _value(text: str, where: str) -> Any:
    try:
        return _loaded(text, {})
    except Exception as error:  # PyYAML's constructors raise nearly anything on malformed values
        raise SpecError(where, "the value is not valid YAML", 'quote it, for example --set "model.mean=[0.5]"') from error


def _name(entry: object) -> str:
    if isinstance(entry, dict) and entry:
        return str(entry["name"]) if "name" in entry else str(next(iter(entry)))
    return str(entry)


def choose_noise(raw: dict[str, Any], labels: Sequence[str], levels: Sequence[str], sigmas: Sequence[str]) -> None:
    """Apply --noise, --level and --sigma to the raw spec.

    Raises:
        SpecError: there is no such noise, or none with such a level.
    """
    written = raw.get("noise")
    entries = written if isinstance(written, list) else [written]
    if labels:
        by_label = {label: {**entry, "name": label} for entry in entries if isinstance(entry, dict) for label in _noise_labels(entry)}
        for label in labels:
            if label not in by_label:
                raise SpecError(f"--noise {label}", "the spec has no such noise", did_you_mean(label, by_label))
        entries = [by_label[label] for label in labels]
        raw["noise"] = entries if len(entries) > 1 else entries[0]
    if levels and sigmas:
        raise SpecError("--level", "cannot be combined with --sigma", "give one of them")
    if sigmas and len(entries) == 1 and not (isinstance(entries[0], dict) and _level_key(entries[0])):
        put(raw, ("noise", *([0] if isinstance(raw.get("noise"), list) else []), LevelName.SIGMA.value), list(sigmas))
        return
    if not levels and not sigmas:
        return
    named = [(entry, key) for entry in entries if isinstance(entry, dict) and (key := _level_key(entry))]
    chosen = [(entry, key) for entry, key in named if levels or key == LevelName.SIGMA]
    names = list(dict.fromkeys(key for _, key in chosen))
    if len(names) != 1:
        what = "the spec's noises have no sigma" if sigmas else f"the levels of the spec's noises are {' and '.join(names) or 'not named'}"
        raise SpecError("--sigma" if sigmas else "--level", what, "choose noises with --noise, and their levels with --level")
    for entry, key in chosen:
        entry[key] = list(sigmas or levels)


def _keep_to(raw: dict[str, Any], labels: Sequence[str], left_out: Sequence[str]) -> None:
    """Remove the other noises from the estimators' lists, and remove estimators that apply only to those.

    Raises:
        SpecError: no estimator is left.
    """
    entries, kept = raw.get("estimators"), []
    for entry in entries if isinstance(entries, list) else []:
        key = "options" if isinstance(entry, dict) and "name" in entry else _name(entry)
        options = entry.get(key) if isinstance(entry, dict) else None
        named = options.get("noise") if isinstance(options, dict) else None
        wanted = [named] if isinstance(named, str) else named
        if not isinstance(options, dict) or not isinstance(wanted, list) or not wanted:
            kept.append(entry)
        elif still := [label for label in wanted if label not in left_out]:
            kept.append({**entry, key: {**options, "noise": still}})
    if entries and not kept:
        raise SpecError(f"--noise {labels[0]}", "no estimator of the spec is for this noise", "choose one with --estimator")
    if isinstance(entries, list):
        raw["estimators"] = kept


def _noise_labels(entry: Mapping[str, Any]) -> list[str]:
    names = entry.get("name", entry.get("kind", GAUSSIAN))
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]


def _level_key(entry: Mapping[str, Any]) -> str | None:
    return next((name.value for name in LEVEL_KEYS if name in entry), None)


def choose_estimators(entries: object, names: Sequence[str]) -> list[Any]:
    """The estimators named on the command line (by name or label), with their options from the spec."""
    listed = entries if isinstance(entries, list) else []
    known = {_name(entry): entry for entry in reversed(listed)} | {label: entry for entry in listed if (label := _label(entry))}
    return [known.get(name, name) for name in names]


def _label(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    options = entry.get("options" if "name" in entry else _name(entry))
    return str(options["label"]) if isinstance(options, dict) and options.get("label") else None
