"""The style of all pictures: a light card, quiet axes, one palette that reads on light and dark
pages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inline pictures replace the first four by variables of the page, which may be dark.
CARD = "#ffffff"
INK = "#22262b"
FAINT = "#5b626b"
GRID = "#e4e6e8"
BLUE = "#3a7bd5"
RED = "#d1453b"
GREEN = "#3a9a41"
OLIVE = "#7f8f1d"
ORANGE = "#cf7318"
TEAL = "#158f89"
PURPLE = "#a55cc4"
GREY = "#6f8794"
LOWER = RED
"""Worse than the rest."""
HIGHER = BLUE
"""Better than the rest."""
COLOURS = (BLUE, ORANGE, GREEN, RED, TEAL, PURPLE, OLIVE, GREY)
# Lines differ in dashes and marks, too: for people who do not see the colours, and for grey prints.
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
)
_MARKS = "os^DvPX*"
_HEAT = (CARD, "#f3d9b1", ORANGE, RED, "#6d1712")
_COOL_TO_HOT = (BLUE, TEAL, OLIVE, ORANGE, RED)


def ring(colour: str) -> dict[str, Any]:
    """The mark of a value without noise."""
    face = {"markerfacecolor": CARD, "markeredgecolor": colour, "markeredgewidth": 1.4}
    return {"marker": "o", "markersize": 5.5, "clip_on": False, "zorder": 4, **face}


def line_style(place: int, *, marks: bool = False) -> dict[str, Any]:
    """The colour and dashes of the line in this place, and with ``marks`` its mark; the lines also
    differ in grey."""
    style: dict[str, Any] = {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": _DASHES[place % len(_DASHES)],
    }
    if marks:
        style |= {"marker": _MARKS[place % len(_MARKS)], "markeredgecolor": CARD}
    return style


def heat_colours() -> Any:
    """The colour map of shares of errors: the card's colour for none."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("errors", list(_HEAT))


def level_colours(count: int) -> list[str]:
    """Colours for noise levels, the weakest first: from cool to hot."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    scale = LinearSegmentedColormap.from_list("levels", list(_COOL_TO_HOT))
    return [to_hex(scale(1.0 if count == 1 else i / (count - 1))) for i in range(count)]


def quiet(ax: Axes, pixels: Any = None) -> None:
    """Axes without frame, grid and ticks; and an image in them, pixel by pixel."""
    if pixels is not None:
        ax.imshow(pixels, interpolation="none", resample=False)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


@contextmanager
def styled(letters: float, salt: str = "") -> Iterator[None]:
    """Our settings within the block, not the user's; ``salt``: as for
    :func:`robaudit.report.pictures.kinds.picture`."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # the letter is drawn as an empty box
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        mpl.rcdefaults()
        settings: Any = mpl.rcParams  # whose type names every key
        settings.update(
            {
                "svg.hashsalt": salt or "robaudit",
                "svg.fonttype": "none" if salt else "path",
                "pdf.fonttype": 42,
                "text.parse_math": False,
                "path.simplify": False,  # dots are very short lines
                "font.family": "DejaVu Sans",
                "font.size": letters,
                **dict.fromkeys(("axes.labelsize", "axes.titlesize", "figure.titlesize"), letters),
                **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), letters),
                "text.color": INK,
                "axes.titlecolor": INK,
                **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), FAINT),
                **dict.fromkeys(("axes.edgecolor", "grid.color"), GRID),
                **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
                **dict.fromkeys(
                    (
                        "xtick.major.size",
                        "ytick.major.size",
                        "xtick.minor.size",
                        "ytick.minor.size",
                    ),
                    0,
                ),
                "xtick.major.pad": 6.0,  # clear of the lowest label of the y axis
                "axes.facecolor": "none",
                "axes.grid": True,
                "axes.axisbelow": True,
                "axes.titlelocation": "left",
                "axes.titleweight": "bold",
                "axes.formatter.useoffset": False,
                "lines.linewidth": 1.7,
                "lines.markersize": 4.5 if letters > 8 else 3.5,
                "lines.markeredgewidth": 0.6,
                "legend.handlelength": 2.2,
                "legend.borderaxespad": 0.2,
            }
        )
        yield
