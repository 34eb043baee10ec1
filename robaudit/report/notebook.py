"""Tables as HTML for notebooks, and as plain text for a Python prompt."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from shutil import get_terminal_size

from rich.console import Console, RenderableType

from robaudit.report.tables import Cell, Column, Table, Tone
from robaudit.text import printable

_TONES: dict[Tone, str] = {"bad": "color:#c0392b;font-weight:600", "warning": "color:#b9770e", "strong": "font-weight:600"}
_CELL = "padding:.15em .7em;border:none"
_FAINT = "opacity:.7;font-size:90%"


def html(*tables: Table) -> str:
    """Tables with the text around them; all text is escaped, and colours follow the notebook's theme."""
    return f'<div style="line-height:1.4;margin:.6em 0">{"".join(part for table in tables for part in _parts(table))}</div>'


def html_lines(lines: Iterable[str], style: str = "") -> str:
    """A block of lines, escaped, their blanks kept."""
    return _block("<br>".join(_text(line) for line in lines), style + ";white-space:pre-wrap")


def text(*renderables: RenderableType) -> str:
    """Tables as a prompt prints them: without colours, as wide as the terminal."""
    width = max(60, get_terminal_size((120, 24)).columns)
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def _parts(table: Table) -> Iterator[str]:
    if table.heading:
        yield _block(_text(table.heading), "font-weight:600")
    if table.lines:
        yield _block("<br>".join(map(_text, table.lines)))
    if table.columns:
        head = "".join(f'<th style="{_CELL};{_side(column)}">{_text(column.head)}</th>' for column in table.columns)
        body = "".join(f"<tr>{_row(row, table.columns)}</tr>" for row in table.rows)
        yield f'<table style="border-collapse:collapse;margin:.4em 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    for conclusion in table.conclusions:
        yield _block(_text(conclusion.text), _TONES.get(conclusion.tone, ""))
    if table.notes:
        yield _block("<br>".join(map(_text, table.notes)), _FAINT)


def _row(row: Sequence[Cell], columns: Sequence[Column]) -> str:
    styles = (f"{_CELL};{_side(column)};{_TONES.get(cell.tone, '')}" for cell, column in zip(row, columns, strict=False))
    return "".join(f'<td style="{style}">{_text(cell.text)}</td>' for cell, style in zip(row, styles, strict=True))


def _side(column: Column) -> str:
    return "text-align:right;font-variant-numeric:tabular-nums" if column.number else "text-align:left"


def _block(inner: str, style: str = "") -> str:
    return f'<div style="{style}">{inner}</div>'


def _text(plain: str) -> str:
    return escape(printable(plain))
