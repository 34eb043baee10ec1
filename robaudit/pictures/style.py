"""What do all our pictures share: a light card, quiet axes, the colours of the estimators, and bytes that repeat?"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CARD, INK, FAINT, GRID = "#fcfcfa", "#22262b", "#5b626b", "#e4e6e8"
_KNOWN = {
    "logit_gaussian": "#b3261e",
    "mc": "#1a5fb4",
    "mmse": "#2e7d32",
    "mmse_mvs": "#7a9a3a",
    "taylor": "#8b3fa8",
    "taylor_mvs": "#b07cc6",
    "softmax": "#6d6d6d",
}
_OTHERS = ("#e8710a", "#00778a", "#9a5b13", "#c2185b", "#455a64")


def colour(name: str, position: int) -> str:
    """The colour of an estimator: its own, or that of its place in the list."""
    return _KNOWN.get(name, _OTHERS[position % len(_OTHERS)])


def files(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> Mapping[str, Callable[[], bytes]]:
    """What makes NAME.png and NAME.svg.

    Args:
        name: of the files.
        size: width and height in inches.
        draw: draws into an empty figure.
    """
    return {f"{name}.png": lambda: _bytes("png", size, draw), f"{name}.svg": lambda: _bytes("svg", size, draw)}


def _bytes(kind: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "robaudit", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=size, facecolor=CARD)
        FigureCanvasAgg(figure)
        draw(figure)
        sink = io.BytesIO()
        figure.savefig(sink, format=kind, dpi=150, facecolor=CARD, metadata={"Date": None} if kind == "svg" else None)
        return sink.getvalue()


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
