"""The convergence picture: value against gradients, one panel for each order, one line for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robaudit.report.pictures.page import few_ticks, log_scale
from robaudit.report.pictures.style import BLUE, INK, ORANGE, RED, saved
from tests.benchmarks.qnorm.cases import COPIES, OURS, PUBLISHED
from tests.benchmarks.qnorm.report import Mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, Sequence[tuple[int, Mean]]]
"""Name of a method -> gradients and mean, by rising gradients."""

_COLOURS = {OURS: RED, PUBLISHED: ORANGE, COPIES: BLUE}
_ASIDE = 1.07  # bars beside each other, not above
_ROOM = 1.4  # above the highest of the last values; what leaves it is cut


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
    figure.suptitle(f"How near, for how many gradients?\n{subtitle}", x=0.01, ha="left", weight="bold")
    for ax, (q, curves) in zip(axes, panels.items(), strict=True):
        _panel(ax, q, curves)
    axes[0].set_ylabel("q-norm of the loss (nats)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _panel(ax: Axes, q: float, curves: Curves) -> None:
    for number, (name, points) in enumerate(curves.items()):
        x = [cost * _ASIDE ** (number - 1) for cost, _ in points]
        y = [mean.value for _, mean in points]
        bars = [(mean.value if mean.lower is None else mean.lower, mean.value if mean.upper is None else mean.upper) for _, mean in points]
        if name == OURS:
            ends = [[v - low for v, (low, _) in zip(y, bars, strict=True)], [high - v for v, (_, high) in zip(y, bars, strict=True)]]
            ax.errorbar(x, y, yerr=ends, fmt="none", ecolor=_COLOURS[name], elinewidth=1.1, capsize=2, alpha=0.8)
        ax.plot(x, y, color=_COLOURS[name], marker="o", markersize=3.5, linewidth=1.5, label=name)
    log_scale(ax, "x")
    ax.set_ylim(0, _ROOM * max(points[-1][1].value for points in curves.values()))
    few_ticks(ax.yaxis)
    ax.set_title(f"q = {q:g}", color=INK)
    ax.set_xlabel("gradients an image")
