"""A validation: its tables for terminals, and figures of the error against the noise level and of estimate against reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from robaudit.advice.comparison import ReferenceComparison
from robaudit.advice.validate import Validation
from robaudit.advice.verdicts import milliseconds
from robaudit.report import numbers
from robaudit.report.pictures.kinds import picture
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    level_name,
    log_scale,
    paneled,
)
from robaudit.report.pictures.style import CARD, FAINT, line_style
from robaudit.report.tables import Table, cells, columns
from robaudit.rows import Row
from robaudit.stats.summary import Share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOTES = (
    "bias: mean of estimate - reference. RMSE: without the reference's own variance. rank: Spearman's correlation.",
    "+-: one standard error over the images, not a 95 % interval: a few images may miss rare large errors.",
    "coverage: 95 % intervals that agree with the reference and its interval. -: does not apply.",
)


def validation_tables(validation: Validation) -> Iterator[Table]:
    """A table for each noise level, with a verdict on each estimator and which to use."""
    images = len({name for name, _ in validation.truths})
    yield Table(f"{images} images against mc with {validation.draws:,} draws of independent noise")
    levels = numbers.level_texts(validation.levels)
    head = columns(("estimator",), ("bias +- error", "RMSE +- error", "rank", "coverage", "per image"))
    for at, words in zip(validation.levels, validation.verdicts(), strict=True):
        rows = tuple(cells((comparison.estimator, *_cells(comparison))) for comparison in validation.at(at))
        verdicts = [f"{estimator} {text}." for estimator, text in words["verdicts"].items()]
        verdicts += [f"Note: {words['remark']}."] if words["remark"] else []
        advice = cells((f"-> {text}." for text in words["advice"]), "strong")
        yield Table(f"At {levels[at]}", head, rows, conclusions=(*cells(verdicts), *advice))
    yield Table(notes=_NOTES)


def _cells(comparison: ReferenceComparison) -> Iterator[str]:
    error = comparison.error
    yield "-" if error is None else f"{error.bias:+z.3f}" + _spread(comparison, error.bias_error)
    yield "-" if error is None else f"{error.rmse:z.3f}" + _spread(comparison, error.rmse_error)
    yield "-" if comparison.rank is None else f"{comparison.rank:z.3f}"
    yield "-" if comparison.coverage is None else f"{comparison.coverage.count}/{comparison.coverage.total}"
    yield milliseconds(comparison.seconds)


def _spread(comparison: ReferenceComparison, error: float | None) -> str:
    """Empty where noise changed no image: its effect on other images is then unknown, not zero."""
    return "" if error is None or not comparison.touched else f" +- {error:z.3f}"


# --- the figure

_LOWEST = 1e-4


def pictures(validation: Validation) -> Mapping[str, Callable[[], bytes]]:
    """Functions that return the files, each picture as PNG and SVG."""
    sketches = {"scatter": _scatter(validation)}
    if any(comparison.error is not None for comparison in validation.comparisons):
        sketches["errors"] = _errors(validation)
    files = ((name, kind, drawing) for name, drawing in sketches.items() for kind in ("png", "svg"))
    return {f"{name}.{kind}": partial(picture, drawing, kind, PictureSize(), dpi=150) for name, kind, drawing in files}


def _errors(validation: Validation) -> Sketch:
    """Error against noise level, a line for each estimator, a panel for each noise."""
    known = [(comparison, comparison.error) for comparison in validation.comparisons if comparison.error is not None]
    names = list(dict.fromkeys(comparison.estimator for comparison, _ in known))
    styles = {name: line_style(i, marks=True) for i, name in enumerate(names)}
    noises = list(dict.fromkeys(str(comparison.at.noise) for comparison, _ in known))

    def draw(ax: Axes, noise: str, _: PictureSize) -> None:
        shown = sorted((pair for pair in known if pair[0].at.noise == noise), key=lambda pair: pair[0].at.strength)
        for name, style in styles.items():
            line = [(of.at.number, error.rmse, error.rmse_error) for of, error in shown if of.estimator == name]
            _line(ax, line, style)
        log_scale(ax, "x")
        log_scale(ax, "y")
        ax.set_xlabel(level_name(str(shown[0][0].at.name)))

    images = numbers.span([comparison.images for comparison, _ in known])
    return paneled(
        "Error of the estimators by noise level",
        [f"RMSE over {images} images against mc with {validation.draws:,} draws; band: one standard error."],
        noises,
        draw,
        wide=3.0,
        high=2.4,
        titles=noises if len(noises) > 1 else (),
        styles=styles,
        ylabel="RMSE",
        sharey=True,
    )


def _line(ax: Axes, points: Sequence[tuple[float, float, float | None]], style: Mapping[str, Any]) -> None:
    """RMSE against the noise level, with its standard error; below the lowest value there is only the reference's own error."""
    x = [at for at, *_ in points]
    upper = [rmse + (error or 0.0) for _, rmse, error in points]
    squares = [max(0.0, 2 * rmse**2 - high**2) for (_, rmse, _), high in zip(points, upper, strict=True)]
    lower = [max(_LOWEST, math.sqrt(square), rmse / math.e**2) for square, (_, rmse, _) in zip(squares, points, strict=True)]
    ax.fill_between(x, lower, [max(_LOWEST, high) for high in upper], color=style["color"], alpha=0.12, linewidth=0)
    ax.plot(x, [rmse if rmse > _LOWEST else math.nan for _, rmse, _ in points], **style)


def _scatter(validation: Validation) -> Sketch:
    """Estimate against reference, a panel for each estimator and noise level."""
    labels = list(dict.fromkeys(comparison.estimator for comparison in validation.comparisons))

    def draw(ax: Axes, comparison: ReferenceComparison, _: PictureSize) -> None:
        rows = ((name, row) for (name, at, label), row in validation.rows.items() if (label, at) == (comparison.estimator, comparison.at))
        pairs = [(row, validation.truths[name, comparison.at]) for name, row in rows]
        _dots(ax, pairs, line_style(labels.index(comparison.estimator))["color"], same=comparison.error is not None)
        order = f"rank {'-' if comparison.rank is None else f'{comparison.rank:z.3f}'}"
        ax.set_xlabel(order if comparison.error is None else f"bias {comparison.error.bias:z.3f}, {order}")

    images = len({name for name, _ in validation.truths})
    return paneled(
        "Estimate against reference",
        [f"{images} images; reference: mc with {validation.draws:,} draws. Bars: 95 % intervals."],
        validation.comparisons,
        draw,
        wide=1.7,
        high=2.2,
        titles=[f"{comparison.estimator}, {comparison.at}" for comparison in validation.comparisons],
    )


def _dots(ax: Axes, pairs: Sequence[tuple[Row, Share]], ink: str, *, same: bool) -> None:
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


def _bars(pairs: Sequence[tuple[Row, Share]]) -> Iterator[tuple[list[float], list[float]]]:
    for row, truth in pairs:
        yield [truth.lower, truth.upper], [row.value] * 2
        if row.lower is not None and row.upper is not None:
            yield [truth.value] * 2, [row.lower, row.upper]
