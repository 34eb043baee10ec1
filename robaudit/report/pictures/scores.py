"""The picture of scores: radii against the difficulty of the images, with the line of the slope; a panel for each result and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, legend, panels, rows_of
from robaudit.report.pictures.style import CROSS, DOT, FAINT, TRIANGLE
from robaudit.report.score_tables import interval, text
from robaudit.report.sections import Ask, Found
from robaudit.stats.scores import Score, Scores
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_PANELS = 9
_WIDE, _HIGH = 2.2, 2.1  # inches of a panel
_MARKS = {"correct": DOT, "beyond the cap": TRIANGLE, "misclassified": CROSS}


def sketch(found: Sequence[Found[Scores]], _: Ask) -> Sketch:
    """The picture of these radii, at least one result."""
    every = _each(found)
    shown = every[:_MOST_PANELS]
    several = len({name for name, _ in every}) > 1
    return Sketch(
        title="Radius against difficulty",
        caption=" ".join(_caption(shown, every[_MOST_PANELS:], several=several)),
        height=lambda look: rows_of(len(shown), look, _WIDE) * (_HIGH if len(shown) > 1 else 2.7) + look.line,
        draw=lambda body, look: _draw(body, look, shown, several=several),
    )


def _each(found: Sequence[Found[Scores]]) -> list[tuple[str, Scores]]:
    """The scores of each result and run, grouped by result."""
    keys = [one.record.radii.key for one in found]
    return [(one.name, one.record) for one in sorted(found, key=lambda one: keys.index(one.record.radii.key))]


def _title(name: str, scores: Scores, *, several: bool) -> str:
    return f"{name}: {scores.radii.key}" if several else str(scores.radii.key)


def _caption(shown: Sequence[tuple[str, Scores]], left: Sequence[tuple[str, Scores]], *, several: bool) -> Iterator[str]:
    yield "g: the logit of the clean score of the predicted class, the larger the easier; higher radii are better."
    for name, one in shown:
        radii, slope, fit = one.radii, one.values[Score.SLOPE], one.values[Score.R_SQUARED]
        words = [count(len(radii.ids), "image")]
        if slope.value is not None:
            about = " ".join(filter(None, (text(slope), interval(slope))))
            words.append(f"slope {about}" + ("" if fit.value is None else f", R\N{SUPERSCRIPT TWO} {fit.value:.3f}"))
        if censored := int(radii.censored.sum()):
            words.append(f"{censored:,} censored at {radii.cap:.3g}")
        if radii.left_out:
            words.append(f"{radii.left_out:,} correct with g <= 0 not in the fit")
        yield f"{_title(name, one, several=several)}: {', '.join(words)}{'; upper bounds' if radii.upper_bounds else ''}."
    if any(one.values[Score.SLOPE].value is not None for _, one in shown):
        yield "Line: r = slope g through the origin, of the correct images with g > 0."
    if any(not one.radii.correct.all() for _, one in shown):
        yield "Crosses: misclassified images, at the radius of the predicted class; scores count them as 0."
    if any(one.radii.without_difficulty for _, one in shown):
        yield "Images whose difficulty is unknown are not drawn."
    if left:
        yield f"Not shown: {', '.join(_title(name, one, several=several) for name, one in left)}."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[tuple[str, Scores]], *, several: bool) -> None:
    titles = [_title(name, one, several=several) for name, one in shown]
    there: set[str] = set()
    for ax, (_, scores) in zip(panels(body, len(shown), look, _WIDE, titles=titles), shown, strict=True):
        there |= _panel(ax, scores, look)
    names = [name for name in _MARKS if name in there]
    legend(body, names, [_MARKS[name] for name in names], look)


def _panel(ax: Axes, scores: Scores, look: PictureSize) -> set[str]:
    """Draws the images; returns the kinds of marks that some need."""
    radii, slope, there = scores.radii, scores.values[Score.SLOPE].value, set()
    known = ~np.isnan(radii.g)
    kinds: Any = (radii.correct & ~radii.censored, radii.censored, ~radii.correct)
    for (name, style), some in zip(_MARKS.items(), kinds, strict=True):
        at = some & known
        if at.any():
            there.add(name)
            ax.plot(radii.g[at], radii.values[at], alpha=0.85, clip_on=False, zorder=3, **style)
    left, right = (min(0.0, *ax.get_xlim()), max(0.0, *ax.get_xlim()))
    top = 1.06 * max(float(radii.values[known].max(initial=0.0)), 1e-12)
    if slope is not None:
        end = min(right, top / slope) if slope > 0 else right
        ax.plot([0.0, end], [0.0, slope * end], color=FAINT, linewidth=1.3, zorder=2)
    ax.set(xlim=(left, right), ylim=(0.0, top))
    few_ticks(ax.xaxis, 4)
    few_ticks(ax.yaxis, 4)
    ax.set_xlabel("difficulty g (right: easier)")
    ax.set_ylabel(fitted(f"{radii.key.norm} radius" if radii.key.norm else radii.key.quantity, _HIGH - 0.5, look.size))
    return there
