"""The picture of two results of a run against each other, on the same images; a panel for each noise level and run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import NothingLeftError, SpecError
from robaudit.levels import NoiseLevel
from robaudit.names import matches
from robaudit.quantities import IntervalKind, Quantity
from robaudit.report.numbers import rank, span
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, legend, panels, rows_of, told_apart
from robaudit.report.pictures.style import CROSS, DOT, FAINT, TRIANGLE
from robaudit.report.sections import Ask, Found
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey
from robaudit.stats.ranks import rank_correlation
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_PANELS, _MOST_BARS = 9, 400
_WIDE, _HIGH = 2.25, 2.4  # inches of a panel
_BOUNDS = (IntervalKind.UPPER_BOUND, IntervalKind.LOWER_BOUND, IntervalKind.CENSORED)
_MARKS = {"image": DOT, "censored": TRIANGLE, "misclassified": CROSS}


@dataclass(frozen=True, slots=True)
class PairedResults:
    """Two results on the images that have both.

    Attributes:
        across, up: what they are; ``quantities``: of each.
        rows: of the images, for each.
        rank: Spearman's correlation of the values; None where one of them is the same for all images.
    """

    across: GroupKey
    up: GroupKey
    quantities: tuple[Quantity, Quantity]
    rows: tuple[tuple[Row, Row], ...]
    rank: float | None


def records(run: Run, ask: Ask) -> Sequence[PairedResults]:
    """The pairs of two estimators; a result that belongs to no noise level is paired with each level of the other.

    Raises:
        SpecError: not two estimators are named.
        NothingLeftError: no image has both results.
    """
    if len(ask.estimators) != 2:
        known = ", ".join(dict.fromkeys(key.estimator for key in run.frame))
        raise SpecError("--kind scatter", "is about two results", f"name both: --estimator A --estimator B; the run has {known}")
    groups: dict[tuple[str, NoiseLevel], list[Row]] = {}
    for row in run.rows:
        groups.setdefault((row.estimator, row.at), []).append(row)
    groups = {key: groups[key] for key in run.chosen(groups, ask.estimators, ask.levels)}
    sides = [{key: rows for key, rows in groups.items() if matches(key[0], name)} for name in ask.estimators]
    pairs = []
    for (_, at), across in sides[0].items():
        for (_, other), up in sides[1].items():
            if (at == other or at.level is None or other.level is None) and across is not up:
                by_id = {row.sample_id: row for row in up if math.isfinite(row.value)}
                rows = tuple((row, by_id[row.sample_id]) for row in across if math.isfinite(row.value) and row.sample_id in by_id)
                if rows:
                    order = rank_correlation([one.value for one, _ in rows], [two.value for _, two in rows])
                    kinds = run.quantities[across[0].quantity], run.quantities[up[0].quantity]
                    pairs.append(PairedResults(GroupKey.of(across[0]), GroupKey.of(up[0]), kinds, rows, order))
    if not pairs:
        raise NothingLeftError(str(run.path), f"has no image with both {' and '.join(ask.estimators)}", "audit both at the same levels")
    return pairs


def sketch(found: Sequence[Found[PairedResults]], _: Ask) -> Sketch:
    """The picture of these pairs."""
    shown = found[:_MOST_PANELS]
    first = shown[0].record
    return Sketch(
        title=f"{first.up.estimator} against {first.across.estimator}",
        about=str(next((key.at for key in (first.up, first.across) if key.at.level is not None), "")) if len(shown) == 1 else "",
        caption=" ".join(_caption(shown, len(found) - len(shown))),
        height=lambda look: rows_of(len(shown), look, _WIDE) * (_HIGH if len(shown) > 1 else 3.0) + look.line,
        draw=lambda body, look: _draw(body, look, shown),
    )


def _caption(shown: Sequence[Found[PairedResults]], left: int) -> Iterator[str]:
    yield f"A mark for each of {span([len(one.record.rows) for one in shown])} images; bars: 95 % intervals of the image."
    yield "rank: Spearman's correlation of the values, +1 where both order the images alike."
    if any(one.record.across.quantity == one.record.up.quantity for one in shown):
        yield "Line: both are equal."
    if left:
        yield f"{left} further pairs not shown (choose with --estimator and --level)."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[Found[PairedResults]]) -> None:
    pairs = [(one.name, one.record.across, one.record.up) for one in shown]
    names = told_apart([(name, x.estimator, y.estimator, str(x.at if y.at.level is None else y.at)) for name, x, y in pairs])
    ranks = [f"rank {rank(one.record.rank)}" for one in shown]
    titles = ranks if len(shown) == 1 else [f"{name}: {text}" for name, text in zip(names, ranks, strict=True)]
    there: set[str] = set()
    for ax, one in zip(panels(body, len(shown), look, _WIDE, titles=titles), shown, strict=True):
        there |= _panel(ax, one.record, look)
    marks = [name for name in _MARKS if name in there]
    legend(body, marks, [_MARKS[name] for name in marks], look)


def _panel(ax: Axes, pair: PairedResults, look: PictureSize) -> set[str]:
    """Draws the images; returns the kinds of marks that some need."""
    x, y = (np.array([row.value for row in side]) for side in zip(*pair.rows, strict=True))
    for rows in pair.rows[:: -(-len(pair.rows) // _MOST_BARS)]:
        (low, high), (lower, upper) = ((None, None) if row.interval.kind in _BOUNDS else (row.lower, row.upper) for row in rows)
        bar: dict[str, Any] = {"color": FAINT, "linewidth": 0.7, "alpha": 0.35, "zorder": 2}
        if low is not None and high is not None:
            ax.plot([low, high], [rows[1].value] * 2, **bar)
        if lower is not None and upper is not None:
            ax.plot([rows[0].value] * 2, [lower, upper], **bar)
    censored = np.array([one.censored or two.censored for one, two in pair.rows])
    wrong = np.array([one.correct is False for one, _ in pair.rows])
    there = set()
    for (name, style), some in zip(_MARKS.items(), (~censored & ~wrong, censored & ~wrong, wrong), strict=True):
        if some.any():
            there.add(name)
            ax.plot(x[some], y[some], alpha=0.85, clip_on=False, zorder=3, **style)
    if pair.across.quantity == pair.up.quantity:
        ax.axline((x[0], x[0]), slope=1.0, color=FAINT, linewidth=0.8, zorder=1)
    for axis, quantity, key, reach in ((ax.xaxis, pair.quantities[0], pair.across, x), (ax.yaxis, pair.quantities[1], pair.up, y)):
        _scale(ax, "x" if axis is ax.xaxis else "y", quantity, float(reach.min()), float(reach.max()))
        few_ticks(axis, 4)
        axis.set_label_text(fitted(key.estimator, _WIDE - 0.4, look.size))
    return there


def _scale(ax: Axes, axis: str, quantity: Quantity, least: float, most: float) -> None:
    """From the end of the quantity's range, where that is near."""
    room = 0.05 * ((most - least) or 1.0)
    low = quantity.low if math.isfinite(quantity.low) else least - room
    high = quantity.high if quantity.is_share else most + room
    edge = 0.03 if quantity.is_share else 0.0
    getattr(ax, f"set_{axis}lim")(low - edge, high + edge)
