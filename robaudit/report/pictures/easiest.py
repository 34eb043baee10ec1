"""The picture of errors on the easiest images: a heat map by noise level for each run, and the error by the share of images kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robaudit.report.easiest_tables import Easiest
from robaudit.report.numbers import level_numbers, span
from robaudit.report.pictures.page import PictureSize, Sketch, fitted, legend, level_name, percent_scale, rows_of
from robaudit.report.pictures.style import FAINT, heat_colours, line_style
from robaudit.report.sections import Ask, Found
from robaudit.stats.easiest import EasiestErrors, KeptCurve
from robaudit.stats.intervals import LIKE_THESE
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_WIDE, _HIGH, _MOST_LINES = 2.2, 2.6, 400  # inches of a panel; lines of the map
_CONTOURS, _CONTOUR = (0.01, 0.1, 0.5), "#3b2417"  # on colours that are the same on light and dark pages


def sketch(found: Sequence[Found[Easiest]], _: Ask) -> Sketch:
    """The picture of these runs."""
    kept = [(one.name, one.record.kept) for one in found if one.record.kept is not None]
    return Sketch(
        title="Errors on the easiest images",
        caption=" ".join(_caption(found, [curve for _, curve in kept])),
        height=lambda look: (rows_of(len(found), look, _WIDE) + bool(kept)) * _HIGH + look.line,
        draw=lambda body, look: _draw(body, look, found, kept),
    )


def _caption(found: Sequence[Found[Easiest]], kept: Sequence[KeptCurve]) -> Iterator[str]:
    every = [one.record.errors for one in found]
    yield (
        f"{span([one.images for one in every])} images sorted by the loss of the clean image; each line of the map keeps the easiest, the "
        f"top line all. Colour: share of their copies under {every[0].levels[0].noise} noise that are classified wrongly, by the votes of "
        f"{every[0].estimator}. Lines: 1 %, 10 % and 50 % of errors."
    )
    if kept:
        each = "; thin: each noise" if len(found) == 1 and len(kept[0].labels) > 1 else ""
        yield (
            f"Below: mean corruption error (unnormalised), over {count(len(kept[0].labels), 'noise')}, each its mean over severities, by "
            f"the share of the easiest images kept; band: 95 % bootstrap interval, {LIKE_THESE}, each share alone{each}."
        )
    for one in found:
        errors, curve = one.record.errors, one.record.kept
        name = f"{one.name}: " if len(found) > 1 else ""
        copies = "" if curve is None else f", and {curve.mean[-1]:.1%} of all copies"
        yield f"{name}{errors.clean:.1%} of the images are misclassified without noise{copies}."
    if last := max(one.last for one in every):
        yield f"{last:,} misclassified images without a known loss are put last: difficulty with target: label would sort them, too."
    if others := max(one.others for one in every):
        yield f"{count(others, 'other result')} with votes not shown in the map (choose with --estimator and --noise)."


def _draw(body: SubFigure, look: PictureSize, found: Sequence[Found[Easiest]], kept: Sequence[tuple[str, KeptCurve]]) -> None:
    rows = rows_of(len(found), look, _WIDE)
    parts = body.subfigures(2 if kept else 1, 1, height_ratios=[rows, 1] if kept else [1], squeeze=False)[:, 0]
    for part in parts:
        part.patch.set_visible(False)
    across = look.across(len(found), _WIDE)
    grid = parts[0].subplots(rows, across, squeeze=False)
    for ax in grid.flat[len(found) :]:
        ax.set_axis_off()
    for ax, one in zip(grid.flat, found, strict=False):
        drawn = _map(ax, one.record.errors, look)
        if len(found) > 1:
            ax.set_title(fitted(one.name, look.body / across - 0.2, look.size, bold=True))
    bar = parts[0].colorbar(drawn, ax=grid, aspect=24, pad=0.015)
    bar.outline.set_visible(False)
    percent_scale(bar.ax.yaxis)
    bar.ax.grid(visible=False)
    if kept:
        _kept(parts[1], look, kept)


def _map(ax: Axes, errors: EasiestErrors, look: PictureSize) -> object:
    kept, images, columns = errors.kept(), errors.images, len(errors.levels)
    chosen = np.unique(np.linspace(0, images - 1, min(images, _MOST_LINES)).round().astype(int))
    edges = np.concatenate([[0], (chosen[:-1] + chosen[1:]) / 2 + 1, [images]])
    ax.grid(visible=False)
    across = np.arange(columns + 1) - 0.5
    drawn = ax.pcolormesh(across, edges, kept[chosen], cmap=heat_colours(), vmin=0.0, vmax=1.0, rasterized=True)
    steady = chosen >= images // 50  # of the fewest images the error is noise
    lines = [level for level in _CONTOURS if kept[chosen][steady].min() < level < kept[chosen][steady].max()]
    if columns > 1 and steady.sum() > 1 and lines:
        ax.contour(np.arange(columns), chosen[steady] + 1.0, kept[chosen][steady], levels=lines, colors=_CONTOUR, linewidths=0.8, alpha=0.7)
    texts = list(level_numbers(errors.levels).values())
    every = -(-columns * max(map(len, texts)) // 24)
    ax.set_xticks(range(0, columns, every), texts[::every])
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(0, images), ylabel="easiest images kept")
    ax.set_xlabel(fitted(f"{errors.levels[0].noise} noise, {level_name(str(errors.levels[0].name))}", _WIDE - 0.6, look.size))
    return drawn


def _kept(body: SubFigure, look: PictureSize, kept: Sequence[tuple[str, KeptCurve]]) -> None:
    ax = body.subplots()
    styles = [line_style(i) for i in range(len(kept))]
    for style, (_, curve) in zip(styles, kept, strict=True):
        if curve.band:
            shares, lower, upper = zip(*((share, *ends) for share, ends in curve.band), strict=True)
            ax.fill_between(shares, lower, upper, color=style["color"], alpha=0.18, linewidth=0, zorder=1.5)
        for line in curve.by_noise if len(kept) == 1 and len(curve.labels) > 1 else ():
            ax.plot(curve.shares, line, color=FAINT, linewidth=0.7, alpha=0.6, zorder=2)
        ax.plot(curve.shares, curve.mean, zorder=3, **style)
    ax.set(xlim=(0, 1), ylim=(0, None), xlabel="share of the easiest images kept", ylabel="mean corruption error")
    percent_scale(ax.xaxis)
    percent_scale(ax.yaxis)
    legend(body, [name for name, _ in kept], styles, look)
