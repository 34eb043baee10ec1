"""The figures of runs by name: as files and as matplotlib figures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robaudit.errors import RobauditError, did_you_mean
from robaudit.report.differences import not_compared
from robaudit.report.numbers import signs
from robaudit.report.pictures import kinds_of_picture
from robaudit.report.pictures.page import GAP, LEADING, MARGIN, PictureSize, Sketch, stacked, wrapped
from robaudit.report.pictures.style import CARD, FAINT, styled
from robaudit.report.sections import Ask, section_of
from robaudit.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_NARROWEST, _WIDEST = 3.3, 20.0  # inches: a column of a paper, a poster
_SMALL_BELOW = 6.0  # inches: narrower pictures have letters of 7 points instead of 9
_NOTEBOOK_DPI, _PLACES = 110, 6


def sketch_of(kind: str, runs: Sequence[Run], ask: Ask) -> Sketch:
    """A figure of some runs, still to be drawn.

    Args:
        kind: one of :func:`robaudit.report.pictures.kinds_of_picture`.
        runs: at least one.
        ask: the request.

    Raises:
        RobauditError: the kind is unknown or has no figure, or a run has nothing that it could show.
    """
    if kind not in (kinds := kinds_of_picture()):
        raise RobauditError(f"kind {kind!r}", "there is no such picture", did_you_mean(kind, kinds))
    section = section_of(kind)
    if not section.has_figure:
        raise RobauditError(f"kind {kind!r}", "is a section without a figure", f"robaudit show RUN {kind} prints it")
    entries = section.find(runs, section.narrowed(runs, ask))
    sketch = section.figure(entries, ask)
    return replace(sketch, apart=not_compared(entries))


def look_of(width: float, *, title: bool = True, caption: bool = True) -> PictureSize:
    """The look of a figure of this width: letters of 9 points, of 7 where it is narrower than a page.

    Raises:
        RobauditError: the width does not fit a page.
    """
    if not _NARROWEST <= width <= _WIDEST:
        raise RobauditError(f"--width {width:g}", "does not fit a page", f"give {_NARROWEST:g} to {_WIDEST:g} inches")
    return PictureSize(width, 9.0 if width >= _SMALL_BELOW else 7.0, title, caption)


def picture(sketch: Sketch, format_: str, look: PictureSize, *, dpi: int = 300, salt: str = "") -> bytes:
    """The bytes of a picture; the same for the same drawing, with any matplotlibrc.

    Args:
        sketch: from :func:`sketch_of`.
        format_: png, svg or pdf. Letters are outlines (svg) or an embedded font (pdf).
        look: from :func:`look_of`.
        dpi: of a png.
        salt: of the ids of a svg that becomes part of a page: its letters are left to the page's fonts, and its background is open.
    """
    with styled(look.size, salt):
        figure, sink = _drawn(sketch, look, "none" if salt else CARD), io.BytesIO()
        dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(sink, format=format_, dpi=dpi if format_ == "png" else 72, facecolor=figure.get_facecolor(), metadata=dates[format_])
        return sink.getvalue()


def figure_of(sketch: Sketch, look: PictureSize) -> Figure:
    """A picture as a figure, which a notebook shows and ``savefig`` writes; see :func:`picture`."""
    with styled(look.size):
        return _drawn(sketch, look, CARD)


def _drawn(sketch: Sketch, look: PictureSize, background: str) -> Figure:
    """Title, body and caption below each other; no text is read as a formula."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            sink = io.BytesIO()
            with styled(9.0):
                self.savefig(sink, format="png", dpi=_NOTEBOOK_DPI, facecolor=self.get_facecolor())
            return sink.getvalue()

    named = f"{sketch.title}: {sketch.about}" if sketch.about else sketch.title
    about = f"{sketch.about}. " if sketch.about and not look.title else ""
    title = wrapped(named, look.body, look.size + 2, bold=True) if look.title else []
    words = wrapped(signs(f"{about}{sketch.caption} {sketch.apart}".strip()), look.body, look.size) if look.caption else []
    above = len(title) * (look.size + 2) * LEADING + GAP if title else 0.0
    below = len(words) * look.line + 2 * GAP if words else 0.0
    bold, faint = {"size": look.size + 2, "weight": "bold"}, {"color": FAINT}
    parts: list[tuple[float, list[str] | None, dict[str, Any]]] = [
        (above, title, bold),
        (sketch.height(look), None, {}),
        (below, words, faint),
    ]
    parts = [part for part in parts if part[0]]
    heights = [inches for inches, *_ in parts]
    figure = Picture(figsize=(look.width, sum(heights)), facecolor=background, layout="constrained")
    FigureCanvasAgg(figure)
    for (inches, lines, style), part in zip(parts, stacked(figure, heights), strict=True):
        if lines is None:
            sketch.draw(part, look)
        else:
            part.text(MARGIN / look.width, 1 - GAP / inches, "\n".join(lines), va="top", linespacing=1.3, **style)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    _round(figure)
    return figure


def _round(figure: Figure | SubFigure) -> None:
    """Round positions to a millionth: the layout's last bits vary from time to time."""
    for part in figure.subfigs:
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(_PLACES))
        _round(part)
    axes: list[Axes] = figure.axes
    for ax in axes:
        low, high = ax.get_position().get_points().round(_PLACES)
        ax.set_position((*low, *(high - low).round(_PLACES)))
