"""Errors under noise on the easiest images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robaudit.errors import RunError
from robaudit.estimates import Estimate
from robaudit.levels import LevelName
from robaudit.methods.radius.easiest import (
    EasiestErrors,
    ErrorByShare,
    easiest_errors,
    error_by_share,
)
from robaudit.methods.radius.scores import RADII
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import LIKE_THESE
from robaudit.quantities import DIFFICULTY
from robaudit.report import numbers
from robaudit.report.pictures.page import (
    Drawing,
    PictureSize,
    cut,
    legend,
    level_name,
    percent_scale,
    rows_of,
    stacked,
)
from robaudit.report.pictures.style import FAINT, heat_colours, line_style
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.typed import NUMBER, SHARE, Kind, TypedColumn, TypedTable
from robaudit.runs.run import Run
from robaudit.stats.bootstrap import BOOTSTRAP
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import SubFigure

# of the images, the easiest first
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


class Easiest(NamedTuple):
    """The errors by the share of the easiest images that are kept: of one noise, and over
    corruptions where the run has severities."""

    errors: EasiestErrors
    curve: ErrorByShare | None


class EasiestSection(Section[Easiest]):
    """Errors under noise on the easiest images only, by how many of them are kept."""

    title = "Errors on the easiest images"
    place = 60
    words = (
        "Images are sorted by how difficult they are without noise; a robust network makes "
        "no errors on the easiest ones."
    )

    def applies(self, run: Run) -> bool:
        """Whether it has labels, votes, and difficulties of their own or among the details of
        radii."""
        labelled = run.info.clean_accuracy is not None and bool(run.info.noisy_accuracy)
        return labelled and not {DIFFICULTY.name, *RADII}.isdisjoint(run.quantities)

    def records(self, run: Run, request: SectionRequest) -> list[Easiest]:
        """The errors of the first estimator that counts votes."""
        severe = any(entry.level_name == LevelName.SEVERITY for entry in run.info.noisy_accuracy)
        curve = None
        if severe:
            try:
                curve = error_by_share(run, request.estimators, request.levels)
            # the map may still have some
            except RunError:  # none among the requested results
                curve = None
        return [Easiest(easiest_errors(run, request.estimators, request.levels), curve)]

    def table(self, entry: Entry[Easiest], request: SectionRequest) -> TypedTable:
        """The mean errors of the easiest 10, 25, 50, 75 and 100 % of the images: a row for each
        noise level and share."""
        errors = entry.record.errors
        rows = []
        for i, at in enumerate(errors.levels):
            level = (str(at), *at.document().values())
            means = zip(_SHARES, _means(errors, i), strict=True)
            rows += [(*level, share, error) for share, error in means]
        return TypedTable(
            f"Mean error of the noisy copies, {ResultName.parse(errors.estimator).estimator}",
            _COLUMNS,
            rows,
            about={"estimator": errors.estimator},
            lines=(count(errors.images, "image"),),
            notes=_unsorted(errors),
        )

    def typed_tables(self, entry: Entry[Easiest], request: SectionRequest) -> Sequence[TypedTable]:
        """The errors by noise level, and their mean over corruptions and severities."""
        curve = entry.record.curve
        means = [] if curve is None else [_mean_over_noises(curve)]
        return [self.table(entry, request), *means]

    def figure(self, entries: Sequence[Entry[Easiest]], request: SectionRequest) -> Drawing:
        """A heat map by noise level for each run, and the error by the share of images kept."""
        curves = [
            (entry.name, entry.record.curve) for entry in entries if entry.record.curve is not None
        ]
        return Drawing(
            title="Errors on the easiest images",
            caption=" ".join(_caption(entries, [curve for _, curve in curves])),
            height=lambda size: (
                (rows_of(len(entries), size, _WIDE) + bool(curves)) * _HIGH + size.line
            ),
            draw=lambda body, size: _draw(body, size, entries, curves),
        )

    def document(self, entry: Entry[Easiest], request: SectionRequest) -> dict[str, Any]:
        """The errors by level and by the share of images kept."""
        errors, curve = entry.record
        by_share = {}
        for i, at in enumerate(errors.levels):
            by_share[str(at)] = dict(zip(map(str, _SHARES), _means(errors, i), strict=True))
        band = None
        if curve is not None:
            band = [
                {"share": share, "lower": low, "upper": high} for share, (low, high) in curve.band
            ]
        return {
            "estimator": errors.estimator,
            "images": errors.images,
            "clean_error": errors.clean,
            "errors": by_share,
            "band": band,
        }


def _unsorted(errors: EasiestErrors) -> tuple[str, ...]:
    """A note on the images without a difficulty, if there are some."""
    if not errors.last:
        return ()
    return (f"{errors.last} misclassified images of unknown loss come last.",)


def _means(errors: EasiestErrors, level: int) -> list[float]:
    """The mean error at a level on each share of the images."""
    means = errors.kept()[:, level]
    return [float(means[max(1, round(share * errors.images)) - 1]) for share in _SHARES]


_KEPT = Kind(lambda share: f"easiest {share:.0%}")
_COLUMNS = (
    TypedColumn("", head="noise"),
    TypedColumn("noise", head=None),
    TypedColumn("level_name", head=None),
    TypedColumn("level", NUMBER, head=None),
    TypedColumn("kept", _KEPT),
    TypedColumn("error", SHARE, across="kept"),
)


def _mean_over_noises(curve: ErrorByShare) -> TypedTable:
    """The mean error over corruptions and severities by the share of images kept. Only people see
    it; JSON has its band."""
    band = dict(curve.band)
    rows = []
    for share in _SHARES:
        value = float(curve.mean[max(1, round(share * len(curve.mean))) - 1])
        bounds = next((ends for at, ends in band.items() if np.isclose(at, share)), None)
        mean = value if bounds is None else Estimate.population(value, bounds, BOOTSTRAP)
        rows.append((share, mean))
    columns = (TypedColumn("kept", _KEPT), TypedColumn("error", SHARE, across="kept"))
    return TypedTable(
        f"Mean over corruptions and severities: {', '.join(curve.labels)}",
        columns,
        rows,
        notes=(f"[ ] 95 % bootstrap interval, {LIKE_THESE}, each share alone.",),
        in_csv=False,
    )


# --- the figure

# inches of a panel
_WIDE = 2.2
_HIGH = 2.6
_MOST_LINES = 400  # of the map
# errors at the contours; their colour lies on others that are the same on light and dark pages
_CONTOURS = (0.01, 0.1, 0.5)
_CONTOUR = "#3b2417"


def _caption(entries: Sequence[Entry[Easiest]], curves: Sequence[ErrorByShare]) -> Iterator[str]:
    """The sentences of the caption."""
    by_run = [entry.record.errors for entry in entries]
    yield (
        f"{numbers.span([errors.images for errors in by_run])} images sorted by the loss of the "
        "clean image; each line of the map keeps the "
        "easiest, the top line all. Colour: share of their copies under "
        f"{by_run[0].levels[0].noise} noise that are classified wrongly, "
        f"by the votes of {by_run[0].estimator}. Lines: 1 %, 10 % and 50 % of errors."
    )
    if curves:
        thin_lines = "; thin: each noise" if len(entries) == 1 and len(curves[0].labels) > 1 else ""
        yield (
            "Below: mean corruption error (unnormalised), over "
            f"{count(len(curves[0].labels), 'noise')}, each its mean over severities, by "
            f"the share of the easiest images kept; band: 95 % bootstrap interval, {LIKE_THESE}, "
            f"each share alone{thin_lines}."
        )
    if last := max(errors.last for errors in by_run):
        yield (
            f"{last:,} misclassified images without a known loss are put last: difficulty with "
            "target: label would sort them, too."
        )
    if others := max(errors.others for errors in by_run):
        yield (
            f"{count(others, 'other result')} with votes not shown in the map (choose with "
            "--estimator and --noise)."
        )


def _draw(
    body: SubFigure,
    size: PictureSize,
    entries: Sequence[Entry[Easiest]],
    curves: Sequence[tuple[str, ErrorByShare]],
) -> None:
    """Draw a map for each run, then the curves below them."""
    rows = rows_of(len(entries), size, _WIDE)
    parts = stacked(body, [rows, 1] if curves else [1])
    across = size.across(len(entries), _WIDE)
    grid = parts[0].subplots(rows, across, squeeze=False)
    for ax in grid.flat[len(entries) :]:
        ax.set_axis_off()
    for ax, entry in zip(grid.flat, entries, strict=False):
        drawn = _map(ax, entry.record.errors, size)
        if len(entries) > 1:
            letters = size.letters(size.body / across - 0.2, bold=True)
            ax.set_title(cut(entry.name, letters, "middle"))
    # one bar for all maps, which share their scale
    bar = parts[0].colorbar(drawn, ax=grid, aspect=24, pad=0.015)
    bar.outline.set_visible(False)
    percent_scale(bar.ax.yaxis)
    bar.ax.grid(visible=False)
    if curves:
        _draw_kept(parts[1], size, curves)


def _map(ax: Axes, errors: EasiestErrors, size: PictureSize) -> QuadMesh:
    """Draw the mean error by noise level (across) and by the number of images kept (upwards)."""
    means = errors.kept()
    images = errors.images
    columns = len(errors.levels)
    chosen = np.unique(np.linspace(0, images - 1, min(images, _MOST_LINES)).round().astype(int))
    edges = np.concatenate([[0], (chosen[:-1] + chosen[1:]) / 2 + 1, [images]])
    ax.grid(visible=False)
    across = np.arange(columns + 1) - 0.5
    shown = means[chosen]
    drawn = ax.pcolormesh(
        across, edges, shown, cmap=heat_colours(), vmin=0.0, vmax=1.0, rasterized=True
    )
    steady = chosen >= images // 50  # over very few images the error is noise
    lines = [level for level in _CONTOURS if shown[steady].min() < level < shown[steady].max()]
    if columns > 1 and steady.sum() > 1 and lines:
        ax.contour(
            np.arange(columns),
            chosen[steady] + 1.0,
            shown[steady],
            levels=lines,
            colors=_CONTOUR,
            linewidths=0.8,
            alpha=0.7,
        )
    texts = list(numbers.level_numbers(errors.levels).values())
    # a panel has room for 24 letters of tick labels
    step = math.ceil(columns * max(map(len, texts)) / 24)
    ax.set_xticks(range(0, columns, step), texts[::step])
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(0, images), ylabel="easiest images kept")
    label = f"{errors.levels[0].noise} noise, {level_name(str(errors.levels[0].name))}"
    ax.set_xlabel(cut(label, size.letters(_WIDE - 0.6)))
    return drawn


def _draw_kept(
    body: SubFigure, size: PictureSize, curves: Sequence[tuple[str, ErrorByShare]]
) -> None:
    """Draw the mean over noises by the share of images kept; of a single run also each noise."""
    ax = body.subplots()
    styles = {name: line_style(i) for i, (name, _) in enumerate(curves)}
    for name, curve in curves:
        style = styles[name]
        if curve.band:
            shares = [share for share, _ in curve.band]
            lower = [below for _, (below, _) in curve.band]
            upper = [above for _, (_, above) in curve.band]
            ax.fill_between(
                shares, lower, upper, color=style["color"], alpha=0.18, linewidth=0, zorder=1.5
            )
        if len(curves) == 1 and len(curve.labels) > 1:
            for of_noise in curve.by_noise:
                ax.plot(curve.shares, of_noise, color=FAINT, linewidth=0.7, alpha=0.6, zorder=2)
        ax.plot(curve.shares, curve.mean, zorder=3, **style)
    ax.set(
        xlim=(0, 1),
        ylim=(0, None),
        xlabel="share of the easiest images kept",
        ylabel="mean corruption error",
    )
    percent_scale(ax.xaxis)
    percent_scale(ax.yaxis)
    legend(body, styles, size)
