"""Measured sections as docs/research/benchmarks.md and benchmarks.json; each can be replaced on its
own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

from tests.research.benchmarks.machine import in_words

ORDER = (
    "published",
    "accuracy",
    "engine",
    "rmse",
    "noise",
    "kinds",
    "scaling",
    "memory",
    "start",
    "ray",
    "imagenet",
    "cdf",
    "gates",
    "lists",
    "looks",
    "kills",
    "command",
)
HEAD = (
    "# Benchmarks\n\n"
    "Written by `make bench` (`python -m tests.research.benchmarks`) and by "
    "`python -m tests.research.verdict`; medians and every setting are in\n"
    "[benchmarks.json](benchmarks.json). "
    "Contenders take turns in one process, and times are medians. On a busy machine, trust "
    "ratios, not times.\n"
    "\n**No CUDA card has been measured yet.** On a machine with one, `python -m "
    "tests.research.gpu` takes eight minutes and prints tables.\n"
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the first column is aligned left, the others right."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.headers, ["---", *["---:"] * (len(self.headers) - 1)], *self.rows]
        head = f"{self.caption}\n\n" if self.caption else ""
        return head + "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )


@dataclass(frozen=True, slots=True)
class Section:
    """What one part measured.

    Attributes:
        title: its heading.
        reading: one sentence on how to read the tables.
        tables: for the reader.
        targets: what was aimed at, with :func:`target`.
        notes: what else to know.
        raw: medians by name, for the JSON.
        picture: file name of a picture beside the report.
    """

    title: str
    reading: str
    tables: Sequence[Table]
    raw: dict[str, Any]
    targets: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    picture: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    quick: bool = False

    def markdown(self) -> str:
        """As Markdown."""
        parts = [
            f"## {self.title}",
            in_words(self.machine, quick=self.quick),
            _wrapped(self.reading),
        ]
        parts += [f"![{self.title}]({self.picture})"] if self.picture else []
        parts += [table.markdown() for table in self.tables]
        parts += (
            [Table(["target", "aim", "measured", "met"], self.targets).markdown()]
            if self.targets
            else []
        )
        parts += ["\n".join(_wrapped(note, "- ") for note in self.notes)] if self.notes else []
        return "\n\n".join(parts) + "\n"


def target(
    what: str, aim: float, measured: float | None, unit: str = "", *, at_least: bool = False
) -> list[str]:
    """A row of the targets: reached when the measured value is at most the aim, or at least; None:
    not at all."""
    sign = ">=" if at_least else "<="
    if measured is None:
        return [what, f"{sign} {number(aim)}{unit}", "not reached", "no"]
    reached = measured >= aim if at_least else measured <= aim
    return [
        what,
        f"{sign} {number(aim)}{unit}",
        f"{number(measured)}{unit}",
        "yes" if reached else "**no**",
    ]


def number(value: float) -> str:
    """Three significant digits, without an exponent between 0.0001 and a million."""
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2g}"
    digits = max(0, 2 - int(f"{abs(value):e}".partition("e")[2]))
    return (
        f"{round(value, digits):,.{digits}f}"
        if digits or abs(value) < 1000
        else f"{float(f'{value:.3g}'):,.0f}"
    )


def write(folder: Path, found: dict[str, Section]) -> None:
    """Replace the sections found (by part and device) in the report of a folder and keep the
    others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmarks.json"
    sections = json.loads(path.read_text())["sections"] if path.exists() else {}
    sections |= {key: asdict(section) for key, section in found.items()}
    sections = dict(sorted(sections.items(), key=lambda item: _place(item[0])))
    path.write_text(json.dumps({"sections": sections}, indent=1) + "\n")
    (folder / "benchmarks.md").write_text(
        "\n".join([HEAD, *(_read(section).markdown() for section in sections.values())])
    )


def _wrapped(text: str, mark: str = "") -> str:
    return fill(
        text,
        140,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(key: str) -> tuple[int, int, str]:
    part = key.partition("-")[0]
    return ("cpu" not in key, ORDER.index(part) if part in ORDER else len(ORDER), key)


def _read(stored: dict[str, Any]) -> Section:
    return Section(**{**stored, "tables": [Table(**table) for table in stored["tables"]]})
