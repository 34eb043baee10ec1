"""The convergence picture: value against gradients, one panel for each order, one line for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.report.pictures.style import BLUE, FAINT, INK, ORANGE, RED, few_ticks, log_ticks, number_text, number_ticks, quiet, saved
from tests.benchmarks.qnorm.cases import COPIES, OURS, PUBLISHED
from tests.benchmarks.qnorm.report import Mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, Sequence[tuple[int, Mean]]]
"""Name of a method -> gradients and mean, by rising gradients."""

_COLOURS = {OURS: RED, PUBLISHED: ORANGE, COPIES: BLUE}
_ASIDE = 1.07  # bars beside each other, not above


def write(path: Path, panels: Mapping[float, Curves], subtitle: str) -> None:
    """Write the PNG.

    Args:
        path: of the file.
        panels: by order.
        subtitle: below the title.
    """
    path.write_bytes(saved("png", (3.1 * len(panels) + 0.5, 3.9), lambda figure: _draw(figure, panels, subtitle), dpi=150))


def _draw(figure: Figure, panels: Mapping[float, Curves], subtitle: str) -> None:
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    figure.subplots_adjust(left=0.06, right=0.985, top=0.72, bottom=0.14, wspace=0.18)
    figure.text(0.02, 0.92, "How near, for how many gradients?", size=14, weight="bold", color=INK)
    figure.text(0.02, 0.895, subtitle, size=9, color=FAINT, va="top")
    for ax, (q, curves) in zip(axes, panels.items(), strict=True):
        _panel(ax, q, curves)
    axes[0].set_ylabel("q-norm of the loss (nats)", color=FAINT)
    handles, labels = axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="upper right", bbox_to_anchor=(0.985, 0.99), ncols=len(labels), frameon=False)
    for text in legend.get_texts():
        text.set_color(INK)


def _panel(ax: Axes, q: float, curves: Curves) -> None:
    quiet(ax)
    ax.set_xscale("log")
    for number, (name, points) in enumerate(curves.items()):
        x = [cost * _ASIDE ** (number - 1) for cost, _ in points]
        y = [mean.value for _, mean in points]
        bars = [(mean.value if mean.lower is None else mean.lower, mean.value if mean.upper is None else mean.upper) for _, mean in points]
        if name == OURS:
            ends = [[v - low for v, (low, _) in zip(y, bars, strict=True)], [high - v for v, (_, high) in zip(y, bars, strict=True)]]
            ax.errorbar(x, y, yerr=ends, fmt="none", ecolor=_COLOURS[name], elinewidth=1.1, capsize=2, alpha=0.8)
        ax.plot(x, y, color=_COLOURS[name], marker="o", markersize=3.5, linewidth=1.5, label=name)
    costs = [cost for points in curves.values() for cost, _ in points]
    number_ticks(ax.xaxis, ticks := log_ticks(min(costs), max(costs), 4), [number_text(tick) for tick in ticks])
    ax.set_ylim(bottom=0)
    few_ticks(ax.yaxis)
    ax.set_title(f"q = {q:g}", loc="left", size=10, weight="bold", color=INK)
    ax.set_xlabel("gradients an image", color=FAINT)
