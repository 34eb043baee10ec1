"""The picture of confusion: which class turns into which under noise, as a matrix, or as a list where there are many classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robaudit.report.numbers import signs, span
from robaudit.report.pictures.chosen import one_result, same_result
from robaudit.report.pictures.page import PictureSize, Sketch, fitted, panels, percent_scale, rows_of, told_apart
from robaudit.report.pictures.style import CARD, GRID, INK, RED, heat_colours
from robaudit.report.sections import Ask, Found
from robaudit.stats.confusion import Confusion
from robaudit.stats.intervals import LIKE_THESE
from robaudit.store.run import Run
from robaudit.text import class_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_PANELS, _MOST_CLASSES, _MOST_TURNS = 6, 25, 20
_WIDE, _AXIS = 3.0, 0.75  # inches: of a panel, of its names


def narrowed(runs: Sequence[Run], ask: Ask) -> Ask:
    """One result of each run is shown, unless some are named."""
    return ask if ask.estimators or ask.levels else one_result(runs, ask)


def sketch(found: Sequence[Found[Confusion]], ask: Ask) -> Sketch:
    """The picture of one matrix of each run, or of the results that are named."""
    named = ask.estimators or ask.levels
    shown = (found if named else same_result(found, lambda record: record.key))[:_MOST_PANELS]
    as_list = max(len(one.record.classes) for one in shown) > _MOST_CLASSES
    parts = [(one.name, one.record.key.estimator, str(one.record.key.at)) for one in shown]
    same = {part[1:] for part in parts}
    return Sketch(
        title="Which class turns into which under noise",
        about=str(shown[0].record.key) if len(same) == 1 else "",
        caption=" ".join(_caption(shown, len(found) - len(shown), as_list=as_list)),
        height=lambda look: rows_of(len(shown), look, _WIDE) * _height(shown, look, as_list=as_list),
        draw=lambda body, look: _draw(body, look, shown, told_apart(parts) if len(shown) > 1 else [], as_list=as_list),
    )


def _height(shown: Sequence[Found[Confusion]], look: PictureSize, *, as_list: bool) -> float:
    """Of a panel: square, or a line for each turn."""
    if as_list:
        return max(min(_MOST_TURNS, len(one.record.turns)) for one in shown) * look.line + 0.6
    return min(look.body / look.across(len(shown), _WIDE), 4.6) + 0.3 * (len(shown) > 1)


def _caption(shown: Sequence[Found[Confusion]], left: int, *, as_list: bool) -> Iterator[str]:
    images = span([sum(one.record.images) for one in shown])
    of = "labelled" if shown[0].record.by == "label" else "predicted without noise"
    yield f"{images} images. Share of the noisy copies of the images of a class ({of}) that are classified as another one, by their votes."
    if as_list:
        yield f"The largest shares; bars: 95 % intervals, {LIKE_THESE}, each alone."
    else:
        yield "In percent; the diagonal, in grey: classified as that class."
    if left:
        yield f"{left} further results not shown (choose with --estimator and --level)."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[Found[Confusion]], titles: Sequence[str], *, as_list: bool) -> None:
    width = look.body / look.across(len(shown), _WIDE)
    top = max([0.05, *(turn.share for one in shown for turn in one.record.turns[:1])])
    for ax, one in zip(panels(body, len(shown), look, _WIDE, titles=titles), shown, strict=True):
        if as_list:
            _turns(ax, one, look, width)
        else:
            _matrix(ax, one, look, width, top)


def _matrix(ax: Axes, one: Found[Confusion], look: PictureSize, width: float, top: float) -> None:
    record = one.record
    shares = np.array(record.shares)
    names = [fitted(class_name(index, one.run.class_names), _AXIS, look.size) for index in record.classes]
    others = np.where(np.eye(len(shares), dtype=bool), np.nan, shares)
    ax.imshow(np.where(np.eye(len(shares)), shares, np.nan), cmap="Greys", vmin=0.0, vmax=4.0)
    ax.imshow(others, cmap=heat_colours(), vmin=0.0, vmax=top)
    ax.grid(visible=False)
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("under noise")
    ax.set_ylabel("label" if record.by == "label" else "without noise")
    cell = (width - _AXIS - 0.4) / len(names)
    if cell < 0.18:  # no room for numbers
        return
    for (i, j), share in np.ndenumerate(shares):
        if np.isfinite(share) and (share >= 0.005 or i == j):
            ink = CARD if i != j and share > 0.6 * top else INK
            ax.text(j, i, f"{100 * share:.0f}", ha="center", va="center", color=ink, size=min(look.size, 30 * cell))


def _turns(ax: Axes, one: Found[Confusion], look: PictureSize, width: float) -> None:
    names, turns = one.run.class_names, one.record.turns[:_MOST_TURNS]
    for place, turn in enumerate(turns):
        ax.plot([turn.lower, turn.upper], [place, place], color=RED, alpha=0.5, linewidth=2.0, solid_capstyle="butt")
        ax.plot([turn.share], [place], marker="o", color=RED)
    texts = [f"{class_name(turn.start, names, 24)} \u2192 {class_name(turn.to, names, 24)}, n {turn.images:,}" for turn in turns]
    ax.set_yticks(range(len(turns)), [fitted(signs(text), 0.5 * width, look.size) for text in texts])
    ax.set(xlim=(0.0, None), ylim=(max(len(turns), 1) - 0.4, -0.6))
    ax.axvline(0.0, color=GRID, linewidth=1.0)
    percent_scale(ax.xaxis)
