"""The layout that all pictures of a run share: a title, a body of axes placed in inches, a caption, and text that fits."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from robaudit.report.pictures.style import FAINT, INK, quiet
from robaudit.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ELLIPSIS = "\u2026"
_EPSILON = 1e-6  # inches: rounding of widths that were added and subtracted
_SLACK, _FINE = 1.03, 1200  # drawn letters are rounded to pixels; dots per inch of what is measured
RISE = 0.36  # from the base line to the middle of a line, in sizes
NARROWEST = 3.3  # inches: a column of a paper
_MARGIN, _GAP, _LEADING = 0.12, 0.1, 1.36 / 72  # inches, inches, inches of a line for each point of its size


@dataclass(frozen=True, slots=True)
class Look:
    """How large a picture is.

    Attributes:
        width: in inches.
        size: of the smallest text, in points.
        vector: whether images are embedded as they are (svg, pdf) or resampled (png).
    """

    width: float = 7.0
    size: float = 9.0
    vector: bool = True

    @property
    def line(self) -> float:
        """Inches from line to line of the smallest text."""
        return self.size * _LEADING

    @property
    def body(self) -> float:
        """Inches between the margins."""
        return self.width - 2 * _MARGIN


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the page, in inches from its lower left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Sketch:
    """A picture that is still to be drawn.

    Attributes:
        title: what it is about.
        caption: how many images, what the intervals cover, what was left out.
        height: inches of its body, for a look.
        draw: draws the body into a part of a figure.
        narrowest: inches of the whole picture below which its parts would overlap.
        lead: the main finding, before the caption; left out on a page that states it above the picture.
    """

    title: str
    caption: str
    height: Callable[[Look], float]
    draw: Callable[[Figure, Box, Look], None]
    narrowest: float = NARROWEST
    lead: str = ""

    @property
    def whole_caption(self) -> str:
        """Lead and caption."""
        return f"{self.lead} {self.caption}".lstrip()


def page(sketch: Sketch, look: Look, *, caption: bool = True) -> tuple[tuple[float, float], Callable[[Figure], None]]:
    """The size of the figure in inches, and a function that draws all of it, with or without the caption."""
    title = wrapped(sketch.title, look.body, look.size + 3, bold=True)
    words = wrapped(sketch.whole_caption, look.body, look.size) if caption else []
    above = len(title) * (look.size + 3) * _LEADING + 2 * _GAP
    below = len(words) * look.line + (2 * _GAP if words else 0)
    body = sketch.height(look)
    height = above + body + below

    def draw(figure: Figure) -> None:
        put(figure, _MARGIN, height - _GAP, "\n".join(title), size=look.size + 3, weight="bold", va="top")
        put(figure, _MARGIN, below - _GAP, "\n".join(words), size=look.size, color=FAINT, va="top")
        sketch.draw(figure, Box(_MARGIN, below, look.body, body), look)

    return (look.width, height), draw


def put(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text at a place in inches; never read as a formula."""
    width, height = figure.get_size_inches()
    text = "\n".join(map(printable, text.split("\n")))
    figure.text(x / width, y / height, text, **{"color": INK, "parse_math": False, "linespacing": 1.3, **style})


def put_level(figure: Figure, x: float, y: float, text: str, *, size: float, **style: Any) -> None:
    """A line of text whose lower-case letters are vertically centred on y."""
    put(figure, x, y - RISE * size / 72, text, size=size, va="baseline", **style)


def axes(figure: Figure, box: Box, look: Look) -> Axes:
    """Quiet axes that fill a box."""
    width, height = figure.get_size_inches()
    ax = figure.add_axes((box.x / width, box.y / height, box.width / width, box.height / height))
    quiet(ax)
    ax.patch.set_visible(False)
    ax.tick_params(labelsize=look.size)
    return ax


def measured(text: str, size: float, *, bold: bool = False) -> float:
    """Inches that a line of text takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that the font lacks
        font = _font(bold)
        font.set_size(size, _FINE)
        font.set_text(printable(text), 0.0)
        return _SLACK * float(font.get_width_height()[0]) / 64 / _FINE


@lru_cache(maxsize=2)
def _font(bold: bool) -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))


def fitted(text: str, width: float, size: float, *, bold: bool = False, end: bool = False) -> str:
    """The text, or as much of its beginning (``end``: of its end) as fits, and an ellipsis."""
    text = printable(text)
    if len(text) <= 400 and measured(text, size, bold=bold) <= width + _EPSILON:
        return text
    shown, most = 1, min(len(text), 400)
    while shown < most:  # the largest number of characters that fits
        middle = (shown + most + 1) // 2
        if measured(_cut(text, middle, end), size, bold=bold) <= width:
            shown = middle
        else:
            most = middle - 1
    return _cut(text, shown, end)


def _cut(text: str, count: int, end: bool) -> str:
    return ELLIPSIS + text[-count:] if end else text[:count].rstrip() + ELLIPSIS


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """The text in lines of at most this width; a single word that is wider loses its end."""
    lines: list[str] = []
    for word in re.findall(r"\S+(?: %\S*)?", printable(text)):  # "95 %" stays together
        joined = f"{lines[-1]} {word}" if lines else ""
        if joined and measured(joined, size, bold=bold) <= width:
            lines[-1] = joined
        else:
            lines.append(fitted(word, width, size, bold=bold))
    return lines
