"""Facts about a run: how it was made, its skipped samples and gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP
from itertools import chain
from typing import Any

from robaudit.estimates import Covers
from robaudit.gates.decision_text import number
from robaudit.report.html.content import RunView
from robaudit.report.numbers import NONE
from robaudit.report.tables import Cell, Column, Table, Tone, cells
from robaudit.runs.info import RunInfo
from robaudit.text import clipped, count, printable

_MOST_SKIPPED = 20  # samples in a table; run.json has all


def facts(view: RunView) -> str:
    """Model and data in one line."""
    info = view.run.info
    model = info.model
    data = info.data
    totals = info.totals
    skipped = f" ({totals.skipped:,} skipped)" if totals.skipped else ""
    images = f"{count(totals.samples, 'image')}{skipped} of {_last(data.where)}"
    return f"{_last(model.name)} ({model.format}, {model.classes} classes) on {images}."


def provenance(views: Sequence[RunView]) -> Table:
    """How the runs were made, a column for each."""
    facts_of = [dict(_provenance(view.run.info, str(view.run.path))) for view in views]
    names = dict.fromkeys(chain.from_iterable(facts_of))
    rows = []
    for name in names:
        texts = [facts.get(name) for facts in facts_of]
        if any(texts):
            rows.append(cells((name, *(text or NONE for text in texts))))
    return Table(
        "How the runs were made" if len(views) > 1 else "How the run was made",
        _heads("fact", views),
        tuple(rows),
    )


def _heads(first: str, views: Sequence[RunView]) -> tuple[Column, ...]:
    return Column(first), *(
        Column(view.name if len(views) > 1 else "", wrap=True) for view in views
    )


def skipped_tables(views: Sequence[RunView]) -> Iterator[Table]:
    """The first samples that each run left out, with the reason."""
    for view in views:
        if skipped := view.run.info.skipped:
            rows = [cells((sample.sample_id, sample.reason)) for sample in skipped[:_MOST_SKIPPED]]
            rest = len(skipped) - len(rows)
            notes = (f"and {rest:,} more: see run.json",) if rest else ()
            heads = Column("sample", wrap=True), Column("reason", wrap=True)
            name = f"{view.name}: " if len(views) > 1 else ""
            yield Table(
                f"{name}{count(len(skipped), 'sample')} skipped", heads, tuple(rows), notes=notes
            )


def decision_table(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each gate.

    Args:
        decisions: documents of :class:`robaudit.gates.decide.Decision`; numbers may be None.
    """
    rows = []
    for decision in decisions:
        tone: Tone = "bad" if decision["verdict"] == "fail" else ""
        verdict = Cell(str(decision["verdict"]), tone=tone)
        texts = (_value_text(decision), str(decision["about"]))
        rows.append((Cell(str(decision["gate"])), verdict, *cells(texts)))
    heads = (
        Column("gate"),
        Column("verdict"),
        Column("value [interval]", number=True),
        Column("about", wrap=True),
    )
    return Table("Gates of the run", heads, tuple(rows))


def _value_text(decision: Mapping[str, Any]) -> str:
    """The value of a gate with its interval and the confidence."""
    if decision["covers"] == Covers.RUN:  # a count: it is exact
        return f"{decision['value']:g}"
    limit = decision["threshold"]
    # Digits are enough to tell a number from the threshold, and ends are rounded outwards.
    rounding = {"value": ROUND_HALF_UP, "lower": ROUND_FLOOR, "upper": ROUND_CEILING}
    texts = {
        key: "" if decision[key] is None else number(decision[key], limit, way)
        for key, way in rounding.items()
    }
    value = texts["value"] or NONE
    is_exact = decision["lower"] == decision["value"] == decision["upper"]
    if is_exact or not (texts["lower"] or texts["upper"]):
        return value
    ends = f"[{texts['lower'] or '...'}, {texts['upper'] or '...'}]"
    return f"{value} {ends} ({100 * decision['confidence']:.4g}%)"


def _provenance(info: RunInfo, path: str) -> Iterator[tuple[str, str]]:
    """The names of facts and their texts."""
    model = info.model
    data = info.data
    totals = info.totals
    yield "Run", f"{info.name} in {path}"
    yield "Model", f"{model.name} ({model.format}, {model.classes} classes)"
    yield "Model sha256", model.sha256
    yield "Data", f"{data.where}: {count(totals.samples, 'sample')}, {data.labelled:,} labelled"
    yield "Data sha256", data.sha256 or ""
    yield "Noise", info.noise
    yield "Seed", str(info.seed)
    yield "Device", info.device
    yield "Passes", f"{totals.forwards:,} forward and {totals.backwards:,} backward"
    yield "Command", info.command or "from Python"
    yield "Started", info.started
    versions = [f"{name} {number}" for name, number in info.versions.items() if number is not None]
    yield "Versions", ", ".join(versions)
    for name, plugin in info.plugins.items():
        yield f"Plugin {name}", f"{plugin.package} {plugin.version}, {plugin.entry_point}"
    for note in model.notes:
        yield "Note", note


def _last(path: str) -> str:
    """The end of a path, which tells models apart."""
    if path.startswith("/"):
        # files of exported models have the same name, and their folders tell them apart
        parts = [part for part in path.split("/") if part]
        path = "/".join(parts[-2:])
    return clipped(printable(path), 80)
