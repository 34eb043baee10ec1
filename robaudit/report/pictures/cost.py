"""The picture of cost: seconds, passes and interval width, a line for each estimator and noise level."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import NothingLeftError
from robaudit.levels import LevelChoice
from robaudit.names import series
from robaudit.report.numbers import level_numbers, level_texts, span
from robaudit.report.pictures.page import RISE, Box, Look, Sketch, axes, fitted, measured, put, put_level
from robaudit.report.pictures.style import CARD, FAINT, GRID, INK, estimator_colour, few_ticks, number_text, number_ticks
from robaudit.stats.groups import GroupKey
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Cost:
    """One estimator at one noise level.

    Attributes:
        key: which.
        images: how many.
        seconds: per image, without the clean pass that all estimators share; None where not measured.
        forwards, backwards: mean passes per image.
        bounded: images whose interval is closed on both sides.
        width: median width of those intervals; None without any.
        quarter, three_quarters: quartiles of those widths.
        approximate: whether those intervals cover the draws only.
    """

    key: GroupKey
    images: int
    seconds: float | None
    forwards: float
    backwards: float
    bounded: int
    width: float | None
    quarter: float | None
    three_quarters: float | None
    approximate: bool

    @property
    def passes(self) -> float:
        """Forward and backward passes per image."""
        return self.forwards + self.backwards


@dataclass(slots=True)
class _Sum:
    images: int = 0
    forwards: int = 0
    backwards: int = 0
    approximate: bool = False
    widths: array[float] = field(default_factory=lambda: array("d"))


def costs(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[Cost, ...]:
    """One for each group that is named, in the run's order; rows are read one by one.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there are no rows.
    """
    sums: dict[GroupKey, _Sum] = {}
    for row in run.rows:
        key = GroupKey.of(row)
        one = sums.get(key)
        if one is None:
            one = sums[key] = _Sum()
        one.images += 1
        one.forwards += row.forwards
        one.backwards += row.backwards
        one.approximate |= not row.interval.covers_bias
        if row.lower is not None and row.upper is not None and math.isfinite(row.upper - row.lower):
            one.widths.append(row.upper - row.lower)
    if not sums:
        raise NothingLeftError(str(run.path), "has no results to draw", "audit at least one sample")
    wanted = set(run.chosen([(key.estimator, key.at) for key in sums], estimators, levels))
    return tuple(_cost(key, one, run.seconds_of(key.estimator, key.at)) for key, one in sums.items() if (key.estimator, key.at) in wanted)


def _cost(key: GroupKey, one: _Sum, seconds: float | None) -> Cost:
    widths = np.frombuffer(one.widths, dtype=np.float64)
    quartiles = [float(q) for q in np.quantile(widths, (0.25, 0.5, 0.75))] if widths.size else [None] * 3
    return Cost(
        key=key,
        images=one.images,
        seconds=seconds / one.images if seconds else None,  # run.json rounds to milliseconds: 0 is no measurement
        forwards=one.forwards / one.images,
        backwards=one.backwards / one.images,
        bounded=int(widths.size),
        width=quartiles[1],
        quarter=quartiles[0],
        three_quarters=quartiles[2],
        approximate=one.approximate,
    )


MOST_LINES, _FAR, _DEEPEST = 36, 12.0, 1e-4  # lines; the ratio from which a scale is logarithmic; where that of widths ends
_SIGMA = 0.55  # inches of the word "sigma" and the room around it
_AIR = 0.08  # inches between the labels of ticks
_BESIDE = 7 / 72  # inches from a dot to its number
_BELOW, _ABOVE, _BETWEEN = 0.36, 0.24, 0.2  # inches of a block: ticks, headings; between the columns
_HEADS = ("seconds per image", "passes per image", "width of interval")


def sketch(every: Sequence[Cost], device: str) -> Sketch:
    """The picture of these costs; a block for each quantity."""
    shown = every[:MOST_LINES]
    names = list(dict.fromkeys(one.key.estimator for one in every))
    blocks = [
        sorted((one for one in shown if one.key.quantity == name), key=lambda one: (names.index(one.key.estimator), one.key.at))
        for name in dict.fromkeys(one.key.quantity for one in shown)
    ]
    return Sketch(
        title="Cost per image, and the interval it buys",
        caption=_caption(shown, len(every) - len(shown), device),
        height=lambda look: sum(_height(block, look) for block in blocks),
        draw=lambda figure, box, look: _draw(figure, box, look, blocks),
        narrowest=5.0,
    )


def _height(block: Sequence[Cost], look: Look) -> float:
    return _ABOVE + len(block) * look.line * 1.45 + _BELOW


def _caption(shown: Sequence[Cost], left: int, device: str) -> str:
    counts = {one.images for one in shown}
    parts = [
        f"{span(counts)} images. Seconds: measured once on {device}, under whatever load it had, without the clean pass that all share.",
        "Passes: forward and backward, including the clean one.",
    ]
    if any(len(values) > 1 for values in series(one.key.estimator for one in shown).values()):
        parts.append("Values of one estimator (q=1, q=10) come from one computation: each line states all of it.")
    if any(one.width is not None for one in shown):
        parts.append("Width: 95 % interval of an image, median; bar: the middle half of the images.")
    if any(one.width is not None and one.approximate for one in shown):
        parts.append("Hollow: the interval covers the noise draws only, not the estimator's bias.")
    if any(one.width is not None and one.bounded < one.images for one in shown):
        parts.append("Intervals that are open on one side have no width and are left out.")
    if left:
        parts.append(f"{left} further lines are left out.")
    return " ".join(parts)


def _draw(figure: Figure, box: Box, look: Look, blocks: Sequence[Sequence[Cost]]) -> None:
    lines = [one for block in blocks for one in block]
    names = list(dict.fromkeys(one.key.estimator for one in lines))
    usual = all(one.key.at.usual for one in lines)  # no label and the same word everywhere: it goes to the heading
    texts = (level_numbers if usual else level_texts)(one.key.at for one in lines)
    room = 0.1 + max(measured(texts[one.key.at], look.size) for one in lines)
    widest = max(measured(text, look.size, bold=True) for text in names)
    for block in blocks:
        widest = max(widest, measured(block[0].key.quantity, look.size, bold=True) + _SIGMA - room)
    name = min(0.3 * box.width, 0.12 + widest)
    column = (box.width - room - name - 2 * _BETWEEN) / 3
    top = box.y + box.height
    for block in blocks:
        step = look.line * 1.45
        low = top - _height(block, look)
        title = fitted(block[0].key.quantity, name + room - _SIGMA, look.size, bold=True)
        put(figure, box.x, top - _ABOVE + 0.08, title, size=look.size, weight="bold", va="baseline")
        put(
            figure,
            box.x + name + room - 0.1,
            top - _ABOVE + 0.08,
            "sigma" if usual else "noise",
            size=look.size,
            color=FAINT,
            va="baseline",
            ha="right",
        )
        for i, one in enumerate(block):
            y = low + _BELOW + (len(block) - i - 0.5) * step
            if not i or block[i - 1].key.estimator != one.key.estimator:
                text = fitted(one.key.estimator, name - 0.06, look.size, bold=True)
                put_level(figure, box.x, y, text, size=look.size, weight="bold")
            put_level(figure, box.x + name + room - 0.1, y, texts[one.key.at], size=look.size, color=FAINT, ha="right")
        inks = [estimator_colour(one.key.estimator, names.index(one.key.estimator)) for one in block]
        for i, head in enumerate(_HEADS):
            x = box.x + name + room + i * (column + _BETWEEN)
            put(figure, x, top - _ABOVE + 0.08, fitted(head, column + _BETWEEN, look.size), size=look.size, color=INK, va="baseline")
            ax = axes(figure, Box(x, low + _BELOW, column, len(block) * step), look)
            ax.set_ylim(len(block) - 0.5, -0.5)
            _column(ax, i, block, lines if i < 2 else block, inks, look)
        top = low


def _column(ax: Axes, place: int, block: Sequence[Cost], alike: Sequence[Cost], inks: Sequence[str], look: Look) -> None:
    """One column of a block; the scale is that of all lines that measure the same thing."""
    ax.yaxis.set_ticks([])
    ax.grid(visible=False, axis="y")
    known = [value for one in alike if (value := _values(one)[place]) is not None]
    if place == 2:
        known += [one.three_quarters for one in alike if one.three_quarters is not None]
    _scale(ax, known, look, least=_DEEPEST if place == 2 else 0.0)
    for i, (one, ink) in enumerate(zip(block, inks, strict=True)):
        ax.axhline(i, color=GRID, linewidth=0.8, zorder=0.5)
        value = _values(one)[place]
        if value is None:
            _label(ax, "not measured" if place == 0 else "no interval", 0.0, i, look, FAINT, left=True)
            continue
        low, high = ax.get_xlim()
        at = first = last = max(value, low)
        if place == 2 and one.quarter is not None and one.three_quarters is not None:
            first, last = max(one.quarter, low), min(max(one.three_quarters, low), high)
            ax.plot([first, last], [i, i], color=ink, linewidth=3.2, alpha=0.4, solid_capstyle="butt", zorder=2)
        hollow = place == 2 and one.approximate
        mark: dict[str, Any] = {"marker": "o" if value >= low else "<", "markerfacecolor": CARD if hollow else ink, "markeredgewidth": 1.3}
        ax.plot([at], [i], markersize=6, color=ink, zorder=3, clip_on=False, **mark)
        text = _text(value, place)
        if _share(ax, first) > 0.45 and _share(ax, first) * _inches(ax) > measured(text, look.size) + _BESIDE:  # beside the bar, with room
            _label(ax, text, first, i, look, INK, left=False)
        elif _share(ax, last) < 0.55:
            _label(ax, text, last, i, look, INK, left=True)
        else:
            _label(ax, text, at, i, look, INK, left=_share(ax, at) < 0.5)


def _label(ax: Axes, words: str, x: float, line: int, look: Look, ink: str, *, left: bool) -> None:
    """Text in a line of a column, to the right or left of x."""
    side: dict[str, Any] = {
        "xytext": (72 * _BESIDE if left else -72 * _BESIDE, -RISE * look.size),
        "textcoords": "offset points",
        "ha": "left" if left else "right",
        "va": "baseline",
    }
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data")} if ink == FAINT else {}
    ax.annotate(words, (x, line), color=ink, size=look.size, bbox=_card(), zorder=4, annotation_clip=False, **side, **where)


def _card() -> dict[str, Any]:
    return {"facecolor": CARD, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}


def _values(one: Cost) -> tuple[float | None, float, float | None]:
    return one.seconds, one.passes, one.width


def _scale(ax: Axes, known: Sequence[float], look: Look, least: float) -> None:
    """Set limits and ticks: logarithmic where the ratio is large; what is below ``least`` times the largest has no place of its own."""
    positive = [value for value in known if value > 0]
    if positive and max(positive) / min(positive) > _FAR:
        ax.set_xscale("log")
        low, high = max(min(positive), least * max(positive)), max(positive)
        room = (high / low) ** 0.12
        ax.set_xlim(low / room, high * room)
        first, last = math.ceil(math.log10(low / room)), math.floor(math.log10(high * room))
        steps = range(max(1, -(-(last - first) // 3)), last - first + 2)
        choices = ([(10.0**p, number_text(10.0**p)) for p in range(first, last + 1, step)] for step in steps)
        _ticks(ax, next(ticks for ticks in choices if len(ticks) < 2 or _apart(ax, ticks, look)))
    elif not known:
        number_ticks(ax.xaxis, [])
    else:
        ax.set_xlim(0, 1.08 * max([*known, 0.0]) or 1.0)
        for most in (3, 2, 1):
            few_ticks(ax.xaxis, most)
            ticks = [(float(x), text.get_text()) for x, text in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)]
            if _apart(ax, ticks, look):
                return
        _ticks(ax, ticks[-1:])


def _ticks(ax: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    number_ticks(ax.xaxis, [value for value, _ in ticks], [text for _, text in ticks])


def _apart(ax: Axes, ticks: Sequence[tuple[float, str]], look: Look) -> bool:
    """Whether the labels of neighbouring ticks have room between them."""
    width = _inches(ax)
    halves = [measured(text, look.size) / 2 for _, text in ticks]
    places = [_share(ax, value) * width for value, _ in ticks]
    gaps = zip(pairwise(places), pairwise(halves), strict=True)
    return all(right - left >= a + b + _AIR for (left, right), (a, b) in gaps)


def _inches(ax: Axes) -> float:
    """The width of the axes."""
    figure: Any = ax.figure
    return float(ax.get_position().width * figure.get_figwidth())


def _share(ax: Axes, value: float) -> float:
    """How far to the right of the axes a value is, from 0 to 1."""
    low, high = ax.get_xlim()
    if ax.get_xscale() == "log":
        low, high, value = (math.log(x) for x in (low, high, value))
    return (value - low) / (high - low)


def _text(value: float, place: int) -> str:
    if place == 1:
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"
