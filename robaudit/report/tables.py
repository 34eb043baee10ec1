"""One model of a table, and its rendering for terminals and as Markdown.

Pages render the same model in ``html/report.html.j2``; as CSV, :func:`robaudit.store.serialise.table_csv` writes raw values.
All text is literal: brackets are not rich's markup, stars are not Markdown's, and control characters print as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from robaudit.text import clipped, printable

WIDE = 100
"""Columns of a terminal below which tables are made narrow."""

Tone = Literal["", "bad", "warning", "strong", "text"]
_STYLES: dict[Tone, str] = {"": "", "bad": "red", "warning": "yellow", "strong": "bold", "text": ""}
_LONGEST = 120
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$]|^[-+=:])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_LINKED = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=w)(?=ww)")
_JOINER = "\N{WORD JOINER}"


@dataclass(frozen=True, slots=True)
class Bar:
    """A value and its interval as shares of the scale, 0 to 1; drawn on pages."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, a bar beside it where there is a scale, and its tone (``text``: long, and may wrap on a page)."""

    text: str
    bar: Bar | None = None
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, whether it holds numbers (aligned right), and whether its text may wrap in a terminal."""

    head: str
    number: bool = False
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the text around it; without columns, only that text.

    Attributes:
        heading: above it.
        columns, rows: the table.
        lines: below the heading.
        conclusions: below the table.
        notes: how to read it, last.
    """

    heading: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    lines: tuple[str, ...] = ()
    conclusions: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()


def columns(texts: Iterable[str], numbers: Iterable[str] = (), *, wrap: bool = False) -> tuple[Column, ...]:
    """Columns of text, then columns of numbers."""
    return *(Column(head, False, wrap) for head in texts), *(Column(head, True, wrap) for head in numbers)


def cells(texts: Iterable[str], tone: Tone = "") -> tuple[Cell, ...]:
    """A row of texts."""
    return tuple(Cell(text, tone=tone) for text in texts)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Tables for rich to print; ``build`` is told whether the terminal is narrow: under 100 columns, or not a terminal (80)."""

    build: Callable[[bool], Iterable[Table]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < WIDE
        for table in self.build(narrow):
            yield from rendered(table, narrow=narrow)


def rendered(table: Table, *, narrow: bool = False) -> Iterator[RenderableType]:
    """A table and the text around it, for rich; ends with an empty line."""
    if table.heading:
        yield plain(table.heading, "bold")
    yield from map(plain, table.lines)
    if table.columns:
        grid = base_table(narrow=narrow)
        for column in table.columns:
            overflow: OverflowMethod = "fold" if column.wrap else "ellipsis"  # long names often differ at their end only
            justify: JustifyMethod = "right" if column.number else "left"
            grid.add_column(plain(column.head), justify=justify, no_wrap=not column.wrap, overflow=overflow)
        for row in table.rows:
            grid.add_row(*(plain(cell.text, _STYLES[cell.tone]) for cell in row))
        yield grid
    yield from (plain(cell.text, _STYLES[cell.tone]) for cell in table.conclusions)
    yield from legend(table.notes)


def plain(text: str, style: str = "") -> Text:
    """The text without markup, with control characters escaped."""
    return Text(printable(text), style=style)


def base_table(narrow: bool) -> Grid:
    """An empty table in the style of all our tables."""
    return Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0) if narrow else (0, 1, 0, 0))


def legend(lines: Sequence[str]) -> list[Text]:
    """Notes below a table, followed by an empty line."""
    return [*(plain(line, "dim") for line in lines), Text()]


def markdown(text: str) -> str:
    """Text that stays text in Markdown, also inside its tables: one line, no markup, HTML or links, no mentions of people or issues."""
    text = printable(text).strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _NUMBERED.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\1", text))
    return _LINKED.sub(_JOINER, text)


def markdown_table(table: Table) -> list[str]:
    """The lines of a table in Markdown, with its notes; heading, lines and conclusions are left to the caller."""
    sides = ["---:" if column.number else ":---" for column in table.columns]
    lines = ["| " + " | ".join(markdown(column.head) or " " for column in table.columns) + " |", "| " + " | ".join(sides) + " |"]
    lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in table.rows]
    return ["", *lines, "", *(part for note in table.notes for part in (markdown(note), ""))]


def _markdown_cell(cell: Cell) -> str:
    text = markdown(clipped(cell.text, _LONGEST)) or " "
    return f"**{text}**" if cell.tone == "bad" else text


def within(text: str, room: int, note: str) -> str:
    """The text, or its first lines and a note, in at most ``room`` bytes of UTF-8; "" where nothing fits."""
    if len(text.encode()) <= room:
        return text
    kept, size = list[str](), len(note.encode())
    for line in re.findall(r".*\n|.+", text):
        size += len(line.encode())
        if size > room:
            break
        kept.append(line)
    return "".join(kept) + note if kept else ""
