"""The picture of corruptions: error against severity, a panel for each corruption, a line for each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.report.pictures.page import PictureSize, Sketch, legend, legend_rows, panels, percent_scale, rows_of, told_apart
from robaudit.report.pictures.style import line_style, ring
from robaudit.report.sections import Ask, Found
from robaudit.stats.corruption import CorruptionReport, mean_error
from robaudit.stats.intervals import LIKE_THESE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_PANELS, _MOST_LINES = 20, 8
_WIDE, _HIGH = 1.55, 1.55  # inches of a panel
_MEAN = "mean"


def sketch(found: Sequence[Found[CorruptionReport]], _: Ask) -> Sketch:
    """The picture of these reports, at least one: the mean of the corruptions first, then each."""
    names = told_apart([(one.name, one.record.estimator) for one in found])
    lines = [(name, one.record) for name, one in zip(names, found, strict=True)][:_MOST_LINES]
    labels = list(dict.fromkeys(label for _, one in lines for label in one.cells))
    whole = [_MEAN] * any(len(one.errors) > 1 for _, one in lines)
    shown = [*whole, *labels][:_MOST_PANELS]
    return Sketch(
        title="Error by severity of the corruption",
        caption=" ".join(_caption(lines, [*whole, *labels][_MOST_PANELS:])),
        height=lambda look: rows_of(len(shown), look, _WIDE) * _HIGH + legend_rows(names[:_MOST_LINES], look) * look.line,
        draw=lambda body, look: _draw(body, look, shown, lines),
    )


def _caption(lines: Sequence[tuple[str, CorruptionReport]], left: Sequence[str]) -> Iterator[str]:
    yield f"Share of noisy copies classified wrongly. Bands: 95 % intervals, {LIKE_THESE}. Ring: error without noise."
    means = [f"{name} {mean_error(one.errors):.1%} (over {len(one.errors)})" for name, one in lines if one.errors]
    if means:
        yield f"Mean error over the corruptions with all five severities: {', '.join(means)}."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[str], lines: Sequence[tuple[str, CorruptionReport]]) -> None:
    styles = [line_style(i, marks=True) for i in range(len(lines))]
    for ax, label in zip(panels(body, len(shown), look, _WIDE, titles=shown, sharex=True, sharey=True), shown, strict=True):
        for style, (_, report) in zip(styles, lines, strict=True):
            _line(ax, label, report, style)
        ax.set(xlim=(-0.2, 5.2), ylim=(0.0, 1.02), xticks=range(6))
        percent_scale(ax.yaxis)
    body.supxlabel("severity", size=look.size, color=ax.xaxis.label.get_color())
    legend(body, [name for name, _ in lines], styles, look)


def _line(ax: Axes, label: str, report: CorruptionReport, style: Mapping[str, Any]) -> None:
    ax.plot([0], [1 - report.clean], **ring(style["color"]))
    if label == _MEAN:
        if report.errors:
            ax.plot(range(1, 6), np.mean(list(report.errors.values()), axis=0), **style)
    elif label in report.cells:
        cells = sorted(report.cells[label].items())
        at = [level for level, _ in cells]
        ax.fill_between(
            at, [1 - one.upper for _, one in cells], [1 - one.lower for _, one in cells], color=style["color"], alpha=0.15, lw=0
        )
        ax.plot(at, [1 - one.value for _, one in cells], **style)
