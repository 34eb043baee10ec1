"""The picture of noise levels: robustness and accuracy against the level, a line for each run and result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.levels import GAUSSIAN, LevelName
from robaudit.report.numbers import span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    fitted,
    legend,
    legend_rows,
    level_name,
    log_scale,
    panels,
    percent_scale,
    rows_of,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Ask, Found
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.levels import LevelCurve, LevelPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_WIDE, _HIGH = 3.0, 2.2  # inches of a panel
_UPPER = 0.5  # where all means are above it, the scale begins just below them
_MOST_LINES, _FAR = 12, 30.0  # the ratio of levels from which the scale is logarithmic
_ACCURACY = "accuracy"
Key = tuple[str, str]
"""Run and estimator; or noise and what is measured."""


def sketch(found: Sequence[Found[LevelCurve]], _: Ask) -> Sketch:
    """The picture of these curves; a point has no line."""
    names = list(dict.fromkeys((one.name, one.record.estimator) for one in found))
    shown = names[:_MOST_LINES]
    lines = [((one.name, one.record.estimator), one.record) for one in found if (one.name, one.record.estimator) in shown]
    keys = list(dict.fromkeys(_keys([curve for _, curve in lines])))
    labels = dict(zip(shown, told_apart(shown), strict=True))
    single = {one.record.estimator for one in found}
    return Sketch(
        title="Robustness and accuracy by noise level",
        about=next(iter(single)) if len(single) == 1 else "",
        caption=" ".join(_caption([curve for _, curve in lines], told_apart(names)[_MOST_LINES:])),
        height=lambda look: rows_of(len(keys), look, _WIDE) * _HIGH + legend_rows(list(labels.values()), look) * look.line,
        draw=lambda body, look: _draw(body, look, keys, lines, labels),
    )


def _keys(curves: Sequence[LevelCurve]) -> Iterator[Key]:
    """The panels: noise and what is measured."""
    for noise in dict.fromkeys(curve.noise for curve in curves):
        mine = [curve for curve in curves if curve.noise == noise]
        yield from ((noise, curve.quantity.name) for curve in mine)
        if any(point.accuracy for curve in mine for point in curve.points):
            yield noise, _ACCURACY


def _caption(curves: Sequence[LevelCurve], left: Sequence[str]) -> Iterator[str]:
    yield f"{span([point.images for curve in curves for point in curve.points])} images. Bands: 95 % intervals of the mean, {LIKE_THESE}."
    if any(point.accuracy for curve in curves for point in curve.points):
        yield "Accuracy: share of noisy copies classified as labelled; ring: accuracy without noise."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _draw(
    body: SubFigure, look: PictureSize, keys: Sequence[Key], lines: Sequence[tuple[Key, LevelCurve]], labels: Mapping[Key, str]
) -> None:
    styles = dict(zip(labels, styles_of(list(labels), marks=True), strict=True))
    noises = {noise for noise, _ in keys}
    titles = [f"{what}, {noise}" if noises != {GAUSSIAN} else what for noise, what in keys]
    for ax, (noise, what) in zip(panels(body, len(keys), look, _WIDE, titles=titles), keys, strict=True):
        mine = [(name, curve) for name, curve in lines if curve.noise == noise and what in (curve.quantity.name, _ACCURACY)]
        _panel(ax, [(curve, styles[name]) for name, curve in mine], what, look)
    legend(body, list(labels.values()), list(styles.values()), look)


def _panel(ax: Axes, lines: Sequence[tuple[LevelCurve, dict[str, Any]]], what: str, look: PictureSize) -> None:
    at = [point.at for curve, _ in lines for point in curve.points]
    far = max(one.number for one in at) > _FAR * min(one.number for one in at) or at[0].name is LevelName.PHOTONS
    low, high = min(one.number for one in at), max(one.number for one in at)
    start = (low / 1.5 if at[0].name is not LevelName.PHOTONS else high * 1.5) if far else 0.0
    lowest = 1.0
    for curve, style in lines:
        points = [(point.at.number, *ends) for point in curve.points if (ends := _mean(point, what)) is not None]
        if points:
            x, y, lower, upper = np.array(points).T
            if len(x) > 1:
                ax.fill_between(x, lower, upper, color=style["color"], alpha=0.15, linewidth=0)
            else:
                ax.plot([x, x], [lower, upper], color=style["color"], linewidth=1.2)
            ax.plot(x, y, **style)
            lowest = min(lowest, float(lower.min()))
        if what == _ACCURACY and curve.clean is not None:
            ax.plot([start], [curve.clean.value], **ring(style["color"]))
    if far:
        log_scale(ax, "x")
        ax.set_xlim((low / 1.5, high * 1.5) if at[0].name is not LevelName.PHOTONS else (high * 1.5, low / 1.5))
    else:
        ax.set_xlim(0.0, 1.04 * high)
        few_ticks(ax.xaxis)
    ax.set_xlabel(level_name(str(at[0].name)))
    quantity = lines[0][0].quantity
    if what == _ACCURACY or quantity.is_share:
        ax.set_ylim(np.floor(10 * lowest) / 10 if lowest >= _UPPER else 0.0, 1.03 if lowest < _UPPER else 1.01)
        percent_scale(ax.yaxis)
    else:
        few_ticks(ax.yaxis)
        ax.set_ylabel(fitted(quantity.unit, _HIGH - 0.6, look.size))
        if not quantity.higher_is_better:
            ax.invert_yaxis()


def _mean(point: LevelPoint, what: str) -> tuple[float, float, float] | None:
    """A mean with its interval, the open end of which is left out."""
    one = point.accuracy if what == _ACCURACY else point.robustness
    if one is None:
        return None
    ends = [end if np.isfinite(end) else one.value for end in (one.lower, one.upper)]
    return one.value, ends[0], ends[1]
