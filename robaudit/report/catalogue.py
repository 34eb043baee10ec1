"""The lists of what is installed as tables, CSV and JSON: estimators, kinds of noise and of data sets, formats of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from rich import box
from rich.table import Table
from rich.text import Text

from robaudit.estimators import registry
from robaudit.estimators.base import Estimator
from robaudit.models.load import LOADERS, SUFFIXES
from robaudit.noise import registry as noise_registry
from robaudit.noise.base import AdditiveNoise, NoiseKind
from robaudit.spec.model import DATASET_KINDS, dataset_kind
from robaudit.store.serialise import table_csv


@dataclass(frozen=True, slots=True)
class Entry:
    """One installed estimator, as text."""

    name: str
    quantity: str
    unit: str
    needs: str
    cost: str
    interval: str
    options: str
    summary: str
    prefer: str
    source: str


def estimator_entries() -> list[Entry]:
    """The estimators in alphabetical order; the cost is that of the defaults with ten classes."""
    return [_entry(name, registry.load(name)) for name in sorted(registry.registered())]


def _entry(name: str, cls: type[Estimator]) -> Entry:
    try:
        forwards, backwards = cls().passes(10)
        cost = f"{forwards:,} forward" + (f", {backwards:,} backward" if backwards else "")
    except ValidationError:  # an option has no default
        cost = "as its options say: any number of"
    options = {key: field for key, field in cls.model_fields.items() if key not in ("label", "noise")}
    return Entry(
        name=name,
        quantity=cls.quantity.name,
        unit=cls.quantity.unit,
        needs=", ".join(sorted(cls.needs)),
        cost=cost,
        interval=cls.interval.text,
        options=", ".join(_option(key, field) for key, field in options.items()),
        summary=cls.summary,
        prefer=cls.prefer,
        source=cls.source,
    )


def _option(key: str, field: FieldInfo) -> str:
    return f"{key} (required)" if field.is_required() else f"{key}={json.dumps(field.get_default(call_default_factory=True))}"


def catalogue_table(entries: Sequence[Entry]) -> Table:
    """A table for terminals."""
    table = Table(
        title="Installed estimators (cost: passes per image and noise level, with 10 classes)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 1, 0),
    )
    for column, ratio in (("estimator", 2), ("measures", 2), ("needs, cost and interval", 4), ("what it is, and when to prefer it", 6)):
        table.add_column(column, ratio=ratio, overflow="fold")
    for e in entries:
        measured = f"{e.quantity}\n({e.unit})"
        needs = f"needs {e.needs}\n{e.cost} passes\ninterval: {e.interval}"
        what = f"{e.summary}\nWhen: {e.prefer}\nSource: {e.source}"
        table.add_row(Text(e.name + (f"\n{e.options}" if e.options else "")), Text(measured), Text(needs), Text(what))
    return table


@dataclass(frozen=True, slots=True)
class NoiseEntry:
    """One installed kind of noise, as text."""

    name: str
    level: str
    least: float
    most: float
    additive: bool
    differentiable: bool
    options: str
    summary: str
    prefer: str
    source: str


def noise_entries() -> list[NoiseEntry]:
    """The kinds of noise in alphabetical order."""
    return [_noise_entry(name, noise_registry.load(name)) for name in sorted(noise_registry.registered())]


def _noise_entry(name: str, cls: type[NoiseKind]) -> NoiseEntry:
    options = {key: field for key, field in cls.model_fields.items() if key not in ("name", "clip")}
    return NoiseEntry(
        name=name,
        level=cls.level_name.value,
        least=cls.least,
        most=cls.most,
        additive=issubclass(cls, AdditiveNoise),
        differentiable=cls.differentiable,
        options=", ".join(_option(key, field) for key, field in options.items()),
        summary=cls.summary,
        prefer=cls.prefer,
        source=cls.source,
    )


def noise_table(entries: Sequence[NoiseEntry]) -> Table:
    """A table for terminals."""
    table = Table(title="Installed kinds of noise", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 2, 1, 0))
    for column, ratio in (("kind", 3), ("level", 2), ("what it does, and what it is a model of", 6)):
        table.add_column(column, ratio=ratio, overflow="fold")
    for e in entries:
        level = f"{e.level}\n{e.least:g} to {e.most:g}"
        what = f"{e.summary}\nModels: {e.prefer}\nSource: {e.source}"
        table.add_row(Text(e.name + (f"\n{e.options}" if e.options else "")), Text(level), Text(what))
    return table


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """Something that a spec may name, in a line; ``of``: what it is."""

    of: str
    name: str
    summary: str
    options: str = ""


def dataset_entries() -> list[NamedEntry]:
    """The kinds of data sets."""
    kinds = {name: dataset_kind(name) for name in DATASET_KINDS}
    return [NamedEntry("data set", name, _summary(cls), _options(cls)) for name, cls in kinds.items()]


def format_entries() -> list[NamedEntry]:
    """The formats of models."""
    suffixes = {name: ", ".join(suffix for suffix, other in SUFFIXES.items() if other == name) for name in LOADERS}
    return [
        NamedEntry("model", name, _summary(load).removeprefix("Load "), suffixes[name] and f"files: {suffixes[name]}")
        for name, load in LOADERS.items()
    ]


def overview() -> list[NamedEntry]:
    """Everything that a spec may name."""
    estimators = [NamedEntry("estimator", one.name, one.summary) for one in estimator_entries()]
    noises = [NamedEntry("noise", one.name, one.summary) for one in noise_entries()]
    return [*estimators, *noises, *(replace(one, options="") for one in (*dataset_entries(), *format_entries()))]


def _summary(described: object) -> str:
    return (described.__doc__ or "").partition("\n")[0].rstrip(".").replace("`", "")


def _options(cls: type[BaseModel]) -> str:
    return ", ".join(_option(key, field) for key, field in cls.model_fields.items() if key != "kind")


def named_table(entries: Sequence[NamedEntry]) -> Table:
    """A table for terminals, below a head for each kind of thing."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
    for column, width in (("in a spec", 20), ("what it is", None)):
        table.add_column(column, min_width=width, overflow="fold")
    last = ""
    for one in entries:
        if one.of != last:
            if last:
                table.add_row("", "")
            table.add_row(Text(f"{one.of}s", "bold"), Text(_MORE[one.of]))
        last = one.of
        table.add_row(Text(f"  {one.name}"), Text(one.summary + (f"\n{one.options}\n" if one.options else "")))
    return table


_MORE = {
    "estimator": "options, cost and source: robaudit list estimators",
    "noise": "levels, options and source: robaudit list noises",
    "data set": "options: robaudit list datasets",
    "model": "files: robaudit list formats",
}
AnyEntry = Entry | NoiseEntry | NamedEntry


def entries_csv(entries: Sequence[AnyEntry]) -> str:
    """CSV with a header; at least one entry."""
    return table_csv(list(asdict(entries[0])), (list(asdict(entry).values()) for entry in entries))


def entries_json(entries: Sequence[AnyEntry]) -> str:
    """A JSON list."""
    return json.dumps([asdict(entry) for entry in entries], indent=2) + "\n"
