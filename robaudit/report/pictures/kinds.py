"""The figures of runs by name: as files, as matplotlib figures and as parts of an HTML page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robaudit.errors import RobauditError, did_you_mean
from robaudit.report.pictures import KINDS, can_draw
from robaudit.report.pictures.page import NARROWEST, PictureSize, Sketch, page
from robaudit.report.pictures.style import figure, saved
from robaudit.report.sections import Ask, Entry, Section, section_of
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDEST, _SMALL_BELOW = 20.0, 6.0  # inches: narrower pictures have letters of 7 points instead of 9
_INLINE = PictureSize(width=6.6, size=10.0, title=True, caption=False)


def entries_of(kind: str, runs: Sequence[Run], ask: Ask) -> list[Entry[Any]]:
    """The entries that a figure of these runs draws.

    Raises:
        RobauditError: the kind is unknown, or a run has nothing that it could show.
    """
    section = _section(kind)
    return section.find(runs, section.narrowed(runs, ask))


def sketch_of(kind: str, entries: Sequence[Entry[Any]], ask: Ask) -> Sketch:
    """A figure, still to be drawn.

    Args:
        kind: one of :data:`KINDS`.
        entries: at least one of each run, from :func:`entries_of` or from the section of the same name.
        ask: the request.
    """
    return _section(kind).figure(entries, ask)


def _section(kind: str) -> Section[Any]:
    if kind not in KINDS:
        raise RobauditError(f"kind {kind!r}", "there is no such picture", did_you_mean(kind, KINDS))
    return section_of(kind)


def picture(sketch: Sketch, format_: str, look: PictureSize, *, dpi: int = 300) -> bytes:
    """A figure as the bytes of a file: the same for the same entries.

    Args:
        sketch: from :func:`sketch_of`.
        format_: png, svg or pdf.
        look: from :func:`look_of`.
        dpi: of a png.
    """
    return saved(format_, *page(sketch, look), letters=look.size, dpi=dpi)


def figure_of(sketch: Sketch, look: PictureSize) -> Figure:
    """A figure that a notebook shows; see :func:`picture`."""
    return figure(*page(sketch, look), look.size)


def look_of(width: float, *, title: bool = True, caption: bool = True) -> PictureSize:
    """The look of a figure of this width: letters of 9 points, of 7 where it is narrower than a page.

    Raises:
        RobauditError: the width does not fit a page.
    """
    if not NARROWEST <= width <= _WIDEST:
        raise RobauditError(f"--width {width:g}", "does not fit a page", f"give {NARROWEST:g} to {_WIDEST:g} inches")
    return PictureSize(width, 9.0 if width >= _SMALL_BELOW else 7.0, title, caption)


def inline(kind: str, entries: Sequence[Entry[Any]], ask: Ask) -> tuple[str, str]:
    """A figure as an ``<svg>`` element without its caption, and the caption, without its lead: text for the page to escape and wrap.

    Args:
        kind, entries, ask: as for :func:`sketch_of`.

    Raises:
        RobauditError: matplotlib is not installed, or images cannot be read.
    """
    from robaudit.report.pictures.inline import inline as element

    can_draw(required=True, where=f"the picture {kind}")
    sketch = sketch_of(kind, entries, ask)
    salt = hashlib.sha256(sketch.caption.encode("utf-8", "backslashreplace")).hexdigest()
    return element(saved("svg", *page(sketch, _INLINE), letters=_INLINE.size, text=True), kind, sketch.title, salt), sketch.caption
