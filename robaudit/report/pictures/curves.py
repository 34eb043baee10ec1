"""The picture of error curves: accuracy under attacks, noise and linear corruption, a panel for each, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from robaudit.report.curve_tables import interval, remarks, text
from robaudit.report.numbers import span
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, legend, legend_rows, panels, percent_scale, rows_of
from robaudit.report.pictures.style import FAINT, line_style
from robaudit.report.sections import Ask, Found
from robaudit.stats.curves import HALF, HUMANS, NAMES, CurveKind, Curves, ErrorCurve
from robaudit.stats.intervals import LIKE_THESE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_MODELS = 8
_AXES = {
    CurveKind.L2: ("attacks in l2", "l2 radius"),
    CurveKind.LINF: ("attacks in linf", "linf radius"),
    CurveKind.NOISE: ("Gaussian noise", "standard deviation"),
    CurveKind.LINEAR: ("linear corruption", "gamma, share of the image left"),
}
_WIDE, _HIGH = 2.2, 2.2  # inches of a panel
_RISEN, _TAIL = 0.9, 1.25


def sketch(found: Sequence[Found[Curves]], _: Ask) -> Sketch:
    """The picture of the curves of these runs, at least one."""
    shown = [(one.name, one.record) for one in found[:_MOST_MODELS]]
    kinds = [kind for kind in CurveKind if any(kind in one.curves for _, one in shown)]
    names = [name for name, _ in shown]
    return Sketch(
        title="Accuracy under attacks, noise and linear corruption",
        caption=" ".join(_caption(shown, kinds, found[_MOST_MODELS:])),
        height=lambda look: rows_of(len(kinds), look, _WIDE) * _HIGH + legend_rows(names, look) * look.line,
        draw=lambda body, look: _draw(body, look, shown, kinds),
    )


def _caption(shown: Sequence[tuple[str, Curves]], kinds: Sequence[CurveKind], left: Sequence[Found[Curves]]) -> Iterator[str]:
    numbers = {curve.images for _, one in shown for curve in one.curves.values()}
    yield f"Share of {span(numbers)} images that are classified as labelled."
    if max(numbers) > 1:
        yield f"Bands: 95 % bootstrap intervals, {LIKE_THESE}, each point alone."
    for kind in kinds:
        summaries = [(name if len(shown) > 1 else "", one.curves[kind].summary) for name, one in shown if kind in one.curves]
        yield f"{NAMES[kind]}: {'; '.join(' '.join(filter(None, (name, text(one), interval(one)))) for name, one in summaries)}."
    if CurveKind.LINEAR in kinds:
        yield f"Dashed: half of the images, which human observers name at gamma of about {HUMANS:g} (Jang et al. 2021, other images)."
    tails = [one.curves[CurveKind.NOISE] for _, one in shown if CurveKind.NOISE in one.curves]
    end = max((float(curve.places[-1]) for curve in tails), default=0.0)
    if tails and end > max(float(curve.places[_last(curve)]) for curve in tails):
        yield f"Under noise the curves go on to a standard deviation of {end:g}."
    for name, one in shown:
        for remark in remarks(one):
            yield f"{name}: {remark}" if len(shown) > 1 else remark[0].upper() + remark[1:]
    if left:
        yield f"Not shown: {', '.join(one.name for one in left)}."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[tuple[str, Curves]], kinds: Sequence[CurveKind]) -> None:
    styles = [line_style(i) for i in range(len(shown))]
    titles = [_AXES[kind][0] for kind in kinds]
    for ax, kind in zip(panels(body, len(kinds), look, _WIDE, titles=titles), kinds, strict=True):
        _panel(ax, kind, [(style, one.curves[kind]) for style, (_, one) in zip(styles, shown, strict=True) if kind in one.curves])
    legend(body, [name for name, _ in shown], styles, look)


def _panel(ax: Axes, kind: CurveKind, curves: Sequence[tuple[dict[str, Any], ErrorCurve]]) -> None:
    ends = [float(curve.places[_last(curve)]) for _, curve in curves]
    linear = kind is CurveKind.LINEAR
    end = min(ends) if linear else max(*ends, 1e-6)
    for style, curve in curves:
        part = curve.places <= end if kind is CurveKind.NOISE else slice(None)
        at, accuracy = curve.places[part], 1.0 - curve.errors[part]
        ax.fill_between(at, 1.0 - curve.upper[part], 1.0 - curve.lower[part], color=style["color"], alpha=0.16, linewidth=0, zorder=1.5)
        ax.plot(at, accuracy, zorder=3, clip_on=False, **style)
    ax.set(xlim=(1.0 if linear else 0.0, end), ylim=(0.0, 1.02), xlabel=_AXES[kind][1])
    few_ticks(ax.xaxis)
    percent_scale(ax.yaxis)
    if linear:
        thin: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1.8}
        ax.axhline(HALF, **thin)
        if end < HUMANS < 1.0:
            ax.axvline(HUMANS, **thin)
            ax.annotate("people", (HUMANS, 1.0), (-3, -2), textcoords="offset points", ha="right", va="top", color=FAINT)


def _last(curve: ErrorCurve) -> int:
    """The last point that must be seen: noise curves have long tails, which begin at nine tenths of what they rise."""
    last = len(curve.places) - 1
    if curve.kind is not CurveKind.NOISE:
        return last
    risen = curve.errors - curve.errors[0] >= _RISEN * (curve.errors.max() - curve.errors[0])
    return min(math.ceil(_TAIL * int(risen.argmax())) or last, last)
