"""The results as tables: printed, and as a section of docs/research/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from tests.research.benchmarks.machine import in_words
from tests.research.benchmarks.report import Section, Table, number

TITLES = {
    "checks": "The device's values beside the CPU's",
    "passes": "Passes a second",
    "audit": "An audit from the command line",
    "counts": "Launches and waits of an image, beside the simulated device's",
    "workers": "Two processes on one card",
    "repeats": "The same command twice, --deterministic",
}
COLUMNS: dict[str, dict[str, str]] = {
    "checks": {"what": "what", "tried": "tried", "largest": "largest difference"},
    "passes": {
        "network": "network",
        "precision": "precision",
        "mc": "mc",
        "bare": "bare loop",
        "best": "best form",
        "form": "its form",
        "of_bare": "mc / bare",
        "of_best": "mc / best",
        "busy": "busy",
        "noise": "noise alone",
        "few": "8 copies",
        "tuned": "mc, tuned",
        "tera": "TFLOP/s",
        "rows": "rows",
        "gib": "peak GiB",
        "error": "error",
        "compiling": "compiling, s",
    },
    "audit": {
        "what": "what",
        "images": "images",
        "draws": "copies",
        "seconds": "s",
        "rate": "passes/s after start-up",
        "busy": "busy",
    },
    "counts": {
        "estimator": "estimator",
        "launches": "launches",
        "promised_launches": "launches, simulated",
        "launch_ratio": "launches, ratio",
        "waits": "waits",
        "promised_waits": "waits, simulated",
        "wait_ratio": "waits, ratio",
        "driver_waits": "waits, by the driver",
        "busy": "busy",
    },
    "workers": {
        "what": "what",
        "images": "images",
        "draws": "copies",
        "seconds": "s",
        "rate": "passes/s after start-up",
        "ratio": "of one process",
        "busy": "busy",
    },
    "repeats": {
        "estimators": "estimators",
        "images": "images",
        "seconds": "s",
        "same": "same bytes",
    },
}
READING = (
    "Passes a second: `mc` as an audit runs it (noise, normalisation, network, votes), a bare loop "
    "over the network as it is in batches of 256 prepared inputs, and its fastest form. "
    "`8 copies`: a round of 8 copies of each of many images. `tuned`: with cuDNN's choice of the "
    "fastest algorithms, as the best form has it. `TFLOP/s`, `peak GiB`: of `mc`. `busy`: share of "
    "the time in which a kernel ran. `error`: of the logits, relative to float64 on a CPU. Random "
    "weights."
)
_PERCENT = ("busy",)
_AIM_SECONDS = 3.0  # 185 TFLOP/s: three times what an H100 or H200 can do in fp32
_AIM_BUSY = 0.8
_WIDTH = 220


def tables(document: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """The parts that have rows, with their tables."""
    found = []
    for name in TITLES:
        part = document["parts"].get(name)
        if part is not None and part["rows"]:
            found.append((name, table(name, part["rows"])))
    return found


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a part; columns without any figure are left out."""
    complete = [_with_ratios(row) for row in rows]
    keys = [key for key in COLUMNS[name] if any(row.get(key) is not None for row in complete)]
    cells = [[_cell(key, row.get(key)) for key in keys] for row in complete]
    return Table([COLUMNS[name][key] for key in keys], cells, f"**{TITLES[name]}**")


def _with_ratios(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with what follows from its figures."""
    pairs = {
        "of_bare": ("mc", "bare"),
        "of_best": ("mc", "best"),
        "launch_ratio": ("launches", "promised_launches"),
        "wait_ratio": ("waits", "promised_waits"),
    }
    complete = dict(row)
    for ratio, (above, below) in pairs.items():
        if row.get(above) is not None and row.get(below):
            complete[ratio] = row[above] / row[below]
    return complete


def _cell(key: str, value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if key in _PERCENT:
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else number(value)


def targets(document: Mapping[str, Any]) -> list[list[str]]:
    """What was aimed at: the published `mc` in three seconds, and a busy card."""
    lines = []
    for row in document["parts"].get("passes", {"rows": []})["rows"]:
        if row.get("published") is None:
            continue
        what = f"mc 10,000 x 50 images, {row['network']}, {row['precision']}"
        seconds = row["published"]
        met = "yes" if seconds <= _AIM_SECONDS else "**no**"
        lines.append([f"{what}, seconds", f"<= {_AIM_SECONDS:.0f}", number(seconds), met])
        if row.get("busy") is not None:
            met = "yes" if row["busy"] >= _AIM_BUSY else "**no**"
            lines.append([f"{what}, busy", f">= {_AIM_BUSY:.0%}", f"{row['busy']:.0%}", met])
    return lines


def markdown(document: Mapping[str, Any]) -> str:
    """The section of docs/research/benchmarks.md."""
    about = document["machine"]
    notes = []
    for name, part in document["parts"].items():
        notes += [f"{name}, wrong: {line}" for line in part["wrong"]]
        notes += [f"{name}, left out: {line}" for line in part["left_out"]]
        if part["error"]:
            notes.append(f"{name} failed: {part['error'].splitlines()[-1]}")
    section = Section(
        title=f"On a CUDA card ({about['gpu']})" if "gpu" in about else "On the CPU, to try it out",
        reading=READING,
        tables=[one for _, one in tables(document)],
        targets=targets(document),
        notes=notes,
        raw={},
        machine=about,
        quick=document["tiny"],
    )
    return section.markdown()


def print_head(document: Mapping[str, Any]) -> None:
    """Say what is measured, and where."""
    say(in_words(document["machine"], quick=document["tiny"]))
    known = {name: version for name, version in document["versions"].items() if version}
    say(", ".join(f"{name} {version}" for name, version in known.items()))
    for line in document["lacking"]:
        say(f"CAREFUL: {line}")


def print_part(name: str, part: Mapping[str, Any]) -> None:
    """Show what a part found."""
    title = f"{TITLES[name]} (part {name}, {part['seconds']:.0f} s)"
    if part["rows"]:
        found = table(name, part["rows"])
        say(f"\n{title}")
        shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for place, header in enumerate(found.headers):
            shown.add_column(header, justify="right" if place else "left", no_wrap=place == 0)
        for cells in found.rows:
            shown.add_row(*map(escape, cells))
        _console().print(shown)
    else:
        say(f"\n{title}: nothing was measured")
    for line in part["wrong"]:
        say(f"  WRONG: {line}")
    for line in part["left_out"]:
        say(f"  left out: {line}")
    if part["error"]:
        say(f"  FAILED:\n{part['error']}")


def print_end(document: Mapping[str, Any], wrong: Sequence[str]) -> None:
    """Show the aims, and what is wrong in all parts together."""
    found = targets(document)
    if found:
        say("\nAims")
        shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for header in ("what", "aim", "measured", "met"):
            shown.add_column(header)
        for cells in found:
            shown.add_row(*(cell.replace("*", "") for cell in cells))
        _console().print(shown)
    say(f"{len(wrong)} wrong or failed")
    for line in wrong:
        say(f"  {line}")


def _console() -> Console:
    # As wide as the widest table, whatever the terminal: output is often read from a file.
    return Console(width=_WIDTH)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)
