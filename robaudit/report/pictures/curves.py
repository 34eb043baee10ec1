"""The picture of error curves: accuracy under attacks, noise and linear corruption, a panel for each, a line for each model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from robaudit.report.curve_tables import interval, remarks, text
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put, put_level
from robaudit.report.pictures.style import BLUE, FAINT, GREEN, OLIVE, ORANGE, RED, TEAL, few_ticks, number_ticks
from robaudit.stats.curves import HALF, HUMANS, NAMES, Curve, CurveKind, Curves
from robaudit.stats.intervals import LIKE_THESE
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MODELS = 6
_INKS = (BLUE, ORANGE, TEAL, RED, OLIVE, GREEN)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
_TITLES = {
    CurveKind.L2: "attacks in l2",
    CurveKind.LINF: "attacks in linf",
    CurveKind.NOISE: "Gaussian noise",
    CurveKind.LINEAR: "linear corruption",
}
_AXES = {
    CurveKind.L2: "l2 radius",
    CurveKind.LINF: "linf radius",
    CurveKind.NOISE: "standard deviation",
    CurveKind.LINEAR: "gamma, share of the image left",
}
_PANEL, _ALONE, _HEIGHT = 2.9, 2.6, 1.8  # inches: of a panel, at least; of the axes of one, of several
_HEAD, _BETWEEN, _GAP, _SWATCH = 0.32, 0.25, 0.25, 0.34
_PEOPLE = "people"
_RISEN, _TAIL = 0.9, 1.25
_NO_WIDTH = 1e-6  # of a panel in which all curves are single points


def sketch(every: Sequence[Curves]) -> Sketch:
    """The picture of the curves of these models, at least one."""
    shown = every[:MOST_MODELS]
    return Sketch(
        title="Accuracy under attacks, noise and linear corruption",
        caption=" ".join(_caption(shown, every[MOST_MODELS:])),
        height=lambda look: _legend_height(shown, look) + _rows(shown, look) * _panel_height(shown, look),
        draw=lambda figure, box, look: _draw(figure, box, look, shown),
    )


def _caption(shown: Sequence[Curves], left: Sequence[Curves]) -> Iterator[str]:
    numbers = sorted({curve.images for one in shown for curve in one.curves.values()})
    yield f"Share of {' or '.join(count(n, 'image') for n in numbers)} that is classified as labelled."
    if numbers[-1] > 1:
        yield f"Bands: 95 % bootstrap intervals, {LIKE_THESE}, each point alone."
    for kind in _kinds(shown):
        found = [(one.name, one.curves[kind].summary) for one in shown if kind in one.curves]
        words = "; ".join(
            " ".join(filter(None, (name if len(shown) > 1 else "", text(summary), interval(summary)))) for name, summary in found
        )
        yield f"{NAMES[kind]}: {words}."
    if CurveKind.LINEAR in _kinds(shown):
        yield f"Dashed: half of the images, which human observers name at gamma of about {HUMANS:g} (Jang et al. 2021, other images)."
    if (beyond := _beyond(shown)) is not None:
        yield f"Under noise the curves go on to a standard deviation of {beyond:g}."
    for one in shown:
        for remark in remarks(one):
            yield f"{one.name}: {remark}" if len(shown) > 1 else remark[0].upper() + remark[1:]
    if left:
        yield f"Not shown: {', '.join(one.name for one in left)}."


def _beyond(shown: Sequence[Curves]) -> float | None:
    """Where noise curves end, if that is beyond what is drawn."""
    curves = [one.curves[CurveKind.NOISE] for one in shown if CurveKind.NOISE in one.curves]
    end = max((float(curve.places[-1]) for curve in curves), default=0.0)
    return end if curves and end > max(float(curve.places[_last(curve)]) for curve in curves) else None


def _kinds(shown: Sequence[Curves]) -> list[CurveKind]:
    return [kind for kind in CurveKind if any(kind in one.curves for one in shown)]


def _columns(shown: Sequence[Curves], look: Look) -> int:
    return min(len(_kinds(shown)), 2, max(1, int(look.body / _PANEL)))


def _rows(shown: Sequence[Curves], look: Look) -> int:
    return -(-len(_kinds(shown)) // _columns(shown, look))


def _panel_height(shown: Sequence[Curves], look: Look) -> float:
    return _HEAD + (_ALONE if len(_kinds(shown)) == 1 else _HEIGHT) + 2 * look.line + 0.16


def _entries(shown: Sequence[Curves], look: Look) -> list[list[tuple[int, str]]]:
    """The models of each line of the legend."""
    lines: list[list[tuple[int, str]]] = [[]]
    free = look.body
    for number, one in enumerate(shown if len(shown) > 1 else ()):
        words = fitted(one.name, look.body - _SWATCH - 0.1, look.size)
        needed = _SWATCH + 0.06 + measured(words, look.size) + _GAP
        if lines[-1] and needed > free:
            lines.append([])
            free = look.body
        lines[-1].append((number, words))
        free -= needed
    return lines if lines[0] else []


def _legend_height(shown: Sequence[Curves], look: Look) -> float:
    lines = _entries(shown, look)
    return len(lines) * look.line + 0.06 if lines else 0.0


def _draw(figure: Figure, box: Box, look: Look, shown: Sequence[Curves]) -> None:
    legend = _legend_height(shown, look)
    if legend:
        _legend(figure, Box(box.x, box.y + box.height - legend, box.width, legend), look, shown)
    columns, step = _columns(shown, look), _panel_height(shown, look)
    across = (box.width - (columns - 1) * _BETWEEN) / columns
    top = box.y + box.height - legend
    for i, kind in enumerate(_kinds(shown)):
        place = Box(box.x + (i % columns) * (across + _BETWEEN), top - (i // columns + 1) * step, across, step)
        _panel(figure, place, look, kind, [(number, one.curves[kind]) for number, one in enumerate(shown) if kind in one.curves])


def _legend(figure: Figure, box: Box, look: Look, shown: Sequence[Curves]) -> None:
    ax = axes(figure, box, look)
    ax.set_axis_off()
    ax.set_xlim(0, box.width)
    ax.set_ylim(0, box.height)
    for row, entries in enumerate(_entries(shown, look)):
        x, y = 0.0, box.height - (row + 0.5) * look.line
        for number, words in entries:
            ax.plot([x, x + _SWATCH], [y, y], **_style(number))
            put_level(figure, box.x + x + _SWATCH + 0.06, box.y + y, words, size=look.size)
            x += _SWATCH + 0.06 + measured(words, look.size) + _GAP


def _style(number: int) -> dict[str, Any]:
    return {"color": _INKS[number], "linestyle": _DASHES[number], "linewidth": 1.8, "solid_capstyle": "butt"}


def _panel(figure: Figure, place: Box, look: Look, kind: CurveKind, curves: Sequence[tuple[int, Curve]]) -> None:
    left, below = 0.12 + measured("100 %", look.size), 2 * look.line + 0.16
    height = place.height - _HEAD - below
    box = Box(place.x + left, place.y + below, place.width - left - 0.1, height)
    put(figure, place.x, box.y + height + 0.09, fitted(_TITLES[kind], place.width, look.size, bold=True), size=look.size, weight="bold")
    ax = axes(figure, box, look)
    ends = [float(curve.places[_last(curve)]) for _, curve in curves]
    end = min(ends) if kind is CurveKind.LINEAR else max(*ends, _NO_WIDTH)
    ax.set_xlim(1.0 if kind is CurveKind.LINEAR else 0.0, end)
    ax.set_ylim(0.0, 1.02)
    if kind is CurveKind.LINEAR:
        _people(figure, ax, box, look)
    for number, curve in curves:
        part = curve.places <= end if kind is CurveKind.NOISE else slice(None)
        at, accuracy = curve.places[part], 1.0 - curve.errors[part]
        ax.fill_between(at, 1.0 - curve.upper[part], 1.0 - curve.lower[part], color=_INKS[number], alpha=0.16, linewidth=0, zorder=1.5)
        ax.plot(at, accuracy, zorder=3, clip_on=False, **_style(number))
    few_ticks(ax.xaxis)
    number_ticks(ax.yaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    ax.set_xlabel(fitted(_AXES[kind], box.width, look.size), color=FAINT, size=look.size, labelpad=3, parse_math=False)


def _last(curve: Curve) -> int:
    """The last point that must be seen: noise curves have long tails, which begin at nine tenths of what they rise."""
    last = len(curve.places) - 1
    if curve.kind is not CurveKind.NOISE:
        return last
    risen = curve.errors - curve.errors[0] >= _RISEN * (curve.errors.max() - curve.errors[0])
    return min(math.ceil(_TAIL * int(risen.argmax())) or last, last)


def _people(figure: Figure, ax: Axes, box: Box, look: Look) -> None:
    """Where people name half of the images correctly."""
    thin: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1.8}
    ax.axhline(HALF, **thin)
    low, high = sorted(ax.get_xlim())
    if low < HUMANS < high:
        ax.axvline(HUMANS, **thin)
        share = (ax.get_xlim()[0] - HUMANS) / (ax.get_xlim()[0] - ax.get_xlim()[1])
        words = measured(_PEOPLE, look.size)
        x = box.x + share * box.width + 0.05
        x = x if x + words < box.x + box.width else x - words - 0.1
        put(figure, x, box.y + box.height - 0.02, _PEOPLE, size=look.size, color=FAINT, va="top")
