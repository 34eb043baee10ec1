"""The style of all pictures: a light card, quiet axes, one palette that reads on light and dark pages, and reproducible bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

CARD, INK, FAINT, GRID = "#fcfcfa", "#22262b", "#5b626b", "#e4e6e8"
BLUE, RED, GREEN, OLIVE, ORANGE, TEAL = "#3a7bd5", "#d1453b", "#3a9a41", "#7f8f1d", "#cf7318", "#158f89"
LOWER, HIGHER = RED, BLUE
"""Worse and better than the rest."""
_LEVELS = (BLUE, TEAL, OLIVE, ORANGE, RED)
_ESTIMATORS = {
    "mc": BLUE,
    "logit_gaussian": RED,
    "mmse": GREEN,
    "mmse_mvs": OLIVE,
    "taylor": "#a55cc4",
    "taylor_mvs": "#b07cc6",
    "softmax": "#808080",
}
_OTHERS = (ORANGE, TEAL, "#a8743a", "#d6427c", "#6f8794")
_NOTEBOOK_DPI = 110
_ALWAYS = {
    "svg.hashsalt": "robaudit",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.parse_math": False,
    "path.simplify": False,  # dots are very short lines
}


def estimator_colour(name: str, position: int) -> str:
    """The colour of an estimator: its own, or that of its position in the list."""
    return _ESTIMATORS.get(name, _OTHERS[position % len(_OTHERS)])


def level_colours(count: int) -> list[str]:
    """Colours for noise levels, the smallest first: from cool to hot."""
    if count == 1:
        return [_LEVELS[-1]]
    ends = [i * (len(_LEVELS) - 1) / (count - 1) for i in range(count)]
    return [_between(_LEVELS[int(x)], _LEVELS[min(int(x) + 1, len(_LEVELS) - 1)], x - int(x)) for x in ends]


def _between(first: str, second: str, share: float) -> str:
    pairs = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def files(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> Mapping[str, Callable[[], bytes]]:
    """Functions that return the bytes of NAME.png and NAME.svg.

    Args:
        name: of the files.
        size: width and height in inches.
        draw: draws into an empty figure.
    """
    return {f"{name}.png": lambda: saved("png", size, draw, dpi=150), f"{name}.svg": lambda: saved("svg", size, draw)}


def saved(kind: str, size: tuple[float, float], draw: Callable[[Figure], None], *, dpi: int = 300, text: bool = False) -> bytes:
    """The bytes of a picture; the same ones for the same drawing, whatever the user's matplotlibrc says.

    Args:
        kind: png, svg or pdf. Letters are outlines (svg) or an embedded font (pdf).
        size: width and height in inches.
        draw: draws into an empty figure; no text is read as a formula.
        dpi: of a png.
        text: leave the letters of a svg to the reader's fonts, and its background open.
    """
    with _styled("none" if text else "path"):
        figure = _drawn(size, draw, "none" if text else CARD)
        sink = io.BytesIO()
        dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(sink, format=kind, dpi=dpi if kind == "png" else 72, facecolor=figure.get_facecolor(), metadata=dates[kind])
        return sink.getvalue()


def figure(size: tuple[float, float], draw: Callable[[Figure], None]) -> Figure:
    """A picture as a figure, which a notebook shows and ``savefig`` writes.

    Args:
        size: width and height in inches.
        draw: draws into an empty figure.
    """
    with _styled("path"):
        return _drawn(size, draw, CARD)


def _drawn(size: tuple[float, float], draw: Callable[[Figure], None], background: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            sink = io.BytesIO()
            with _styled("path"):
                self.savefig(sink, format="png", dpi=_NOTEBOOK_DPI, facecolor=self.get_facecolor())
            return sink.getvalue()

    made = Picture(figsize=size, facecolor=background)
    FigureCanvasAgg(made)
    draw(made)
    return made


@contextmanager
def _styled(letters: str) -> Iterator[None]:
    """Our settings within the block, whatever the user's are."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # such a letter is an empty box
        mpl.rcdefaults()
        settings: Any = mpl.rcParams  # whose type names every key
        settings.update({**_ALWAYS, "svg.fonttype": letters})
        yield


def number_ticks(axis: Axis, values: Sequence[float], texts: Sequence[str] | None = None) -> None:
    """Ticks at these values only, with these texts or the shortest ones."""
    axis.set_ticks(list(values), labels=[f"{value:g}" for value in values] if texts is None else list(texts), minor=False)
    axis.set_ticks([], minor=True)


def few_ticks(axis: Axis, most: int = 5) -> None:
    """Ticks at round numbers, at most this many."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted(axis.get_view_interval())
    ticks = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    number_ticks(axis, [round(float(t), 12) for t in ticks if low <= t <= high])


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two positive ends for a logarithmic scale, at most this many: powers of ten, with 3 (or 2 and 5) times them
    where there is room, or every second power, every third, ..."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1)
    choices = [[factor * 10.0**p for p in powers for factor in factors] for factors in ((1, 2, 5), (1, 3), (1,))]
    choices += [[10.0**p for p in powers if p % step == 0] for step in range(2, len(powers) + 2)]
    inside = [[value for value in ticks if low <= value <= high] for ticks in choices]
    return next((ticks for ticks in inside if len(ticks) <= most), [])


def number_text(value: float) -> str:
    """A positive number as a label of a tick: 0.01, 20, 10k, 3M, 1e-7."""
    power = math.floor(math.log10(value) + 1e-9)
    if -3 <= power < 3:
        return f"{value:g}"
    if 3 <= power < 9:
        return f"{value / 1e3:g}k" if power < 6 else f"{value / 1e6:g}M"
    return f"{value / 10.0**power:g}e{power}"


def quiet(ax: Axes) -> None:
    """Thin axes without a box, and a faint grid."""
    ax.set_facecolor(CARD)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(GRID)
    ax.tick_params(colors=FAINT, length=0)
    ax.grid(color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
