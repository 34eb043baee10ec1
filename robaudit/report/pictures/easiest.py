"""The pictures of errors on the easiest images: a heat map by noise level, and the mean corruption error by the share kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from robaudit.levels import LevelName
from robaudit.report.numbers import level_numbers
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured
from robaudit.report.pictures.style import BLUE, CARD, FAINT, ORANGE, RED, TEAL, number_ticks
from robaudit.stats.easiest import EasiestErrors, KeptCurve
from robaudit.stats.intervals import LIKE_THESE, Floats
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT, _BAR = 3.2, 0.16  # inches: of the axes; the width of the scale of colours
_SCALE = (CARD, "#f3d9b1", ORANGE, RED, "#6d1712")
_CONTOURS = (0.01, 0.1, 0.5)
_LINE = "#3b2417"  # on colours that are the same on light and dark pages
_MOST_LINES = 400


def heat_map(errors: EasiestErrors) -> Sketch:
    """Errors by noise level (across) and number of the easiest images kept (up)."""
    return Sketch(
        title="Errors on the easiest images",
        caption=" ".join(_heat_caption(errors)),
        height=lambda look: _HEIGHT + 2 * look.line + 0.16,
        draw=lambda figure, box, look: _draw_map(figure, box, look, errors),
    )


def kept_picture(curve: KeptCurve) -> Sketch:
    """The mean corruption error by the share of the easiest images kept."""
    return Sketch(
        title="Mean corruption error (unnormalised) of the easiest images",
        caption=" ".join(_kept_caption(curve)),
        height=lambda look: 2.7 + 2 * look.line + 0.16,
        draw=lambda figure, box, look: _draw_curve(figure, box, look, curve),
    )


def _heat_caption(errors: EasiestErrors) -> Iterator[str]:
    first = errors.levels[0]
    yield (
        f"{count(errors.images, 'image')} sorted by the loss of the clean image; each line keeps the easiest, the top line all. Colour: "
        f"share of their copies under {first.noise} noise that are classified wrongly, by the votes of {errors.estimator}."
    )
    yield "Lines: 1 %, 10 % and 50 % of errors."
    yield f"Without noise {errors.clean:.1%} of all images are misclassified."
    yield from _order(errors)


def _kept_caption(curve: KeptCurve) -> Iterator[str]:
    errors = curve.errors
    severities = len(errors.levels)
    yield (
        f"{count(errors.images, 'image')} sorted by the loss of the clean image. Thick: error rate, the mean over "
        f"{count(len(curve.labels), 'noise')} ({severities} noise levels; each noise its mean over severities), by the votes of "
        f"{errors.estimator}; not divided by the errors of another network."
    )
    if curve.band:
        yield f"Band: 95 % bootstrap interval, {LIKE_THESE}, each share alone."
    if len(curve.labels) > 1:
        yield "Thin: each noise."
    yield f"All images: {curve.mean[-1]:.1%}; without noise {errors.clean:.1%}."
    yield from _order(errors)


def _order(errors: EasiestErrors) -> Iterator[str]:
    if errors.last:
        be = "image is" if errors.last == 1 else "images are"
        yield f"{errors.last:,} misclassified {be} put last: difficulty with target: label would sort them by their loss, too."
    if errors.others:
        yield f"{count(errors.others, 'other result')} with votes not shown: --estimator and --noise choose."


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _draw_map(figure: Figure, box: Box, look: Look, errors: EasiestErrors) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    kept, images = errors.kept(), errors.images
    colours = LinearSegmentedColormap.from_list("errors", list(_SCALE))
    below = 2 * look.line + 0.16
    left = 0.14 + look.line + measured(f"{images:,}", look.size)
    right = 0.2 + _BAR + 0.1 + measured("100 %", look.size)
    height = box.height - below - 0.1
    ax = axes(figure, Box(box.x + left, box.y + below, box.width - left - right, height), look)
    columns = len(errors.levels)
    chosen = np.unique(np.linspace(0, images - 1, min(images, _MOST_LINES)).round().astype(int))
    edges = np.concatenate([[0], (chosen[:-1] + chosen[1:]) / 2 + 1, [images]])
    ax.grid(visible=False)
    ax.pcolormesh(np.arange(columns + 1) - 0.5, edges, kept[chosen], cmap=colours, vmin=0.0, vmax=1.0, rasterized=True)
    if columns > 1 and images > 1:
        steady = chosen >= images // 50  # of the fewest images the error is noise
        _contours(ax, kept[chosen][steady], chosen[steady] + 1.0)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(0, images)
    texts = list(level_numbers(errors.levels).values())
    need = max(measured(text, look.size) for text in texts) + 0.1
    every = max(1, int(np.ceil(need * columns / (box.width - left - right))))
    places = range(0, columns, every)
    number_ticks(ax.xaxis, list(places), [texts[i] for i in places])
    steps = sorted({round(images * i / 4) for i in range(1, 5)} | {1})
    number_ticks(ax.yaxis, steps, [f"{step:,}" for step in steps])
    ax.set_xlabel(_level_words(errors), color=FAINT, size=look.size, labelpad=3, parse_math=False)
    ax.set_ylabel(fitted("easiest images kept", height, look.size), color=FAINT, size=look.size, labelpad=3)
    scale = axes(figure, Box(box.x + box.width - right + 0.2, box.y + below, _BAR, height), look)
    scale.grid(visible=False)
    scale.imshow(np.linspace(0, 1, 256)[:, None], cmap=colours, aspect="auto", origin="lower", extent=(0, 1, 0, 1))
    scale.set_xticks([])
    scale.yaxis.tick_right()
    number_ticks(scale.yaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])


def _contours(ax: Axes, kept: Floats, heights: Floats) -> None:
    levels = [level for level in _CONTOURS if kept.min() < level < kept.max()]
    if not levels:
        return
    ax.contour(np.arange(kept.shape[1]), heights, kept, levels=levels, colors=_LINE, linewidths=0.8, alpha=0.7)


def _level_words(errors: EasiestErrors) -> str:
    first = errors.levels[0]
    words = {LevelName.EPS: "eps", LevelName.SIGMA: "sigma"}.get(first.name, first.name.value)
    return f"{first.noise} noise, {words}"


def _draw_curve(figure: Figure, box: Box, look: Look, curve: KeptCurve) -> None:
    below, left = 2 * look.line + 0.16, 0.14 + look.line + measured("100 %", look.size)
    height = box.height - below - 0.1
    ax = axes(figure, Box(box.x + left, box.y + below, box.width - left - 0.1, height), look)
    for line in curve.by_noise if len(curve.labels) > 1 else ():
        ax.plot(curve.shares, line, color=TEAL, linewidth=0.7, alpha=0.5, zorder=2)
    if curve.band:
        shares, lower, upper = zip(*((share, *ends) for share, ends in curve.band), strict=True)
        ax.fill_between(shares, lower, upper, color=BLUE, alpha=0.2, linewidth=0, zorder=1.5)
    ax.plot(curve.shares, curve.mean, color=BLUE, linewidth=2.0, zorder=3)
    top = max(float(curve.by_noise.max()), float(curve.mean.max()), *(ends[1] for _, ends in curve.band), 0.01)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, min(1.0, 1.05 * top))
    number_ticks(ax.xaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    from matplotlib.ticker import MaxNLocator

    ticks = [
        float(t) for t in MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(0, ax.get_ylim()[1]) if 0 <= t <= ax.get_ylim()[1]
    ]
    number_ticks(ax.yaxis, ticks, [_percent(round(t, 6)) if t else "" for t in ticks])
    ax.set_xlabel("share of the easiest images kept", color=FAINT, size=look.size, labelpad=3)
    words = fitted("mean corruption error", height, look.size)
    ax.set_ylabel(words, color=FAINT, size=look.size, labelpad=3)
