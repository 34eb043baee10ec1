"""The pictures of a validation: estimate against reference, and error against draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from robaudit.advice.comparison import Truth
from robaudit.advice.validate import Point, Validation
from robaudit.advice.verdicts import short
from robaudit.report.pictures.style import CARD, FAINT, INK, estimator_colour, files, quiet
from robaudit.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS, _PANEL = 6, 3.1
_LOWEST = 1e-4


def pictures(validation: Validation) -> Mapping[str, Callable[[], bytes]]:
    """Functions that return the files: scatter and, if there are points, convergence, each as PNG and SVG."""
    columns, rows = _grid(validation)
    size = (_PANEL * columns + 0.5, _PANEL * rows + 1.0)
    made = dict(files("scatter", size, lambda figure: _scatter(figure, validation)))
    if validation.points:
        panels = len(validation.levels)
        made |= files("convergence", (max(5.0, 4.4 * panels + 0.4), 4.4), lambda figure: _convergence(figure, validation))
    return made


def _grid(validation: Validation) -> tuple[int, int]:
    """Columns and rows: a row for each noise level, if that fits."""
    count = len(validation.comparisons)
    columns = min(_MOST_COLUMNS, count // max(1, len(validation.levels)))
    return columns, -(-count // columns)


def _title(figure: Figure, title: str, about: str) -> None:
    height = figure.get_figheight()
    figure.text(0.25 / figure.get_figwidth(), 1 - 0.15 / height, title, size=13, weight="bold", color=INK, va="top")
    figure.text(0.25 / figure.get_figwidth(), 1 - 0.42 / height, about, size=9, color=FAINT, va="top")


def _scatter(figure: Figure, validation: Validation) -> None:
    columns, rows = _grid(validation)
    width, height = figure.get_size_inches()
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.subplots_adjust(left=0.62 / width, right=1 - 0.15 / width, top=1 - 0.98 / height, bottom=0.5 / height, wspace=0.26, hspace=0.42)
    images = len({name for name, _ in validation.truths})
    _title(figure, "Estimate against reference", f"{images} images; reference: mc with {validation.draws:,} draws. Bars: 95 % intervals.")
    labels = list(dict.fromkeys(one.estimator for one in validation.comparisons))
    for ax, one in zip(grid, validation.comparisons, strict=False):
        pairs = [
            (row, validation.truths[name, at])
            for (name, at, label), row in validation.rows.items()
            if (label, at) == (one.estimator, one.at)
        ]
        quiet(ax)
        _panel(ax, pairs, estimator_colour(one.estimator, labels.index(one.estimator)), same=one.error is not None)
        ax.set_title(f"{one.estimator}, {one.at}", size=9, weight="bold", color=INK, loc="left", pad=14)
        about = f"rank {'-' if one.rank is None else short(one.rank)}"
        if one.error is not None:
            about = f"bias {short(one.error.bias)}, RMSE {short(one.error.rmse)}, {about}"
        else:
            about = f"{one.quantity}: {about}"
        ax.text(0, 1.02, about, transform=ax.transAxes, size=8, color=FAINT, va="bottom")
        ax.set_xlabel("reference", color=FAINT, size=8)
    for ax in grid[len(validation.comparisons) :]:
        ax.set_visible(False)
    for ax in grid[::columns]:
        ax.set_ylabel("estimate", color=FAINT, size=8)


def _panel(ax: Axes, pairs: Sequence[tuple[Row, Truth]], ink: str, *, same: bool) -> None:
    """One dot per image; bars where there are intervals, the reference's horizontal."""
    x, y = [truth.value for _, truth in pairs], [row.value for row, _ in pairs]
    if same:
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, zorder=1)
        ax.set_xlim(-0.03, 1.03)
        ax.set_ylim(-0.03, 1.03)
        ax.set_aspect("equal")
        for row, truth in pairs:
            low, high = truth.interval()
            ax.plot([low, high], [row.value] * 2, color=ink, linewidth=0.7, alpha=0.45, zorder=2)
            if row.lower is not None and row.upper is not None:
                ax.plot([truth.value] * 2, [row.lower, row.upper], color=ink, linewidth=0.7, alpha=0.45, zorder=2)
    else:
        ax.set_xlim(-0.03, 1.03)
    ax.scatter(x, y, s=13, color=ink, edgecolors=CARD, linewidths=0.4, zorder=3)


def _convergence(figure: Figure, validation: Validation) -> None:
    width, height = figure.get_size_inches()
    grid = figure.subplots(1, len(validation.levels), squeeze=False, sharey=True)[0]
    figure.subplots_adjust(left=0.62 / width, right=1 - 1.2 / width, top=1 - 1.0 / height, bottom=0.5 / height, wspace=0.3)
    _title(
        figure,
        "Error against draws",
        f"RMSE over {validation.points[0].images} images against mc with {validation.draws:,} draws; band: one standard error.",
    )
    labels = list(dict.fromkeys(point.estimator for point in validation.points))
    for ax, at in zip(grid, validation.levels, strict=True):
        quiet(ax)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.minorticks_off()
        for label in labels:
            _curve(ax, [p for p in validation.points if (p.estimator, p.at) == (label, at)], estimator_colour(label, labels.index(label)))
        ax.set_title(at.text, size=9, weight="bold", color=INK, loc="left")
        ax.set_xlabel("draws per image", color=FAINT, size=8)
    grid[0].set_ylabel("RMSE", color=FAINT, size=8)
    if len(labels) > 1:
        _legend(grid[-1], labels)


def _curve(ax: Axes, points: Sequence[Point], ink: str) -> None:
    n = [point.n for point in points]
    seen = [point.rmse if point.rmse > _LOWEST else math.nan for point in points]  # below it, the reference's own error is all there is
    ax.plot(n, seen, color=ink, linewidth=1.6, marker="o", markersize=3)
    upper = [point.rmse + (point.rmse_error or 0.0) for point in points]
    lower = [max(_LOWEST, math.sqrt(max(0.0, 2 * p.rmse**2 - high**2)), p.rmse / math.e**2) for p, high in zip(points, upper, strict=True)]
    ax.fill_between(n, lower, [max(_LOWEST, value) for value in upper], color=ink, alpha=0.12, linewidth=0)


def _legend(ax: Axes, labels: Sequence[str]) -> None:
    for i, label in enumerate(labels):
        ax.text(1.03, 0.98 - 0.07 * i, label, transform=ax.transAxes, color=estimator_colour(label, i), size=9, weight="bold", va="top")
