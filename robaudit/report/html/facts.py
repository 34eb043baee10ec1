"""Facts about a run: how it was made, its sessions, skipped samples and gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP
from typing import Any

from robaudit.gates.decide import Covers
from robaudit.gates.text import number
from robaudit.levels import NO_NOISE
from robaudit.names import ResultName
from robaudit.report.html.content import Content
from robaudit.report.numbers import NONE, level_numbers
from robaudit.report.tables import Cell, Table, cells, columns
from robaudit.text import clipped, count, printable

_MOST_SKIPPED = 20
_MOST_NOISES = 3  # with their levels


def facts(content: Content) -> str:
    """Model, data and noise in one line."""
    info = content.run.info
    model, data, totals = info["model"], info["data"], info["totals"]
    skipped = f" ({totals['skipped']:,} skipped)" if totals["skipped"] else ""
    estimators = ", ".join(dict.fromkeys(ResultName.parse(group.key.estimator).estimator for group in content.groups))
    levels = ", ".join(_noises(content))
    return (
        f"{_last(model['name'])} ({model['format']}, {model['classes']} classes) on {count(totals['samples'], 'image')}{skipped} of "
        f"{_last(data['where'])}; {levels}; by {estimators}."
    )


def _noises(content: Content) -> Iterator[str]:
    """Each noise with its levels: "gaussian noise of sigma 0.02, 0.05"; of many only the names."""
    numbers_of = level_numbers(content.levels)
    labels = list(dict.fromkeys(at.noise for at in numbers_of if at != NO_NOISE))
    if not labels:
        yield "no noise"
    if len(labels) > _MOST_NOISES:
        yield f"{len(labels)} kinds of noise ({', '.join(labels)})"
        return
    for label in labels:
        some = [at for at in numbers_of if at.noise == label and not at.levelless]
        yield f"{label} noise of {some[0].name} {', '.join(numbers_of[at] for at in some)}" if some else f"{label} noise"


def provenance(content: Content) -> list[tuple[str, str]]:
    """The name and text of each fact."""
    return [(name, text) for name, text in _provenance(content.run.info, str(content.run.path)) if text]


def versions(content: Content) -> list[tuple[str, str]]:
    """Versions of Python, of the packages and of plugins."""
    info = content.run.info
    packages = [(name, number) for name, number in info.get("versions", {}).items() if number is not None]
    plugins = [
        (f"plugin {name}", f"{one['package']} {one['version']}, {one['entry_point']}") for name, one in info.get("plugins", {}).items()
    ]
    return [*packages, *plugins]


def session_table(content: Content) -> Table:
    """A line for each session of the run."""
    rows = [
        [one[key] or "from Python" for key in ("started", "command", "device", "robaudit")] for one in content.run.info.get("sessions", [])
    ]
    return Table("Sessions", columns(("started", "command", "device", "robaudit")), _wrapped(rows))


def skipped_table(content: Content) -> Table:
    """The first samples that were left out, and why."""
    skipped = content.run.info["skipped"]
    rows = [[one["sample_id"], one["reason"]] for one in skipped[:_MOST_SKIPPED]]
    rest = len(skipped) - len(rows)
    notes = (f"and {rest:,} more: see run.json",) if rest else ()
    return Table(f"{count(len(skipped), 'sample')} skipped", columns(("sample", "reason")), _wrapped(rows), notes=notes)


def decision_table(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each gate.

    Args:
        decisions: documents of :class:`robaudit.gates.decide.Decision`; numbers may be None.
    """
    rows = []
    for one in decisions:
        limit = one["threshold"]
        value, lower, upper = (
            "" if one[key] is None else number(one[key], limit, rounding)
            for key, rounding in (("value", ROUND_HALF_UP), ("lower", ROUND_FLOOR), ("upper", ROUND_CEILING))
        )
        interval = f"{lower or 'open'} to {upper or 'open'} ({100 * one['confidence']:.6g}%)" if lower or upper else NONE
        if one["covers"] == Covers.RUN:
            value, interval = f"{one['value']:g}", NONE
        verdict = Cell(str(one["verdict"]), tone="bad" if one["verdict"] == "fail" else "")
        rows.append((Cell(str(one["gate"])), verdict, *cells((value or NONE, interval, str(one["about"])))))
    return Table("Gates of the run", columns(("gate", "verdict"), ("value", "interval", "about")), tuple(rows))


def _provenance(info: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    model, data, totals = info["model"], info["data"], info["totals"]
    yield "Run", f"{info['name']} in {path}"
    yield "Model", f"{model['name']} ({model['format']}, {model['classes']} classes)"
    yield "Model sha256", model["sha256"]
    yield (
        "Data",
        f"{data['where']}: {count(totals['samples'], 'sample')}" + (f", {data['labelled']:,} labelled" if "labelled" in data else ""),
    )
    yield "Data sha256", str(data.get("sha256", ""))
    yield "Noise", info["noise"]
    yield "Seed", str(info["seed"])
    yield "Device", info["device"]
    yield "Passes", f"{totals['forwards']:,} forward and {totals['backwards']:,} backward"
    yield "Command", info.get("command") or "from Python"
    yield "Started", str(info.get("started", ""))
    for note in model.get("notes", []):
        yield "Note", str(note)


def _last(path: str) -> str:
    """The end of a path, which tells models apart."""
    parts = [part for part in path.split("/") if part]
    return clipped(printable("/".join(parts[-2:]) if path.startswith("/") else path), 80)


def _wrapped(rows: Sequence[Sequence[str]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(cells(row, tone="text") for row in rows)
