"""The picture of losses between the average and the worst case: against q, up to the attack, a panel for each noise level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robaudit.report.numbers import level_texts, span
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put, put_level
from robaudit.report.pictures.style import (
    BLUE,
    CARD,
    FAINT,
    GREEN,
    GRID,
    OLIVE,
    ORANGE,
    RED,
    TEAL,
    log_ticks,
    number_text,
    number_ticks,
)
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.losses import Losses, LossResult
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ink = tuple[str, str]
"""A colour and a mark."""
MOST_PANELS = 6
LEAST = 1e-6
"""Losses below this share of the largest one are drawn at the lower edge of a logarithmic scale."""
_FAR = 12.0  # the ratio from which the scale is logarithmic
_CURVES, _MARKS = (BLUE, ORANGE, TEAL, OLIVE, GREEN), "os^Ph"
_ATTACK, _ATTACK_MARKS = RED, "DXp*"
_PANEL = 3.0  # inches of a panel, at least, where there is more than one column
_TINY = 1e-300  # drawn as 0
_ALONE, _HEIGHT = 2.7, 2.0  # inches of a single panel's axes, of several
_HEAD, _BETWEEN, _AFTER = 0.34, 0.3, 0.1  # inches: above a panel, between columns, between the axes and the names
_SIDE, _DODGE, _LEGEND_GAP = 0.16, 0.05, 0.22  # inches: beside the first and last q, between curves, between entries
_NAMES = 1.0  # inches of the widest name of an image
_AIR = 0.08  # inches between the labels of ticks
_SWATCH = 0.36  # inches of a mark of the legend
_THIN: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.7}
_FEW_ORDERS = 12  # up to here the values of an image have dots


@dataclass(frozen=True, slots=True)
class _Scale:
    """The vertical scale of all panels: logarithmic where values are far apart."""

    low: float
    high: float
    logarithmic: bool

    def drawn(self, value: float) -> float:
        """The value, or the edge that it is beyond."""
        return min(max(value, self.low), self.high)

    def share(self, value: float) -> float:
        """How far up a value is, from 0 to 1."""
        low, high, at = self.low, self.high, self.drawn(value)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


def sketch(every: Sequence[Losses]) -> Sketch:
    """The picture of these losses, at least one noise level."""
    shown = every[:MOST_PANELS]
    return Sketch(
        title="Loss from the average to the worst case",
        caption=_caption(shown, every[MOST_PANELS:]),
        lead="Loss at q: the q-th root of the mean of loss^q under the noise; lower is better. q=1: the mean; the larger "
        "q is, the more the upper tail counts.",
        height=lambda look: _legend_height(shown, look) + _rows(shown, look) * _panel_height(shown, look),
        draw=lambda figure, box, look: _draw(figure, box, look, shown),
    )


def _columns(shown: Sequence[Losses], look: Look) -> int:
    return min(len(shown), max(1, int(look.body / _PANEL)))


def _rows(shown: Sequence[Losses], look: Look) -> int:
    return -(-len(shown) // _columns(shown, look))


def _panel_height(shown: Sequence[Losses], look: Look) -> float:
    return _HEAD + (_ALONE if len(shown) == 1 else _HEIGHT) + _below(look)


def _below(look: Look) -> float:
    """Inches for ticks, the name of the axis and air."""
    return 2 * look.line + 0.16


# --- words


def _caption(shown: Sequence[Losses], left: Sequence[Losses]) -> str:
    results = [one for losses in shown for one in losses.results]
    scale = _scale(shown)
    parts = [f"{_images_text([one.images for one in results])}."]
    if any(losses.attacks for losses in shown):
        parts.append("\u221e: the highest loss that the attack found; the limit is at least as high.")
    parts.append(f"Thick: mean over the images; bars: its 95 % interval, {LIKE_THESE}.")
    parts.append(_thin(shown))
    if any(_known(one) and (one.mean.upper > scale.high or one.mean.lower < scale.low) for one in results):
        parts.append("An interval that reaches an edge of the picture goes on beyond it.")
    if scale.logarithmic and any(value < scale.low for value in _values(shown)):
        parts.append(f"Triangles at the lower edge: below {scale.low:.2g}, or 0.")
    parts += filter(None, (failed_attacks([*shown, *left]), *_doubts(results)))
    if left:
        texts = level_texts(losses.at for losses in left)
        parts.append(f"Not shown: {', '.join(texts[losses.at] for losses in left)}.")
    return " ".join(parts)


def _images_text(numbers: Sequence[int]) -> str:
    return count(numbers[0], "image") if len(set(numbers)) == 1 else f"{span(numbers)} images"


def _thin(shown: Sequence[Losses]) -> str:
    """Which images the thin lines are."""
    counts, names = {len(losses.worst) for losses in shown}, dict.fromkeys(losses.ranked_by for losses in shown)
    which = "the image with the highest loss" if counts == {1} else f"the {span(counts)} images with the highest loss"
    where = " at each noise level" if len(shown) > 1 else ""
    return f"Thin: {which}{where}, by {', '.join(names)} (the first that flag-samples lists), with ids where there is room."


def failed_attacks(every: Sequence[Losses]) -> str:
    """For how many images the attack failed, as a sentence; empty where it did not."""
    texts = level_texts(losses.at for losses in every)
    failed = []
    for losses in every:
        if losses.beaten:
            where = f" at {texts[losses.at]}" if len(every) > 1 else ""
            failed.append(f"{losses.beaten:,} of {count(losses.attacked, 'image')}{where}")
    words = "where the chains of a q met a higher loss, or a whole interval is above what it found"
    return f"The attack failed for {', '.join(failed)}, {words}." if failed else ""


def _doubts(results: Sequence[LossResult]) -> Iterator[str]:
    without = dict.fromkeys(one.estimator for one in results if one.with_interval < one.images)
    if without:
        yield f"{', '.join(without)}: values without an interval of their own."
    biased = dict.fromkeys(one.estimator for one in results if one.approximate)
    if biased:
        yield f"{', '.join(biased)}: no interval covers the bias of the estimate."
    dropped = sum(one.left_out for one in results)
    if dropped:
        yield f"Left out: {count(dropped, 'result')} without a finite value."


def _known(one: LossResult) -> bool:
    """Whether the interval of the mean says anything: that of a single image does not."""
    return math.isfinite(one.mean.upper) or one.mean.lower > 0


# --- scales


def _values(shown: Iterable[Losses]) -> Iterator[float]:
    """All that is drawn as a point."""
    for losses in shown:
        for one in losses.results:
            yield one.mean.value
            yield from (value for value in one.worst if value is not None)


def _scale(shown: Sequence[Losses]) -> _Scale:
    values = list(_values(shown))
    ends = [one.mean.upper for losses in shown for one in losses.results if math.isfinite(one.mean.upper)]
    high = max([*values, *ends])
    positive = [value for value in values if value > _TINY]
    if not positive:
        return _Scale(0.0, 1.0, logarithmic=False)
    if max(positive) <= _FAR * min(positive):
        return _Scale(0.0, 1.08 * high, logarithmic=False)
    low = max(min(positive), LEAST * max(positive))
    room = (high / low) ** 0.05
    return _Scale(low / room, high * room, logarithmic=True)


def _y_ticks(scale: _Scale, inches: float, look: Look) -> list[tuple[float, str]]:
    """Round numbers with their labels."""
    most = max(2, int(inches / (1.6 * look.line)))
    if scale.logarithmic:
        return [(tick, number_text(tick)) for tick in log_ticks(scale.low, scale.high, min(most, 8))]
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=min(most, 5), steps=[1, 2, 2.5, 5, 10]).tick_values(scale.low, scale.high)
    return [(float(tick), f"{tick:g}") for tick in ticks if scale.low <= tick <= scale.high]


# --- drawing


def _draw(figure: Figure, box: Box, look: Look, shown: Sequence[Losses]) -> None:
    scale, texts = _scale(shown), level_texts(losses.at for losses in shown)
    inks = _inks(shown)
    _legend(figure, box, look, shown, inks)
    columns, step = _columns(shown, look), _panel_height(shown, look)
    top = box.y + box.height - _legend_height(shown, look)
    across = (box.width - (columns - 1) * _BETWEEN) / columns
    for i, losses in enumerate(shown):
        place = Box(box.x + (i % columns) * (across + _BETWEEN), top - (i // columns + 1) * step, across, step)
        _panel(figure, place, look, losses, texts[losses.at], scale, inks)


def _inks(shown: Sequence[Losses]) -> dict[str, Ink]:
    """Colour and mark of each curve and of each attack, by name, in the order of the legend."""
    curves = dict.fromkeys(curve.estimator for losses in shown for curve in losses.curves)
    attacks = dict.fromkeys(one.name for losses in shown for one in losses.attacks if one.name not in curves)
    inks = {name: (_CURVES[i % len(_CURVES)], _MARKS[i % len(_MARKS)]) for i, name in enumerate(curves)}
    return inks | {name: (_ATTACK, _ATTACK_MARKS[i % len(_ATTACK_MARKS)]) for i, name in enumerate(attacks)}


def _legend_lines(shown: Sequence[Losses], look: Look) -> list[list[tuple[str | None, str, float]]]:
    """Line by line the names, None for an image, with their texts and the inches that they take."""
    lines: list[list[tuple[str | None, str, float]]] = [[]]
    for name in (*_inks(shown), None):
        text = "an image" if name is None else f"{fitted(name, look.body - 1.0, look.size)}, mean"
        need = _SWATCH + measured(text, look.size) + _LEGEND_GAP
        if lines[-1] and sum(width for *_, width in lines[-1]) + need - _LEGEND_GAP > look.body:
            lines.append([])
        lines[-1].append((name, text, need))
    return lines


def _legend_height(shown: Sequence[Losses], look: Look) -> float:
    return len(_legend_lines(shown, look)) * look.line + 0.04


def _legend(figure: Figure, box: Box, look: Look, shown: Sequence[Losses], inks: Mapping[str, Ink]) -> None:
    height = _legend_height(shown, look)
    ax = axes(figure, Box(box.x, box.y + box.height - height, box.width, height), look)
    ax.set_axis_off()
    ax.set_xlim(0, box.width)
    ax.set_ylim(0, height)
    for i, line in enumerate(_legend_lines(shown, look)):
        x, y = 0.0, height - (i + 0.5) * look.line
        for name, text, need in line:
            ends = [x, x + _SWATCH - 0.1]
            if name is None:
                ax.plot(ends, [y, y], color=inks[shown[0].ranking.estimator][0], **_THIN)
            else:
                ink, mark = inks[name]
                if ink != _ATTACK:
                    ax.plot(ends, [y, y], color=ink, linewidth=2.0)
                ax.plot([sum(ends) / 2], [y], **_dot(ink, mark))
            put_level(figure, box.x + x + _SWATCH, box.y + box.height - (i + 0.5) * look.line, text, size=look.size)
            x += need


def _dot(ink: str, mark: str) -> dict[str, Any]:
    return {"marker": mark, "markersize": 5.5, "color": ink, "markeredgecolor": CARD, "markeredgewidth": 0.8, "linestyle": "none"}


@dataclass(frozen=True, slots=True)
class _Across:
    """The horizontal scale of a panel, in inches from its left side: log q, then the band of the attack."""

    first: float
    last: float
    width: float
    band: float

    @property
    def limit(self) -> float:
        """The middle of the band."""
        return self.width - self.band / 2

    def place(self, q: float) -> float:
        """Where a finite order is."""
        room = self.width - self.band - 2 * _SIDE
        share = 0.5 if self.first == self.last else (math.log(q) - math.log(self.first)) / (math.log(self.last) - math.log(self.first))
        return _SIDE + share * room

    def attack(self, i: int, attacks: int) -> float:
        """Where the mean of one of several attacks is, side by side in the band."""
        return self.limit + min(0.12, self.band / (attacks + 1)) * (i - (attacks - 1) / 2)


def _panel(figure: Figure, place: Box, look: Look, losses: Losses, title: str, scale: _Scale, inks: Mapping[str, Ink]) -> None:
    height = place.height - _HEAD - _below(look)
    ticks = _y_ticks(scale, height, look)
    left = 0.14 + look.line + max((measured(text, look.size) for _, text in ticks), default=0.0)
    names = _names(losses, look, place.width)
    right = _AFTER + max((measured(name, look.size) for name in names), default=0.0)
    width = place.width - left - right
    box = Box(place.x + left, place.y + _below(look), width, height)
    heading = fitted(title, place.width, look.size, bold=True)
    put(figure, place.x, box.y + height + 0.1, heading, size=look.size, weight="bold", va="bottom")
    ax = axes(figure, box, look)
    if scale.logarithmic:
        ax.set_yscale("log")
    ax.set_xlim(0, width)
    ax.set_ylim(scale.low, scale.high)
    band = max(0.42, measured("attack", look.size) + 0.08) if losses.attacks else 0.0
    orders = sorted({one.q for curve in losses.curves for one in curve.results})
    across = _Across(orders[0], orders[-1], width, band)
    number_ticks(ax.yaxis, [tick for tick, _ in ticks], [text for _, text in ticks])
    ax.grid(visible=False, axis="x")
    _x_ticks(ax, orders, across, look)
    unit = f"loss in {losses.quantity.unit}, lower is better"
    ax.set_ylabel(fitted(unit, height, look.size), color=FAINT, size=look.size, labelpad=3, parse_math=False)
    if losses.attacks:
        ax.axvspan(width - band, width, color=GRID, alpha=0.45, linewidth=0, zorder=0)
    _images(ax, losses, across, scale, inks[losses.ranking.estimator][0])
    for i, curve in enumerate(losses.curves):
        shift = _DODGE * (i - (len(losses.curves) - 1) / 2)
        _mean_line(ax, curve.results, losses.attacks, across, scale, inks[curve.estimator], shift)
    for i, attack in enumerate(losses.attacks):
        _mean(ax, attack, across.attack(i, len(losses.attacks)), scale, inks[attack.name])
    _put_names(figure, ax, box, look, losses, names, across, scale)


def _x_ticks(ax: Axes, orders: Sequence[float], across: _Across, look: Look) -> None:
    """The orders, as many labels of them as have room, the largest first; below them what the axis is."""
    texts = {order: f"{order:.6g}".replace("e+0", "e").replace("e+", "e") for order in orders}
    shown: list[tuple[float, str]] = []
    reach = [] if not across.band else [(across.limit, measured("\u221e", look.size) / 2)]
    ends = (orders[-1], orders[0], *orders[1:-1][::-1])
    for order in dict.fromkeys(ends):
        at, half = across.place(order), measured(texts[order], look.size) / 2
        if all(abs(at - other) >= half + wide + _AIR for other, wide in reach):
            reach.append((at, half))
            shown.append((at, texts[order]))
    ticks = sorted(shown)
    for at, _ in ticks:
        ax.axvline(at, color=GRID, linewidth=0.8, zorder=0.5)
    if across.band:
        ticks.append((across.limit, "\u221e\nattack"))
    number_ticks(ax.xaxis, [at for at, _ in ticks], [text for _, text in ticks])
    room = across.width - across.band
    words = ("q: 1 is the average, larger is closer to the worst case", "q (1: the average)", "q")
    word = next((text for text in words if measured(text, look.size) <= room), "q")
    middle = across.width / 2 if not across.band else room / 2
    height = float(ax.get_position().height * ax.figure.get_figheight())  # type: ignore[union-attr]
    ax.text(
        middle / across.width,
        -(look.line + 0.1) / height,
        word,
        transform=ax.transAxes,
        color=FAINT,
        size=look.size,
        ha="center",
        va="top",
    )


def _images(ax: Axes, losses: Losses, across: _Across, scale: _Scale, ink: str) -> None:
    """A thin line for each of the worst images, dotted from the last q to the attack's value."""
    for i in range(len(losses.worst)):
        points = [(across.place(one.q), value) for one in losses.ranking.results if (value := one.worst[i]) is not None]
        x, y = [at for at, _ in points], [scale.drawn(value) for _, value in points]
        dots: dict[str, Any] = {"marker": "o", "markersize": 2.2} if len(points) <= _FEW_ORDERS else {}
        ax.plot(x, y, color=ink, zorder=2, **_THIN, **dots)
        _edge(ax, points, scale, ink, 3.0)
        limit = _limit(losses.attacks, i)
        if limit is not None:
            ax.plot([x[-1], across.limit], [y[-1], scale.drawn(limit)], color=ink, linewidth=0.9, alpha=0.5, dashes=(1, 2), zorder=2)
            ax.plot([across.limit], [scale.drawn(limit)], marker="o", markersize=3, color=ink, alpha=0.7, linestyle="none", zorder=3)


def _limit(attacks: Sequence[LossResult], i: int) -> float | None:
    """The highest loss that an attack found for one of the worst images."""
    return max((value for one in attacks if (value := one.worst[i]) is not None), default=None)


def _edge(ax: Axes, points: Iterable[tuple[float, float]], scale: _Scale, ink: str, size: float) -> None:
    """Triangles at the lower edge for values below it."""
    below = [at for at, value in points if value < scale.low]
    ax.plot(below, [scale.low] * len(below), marker="v", markersize=size, color=ink, linestyle="none", clip_on=False, zorder=3)


def _mean_line(
    ax: Axes,
    results: Sequence[LossResult],
    attacks: Sequence[LossResult],
    across: _Across,
    scale: _Scale,
    ink: Ink,
    shift: float,
) -> None:
    """The mean at each q, and dotted the way to the strongest attack's."""
    places = [across.place(one.q) + shift for one in results]
    y = [scale.drawn(one.mean.value) for one in results]
    ax.plot(places, y, color=CARD, linewidth=4.0, solid_joinstyle="round", zorder=3.9)  # apart from the thin lines below
    ax.plot(places, y, color=ink[0], linewidth=2.0, solid_joinstyle="round", zorder=4)
    if attacks:
        best = max(range(len(attacks)), key=lambda i: attacks[i].mean.value)
        end = across.attack(best, len(attacks)), scale.drawn(attacks[best].mean.value)
        ax.plot([places[-1], end[0]], [y[-1], end[1]], color=ink[0], linewidth=1.6, dashes=(1, 1.5), zorder=3.5)
    for place, one in zip(places, results, strict=True):
        _mean(ax, one, place, scale, ink)


def _mean(ax: Axes, one: LossResult, place: float, scale: _Scale, ink: Ink) -> None:
    """The mean over the images with its interval, unless that is the whole range."""
    if _known(one):
        reach = [scale.drawn(end) for end in (one.mean.lower, one.mean.upper)]
        ax.plot([place, place], reach, color=ink[0], linewidth=1.4, alpha=0.8, solid_capstyle="butt", zorder=4)
    if one.mean.value < scale.low:
        _edge(ax, [(place, one.mean.value)], scale, ink[0], 5.5)
    else:
        ax.plot([place], [one.mean.value], zorder=5, **_dot(*ink))


# --- names of images


def _names(losses: Losses, look: Look, width: float) -> list[str]:
    """The ids of the worst images, cut to fit."""
    room = min(_NAMES, 0.24 * width)
    return [fitted(sample.id, room, look.size, end=True) for sample in losses.worst]


def _put_names(
    figure: Figure, ax: Axes, box: Box, look: Look, losses: Losses, names: Sequence[str], across: _Across, scale: _Scale
) -> None:
    """The names beside the ends of the lines, pushed apart, with a faint line from each end; as many as there is room for."""
    ends = [_end(losses, i, across) for i in range(len(losses.worst))]
    chosen = range(min(len(ends), int(box.height / look.line)))
    order = sorted(chosen, key=lambda i: scale.share(ends[i][1]))
    wished = [scale.share(ends[i][1]) * box.height for i in order]
    for i, wish, y in zip(order, wished, spread(wished, look.line, box.height), strict=True):
        start = ends[i][0]
        ax.plot(
            [start / box.width, 1.0, 1 + 0.8 * _AFTER / box.width],
            [wish / box.height, wish / box.height, y / box.height],
            transform=ax.transAxes,
            color=FAINT,
            linewidth=0.5,
            alpha=0.6,
            clip_on=False,
            zorder=1,
        )
        put_level(figure, box.x + box.width + _AFTER, box.y + y, names[i], size=look.size, color=FAINT)


def _end(losses: Losses, i: int, across: _Across) -> tuple[float, float]:
    """Where the line of an image ends: inches, and its value there."""
    limit = _limit(losses.attacks, i)
    if limit is not None:
        return across.limit, limit
    return next((across.place(one.q), value) for one in reversed(losses.ranking.results) if (value := one.worst[i]) is not None)


def spread(wished: Sequence[float], gap: float, height: float) -> list[float]:
    """Places in [0, height] at least ``gap`` apart, in the given ascending order, near the wished ones.

    Neighbours that are too close form a block around the mean of what its members wish; blocks merge until none overlap.
    """
    blocks: list[list[float]] = []  # wishes, each less its offset in the block
    for wish in wished:
        blocks.append([wish])
        while len(blocks) > 1 and _start(blocks[-2], gap, height) + gap * len(blocks[-2]) > _start(blocks[-1], gap, height):
            last = blocks.pop()
            blocks[-1] += [one - gap * len(blocks[-1]) for one in last]
    return [_start(block, gap, height) + gap * i for block in blocks for i in range(len(block))]


def _start(block: Sequence[float], gap: float, height: float) -> float:
    return min(max(sum(block) / len(block), 0.0), height - gap * (len(block) - 1))
