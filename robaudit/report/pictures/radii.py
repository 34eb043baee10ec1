"""The picture of radii against the difficulty of the images, a panel for each result, with the line of the slope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put, put_level
from robaudit.report.pictures.style import BLUE, CARD, FAINT, ORANGE, RED, few_ticks
from robaudit.report.score_tables import interval, text
from robaudit.stats.scores import Radii, Score, Scores
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 6
_PANEL, _HEIGHT, _ALONE = 3.0, 2.1, 2.8  # inches: of a panel, at least; of the axes of several, of one
_HEAD, _BETWEEN, _GAP = 0.32, 0.3, 0.25
_LEGEND = (
    ("o", BLUE, "correct"),
    ("^", ORANGE, "beyond the cap"),
    ("x", RED, "misclassified"),
)


def sketch(every: Sequence[Scores]) -> Sketch:
    """The picture of these radii, at least one result."""
    shown = every[:MOST_PANELS]
    return Sketch(
        title="Radius against difficulty",
        caption=" ".join(_caption(shown, every[MOST_PANELS:])),
        height=lambda look: _legend_height(shown, look) + _rows(shown, look) * _panel_height(shown, look),
        draw=lambda figure, box, look: _draw(figure, box, look, shown),
    )


def _caption(shown: Sequence[Scores], left: Sequence[Scores]) -> Iterator[str]:
    yield "g: the logit of the clean score of the predicted class, the larger the easier; higher radii are better."
    for one in shown:
        radii, slope, fit = one.radii, one.values[Score.SLOPE], one.values[Score.R_SQUARED]
        words = [count(len(radii.ids), "image")]
        if slope.value is not None:
            about = " ".join(filter(None, (text(slope), interval(slope))))
            words.append(f"slope {about}" + ("" if fit.value is None else f", R\N{SUPERSCRIPT TWO} {fit.value:.3f}"))
        if censored := int(radii.censored.sum()):
            words.append(f"{censored:,} censored at {radii.cap:.3g}")
        if left_out := radii.left_out:
            words.append(f"{left_out:,} correct with g <= 0 not in the fit")
        bound = "; upper bounds" if radii.upper_bounds else ""
        yield f"{radii.key}: {', '.join(words)}{bound}."
    if any(one.values[Score.SLOPE].value is not None for one in shown):
        yield "Line: r = slope g through the origin, of the correct images with g > 0."
    if any(not one.radii.correct.all() for one in shown):
        yield "Crosses: misclassified images, at the radius of the predicted class; scores count them as 0."
    if any(one.radii.without_difficulty for one in shown):
        yield "Images whose difficulty is unknown are not drawn."
    if left:
        yield f"Not shown: {', '.join(str(one.radii.key) for one in left)}."


def _columns(shown: Sequence[Scores], look: Look) -> int:
    return min(len(shown), max(1, int(look.body / _PANEL)))


def _rows(shown: Sequence[Scores], look: Look) -> int:
    return -(-len(shown) // _columns(shown, look))


def _panel_height(shown: Sequence[Scores], look: Look) -> float:
    return _HEAD + (_ALONE if len(shown) == 1 else _HEIGHT) + 2 * look.line + 0.16


def _marks(shown: Sequence[Scores]) -> list[tuple[str, str, str]]:
    """The entries of the legend that some image needs."""
    there = (
        any((one.radii.correct & ~one.radii.censored).any() for one in shown),
        any(one.radii.censored.any() for one in shown),
        any(not one.radii.correct.all() for one in shown),
    )
    return [entry for entry, some in zip(_LEGEND, there, strict=True) if some]


def _legend_height(shown: Sequence[Scores], look: Look) -> float:
    return look.line + 0.04 if len(_marks(shown)) > 1 else 0.0


def _draw(figure: Figure, box: Box, look: Look, shown: Sequence[Scores]) -> None:
    legend = _legend_height(shown, look)
    if legend:
        _legend(figure, Box(box.x, box.y + box.height - legend, box.width, legend), look, shown)
    columns, step = _columns(shown, look), _panel_height(shown, look)
    across = (box.width - (columns - 1) * _BETWEEN) / columns
    top = box.y + box.height - legend
    for i, one in enumerate(shown):
        _panel(figure, Box(box.x + (i % columns) * (across + _BETWEEN), top - (i // columns + 1) * step, across, step), look, one)


def _legend(figure: Figure, box: Box, look: Look, shown: Sequence[Scores]) -> None:
    ax = axes(figure, box, look)
    ax.set_axis_off()
    ax.set_xlim(0, box.width)
    ax.set_ylim(0, box.height)
    x, y = 0.08, box.height - look.line / 2
    for mark, ink, meaning in _marks(shown):
        ax.plot([x], [y], **_style(mark, ink))
        words = fitted(meaning, box.width - x - 0.12, look.size)
        put_level(figure, box.x + x + 0.12, box.y + y, words, size=look.size)
        x += 0.12 + measured(words, look.size) + _GAP


def _style(mark: str, ink: str) -> dict[str, Any]:
    hollow = mark == "^"
    return {
        "marker": mark,
        "markersize": 4.5 if mark != "o" else 4.0,
        "linestyle": "none",
        "markerfacecolor": CARD if hollow else ink,
        "markeredgecolor": CARD if mark == "o" else ink,
        "markeredgewidth": 0.4 if mark == "o" else 1.0,
        "alpha": 0.85,
        "clip_on": False,
    }


def _panel(figure: Figure, place: Box, look: Look, scores: Scores) -> None:
    radii, slope = scores.radii, scores.values[Score.SLOPE].value
    left, below = 0.14 + look.line + measured("0.000", look.size), 2 * look.line + 0.16
    height = place.height - _HEAD - below
    box = Box(place.x + left, place.y + below, place.width - left - 0.06, height)
    title = fitted(str(radii.key), place.width, look.size, bold=True)
    put(figure, place.x, box.y + height + 0.09, title, size=look.size, weight="bold", va="bottom")
    ax = axes(figure, box, look)
    known = ~np.isnan(radii.g)
    g, r = radii.g[known], radii.values[known]
    reach = max(float(np.ptp(g)) if len(g) else 0.0, 1e-9)
    low, high = (float(g.min()), float(g.max())) if len(g) else (0.0, 1.0)
    ax.set_xlim(min(low, 0.0) - 0.03 * reach, max(high, 0.0) + 0.03 * reach)
    ax.set_ylim(0.0, 1.06 * max(float(r.max(initial=0.0)), 1e-12))
    if slope is not None:
        end = min(ax.get_xlim()[1], ax.get_ylim()[1] / slope) if slope > 0 else ax.get_xlim()[1]
        ax.plot([0.0, end], [0.0, slope * end], color=FAINT, linewidth=1.4, zorder=2)
    _points(ax, radii, known)
    few_ticks(ax.xaxis)
    few_ticks(ax.yaxis)
    ax.set_xlabel(fitted("difficulty g, easier to the right", box.width, look.size), color=FAINT, size=look.size, labelpad=3)
    unit = f"{radii.norm} radius" if radii.norm else radii.key.quantity
    ax.set_ylabel(fitted(unit, height, look.size), color=FAINT, size=look.size, labelpad=3, parse_math=False)


def _points(ax: Axes, radii: Radii, known: Any) -> None:
    censored = radii.censored
    for (mark, ink, _), some in zip(_LEGEND, (radii.correct & ~censored, censored, ~radii.correct), strict=True):
        at = some & known
        ax.plot(radii.g[at], radii.values[at], zorder=3, **_style(mark, ink))
