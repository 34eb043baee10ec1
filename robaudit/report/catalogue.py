"""The lists of installed estimators and kinds of noise as tables, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich import box
from rich.table import Table
from rich.text import Text

from robaudit.estimators.base import Estimator
from robaudit.noise.base import AdditiveNoise, NoiseKind
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


def catalogue(classes: Mapping[str, type[Estimator]]) -> list[Entry]:
    """The entries in alphabetical order; the cost is that of the defaults with ten classes."""
    return [_entry(name, classes[name]) for name in sorted(classes)]


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


def noise_entries(classes: Mapping[str, type[NoiseKind]]) -> list[NoiseEntry]:
    """The entries in alphabetical order."""
    return [_noise_entry(name, classes[name]) for name in sorted(classes)]


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


def entries_csv(entries: Sequence[Entry | NoiseEntry]) -> str:
    """CSV with a header; at least one entry."""
    return table_csv(list(asdict(entries[0])), (list(asdict(entry).values()) for entry in entries))


def entries_json(entries: Sequence[Entry | NoiseEntry]) -> str:
    """A JSON list."""
    return json.dumps([asdict(entry) for entry in entries], indent=2) + "\n"
