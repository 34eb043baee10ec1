"""The picture of agreement: estimator against estimator, a panel for each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robaudit.report import numbers
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put
from robaudit.report.pictures.style import FAINT, INK, estimator_colour, few_ticks
from robaudit.stats.agreement import MOST_DOTS, Agreement, Floats, Pair
from robaudit.stats.intervals import LIKE_THESE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _BELOW, _LARGEST = 0.66, 0.46, (3.3, 2.4, 2.4)  # inches: for ticks and names; the side of a panel
_NARROWEST = (3.3, 3.8, 5.0)  # inches of the picture with 1, 2, 3 panels across
_ROOM, _MORE = 0.04, 0.08  # share of the range left free beside the values; inches that text may exceed a panel


def sketch(agreement: Agreement) -> Sketch:
    """The picture of this agreement."""
    return Sketch(
        title=f"Agreement of estimators: {agreement.quantity.name}, {agreement.at}",
        caption=_caption(agreement),
        height=lambda look: (len(agreement.estimators) - 1) * (_side(look.body, agreement) + _BELOW + _head(look)),
        draw=lambda figure, box, look: _draw(figure, box, look, agreement),
        narrowest=_NARROWEST[len(agreement.estimators) - 2],
    )


def _side(body: float, agreement: Agreement) -> float:
    panels = len(agreement.estimators) - 1
    return min(_LARGEST[panels - 1], body / panels - _LEFT)


def _head(look: Look) -> float:
    return 2 * look.line + 0.14


def _caption(agreement: Agreement) -> str:
    counts = {pair.images for pair in agreement.drawn}
    parts = [f"{numbers.span(counts)} images; one dot per image."]
    if any(np.isfinite(pair.x[:, 1:]).any() or np.isfinite(pair.y[:, 1:]).any() for pair in agreement.drawn):
        parts.append("Faint bars: 95 % interval of each image.")
    parts.append(
        "Line: equal values. Rank: Spearman's correlation. \u0394: vertical minus horizontal, mean over the images, "
        f"with its 95 % interval, {LIKE_THESE}."
    )
    if max(counts) > MOST_DOTS:
        parts.append(f"{MOST_DOTS} images are drawn, evenly spaced in the data set; the numbers are for all.")
    if agreement.left:
        parts.append(f"Not shown: {', '.join(agreement.left)}.")
    if agreement.levels > 1:
        parts.append(f"One of {agreement.levels} noise levels.")
    return " ".join(parts)


def _draw(figure: Figure, box: Box, look: Look, agreement: Agreement) -> None:
    side, head = _side(box.width, agreement), _head(look)
    low, high = _range(agreement)
    names = agreement.estimators
    inside = all(measured(_difference(pair), look.size) <= side + _MORE for pair in agreement.drawn)
    for pair in agreement.drawn:
        column, row = names.index(pair.across), names.index(pair.up) - 1
        x = box.x + _LEFT + column * (side + _LEFT)
        y = box.y + box.height - row * (side + head + _BELOW) - head - side
        ax = axes(figure, Box(x, y, side, side), look)
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.plot([low, high], [low, high], color=FAINT, linewidth=0.9, zorder=1)
        _dots(ax, pair, estimator_colour(pair.up, names.index(pair.up)), look)
        few_ticks(ax.xaxis, 4)
        few_ticks(ax.yaxis, 4)
        ax.set_xlabel(fitted(pair.across, side, look.size), color=INK, size=look.size, labelpad=3, parse_math=False)
        ax.set_ylabel(fitted(pair.up, side, look.size), color=INK, size=look.size, labelpad=3, parse_math=False)
        _labels(figure, look, pair, Box(x, y + side + 0.06, side, 0), inside=inside)


def _labels(figure: Figure, look: Look, pair: Pair, place: Box, *, inside: bool) -> None:
    """Rank and difference above a panel; aligned with its right side where they are wider than the panel."""
    rank = "rank unknown" if pair.rank is None else f"rank {numbers.rank(pair.rank)}".replace("-", "\u2212")
    x, side = (place.x, "left") if inside else (place.x + place.width, "right")
    put(figure, x, place.y + look.line, rank, size=look.size, weight="bold", va="bottom", ha=side)
    put(figure, x, place.y, _difference(pair), size=look.size, color=FAINT, va="bottom", ha=side)


def _difference(pair: Pair) -> str:
    """As in the table of a report: digits follow the interval, whose ends round outwards."""
    value, ends = numbers.difference(pair.difference, pair.lower, pair.upper), numbers.interval(pair.lower, pair.upper)
    return f"\u0394 {value}{'' if ends == numbers.NONE else f' ({ends})'}".replace("-", "\u2212")


def _dots(ax: Axes, pair: Pair, ink: str, look: Look) -> None:
    """The bars of a direction are one line with gaps; so are the dots of an SVG or PDF, very short with round ends: three elements."""
    low, high = ax.get_xlim()
    x, y = (side.clip(low, high) for side in (pair.x, pair.y))
    ax.plot(*_bars(x[:, 1], x[:, 2], y[:, 0]), color=ink, linewidth=0.7, alpha=0.3, zorder=2)
    ax.plot(*_bars(y[:, 1], y[:, 2], x[:, 0])[::-1], color=ink, linewidth=0.7, alpha=0.3, zorder=2)
    size = 4.2 if len(x) <= 150 else 2.8
    if look.vector:
        short = 1e-4 * (high - low)
        ax.plot(*_bars(x[:, 0], x[:, 0] + short, y[:, 0]), color=ink, linewidth=size, alpha=0.75, solid_capstyle="round", zorder=3)
    else:
        ax.plot(x[:, 0], y[:, 0], color=ink, alpha=0.75, linestyle="none", marker="o", markersize=size, markeredgewidth=0, zorder=3)


def _bars(low: Floats, high: Floats, at: Floats) -> tuple[Floats, Floats]:
    """One line with a gap after each bar."""
    gap = np.full(len(at), np.nan)
    there = np.isfinite(low) & np.isfinite(high)
    return np.stack([low, high, gap], axis=1)[there].ravel(), np.stack([at, at, gap], axis=1)[there].ravel()


def _range(agreement: Agreement) -> tuple[float, float]:
    """From the lowest to the highest value of all panels; up to the end of the quantity's range where they come near it."""
    values = np.concatenate([side[:, 0] for pair in agreement.drawn for side in (pair.x, pair.y)])
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 0.1
    if abs(agreement.quantity.high - high) < 0.25 * span:
        high = agreement.quantity.high
    if abs(low - agreement.quantity.low) < 0.25 * span:
        low = agreement.quantity.low
    room = _ROOM * ((high - low) or 0.1)
    return low - room, high + room
