"""The accuracy-cost picture: error against cost, one line per estimator, one panel per network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.report.pictures.style import BLUE, CARD, FAINT, GREEN, GRID, INK, OLIVE, PURPLE, RED
from tests.research.benchmarks.cost import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "logit_gaussian": RED,
    "mc": BLUE,
    "mmse": GREEN,
    "mmse_mvs": OLIVE,
    "taylor": PURPLE,
    "taylor_mvs": "#b07cc6",
    "softmax": "#808080",
}
LOWEST = 0.003


def draw(found: Mapping[str, Sequence[Point]], aims: Sequence[float], path: Path) -> None:
    """Write the picture; SVG, or what the suffix says. Its own light card makes it readable on
    light and dark pages."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    with rc_context(
        {
            "svg.hashsalt": "robaudit",
            "svg.fonttype": "path",
            "font.family": "DejaVu Sans",
            "font.size": 9,
        }
    ):
        figure = Figure(figsize=(max(7.4, 4.3 * len(found) + 0.4), 5.3), facecolor="none")
        FigureCanvasAgg(figure)
        card = FancyBboxPatch(
            (0.004, 0.008),
            0.992,
            0.984,
            boxstyle="round,pad=0,rounding_size=0.018",
            transform=figure.transFigure,
        )
        card.set(facecolor=CARD, edgecolor=GRID, linewidth=1, zorder=-10)
        figure.add_artist(card)
        axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        figure.subplots_adjust(
            left=0.16 / len(found), right=0.985, top=0.79, bottom=0.17, wspace=0.06
        )
        figure.text(
            0.02, 0.925, "How near, for how many passes?", size=15, weight="bold", color=INK
        )
        figure.text(0.02, 0.905, _SUBTITLE, size=9, color=FAINT, va="top")
        for ax, (title, points) in zip(axes, found.items(), strict=True):
            _panel(ax, title, points, aims, first=ax is axes[0])
        lines = {
            line.get_label(): line
            for ax in axes
            for line in ax.get_lines()
            if line.get_label() in COLOURS
        }
        figure.legend(
            lines.values(),
            lines,
            loc="lower center",
            ncols=len(lines),
            frameon=False,
            fontsize=8.5,
            labelcolor=INK,
        )
        figure.savefig(
            path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor="none"
        )


_SUBTITLE = (
    "Error (RMSE over images, lower is better) against cost (forward passes; a backward pass "
    "counts as its time).\n"
    "Bands: one standard deviation over seeds."
)


def _panel(
    ax: Axes, title: str, points: Sequence[Point], aims: Sequence[float], *, first: bool
) -> None:
    ax.set(xscale="log", yscale="log", ylim=(LOWEST, 1.0), xlim=(0.7, 9000), facecolor="none")
    ax.set_title(title, loc="left", size=10, color=INK, weight="bold")
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.grid(True, which="major", color=GRID, linewidth=0.7)
    ax.tick_params(which="both", length=0, colors=FAINT)
    ax.set_xticks([1, 10, 100, 1000], labels=["1", "10", "100", "1,000"])
    ax.set_yticks(
        [0.003, 0.01, 0.03, 0.1, 0.3, 1.0], labels=[".003", ".01", ".03", ".1", ".3", "1"]
    )
    ax.minorticks_off()
    ax.set_xlabel("passes an image", color=FAINT)
    if first:
        ax.set_ylabel("RMSE", color=FAINT)
    for aim in aims:
        ax.axhline(aim, color=INK, linewidth=0.8, linestyle=(0, (2, 3)), alpha=0.55, zorder=1)
        ax.annotate(
            f"RMSE {aim:g}".replace("0.", "."),
            (0.8, aim),
            xytext=(0, 2),
            textcoords="offset points",
            size=7.5,
            color=FAINT,
        )
    curves = {
        line: sorted((p for p in points if p.line == line), key=lambda p: p.equivalents)
        for line in COLOURS
    }
    for line, curve in curves.items():
        if curve:
            _curve(ax, line, curve)


def _curve(ax: Axes, line: str, curve: Sequence[Point]) -> None:
    colour = COLOURS[line]
    x = [p.equivalents for p in curve]
    y = [p.mean for p in curve]
    low = [max(p.mean - p.spread, LOWEST / 2) for p in curve]
    high = [p.mean + p.spread for p in curve]
    if len(curve) > 1:
        ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=2)
    ax.plot(
        x,
        y,
        label=line,
        color=colour,
        linewidth=1.9,
        marker="o",
        markersize=4.2,
        markeredgecolor=CARD,
        markeredgewidth=0.7,
        zorder=3,
    )
