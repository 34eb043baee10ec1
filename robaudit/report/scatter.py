"""The picture of two results of a run against each other, on the same images; a panel for each noise level and run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.errors import NothingLeftError, SpecError
from robaudit.levels import NoiseLevel
from robaudit.names import matches
from robaudit.quantities import IntervalKind, Quantity
from robaudit.report import numbers
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, paneled, told_apart
from robaudit.report.pictures.style import CROSS, DOT, FAINT, TRIANGLE
from robaudit.report.sections import Ask, Entry, Section
from robaudit.rows import Row
from robaudit.stats.groups import GroupKey
from robaudit.stats.ranks import rank_correlation
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from robaudit.report.tables import Table

_MOST_PANELS, _MOST_BARS = 9, 400
_WIDE = 2.25  # inches of a panel
_BOUNDS = (IntervalKind.UPPER_BOUND, IntervalKind.LOWER_BOUND, IntervalKind.CENSORED)
_MARKS = {"image": DOT, "censored": TRIANGLE, "misclassified": CROSS}


@dataclass(frozen=True, slots=True)
class PairedResults:
    """Two results on the images that have both.

    Attributes:
        keys, quantities: of the result on the x axis, and of the result on the y axis.
        rows: the rows of each image in both results.
        rank: Spearman's correlation of the values; None where a result is the same for all images.
    """

    keys: tuple[GroupKey, GroupKey]
    quantities: tuple[Quantity, Quantity]
    rows: tuple[tuple[Row, Row], ...]
    rank: float | None

    @property
    def comparable(self) -> bool:
        """Whether both are of one quantity."""
        return self.keys[0].quantity == self.keys[1].quantity


class ScatterSection(Section[PairedResults]):
    """Two results of a run against each other, on the same images; a panel for each noise level and run. Figure only."""

    title = "Two results"
    on_page = False

    def tables(self, entries: Sequence[Entry[PairedResults]], ask: Ask) -> Iterable[Table]:
        """No tables."""
        return ()

    def records(self, run: Run, ask: Ask) -> Sequence[PairedResults]:
        """The pairs of two estimators; a result that belongs to no noise level is paired with each level of the other.

        Raises:
            SpecError: the number of named estimators is not two.
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
                        order = rank_correlation([x.value for x, _ in rows], [y.value for _, y in rows])
                        kinds = run.quantities[across[0].quantity], run.quantities[up[0].quantity]
                        pairs.append(PairedResults((GroupKey.of(across[0]), GroupKey.of(up[0])), kinds, rows, order))
        if not pairs:
            raise NothingLeftError(str(run.path), f"has no image with both {' and '.join(ask.estimators)}", "audit both at the same levels")
        return pairs

    def figure(self, entries: Sequence[Entry[PairedResults]], ask: Ask) -> Sketch:
        """A mark for each image of the first nine pairs."""
        shown = entries[:_MOST_PANELS]
        pairs = [entry.record for entry in shown]
        first = pairs[0]
        ranks = [f"rank {numbers.rank(pair.rank)}" for pair in pairs]
        parts = [
            (entry.name, x.estimator, y.estimator, str(x.at if y.at.level is None else y.at))
            for entry in shown
            for x, y in [entry.record.keys]
        ]
        present = {name for pair in pairs for name, _ in _marked(pair)}
        return paneled(
            f"{first.keys[1].estimator} against {first.keys[0].estimator}",
            _caption(pairs, len(entries) - len(shown)),
            pairs,
            _panel,
            wide=_WIDE,
            high=2.4 if len(shown) > 1 else 3.0,
            titles=ranks if len(shown) == 1 else [f"{name}: {text}" for name, text in zip(told_apart(parts), ranks, strict=True)],
            styles={name: style for name, style in _MARKS.items() if name in present},
            about=str(next((key.at for key in first.keys[::-1] if key.at.level is not None), "")) if len(shown) == 1 else "",
        )


def _caption(shown: Sequence[PairedResults], left: int) -> Iterator[str]:
    yield f"A mark for each of {numbers.span([len(pair.rows) for pair in shown])} images; bars: 95 % intervals of the image."
    yield "rank: Spearman's correlation of the values, +1 where both order the images alike."
    if any(pair.comparable for pair in shown):
        yield "Line: both are equal."
    if left:
        yield f"{left} further pairs not shown (choose with --estimator and --level)."


def _marked(pair: PairedResults) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The marks that are in use, and a mask of their images."""
    censored = np.array([x.censored or y.censored for x, y in pair.rows])
    wrong = np.array([x.correct is False for x, _ in pair.rows])
    for name, marked in zip(_MARKS, (~censored & ~wrong, censored & ~wrong, wrong), strict=True):
        if marked.any():
            yield name, marked


def _panel(ax: Axes, pair: PairedResults, look: PictureSize) -> None:
    x, y = (np.array([row.value for row in side]) for side in zip(*pair.rows, strict=True))
    for rows in pair.rows[:: -(-len(pair.rows) // _MOST_BARS)]:
        (low, high), (lower, upper) = ((None, None) if row.interval.kind in _BOUNDS else (row.lower, row.upper) for row in rows)
        bar: dict[str, Any] = {"color": FAINT, "linewidth": 0.7, "alpha": 0.35, "zorder": 2}
        if low is not None and high is not None:
            ax.plot([low, high], [rows[1].value] * 2, **bar)
        if lower is not None and upper is not None:
            ax.plot([rows[0].value] * 2, [lower, upper], **bar)
    for name, marked in _marked(pair):
        ax.plot(x[marked], y[marked], alpha=0.85, clip_on=False, zorder=3, **_MARKS[name])
    if pair.comparable:
        ax.axline((x[0], x[0]), slope=1.0, color=FAINT, linewidth=0.8, zorder=1)
    for axis, quantity, key, reach in zip((ax.xaxis, ax.yaxis), pair.quantities, pair.keys, (x, y), strict=True):
        _scale(ax, "x" if axis is ax.xaxis else "y", quantity, float(reach.min()), float(reach.max()))
        few_ticks(axis, 4)
        axis.set_label_text(fitted(key.estimator, _WIDE - 0.4, look.size))


def _scale(ax: Axes, axis: str, quantity: Quantity, least: float, most: float) -> None:
    """Set the limits of an axis: to the end of the quantity's range, where there is one."""
    room = 0.05 * ((most - least) or 1.0)
    low = quantity.low if math.isfinite(quantity.low) else least - room
    high = quantity.high if quantity.is_share else most + room
    edge = 0.03 if quantity.is_share else 0.0
    getattr(ax, f"set_{axis}lim")(low - edge, high + edge)
