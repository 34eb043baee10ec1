"""The picture of losses between the average and the worst case: against q, up to the attack, a panel for each noise level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.levels import NoiseLevel
from robaudit.report.numbers import level_texts, span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    fitted,
    legend,
    legend_rows,
    log_scale,
    panels,
    rows_of,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import CARD, GRID
from robaudit.report.sections import Ask, Found
from robaudit.report.words import failed_attacks
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.losses import Losses, LossResult
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from robaudit.report.loss_tables import ByOrder

_MOST_PANELS, _LEAST, _FAR, _MOST_TICKS = 6, 1e-6, 12.0, 6
_WIDE, _HIGH = 3.0, 2.4  # inches of a panel
_BESIDE = 0.02  # decades of q between the means of two lines

Line = tuple[str, Losses]
"""The losses of a run at one noise level, and the name of the run."""


def sketch(found: Sequence[Found[ByOrder]], _: Ask) -> Sketch:
    """The picture of these losses: a panel for each noise level, a line for each run and estimator."""
    every: dict[NoiseLevel, list[Line]] = {}
    for one in found:
        for losses in one.record.losses:
            every.setdefault(losses.at, []).append((one.name, losses))
    shown = dict(list(every.items())[:_MOST_PANELS])
    names = _names(shown)
    return Sketch(
        title="Loss from the average to the worst case",
        caption=" ".join(_caption(shown, list(every)[_MOST_PANELS:], several=len(found) > 1)),
        lead="Loss at q: the q-th root of the mean of loss^q under the noise; lower is better. q = 1: the mean; the larger q is, the more "
        "the upper tail counts.",
        height=lambda look: rows_of(len(shown), look, _WIDE) * _HIGH + legend_rows(list(names.values()), look) * look.line,
        draw=lambda body, look: _draw(body, look, shown, names, thin=len(found) == 1),
    )


def _names(shown: Mapping[NoiseLevel, Sequence[Line]]) -> dict[tuple[str, str], str]:
    """Names of the lines and of attacks without one, by run and estimator."""
    keys: dict[tuple[str, str], None] = {}
    for lines in shown.values():
        for run, losses in lines:
            keys |= dict.fromkeys((run, curve.estimator) for curve in losses.curves)
            keys |= dict.fromkeys((run, one.name) for one in losses.attacks[1:])
    return dict(zip(keys, told_apart(list(keys)), strict=True))


# --- words


def _caption(shown: Mapping[NoiseLevel, Sequence[Line]], left: Sequence[NoiseLevel], *, several: bool) -> Iterator[str]:
    every = [losses for lines in shown.values() for _, losses in lines]
    results = [one for losses in every for one in losses.results]
    yield f"{span([one.images for one in results])} images. Mean over the images; bars: its 95 % interval, {LIKE_THESE}."
    if any(losses.attacks for losses in every):
        yield "Grey: the highest loss that the attack found; the limit is at least as high."
    if not several:
        ids = ", ".join(dict.fromkeys(sample.id for losses in every for sample in losses.worst))
        ranked = ", ".join(dict.fromkeys(losses.ranked_by for losses in every))
        yield f"Thin: the images with the highest loss by {ranked} (the first that flag-samples lists): {ids}."
    low, high = _limits(every, thin=not several)
    if low > 0 and any(value < low for losses in every for value in _values(losses, thin=not several)):
        yield f"At the lower edge: below {low:.2g}, or 0."
    if any(_known(one) and (one.mean.upper > high or one.mean.lower < low) for one in results):
        yield "An interval that reaches an edge of the picture goes on beyond it."
    for name in dict.fromkeys(name for lines in shown.values() for name, _ in lines):
        failed = failed_attacks([losses for lines in shown.values() for run, losses in lines if run == name])
        if failed:
            yield f"{name}: {failed}" if several else failed
    if without := dict.fromkeys(one.estimator for one in results if one.with_interval < one.images):
        yield f"{', '.join(without)}: values without an interval of their own."
    if biased := dict.fromkeys(one.estimator for one in results if one.approximate):
        yield f"{', '.join(biased)}: no interval covers the bias of the estimate."
    if dropped := sum(one.left_out for one in results):
        yield f"Left out: {count(dropped, 'result')} without a finite value."
    if left:
        yield f"Not shown: {', '.join(level_texts(left).values())}."


def _known(one: LossResult) -> bool:
    """Whether the interval of the mean says anything: with a single image it does not."""
    return math.isfinite(one.mean.upper) or one.mean.lower > 0


# --- drawing


def _values(losses: Losses, *, thin: bool) -> Iterator[float]:
    """All that is drawn as a point."""
    for one in losses.results:
        yield one.mean.value
        if thin:
            yield from (value for value in one.worst if value is not None)


def _limits(every: Sequence[Losses], *, thin: bool) -> tuple[float, float]:
    """The vertical range of all panels: from 0, or, where values are far apart, of a logarithmic scale."""
    values = [value for losses in every for value in _values(losses, thin=thin)]
    ends = [one.mean.upper for losses in every for one in losses.results if math.isfinite(one.mean.upper)]
    high, positive = max([*values, *ends, 1e-300]), [value for value in values if value > 1e-300]
    if not positive or max(positive) <= _FAR * min(positive):
        return 0.0, 1.08 * high
    low = max(min(positive), _LEAST * max(positive))
    room = (high / low) ** 0.05
    return low / room, high * room


def _draw(
    body: SubFigure, look: PictureSize, shown: Mapping[NoiseLevel, Sequence[Line]], names: Mapping[tuple[str, str], str], *, thin: bool
) -> None:
    texts = level_texts(shown)
    styles = dict(zip(names, styles_of(list(names), marks=True), strict=True))
    limits = _limits([losses for lines in shown.values() for _, losses in lines], thin=thin)
    grid = panels(body, len(shown), look, _WIDE, titles=[texts[at] for at in shown], sharey=True)
    for i, (ax, lines) in enumerate(zip(grid, shown.values(), strict=True)):
        ax.set_ylim(*limits)
        if limits[0] > 0:
            log_scale(ax, "y")
        else:
            few_ticks(ax.yaxis)
        _panel(ax, lines, styles, limits, thin=thin)
        if i % look.across(len(shown), _WIDE) == 0:
            ax.set_ylabel(fitted(f"loss in {lines[0][1].quantity.unit}, lower is better", _HIGH - 0.5, look.size))
    legend(body, list(names.values()), list(styles.values()), look)


def _panel(
    ax: Axes, lines: Sequence[Line], styles: Mapping[tuple[str, str], dict[str, Any]], limits: tuple[float, float], *, thin: bool
) -> None:
    orders = sorted({one.q for _, losses in lines for curve in losses.curves for one in curve.results})
    reach = math.log10(orders[-1] / orders[0])
    limit = math.log10(orders[-1]) + max(0.35, 0.22 * reach)  # where the attack is
    attacked = any(losses.attacks for _, losses in lines)
    if attacked:
        ax.axvspan(limit - 0.08 * (reach + 1), limit + 0.08 * (reach + 1), color=GRID, alpha=0.5, linewidth=0, zorder=0)
    drawn = 0
    for run, losses in lines:
        if thin:
            _worst(ax, losses, limit, limits, styles[run, losses.ranking.estimator]["color"])
        for curve in losses.curves:
            style, shift = styles[run, curve.estimator], _BESIDE * (reach + 1) * drawn
            drawn += 1
            points = [(math.log10(one.q) + shift, one) for one in curve.results]
            ax.plot(*_xy(points, limits), color=CARD, linewidth=4.0, zorder=3.9)  # apart from the thin lines below
            ax.plot(*_xy(points, limits), zorder=4, **style)
            if losses.attacks:
                best = max(losses.attacks, key=lambda one: one.mean.value)
                way = [points[-1], (limit + shift, best)]
                ax.plot(*_xy(way, limits), color=style["color"], linewidth=1.3, linestyle=(0, (1, 1.5)), zorder=3.5)
                points.append((limit + shift, losses.attacks[0]))
                ax.plot(*_xy(points[-1:], limits), zorder=4, **style)
            for x, one in points:
                _bar(ax, x, one, limits, style["color"])
        for i, one in enumerate(losses.attacks[1:], start=1):
            style, x = styles[run, one.name], limit + _BESIDE * (reach + 1) * (drawn + i)
            ax.plot(*_xy([(x, one)], limits), zorder=4, **style)
            _bar(ax, x, one, limits, style["color"])
    _orders(ax, orders, limit if attacked else None)


def _xy(points: Sequence[tuple[float, LossResult]], limits: tuple[float, float]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [float(np.clip(one.mean.value, *limits)) for _, one in points]


def _bar(ax: Axes, x: float, one: LossResult, limits: tuple[float, float], ink: str) -> None:
    if _known(one):
        ax.plot([x, x], np.clip([one.mean.lower, one.mean.upper], *limits), color=ink, linewidth=1.3, alpha=0.8, zorder=4)


def _orders(ax: Axes, orders: Sequence[float], limit: float | None) -> None:
    """Ticks at the orders, not at all of many, and at the attack."""
    every = -(-len(orders) // _MOST_TICKS)
    shown = list(orders[::-1][::every])[::-1]
    texts = [f"{order:.6g}".replace("e+0", "e").replace("e+", "e") for order in shown]
    ends = [] if limit is None else [(limit, "attack")]
    places = [*((math.log10(order), text) for order, text in zip(shown, texts, strict=True)), *ends]
    ax.set_xticks([x for x, _ in places], [text for _, text in places])
    ax.set_xlabel("q (1: the average)")


def _worst(ax: Axes, losses: Losses, limit: float, limits: tuple[float, float], ink: str) -> None:
    """A thin line for each of the worst images, dotted from the last q to the attack's value."""
    for i in range(len(losses.worst)):
        points = [
            (math.log10(one.q), float(np.clip(value, *limits))) for one in losses.ranking.results if (value := one.worst[i]) is not None
        ]
        ax.plot(*zip(*points, strict=True), color=ink, linewidth=0.8, alpha=0.6, zorder=2)
        found = max((value for one in losses.attacks if (value := one.worst[i]) is not None), default=None)
        if found is not None:
            end = limit, float(np.clip(found, *limits))
            ax.plot(*zip(points[-1], end, strict=True), color=ink, linewidth=0.8, alpha=0.5, linestyle=(0, (1, 2)), zorder=2)
            ax.plot(*end, marker="o", markersize=2.2, color=ink, alpha=0.6, zorder=3)
