"""A table model, laid out for terminals and rendered as Markdown or LaTeX.

Pages render the same model in ``html/report.html.j2``; :func:`robaudit.runs.serialise.table_csv`
writes raw values as CSV. All text is literal: brackets are not rich's markup, stars are not
Markdown's, and control characters print as escapes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from shutil import get_terminal_size
from typing import Literal

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from robaudit.report.numbers import signs
from robaudit.text import clipped, printable

Tone = Literal["", "bad", "warning", "strong"]
_STYLES: dict[Tone, str] = {"": "", "bad": "red", "warning": "yellow", "strong": "bold"}
# characters of a cell in Markdown
_LONGEST = 120
# columns of a terminal: of a wrapped name, at first and at last
_WIDE_NAME = 24
_NARROW_NAME = 14
# of wrapped prose, and of a word in a head that is not cut
_NARROW_PROSE = 24
_LONGEST_WORD = 24
_WORDS = re.compile(r"\s*(?:\[\S* \S*\]|\S)+")
"""The words of a sentence: "[0.1, 0.2]" stays together."""
# The pieces of a name end with a separator; heads are words, and break at blanks and dashes only.
_PIECES = re.compile(r"[^\s/_-]*[/_-]*\s*")
_HEADS = re.compile(r"[^\s-]*-*\s*")
# Characters that are markup anywhere, and those that are at the beginning of a line only.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$]|^[-+=:])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
# Behind @ and #, and inside :// and www, GitHub makes mentions and links; a joiner prevents it.
_LINKED = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=w)(?=ww)")
_JOINER = "\N{WORD JOINER}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its tone."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        head: its heading.
        number: it holds numbers, aligned right.
        wrap: it holds prose, which may wrap; names wrap, too, but less.
        detail: terminals leave it out.
    """

    head: str
    number: bool = False
    wrap: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the text around it; without columns, only that text.

    Attributes:
        heading: above it.
        columns, rows: the table.
        lines: below the heading.
        conclusions: below the table.
        notes: how to read it, last.
        folded: a page shows it only when unfolded.
    """

    heading: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    lines: tuple[str, ...] = ()
    conclusions: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    folded: bool = False

    def without_details(self) -> Table:
        """The table as terminals show it."""
        shown = [i for i, column in enumerate(self.columns) if not column.detail]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in shown),
            rows=tuple(tuple(row[i] for i in shown) for row in self.rows),
        )


def columns(texts: Iterable[str], numbers: Iterable[str] = ()) -> tuple[Column, ...]:
    """Columns of text, then columns of numbers."""
    return *(Column(head) for head in texts), *(Column(head, number=True) for head in numbers)


def cells(texts: Iterable[str], tone: Tone = "") -> tuple[Cell, ...]:
    """A row of texts."""
    return tuple(Cell(text, tone=tone) for text in texts)


class Terminal:
    """Tables for rich to print, laid out for the width of the terminal.

    Args:
        tables: in order.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple(tables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in self.tables:
            yield from rendered(table, options.max_width)

    def __str__(self) -> str:
        """As a Python prompt prints them: without colours, as wide as the terminal."""
        # a notebook's output has no terminal, and gets 120 columns
        width = max(60, get_terminal_size((120, 24)).columns)
        console = Console(
            file=io.StringIO(), width=width, highlight=False, color_system=None, force_jupyter=False
        )
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def rendered(table: Table, width: int) -> Iterator[RenderableType]:
    """A table and the text around it, for rich; ends with an empty line."""
    if table.heading:
        yield _line_of_text(table.heading, width, "bold")
    yield from (_line_of_text(line, width) for line in table.lines)
    if table.columns:
        for i, part in enumerate(_parts(table.without_details(), width)):
            if i > 0:
                yield Text()
            yield part
    yield from (_line_of_text(cell.text, width, _STYLES[cell.tone]) for cell in table.conclusions)
    yield from (_line_of_text(line, width, "dim") for line in table.notes)
    yield Text()


def _line_of_text(text: str, width: int, style: str = "") -> Text:
    """A wrapped line of literal text, with control characters escaped."""
    return Text("\n".join(_lines(printable(text), width)), style=style)


def _lines(text: str, width: int) -> Iterator[str]:
    """A sentence in lines; a word that is longer than a line stays whole."""
    line = ""
    for word in _WORDS.findall(text):
        if line and cell_len(line + word) > width:
            yield line
            line = word.lstrip()
        else:
            line += word
    yield line


# --- layout for a terminal


@dataclass(slots=True)
class _ColumnLayout:
    """A column whose texts may be broken into lines.

    Attributes:
        column: the column.
        whole: the unbroken texts.
        tones: of the texts.
        texts: the texts, broken into lines where there is too little room.
    """

    column: Column
    whole: list[str]
    tones: list[Tone]
    texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.texts = self.whole

    @property
    def width(self) -> int:
        """The width of the longest line of a cell, or of the longest word of the head."""
        # a head may be broken between any two words, so it needs the room of one
        head = _broken(printable(self.column.head), 1, most=_LONGEST_WORD, pieces=_HEADS)
        return max(cell_len(line) for line in "\n".join((head, *self.texts)).split("\n"))

    @property
    def key(self) -> bool:
        """Whether it holds names."""
        return not (self.column.number or self.column.wrap)


def _parts(table: Table, width: int) -> Iterator[Grid]:
    """The table, or parts of it below each other where a terminal is too narrow for it.

    Until it fits: gaps shrink to one blank, prose wraps, long names wrap, intervals go below their
    values, and names wrap more. Then the columns are split, and each part repeats the names.
    """
    # What is easiest to read goes first: wrapped prose is ordinary, while a name in pieces or an
    # interval below its value takes a second look.
    layouts = [
        _ColumnLayout(
            column,
            [printable(row[i].text) for row in table.rows],
            [row[i].tone for row in table.rows],
        )
        for i, column in enumerate(table.columns)
    ]
    if _total(layouts, 2) <= width:
        yield _grid(layouts, 2, width)
        return
    for change in (
        _wrap,
        partial(_wrap_names, most=_WIDE_NAME),
        _stack,
        partial(_wrap_names, most=_NARROW_NAME),
    ):
        if _total(layouts, 1) > width:
            change(layouts, width)
    for part in _split(layouts, width):
        yield _grid(part, 1, width)


def _total(layouts: Sequence[_ColumnLayout], gap: int) -> int:
    return sum(layout.width for layout in layouts) + gap * (len(layouts) - 1)


def _wrap(layouts: list[_ColumnLayout], width: int) -> None:
    """Wrap prose into the room that the other columns leave."""
    prose = [layout for layout in layouts if layout.column.wrap]
    others = [layout for layout in layouts if not layout.column.wrap]
    room = width - _total(others, 1) - len(prose)
    for layout in prose:
        columns = max(_NARROW_PROSE, room // len(prose))
        layout.texts = [_wrapped(text, columns) for text in layout.whole]


def _wrapped(text: str, width: int) -> str:
    """Prose in lines; a word that is longer than a line is cut."""
    parts: list[str] = []
    for line in _lines(text, width):
        parts += chop_cells(line, width) or [""]
    return "\n".join(parts)


def _wrap_names(layouts: list[_ColumnLayout], _: int, *, most: int) -> None:
    """Wrap names that are wider than ``most`` columns."""
    for layout in layouts:
        if layout.key:
            layout.texts = [_broken(text, most, indent=1) for text in layout.whole]


def _stack(layouts: list[_ColumnLayout], _: int) -> None:
    """Put intervals below their values."""
    for layout in layouts:
        if layout.column.number:
            layout.texts = [text.replace(" [", "\n[") for text in layout.texts]


def _broken(
    text: str, room: int, *, most: int = 0, indent: int = 0, pieces: re.Pattern[str] = _PIECES
) -> str:
    """The text in lines of at most ``room`` columns, broken between pieces; a longer piece is cut.

    Args:
        text: to break.
        room: the columns of a line.
        most: the columns of a word that is too long for a line; default: ``room``.
        indent: of all lines but the first.
        pieces: matches a piece: names break after blanks, ``/``, ``_`` and ``-``, heads after
            blanks and ``-``.
    """
    lines = [""]
    for piece in pieces.findall(text):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > room:
            lines.append(" " * indent)
        *whole, rest = chop_cells(lines[-1] + piece.rstrip(), max(room, most)) or [""]
        lines[-1:] = [*whole, rest + piece[len(piece.rstrip()) :]]
    return "\n".join(line.rstrip() for line in lines)


def _split(layouts: Sequence[_ColumnLayout], width: int) -> Iterator[list[_ColumnLayout]]:
    """The columns in parts that fit, each after the leading names."""
    names = next((i for i, layout in enumerate(layouts) if not layout.key), len(layouts))
    # names that take more than half of the width would leave no room: only the first is repeated
    if not names or _total(layouts[:names], 1) > width // 2:
        names = 1
    part = list(layouts[:names])
    for layout in layouts[names:]:
        if len(part) > names and _total([*part, layout], 1) > width:
            yield part
            part = list(layouts[:names])
        part.append(layout)
    yield part


def _grid(layouts: Sequence[_ColumnLayout], gap: int, width: int) -> Grid:
    """The columns for rich, with heads wrapped where there is too little room."""
    widths = [layout.width for layout in layouts]
    room = width - _total(layouts, gap)
    # Heads that lack the least become whole first, so that as few as possible wrap.
    by_lack = sorted(enumerate(layouts), key=lambda pair: len(pair[1].column.head) - pair[1].width)
    for i, layout in by_lack:
        lacking = max(0, cell_len(printable(layout.column.head)) - widths[i])
        given = min(room, lacking)
        widths[i] += given
        room -= given
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for layout, size in zip(layouts, widths, strict=True):
        head = _broken(printable(layout.column.head), max(1, min(size, width)), pieces=_HEADS)
        grid.add_column(
            Text(head),
            justify="right" if layout.column.number else "left",
            width=min(size, width),
            overflow="fold",
        )
    for i in range(len(layouts[0].texts)):
        grid.add_row(*(Text(layout.texts[i], _STYLES[layout.tones[i]]) for layout in layouts))
    return grid


# --- Markdown


def markdown(text: str) -> str:
    """Text that stays text in Markdown, also inside its tables: one line, no markup, HTML or links,
    no mentions of people or issues."""
    text = printable(text).strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _NUMBERED.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\1", text))
    return _LINKED.sub(_JOINER, text)


def markdown_rows(table: Table) -> str:
    """The columns and rows of a table in Markdown; the text around it is left to the caller."""
    heads = [markdown(column.head) or " " for column in table.columns]
    sides = ["---:" if column.number else ":---" for column in table.columns]
    rows = [map(_markdown_cell, row, table.columns) for row in table.rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, sides, *rows))


def markdown_text(tables: Iterable[Table]) -> str:
    """Tables as Markdown, each with its heading and the text around it."""
    return "\n\n".join(chain.from_iterable(map(markdown_blocks, tables))) + "\n"


def markdown_blocks(table: Table) -> Iterator[str]:
    """The paragraphs of a table in Markdown."""
    if table.heading:
        yield f"### {markdown(table.heading)}"
    if table.lines:
        yield "\n".join(f"- {markdown(line)}" for line in table.lines)
    if table.columns:
        yield markdown_rows(table)
    yield from (f"**{markdown(cell.text)}**" for cell in table.conclusions)
    if table.notes:
        yield "\n".join(f"- {markdown(note)}" for note in table.notes)


def _markdown_cell(cell: Cell, column: Column) -> str:
    # only of numbers: the ">=" of a gate is part of its syntax
    shown = signs(cell.text) if column.number else cell.text
    text = markdown(clipped(shown, _LONGEST)) or " "
    return f"**{text}**" if cell.tone == "bad" else text


def within(text: str, room: int, note: str) -> str:
    """The text, or its first lines and a note, in at most ``room`` bytes of UTF-8; "" where nothing
    fits."""
    if len(text.encode()) <= room:
        return text
    # whole lines only: half a row would break the table, and half a letter the encoding
    lines = list[str]()
    size = len(note.encode())
    for line in re.findall(r".*\n|.+", text):
        size += len(line.encode())
        if size > room:
            break
        lines.append(line)
    return "".join(lines) + note if lines else ""


# --- LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": r"$<$",
    ">": r"$>$",
    "–": "--",
    "−": "$-$",
    "∞": r"$\infty$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex(text: str) -> str:
    """Text that stays text in LaTeX."""
    return "".join(
        _LATEX.get(character, character)
        for character in printable(text).replace(">=", "≥").replace("<=", "≤")
    )


def latex_text(tables: Iterable[Table]) -> str:
    """Tables for a paper: each a tabular with the rules of the package booktabs, below its heading
    as a comment, for the caption, and above its footnotes in small letters.
    """
    lines = ["% needs \\usepackage{booktabs}"]
    for table in map(Table.without_details, tables):
        lines += [f"% {printable(text)}" for text in (table.heading, *table.lines) if text]
        if table.columns:
            sides = "".join("r" if column.number else "l" for column in table.columns)
            lines.append(rf"\begin{{tabular}}{{{sides}}}")
            lines += [r"\toprule", _latex_row(column.head for column in table.columns), r"\midrule"]
            lines += [_latex_row(cell.text for cell in row) for row in table.rows]
            lines += [r"\bottomrule", r"\end{tabular}"]
        below = [*(cell.text for cell in table.conclusions), *table.notes]
        if below and table.columns:
            notes = " ".join(map(latex, below))
            lines.append(rf"\par\smallskip\noindent{{\footnotesize {notes}\par}}")
        else:
            lines += [f"% {printable(text)}" for text in below]
        lines.append("")
    return "\n".join(lines)


def _latex_row(texts: Iterable[str]) -> str:
    row = " & ".join(map(latex, texts))
    # otherwise LaTeX takes it for an option of the line before
    return ("{}" if row.startswith("[") else "") + row + r" \\"
