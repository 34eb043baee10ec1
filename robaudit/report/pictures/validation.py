"""The pictures of a validation: error against the noise level, and estimate against reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.advice.comparison import Truth
from robaudit.advice.validate import Validation
from robaudit.advice.verdicts import short
from robaudit.errors import NothingLeftError, RunError
from robaudit.levels import NoiseLevel, noise_level
from robaudit.report.numbers import span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    legend,
    legend_rows,
    level_name,
    log_scale,
    page,
    panels,
    rows_of,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import CARD, FAINT, line_style, saved
from robaudit.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_WIDE, _HIGH = 3.0, 2.4  # inches of a panel
_LOWEST = 1e-4


@dataclass(frozen=True, slots=True)
class RmsePoint:
    """The error of an estimator at a noise level: RMSE and one standard error of it; ``run``: the name of the validation."""

    run: str
    estimator: str
    at: NoiseLevel
    images: int
    rmse: float
    rmse_error: float | None


def read(folders: Sequence[Path]) -> list[RmsePoint]:
    """The errors that some validations wrote.

    Raises:
        RunError: a folder holds no validation.
        NothingLeftError: none of them has an estimate of the reference's quantity.
    """
    from robaudit.advice.validation_files import SUMMARY
    from robaudit.files import read_json

    found = []
    for folder in folders:
        if not (folder / SUMMARY).is_file():
            raise RunError(str(folder), "holds no validation", "name a folder that robaudit validate wrote")
        document = read_json(folder / SUMMARY)
        for one in document["comparisons"]:
            if one["error"] is not None:
                at, error = noise_level(one["noise"], one["level"], one["level_name"]), one["error"]
                found.append(RmsePoint(folder.name, one["estimator"], at, one["images"], error["rmse"], error["rmse_error"]))
    if not found:
        raise NothingLeftError(str(folders[0]), "has no estimator of p_robust to draw", "validate a spec with mmse or logit_gaussian")
    return found


def pictures(validation: Validation) -> Mapping[str, Callable[[], bytes]]:
    """Functions that return the files, each picture as PNG and SVG."""
    found = [
        RmsePoint("", one.estimator, one.at, one.images, one.error.rmse, one.error.rmse_error)
        for one in validation.comparisons
        if one.error is not None
    ]
    sketches = {"scatter": _scatter(validation)}
    if found:
        sketches["errors"] = sketch(found, validation.draws)
    return {f"{name}.{kind}": _file(made, kind) for name, made in sketches.items() for kind in ("png", "svg")}


def _file(made: Sketch, kind: str) -> Callable[[], bytes]:
    return lambda: saved(kind, *page(made, PictureSize()), dpi=150)


def sketch(found: Sequence[RmsePoint], draws: int | None = None) -> Sketch:
    """Error against noise level, a line for each estimator, a panel for each noise."""
    names = dict(zip(keys := list(dict.fromkeys((one.run, one.estimator) for one in found)), told_apart(keys), strict=True))
    noises = list(dict.fromkeys(str(one.at.noise) for one in found))
    reference = "mc" if draws is None else f"mc with {draws:,} draws"
    return Sketch(
        title="Error of the estimators by noise level",
        caption=f"RMSE over {span([one.images for one in found])} images against {reference}; band: one standard error.",
        height=lambda look: rows_of(len(noises), look, _WIDE) * _HIGH + legend_rows(list(names.values()), look) * look.line,
        draw=lambda body, look: _errors(body, look, found, names, noises),
    )


def _errors(
    body: SubFigure, look: PictureSize, found: Sequence[RmsePoint], names: Mapping[tuple[str, str], str], noises: Sequence[str]
) -> None:
    styles = dict(zip(names, styles_of(list(names), marks=True), strict=True))
    titles = noises if len(noises) > 1 else ()
    for ax, noise in zip(panels(body, len(noises), look, _WIDE, titles=titles, sharey=True), noises, strict=True):
        mine = [one for one in found if one.at.noise == noise]
        for key, style in styles.items():
            line = sorted((one for one in mine if (one.run, one.estimator) == key), key=lambda one: one.at.strength)
            _line(ax, [(one.at.number, one.rmse, one.rmse_error) for one in line], style)
        _log(ax)
        ax.set_xlabel(level_name(str(mine[0].at.name)))
    legend(body, list(names.values()), list(styles.values()), look)


def _line(ax: Axes, points: Sequence[tuple[float, float, float | None]], style: Mapping[str, Any]) -> None:
    """RMSE against the noise level, with its standard error; below the lowest value there is only the reference's own error."""
    x = [at for at, *_ in points]
    upper = [rmse + (error or 0.0) for _, rmse, error in points]
    squares = [max(0.0, 2 * rmse**2 - high**2) for (_, rmse, _), high in zip(points, upper, strict=True)]
    lower = [max(_LOWEST, math.sqrt(square), rmse / math.e**2) for square, (_, rmse, _) in zip(squares, points, strict=True)]
    ax.fill_between(x, lower, [max(_LOWEST, high) for high in upper], color=style["color"], alpha=0.12, linewidth=0)
    ax.plot(x, [rmse if rmse > _LOWEST else math.nan for _, rmse, _ in points], **style)


def _log(ax: Axes) -> None:
    log_scale(ax, "x")
    log_scale(ax, "y")
    if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel("RMSE")


def _scatter(validation: Validation) -> Sketch:
    """Estimate against reference, a panel for each estimator and noise level."""
    count, wide, images = len(validation.comparisons), 1.7, len({name for name, _ in validation.truths})
    return Sketch(
        title="Estimate against reference",
        caption=f"{images} images; reference: mc with {validation.draws:,} draws. Bars: 95 % intervals.",
        height=lambda look: rows_of(count, look, wide) * 2.2,
        draw=lambda body, look: _draw_scatter(body, look, validation, wide),
    )


def _draw_scatter(body: SubFigure, look: PictureSize, validation: Validation, wide: float) -> None:
    labels = list(dict.fromkeys(one.estimator for one in validation.comparisons))
    titles = [f"{one.estimator}, {one.at}" for one in validation.comparisons]
    for ax, one in zip(panels(body, len(titles), look, wide, titles=titles), validation.comparisons, strict=True):
        rows = ((name, row) for (name, at, label), row in validation.rows.items() if (label, at) == (one.estimator, one.at))
        pairs = [(row, validation.truths[name, one.at]) for name, row in rows]
        _dots(ax, pairs, line_style(labels.index(one.estimator))["color"], same=one.error is not None)
        order = f"rank {'-' if one.rank is None else short(one.rank)}"
        ax.set_xlabel(order if one.error is None else f"bias {short(one.error.bias)}, {order}")


def _dots(ax: Axes, pairs: Sequence[tuple[Row, Truth]], ink: str, *, same: bool) -> None:
    """One dot per image; bars where there are intervals, the reference's horizontal."""
    ax.set_xlim(-0.03, 1.03)
    if same:
        ax.axline((0, 0), slope=1, color=FAINT, linewidth=0.8, zorder=1)
        ax.set_ylim(-0.03, 1.03)
        for ends, places in _bars(pairs):
            ax.plot(ends, places, color=ink, linewidth=0.7, alpha=0.45, zorder=2)
    ax.plot([truth.value for _, truth in pairs], [row.value for row, _ in pairs], "o", color=ink, markeredgecolor=CARD, zorder=3)
    few_ticks(ax.xaxis, 3)
    few_ticks(ax.yaxis, 4)


def _bars(pairs: Sequence[tuple[Row, Truth]]) -> Iterator[tuple[list[float], list[float]]]:
    for row, truth in pairs:
        yield list(truth.interval()), [row.value] * 2
        if row.lower is not None and row.upper is not None:
            yield [truth.value] * 2, [row.lower, row.upper]
