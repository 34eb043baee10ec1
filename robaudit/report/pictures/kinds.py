"""The figures of runs by name: as files and as matplotlib figures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robaudit.compare.side_by_side import not_compared
from robaudit.errors import RobauditError, did_you_mean
from robaudit.report.numbers import signs
from robaudit.report.pictures import kinds_of_picture
from robaudit.report.pictures.page import MARGIN, Drawing, PictureSize, flowing
from robaudit.report.pictures.style import CARD, FAINT, styled
from robaudit.report.sections import SectionRequest, runs_of, section_of
from robaudit.runs.run import Run
from robaudit.settings import WIDTH

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.text import Text

# inches: a column of a paper, a poster
_NARROWEST = 3.3
_WIDEST = 20.0
_SMALL_BELOW = 6.0  # inches: narrower pictures have letters of 7 points instead of 9
_PAD = 0.06  # inches above and below everything that is laid out
_NOTEBOOK_DPI = 110
_PLACES = 6  # decimals of a position, in units of the figure


def drawing_of(kind: str, runs: Sequence[Run], request: SectionRequest) -> Drawing:
    """A figure of some runs, still to be drawn.

    Args:
        kind: one of :func:`robaudit.report.pictures.kinds_of_picture`.
        runs: at least one.
        request: the request.

    Raises:
        RobauditError: the kind is unknown or has no figure, or a run has nothing that it could
            show.
    """
    if kind not in (kinds := kinds_of_picture()):
        raise RobauditError(f"kind {kind!r}", "there is no such picture", did_you_mean(kind, kinds))
    section = section_of(kind)
    if not section.has_figure:
        raise RobauditError(
            f"kind {kind!r}", "is a section without a figure", f"robaudit show RUN {kind} prints it"
        )
    entries = section.find(runs, section.narrowed(runs, request))
    drawing = section.figure(entries, request)
    return replace(drawing, apart=not_compared(runs_of(entries)))


def size_of(width: float, *, title: bool | str = True, caption: bool = True) -> PictureSize:
    """The size of a figure of this width: letters of 9 points, of 7 where it is narrower than a
    page; ``title`` and ``caption`` as in :class:`PictureSize`.

    Raises:
        RobauditError: the width does not fit a page.
    """
    if not _NARROWEST <= width <= _WIDEST:
        raise RobauditError(
            WIDTH + f" {width:g}",
            "does not fit a page",
            f"give {_NARROWEST:g} to {_WIDEST:g} inches",
        )
    return PictureSize(width, 9.0 if width >= _SMALL_BELOW else 7.0, title, caption)


def picture(
    drawing: Drawing, format_: str, size: PictureSize, *, dpi: int = 300, salt: str = ""
) -> bytes:
    """The bytes of a picture; the same for the same drawing, with any matplotlibrc.

    Args:
        drawing: from :func:`drawing_of`.
        format_: png, svg or pdf. Letters are outlines (svg) or an embedded font (pdf).
        size: from :func:`size_of`.
        dpi: of a png.
        salt: of the ids of a svg that becomes part of a page: its letters are left to the page's
            fonts, and its background is open.
    """
    # without the time of writing, which would make the bytes of each file different
    dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    sink = io.BytesIO()
    with styled(size.points, salt):
        figure = _drawn(
            drawing, size, "none" if salt else CARD, dpi if format_ == "png" else 72, format_
        )
        figure.savefig(
            sink, format=format_, facecolor=figure.get_facecolor(), metadata=dates[format_]
        )
    return sink.getvalue()


def figure_of(drawing: Drawing, size: PictureSize) -> Figure:
    """A picture as a figure, which a notebook shows and ``savefig`` writes; see :func:`picture`."""
    with styled(size.points):
        return _drawn(drawing, size, CARD, 100, "png")


def _drawn(drawing: Drawing, size: PictureSize, background: str, dpi: int, format_: str) -> Figure:
    """Title, body and caption below each other; no text is read as a formula."""
    from matplotlib.backend_bases import get_registered_canvas_class
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            sink = io.BytesIO()
            with styled(9.0):
                self.savefig(sink, format="png", dpi=_NOTEBOOK_DPI, facecolor=self.get_facecolor())
            return sink.getvalue()

    figure = Picture(
        figsize=(size.width, size.width),
        dpi=dpi,
        facecolor=background,
        layout=ConstrainedLayoutEngine(h_pad=_PAD),
    )
    # a figure of ours is never pyplot's, so it needs a canvas, with which the layout measures text
    FigureCanvasAgg(figure)
    columns = figure.add_gridspec(1, 2, width_ratios=(size.width - MARGIN, MARGIN))
    page = figure.add_subfigure(columns[0, 0])  # text wraps at its right end
    body = page.add_subfigure(page.add_gridspec(1, 1)[0, 0])
    for part in (page, body):
        part.patch.set_visible(False)
    drawing.draw(body, size)
    around: list[Artist] = list(_words(page, drawing, size))
    for whole_or_part in _parts(figure):
        around += whole_or_part.legends
    # The body keeps its height: title, caption and legends, whose lines are known only now that
    # they are wrapped, make the picture higher.
    extents = [artist.get_window_extent().height / dpi + 2 * _PAD for artist in around]
    figure.set_size_inches(size.width, drawing.height(size) + sum(extents))
    # Laid out once, by the canvas that writes the file: another layout at the time of writing would
    # move the rounded positions again.
    get_registered_canvas_class(format_)(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    _round(figure)
    return figure


def _words(page: SubFigure, drawing: Drawing, size: PictureSize) -> Iterator[Text]:
    """The title and the caption, where the size has them."""
    left: dict[str, Any] = {"x": MARGIN / size.body, "ha": "left", "wrap": True, "linespacing": 1.3}
    if size.title:
        named = size.title if isinstance(size.title, str) else _own_title(drawing)
        yield page.suptitle(
            flowing(named, size.letters(0.8 * size.body, bold=True)),
            size=size.points + 2,
            weight="bold",
            **left,
        )
    if size.caption:
        # Another title may not say which result is shown.
        about = f"{drawing.about}. " if drawing.about and size.title is not True else ""
        caption = signs(f"{about}{drawing.caption} {drawing.apart}".strip())
        yield page.supxlabel(
            flowing(caption, size.letters(size.body)), size=size.points, color=FAINT, **left
        )


def _own_title(drawing: Drawing) -> str:
    """What a picture shows, and of which result."""
    return f"{drawing.title}: {drawing.about}" if drawing.about else drawing.title


def _parts(figure: Figure | SubFigure) -> Iterator[Figure | SubFigure]:
    """A figure and all of its subfigures."""
    yield figure
    for part in figure.subfigs:
        yield from _parts(part)


def _round(figure: Figure) -> None:
    """Round positions to a millionth: the layout's last bits vary from time to time."""
    from matplotlib.figure import SubFigure

    for part in _parts(figure):
        if isinstance(part, SubFigure):
            part.bbox_relative.set_points(part.bbox_relative.get_points().round(_PLACES))
    axes: list[Axes] = figure.axes
    for ax in axes:
        low, high = ax.get_position().get_points().round(_PLACES)
        ax.set_position((*low, *(high - low).round(_PLACES)))
