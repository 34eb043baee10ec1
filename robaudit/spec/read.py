"""Read a YAML file and the command line's changes to it into an AuditSpec; errors name the line."""

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
from robaudit.plugins import ESTIMATORS, NOISES, reference, refuse_unknown
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.fields import SAMPLES_ARE_DRAWS, as_tuple
from robaudit.spec.model import DEFAULT_ESTIMATOR, IN_MEMORY, AuditSpec, noise_entries, with_options
from robaudit.spec.origin import Location, Origin
from robaudit.spec.validation_errors import explain

# Bounds far beyond any spec. They refuse hostile files before PyYAML spends memory on them: a few
# lines of nested aliases can stand for billions of values.
_MAX_BYTES = 2**20
_MAX_NODES = 20_000
_MAX_DEPTH = 50
_LONGEST_TEXT = 5000  # a path has at most 4096 characters


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses a key that appears twice, of which YAML would take the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    """The value of a mapping whose keys are plain and distinct."""
    seen: set[Any] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be plain text", key.start_mark
            )
        if key.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} appears twice", key.start_mark
            )
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
        text: its content, if the file does not exist yet.
        settings: ``key=value`` with dotted keys (``model.mean=[0.5]``, ``mc.draws=2000``), values
            in YAML.
        sigmas: levels that replace those of the noises whose level is a standard deviation.
        noises: labels of the only noises to keep.
        levels: levels that replace those of the noises, which must share one level name.
        estimators: names that replace the spec's list; estimators of the spec keep their options.
        overrides: further values by location, for example ``{("run", "seed"): 3}``.

    Raises:
        SpecError: the file is missing, is not YAML, or is not a valid spec; the line is named.
            Names of estimators and noises are looked up; their options are checked when they are
            built, which imports torch.
    """
    raw, lines = read_document(path, text)
    moved = _as_lists(raw)
    for location, value in (overrides or {}).items():
        put(raw, *_within_sample(raw, location, value))
    if estimators:
        raw["estimators"] = _chosen_estimators(raw.get("estimators") or [], estimators)
    if noises:
        _restrict_noises(raw, noises)
        # Entries of the shortened lists have other indices than in the file: without line numbers,
        # messages name the section.
        lines = {
            place: line
            for place, line in lines.items()
            if len(place) < 2 or place[0] not in ("noise", "estimators")
        }
    _set_levels(raw, levels, sigmas)
    # Settings come last: they may refer to estimators and noises that other options have chosen.
    for setting in settings:
        apply_setting(raw, setting)
    origin = Origin(str(path), path.resolve().parent, path.stem, lines, moved)
    spec = validated(raw, origin)
    _refuse_memory(spec)
    for i, noise in enumerate(spec.noise):
        refuse_unknown(NOISES, "noise kind", noise.kind, origin.place(("noise", i, "kind")))
    for i, estimator in enumerate(spec.estimators):
        where = f"estimators[{i}]" if estimators else origin.place(("estimators", i))
        refuse_unknown(ESTIMATORS, "estimator", estimator.name, where)
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
        spec = AuditSpec.model_validate(document, context={BASE_DIR: origin.folder})
    except ValidationError as error:
        raise explain(error, origin) from error
    return spec.with_origin(origin)


def _refuse_memory(spec: AuditSpec) -> None:
    """Refuse kinds and formats that only a Python program can pass to an audit."""
    kinds: dict[Location, str | None] = {
        ("dataset", "kind"): spec.dataset.kind,
        ("model", "format"): spec.model.format,
    }
    for location, kind in kinds.items():
        if kind == IN_MEMORY:
            raise SpecError(
                spec.origin.place(location),
                f"{kind} stands for objects of a Python program, which a file cannot name",
                "name files, or call robaudit.audit(net, dataset, ...)",
            )


def read_document(
    path: Path, text: str | None = None
) -> tuple[dict[str, Any], dict[Location, int]]:
    """The mapping in a YAML file, and the line of every key in it.

    Args:
        path: the file.
        text: its content, if the file does not exist yet.

    Raises:
        SpecError: the file is missing, or holds no mapping in YAML.
    """
    return _parse(_read(path) if text is None else text, str(path))


def _read(path: Path) -> str:
    """The text of a spec file.

    Raises:
        SpecError: it is missing, too large, or not a text file.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise SpecError(str(path), "is a folder", "name a spec file, for example spec.yaml")
        # Reading a pipe that nobody writes to would block, and a device has no end.
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(str(path), "is not a regular file", "save the spec as a file")
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise SpecError(str(path), "is larger than 1 MB", "a spec is a short YAML file")
        # A text stream, unlike bytes.decode, also turns other line ends into \n.
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        remedy = did_you_mean(path.name, siblings) if siblings else "name an existing spec file"
        raise SpecError(str(path), "no such file", remedy) from error
    except UnicodeDecodeError as error:
        raise SpecError(str(path), "is not UTF-8 text", "a spec is a YAML text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        what = getattr(error, "strerror", None) or "cannot be read"
        raise SpecError(str(path), what, "name a readable spec file") from error


def _parse(text: str, where: str) -> tuple[dict[str, Any], dict[Location, int]]:
    """:func:`read_document` of a text; ``where`` is its file, for messages."""
    lines: dict[Location, int] = {}
    try:
        raw = _loaded(text, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise SpecError(place, f"not valid YAML: {error.problem or error.context}") from error
    except Exception as error:  # PyYAML's constructors raise nearly anything on malformed values
        raise SpecError(where, f"not valid YAML: {str(error) or type(error).__name__}") from error
    if not isinstance(raw, dict):
        raise SpecError(
            where,
            "is not a mapping",
            "a spec has the sections model, dataset, noise, estimators and run",
        )
    return cast(dict[str, Any], raw), lines


def _loaded(text: str, lines: dict[Location, int]) -> Any:
    """The value of a YAML text; the lines of its keys are added to ``lines``."""
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    # Before any value is built: the nodes are as small as the text, the values may be huge.
    _index(node, (), lines, [0])
    return loader.construct_document(node)


def _index(
    node: yaml.Node, location: Location, lines: dict[Location, int], count: list[int]
) -> None:
    """Record the line of every key, and refuse oversized documents.

    Args:
        node: a part of the document; an alias counts as if it were written out.
        location: its location.
        lines: filled with the line of every location.
        count: number of nodes so far, in a list, as the calls share it.
    """
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
    """Refuse lone surrogates, which no file or terminal can represent, and text longer than any
    path."""
    try:
        if len(str(node.value).encode()) > _LONGEST_TEXT:
            raise yaml.YAMLError(
                f"a value has more than {_LONGEST_TEXT} characters (line "
                f"{node.start_mark.line + 1})"
            )
    except UnicodeEncodeError:
        raise yaml.YAMLError(
            f"contains a lone surrogate ({node.value!r}); use whole Unicode characters"
        ) from None


def _within_sample(raw: Mapping[str, Any], location: Location, value: Any) -> tuple[Location, Any]:
    """The location and value to set: ``--limit N`` of a random subset becomes a smaller subset.

    With the same seed it is contained in the larger one.
    """
    dataset = raw.get("dataset")
    sample = dataset.get("sample") if isinstance(dataset, dict) else None
    if location == ("dataset", "limit") and isinstance(sample, dict):
        size = sample.get("size")
        smaller = min(size, value) if isinstance(size, int) else size
        return ("dataset", "sample", "size"), smaller
    return location, value


def _as_given(part: str | int, section: dict[str, Any] | list[Any]) -> str | int:
    """The name under which a section gives an option: the present or the former one."""
    for names in SAMPLES_ARE_DRAWS.items():
        if part in names and part not in section:
            return next((name for name in names if name in section), part)
    return part


def put(raw: dict[str, Any], location: Location, value: object) -> None:
    """Set a value of the raw spec by its location, creating missing sections; a list of one counts
    as its entry.

    Raises:
        SpecError: a part of the location is not a section.
    """
    target: Any = raw
    where = ".".join(map(str, location))
    for i, part in enumerate(location):
        is_single = isinstance(target, list) and len(target) == 1
        if is_single and not isinstance(part, int):
            target = target[0]
        inside: Any = target  # a list or a mapping, indexed by any part
        if isinstance(target, list) and not (isinstance(part, int) and part < len(target)):
            raise SpecError(
                where,
                f"{part!r} is not an index of the list",
                f"it has {len(target)} entries, from 0",
            )
        if not isinstance(target, dict | list):
            section = ".".join(map(str, location[:i]))
            raise SpecError(
                where,
                f"{section} is not a section of the spec",
                "a section is a mapping (key: value)",
            )
        if i == len(location) - 1:
            inside[_as_given(part, target)] = value
            return
        if isinstance(target, dict) and target.get(part) is None:
            inside[part] = {}
        target = inside[part]


def apply_setting(raw: dict[str, Any], setting: str) -> None:
    """Apply one ``--set key=value``; the first part of the key is a section of the spec, or the
    name or label of an estimator.

    Raises:
        SpecError: it is not of that form, or there is no such key.
    """
    location, value = read_setting(setting, f"{reference()}.draws=2000")
    if location[0] in AuditSpec.model_fields:
        put(raw, location, value)
        return
    entries = raw.get("estimators") or [{DEFAULT_ESTIMATOR: {}}]
    section = location[0]
    for i, entry in enumerate(entries):
        if section not in (_name(entry), _label(entry)):
            continue
        if len(location) == 1:
            raise SpecError(
                f"--set {setting}",
                "does not name an option of the estimator",
                f"for example --set {section}.draws=2000",
            )
        raw["estimators"] = entries  # they may be the default
        put(raw, ("estimators", i, _name(entry) or "", *location[1:]), value)
        return
    names = [_label(entry) or _name(entry) for entry in entries]
    known = [*AuditSpec.model_fields, *filter(None, names)]
    raise SpecError(
        f"--set {setting}", f"unknown key {section!r}", did_you_mean(str(section), known)
    )


def read_setting(setting: str, example: str) -> tuple[Location, Any]:
    """The location and the value of one ``--set key=value``.

    Raises:
        SpecError: it is not of that form; the message shows ``example``.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(
            f"--set {setting}", "is not of the form key=value", f"for example --set {example}"
        )
    parts = key.strip().split(".")
    location = tuple(int(part) if part.isdecimal() else part for part in parts)
    return location, _value(text, f"--set {setting}")


def _value(text: str, where: str) -> Any:
    """The value of a YAML text from the command line."""
    try:
        return _loaded(text, {})
    except Exception as error:  # PyYAML's constructors raise nearly anything on malformed values
        raise SpecError(
            where, "the value is not valid YAML", 'quote it, for example --set "model.mean=[0.5]"'
        ) from error


def _as_lists(raw: dict[str, Any]) -> dict[Location, Location]:
    """Rewrite the noises as a list with an entry for each name, and the estimators as a list of
    ``{name: options}``.

    Malformed entries stay as they are, for the message about them.

    Returns:
        The locations in the file, by location of the entries.
    """
    entries = noise_entries(raw.get("noise"))
    moved: dict[Location, Location] = {
        ("noise", i): ("noise", *place) for i, (place, _) in enumerate(entries)
    }
    if raw.get("noise") is not None:
        raw["noise"] = [entry for _, entry in entries]
    estimators = raw.get("estimators")
    if isinstance(estimators, str | dict):
        estimators = [estimators]
        moved[("estimators", 0)] = ("estimators",)
    if isinstance(estimators, list):
        raw["estimators"] = [with_options(entry) for entry in estimators]
    return moved


def _name(entry: object) -> str | None:
    """The name in an estimator's entry ``{name: options}``; None if it is malformed."""
    return str(next(iter(entry))) if isinstance(entry, dict) and len(entry) == 1 else None


def _options(entry: object) -> dict[str, Any] | None:
    """The options in an estimator's entry ``{name: options}``; None if it is malformed."""
    options = entry.get(_name(entry)) if isinstance(entry, dict) else None
    return options if isinstance(options, dict) else None


def _label(entry: object) -> str | None:
    """The label in an estimator's entry; None if it has none."""
    label = (_options(entry) or {}).get("label")
    return str(label) if label else None


def _chosen_estimators(entries: Sequence[object], names: Sequence[str]) -> list[object]:
    """The estimators named on the command line (by name or label), with their options from the
    spec."""
    known: dict[str | None, object] = {}
    # Of several entries with one name, the first counts; a label comes before a name.
    for entry in reversed(entries):
        known[_name(entry)] = entry
    for entry in entries:
        label = _label(entry)
        if label:
            known[label] = entry
    return [known.get(name, {name: {}}) for name in names]


def _restrict_noises(raw: dict[str, Any], labels: Sequence[str]) -> None:
    """Keep the noises with these labels, and the estimators that apply to them.

    Raises:
        SpecError: there is no such noise, or no estimator is left.
    """
    by_label = {
        str(entry.get("name", entry.get("kind", GAUSSIAN))): entry
        for entry in raw.get("noise") or ()
        if isinstance(entry, dict)
    }
    for label in labels:
        if label not in by_label:
            raise SpecError(
                f"--noise {label}", "the spec has no such noise", did_you_mean(label, by_label)
            )
    raw["noise"] = [by_label[label] for label in labels]
    left_out = by_label.keys() - set(labels)
    estimators = []
    for entry in raw.get("estimators") or ():
        options = _options(entry) or {}
        wanted = as_tuple(options.get("noise"))
        if not isinstance(wanted, list | tuple) or not wanted:
            estimators.append(entry)  # it applies to every noise
            continue
        remaining = [label for label in wanted if label not in left_out]
        if remaining:
            estimators.append({_name(entry): {**options, "noise": remaining}})
    if raw.get("estimators") and not estimators:
        raise SpecError(
            f"--noise {labels[0]}",
            "no estimator of the spec is for this noise",
            "choose one with --estimator",
        )
    if estimators:
        raw["estimators"] = estimators


def _set_levels(raw: dict[str, Any], levels: Sequence[str], sigmas: Sequence[str]) -> None:
    """Apply --level and --sigma.

    Raises:
        SpecError: the noises have no such level, or levels of several names.
    """
    if levels and sigmas:
        raise SpecError("--level", "cannot be combined with --sigma", "give one of them")
    if not levels and not sigmas:
        return
    entries = raw.get("noise") or [None]
    level_keys: list[tuple[dict[str, Any], str]] = []
    for entry in entries:
        if isinstance(entry, dict):
            level_keys += [(entry, key.value) for key in LEVEL_KEYS if key in entry]
    is_without_levels = len(entries) == 1 and not level_keys
    if sigmas and is_without_levels:
        # No noise, or one whose levels are missing: --sigma supplies them.
        put(raw, ("noise", LevelName.SIGMA.value), list(sigmas))
        return
    chosen = [(entry, key) for entry, key in level_keys if levels or key == LevelName.SIGMA]
    names = list(dict.fromkeys(key for _, key in chosen))
    if len(names) != 1:
        option = "--level"
        what = f"the levels of the spec's noises are {' and '.join(names) or 'not named'}"
        if sigmas:
            option = "--sigma"
            what = "the spec's noises have no sigma"
        raise SpecError(option, what, "choose noises with --noise, and their levels with --level")
    for entry, key in chosen:
        entry[key] = list(sigmas or levels)
