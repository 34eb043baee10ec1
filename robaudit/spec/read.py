"""Read a YAML file and the command line's changes to it into an AuditSpec; errors name the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from robaudit.errors import SpecError, did_you_mean
from robaudit.files import expanded
from robaudit.levels import GAUSSIAN, LEVEL_KEYS, LevelName
from robaudit.plugins import ESTIMATORS, NOISES, reference, refuse_unknown
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.document import loaded, read_document
from robaudit.spec.fields import SAMPLES_ARE_DRAWS, as_tuple
from robaudit.spec.model import DEFAULT_ESTIMATOR, IN_MEMORY, AuditSpec, noise_entries, with_options
from robaudit.spec.noise_file import is_noise_file, read_noises
from robaudit.spec.origin import Location, Origin
from robaudit.spec.validation_errors import explain


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
        path: the YAML file; paths in it are relative to its folder. Its noises may be in a file of
            their own, ``noise: noise.yaml``.
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
    origin = Origin(str(path), path.resolve().parent, path.stem, lines)
    # First, so that all other changes find the noises of a file as if they were written out.
    settings = _with_noise_file(raw, settings)
    origin = with_noises_of_file(raw, origin, path.parent)
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
            for place, line in origin.lines.items()
            if len(place) < 2 or place[0] not in ("noise", "estimators")
        }
        origin = replace(origin, lines=lines)
    _set_levels(raw, levels, sigmas)
    # Settings come last: they may refer to estimators and noises that other options have chosen.
    options = {apply_setting(raw, setting): f"--set {setting}" for setting in settings}
    spec = validated(raw, replace(origin, moved=moved, options=options))
    origin = spec.origin
    _refuse_memory(spec)
    for i, noise in enumerate(spec.noise):
        refuse_unknown(NOISES, "noise kind", noise.kind, origin.place(("noise", i, "kind")))
    for i, estimator in enumerate(spec.estimators):
        where = f"estimators[{i}]" if estimators else origin.place(("estimators", i))
        refuse_unknown(ESTIMATORS, "estimator", estimator.name, where)
    return spec


def _with_noise_file(raw: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Apply ``--set noise=FILE.yaml``, and return the other settings."""
    others = []
    for setting in settings:
        location, value = read_setting(setting, _example_of_setting())
        if location == ("noise",) and is_noise_file(value):
            raw["noise"] = value
        else:
            others.append(setting)
    return others


def with_noises_of_file(raw: dict[str, Any], origin: Origin, folder: Path) -> Origin:
    """Write out the noises of a document that names a file of them instead.

    Args:
        raw: the document, which is changed.
        origin: of the document; options of the noises that name files become relative to its
            folder.
        folder: the same folder, as messages show it.

    Returns:
        The origin, in which the noises have the lines of their own file.

    Raises:
        SpecError: the file is missing, or holds no noises.
    """
    named = raw.get("noise")
    if not is_noise_file(named):
        return origin
    path = folder / expanded(named)
    raw["noise"], lines_of_noises = read_noises(path, origin.folder)
    lines = {place: line for place, line in origin.lines.items() if place[:1] != ("noise",)}
    return replace(origin, lines={**lines, **lines_of_noises}, files={"noise": str(path)})


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


def put(raw: dict[str, Any], location: Location, value: object) -> Location:
    """Set a value of the raw spec by its location, creating missing sections; a list of one counts
    as its entry.

    Returns:
        The location with the places in such lists.

    Raises:
        SpecError: a part of the location is not a section.
    """
    target: Any = raw
    where = ".".join(map(str, location))
    way: list[str | int] = []
    for i, part in enumerate(location):
        is_single = isinstance(target, list) and len(target) == 1
        if is_single and not isinstance(part, int):
            target = target[0]
            way.append(0)
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
            name = _as_given(part, target)
            inside[name] = value
            return (*way, name)
        if isinstance(target, dict) and target.get(part) is None:
            inside[part] = {}
        target = inside[part]
        way.append(part)
    return location


def apply_setting(raw: dict[str, Any], setting: str) -> Location:
    """Apply one ``--set key=value``; the first part of the key is a section of the spec, or the
    name or label of an estimator.

    Returns:
        The location of the value.

    Raises:
        SpecError: it is not of that form, or there is no such key.
    """
    location, value = read_setting(setting, _example_of_setting())
    if location[0] in AuditSpec.model_fields:
        return put(raw, location, value)
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
        return put(raw, ("estimators", i, _name(entry) or "", *location[1:]), value)
    names = [_label(entry) or _name(entry) for entry in entries]
    known = [*AuditSpec.model_fields, *filter(None, names)]
    raise SpecError(
        f"--set {setting}", f"unknown key {section!r}", did_you_mean(str(section), known)
    )


def _example_of_setting() -> str:
    return f"{reference()}.draws=2000"


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
        return loaded(text, {})
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
