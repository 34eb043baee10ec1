"""Robustness and accuracy against the noise level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.levels import GAUSSIAN, LevelName
from robaudit.quantities import P_ROBUST, Quantity
from robaudit.report import numbers
from robaudit.report.differences import Changes, changes_of, difference
from robaudit.report.numbers import span
from robaudit.report.pictures.page import (
    PictureSize,
    Sketch,
    few_ticks,
    fitted,
    level_name,
    log_scale,
    paneled,
    percent_scale,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Ask, Entry, Section, by_name
from robaudit.report.summary import mean_text
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.levels import LevelCurve, LevelPoint, level_curves
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LevelsSection(Section[LevelCurve]):
    """Accuracy under noise and robustness by the level of the noise, for each estimator and noise."""

    title = "Accuracy and robustness by noise level"
    main_only = True
    words = (
        "Accuracy under noise counts the noisy copies that are classified as labelled; robustness compares with the prediction on the "
        "clean image, right or wrong."
    )

    def applies(self, run: Run) -> bool:
        """Whether a noise has levels."""
        return bool(run.info.spec.get("noise"))

    def records(self, run: Run, ask: Ask) -> Sequence[LevelCurve]:
        """A curve for each result and noise."""
        return level_curves(run, ask.estimators, ask.levels)

    def tables(self, entries: Sequence[Entry[LevelCurve]], ask: Ask) -> Iterator[Table]:
        """A table for each result and noise, with a line for each level and run."""
        several = len(by_name(entries)) > 1
        changes = changes_of(entries) if several else {}
        for key in dict.fromkeys((entry.record.estimator, entry.record.noise, entry.record.quantity.name) for entry in entries):
            alike = [entry for entry in entries if (entry.record.estimator, entry.record.noise, entry.record.quantity.name) == key]
            yield _table(alike, changes, several)

    def figure(self, entries: Sequence[Entry[LevelCurve]], ask: Ask) -> Sketch:
        """Robustness and accuracy against the level, a panel for each noise and measure, a line for each run and result; no lines of
        single points."""
        names = list(dict.fromkeys((entry.name, entry.record.estimator) for entry in entries))
        shown = names[:_MOST_LINES]
        lines = [((entry.name, entry.record.estimator), entry.record) for entry in entries if (entry.name, entry.record.estimator) in shown]
        curves = [curve for _, curve in lines]
        keys = list(dict.fromkeys(_keys(curves)))
        styles = dict(zip(shown, styles_of(shown, marks=True), strict=True))
        several = {noise for noise, _ in keys} != {GAUSSIAN}
        single = {entry.record.estimator for entry in entries}

        def draw(ax: Axes, key: Key, look: PictureSize) -> None:
            noise, what = key
            shown_lines = [(name, curve) for name, curve in lines if curve.noise == noise and what in (curve.quantity.name, _ACCURACY)]
            _panel(ax, [(curve, styles[name]) for name, curve in shown_lines], what, look)

        return paneled(
            "Robustness and accuracy by noise level",
            _caption(curves, told_apart(names)[_MOST_LINES:]),
            keys,
            draw,
            wide=3.0,
            high=_HIGH,
            titles=[f"{what}, {noise}" if several else what for noise, what in keys],
            styles=dict(zip(told_apart(shown), styles.values(), strict=True)),
            about=next(iter(single)) if len(single) == 1 else "",
        )

    def lines(self, entry: Entry[LevelCurve], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each level."""
        curve = entry.record
        for point in curve.points:
            yield {"estimator": curve.estimator, "noise": curve.noise, "quantity": curve.quantity.name, **point.document()}


def _table(entries: Sequence[Entry[LevelCurve]], changes: Mapping[str, Changes], several: bool) -> Table:
    first = entries[0].record
    points = [point for entry in entries for point in entry.record.points]
    levels, labelled = list(dict.fromkeys(point.at for point in points)), any(point.accuracy for point in points)
    texts = numbers.level_numbers(levels)
    rows = [
        ("no noise", *[entry.name] * several, _clean(entry.record), numbers.NONE, *[""] * bool(changes))
        for entry in entries
        if labelled and entry.record.clean is not None
    ]
    for at in levels:
        for entry in entries:
            for point in (point for point in entry.record.points if point.at == at):
                group = changes.get(entry.name, {}).get((first.estimator, at))
                rows.append(
                    (
                        texts[at],
                        *([entry.name] if several else []),
                        *([_accuracy(point)] if labelled else []),
                        _robustness(point, first.quantity),
                        *(["" if group is None else difference(group.mean)] if changes else []),
                    )
                )
    return Table(
        f"{first.estimator}, {first.noise} noise",
        (
            Column(str(levels[0].name)),
            *([Column("run")] if several else []),
            *([Column("accuracy", number=True)] if labelled else []),
            Column(_head(first.quantity), number=True),
            *([Column(f"difference from {entries[0].name}", number=True)] if changes else []),
        ),
        tuple(map(cells, rows)),
        notes=(f"[ ] 95 % interval, {LIKE_THESE}.",),
    )


def _head(quantity: Quantity) -> str:
    return "robustness" if quantity.name == P_ROBUST.name else f"mean {quantity.name}"


def _clean(curve: LevelCurve) -> str:
    return "" if curve.clean is None else numbers.share_estimate(curve.clean)


def _accuracy(point: LevelPoint) -> str:
    share = point.accuracy
    return numbers.NONE if share is None else numbers.with_percents(share.value, share.lower, share.upper)


def _robustness(point: LevelPoint, quantity: Quantity) -> str:
    mean = point.robustness
    return mean_text(mean, quantity, exact=mean.measured_lower is not None, alone=point.images == 1)


# --- the figure

_HIGH = 2.2  # inches of a panel
_UPPER = 0.5  # where all means are above it, the scale begins just below them
_MOST_LINES, _FAR = 12, 30.0  # the ratio of levels from which the scale is logarithmic
_ACCURACY = "accuracy"
Key = tuple[str, str]
"""Run and estimator; or noise and what is measured."""


def _keys(curves: Sequence[LevelCurve]) -> Iterator[Key]:
    """The panels: noise and what is measured."""
    for noise in dict.fromkeys(curve.noise for curve in curves):
        same_noise = [curve for curve in curves if curve.noise == noise]
        yield from ((noise, curve.quantity.name) for curve in same_noise)
        if any(point.accuracy for curve in same_noise for point in curve.points):
            yield noise, _ACCURACY


def _caption(curves: Sequence[LevelCurve], left: Sequence[str]) -> Iterator[str]:
    yield f"{span([point.images for curve in curves for point in curve.points])} images. Bands: 95 % intervals of the mean, {LIKE_THESE}."
    if any(point.accuracy for curve in curves for point in curve.points):
        yield "Accuracy: share of noisy copies classified as labelled; ring: accuracy without noise."
    if left:
        yield f"Not shown: {', '.join(left)}."


def _panel(ax: Axes, lines: Sequence[tuple[LevelCurve, dict[str, Any]]], what: str, look: PictureSize) -> None:
    at = [point.at for curve, _ in lines for point in curve.points]
    far = max(level.number for level in at) > _FAR * min(level.number for level in at) or at[0].name is LevelName.PHOTONS
    low, high = min(level.number for level in at), max(level.number for level in at)
    start = (low / 1.5 if at[0].name is not LevelName.PHOTONS else high * 1.5) if far else 0.0
    lowest = 1.0
    for curve, style in lines:
        points = [(point.at.number, *ends) for point in curve.points if (ends := _mean(point, what)) is not None]
        if points:
            x, y, lower, upper = np.array(points).T
            if len(x) > 1:
                ax.fill_between(x, lower, upper, color=style["color"], alpha=0.15, linewidth=0)
            else:
                ax.plot([x, x], [lower, upper], color=style["color"], linewidth=1.2)
            ax.plot(x, y, **style)
            lowest = min(lowest, float(lower.min()))
        if what == _ACCURACY and curve.clean is not None:
            ax.plot([start], [curve.clean.value], **ring(style["color"]))
    if far:
        log_scale(ax, "x")
        ax.set_xlim((low / 1.5, high * 1.5) if at[0].name is not LevelName.PHOTONS else (high * 1.5, low / 1.5))
    else:
        ax.set_xlim(0.0, 1.04 * high)
        few_ticks(ax.xaxis)
    ax.set_xlabel(level_name(str(at[0].name)))
    quantity = lines[0][0].quantity
    if what == _ACCURACY or quantity.is_share:
        ax.set_ylim(np.floor(10 * lowest) / 10 if lowest >= _UPPER else 0.0, 1.03 if lowest < _UPPER else 1.01)
        percent_scale(ax.yaxis)
    else:
        few_ticks(ax.yaxis)
        ax.set_ylabel(fitted(quantity.unit, _HIGH - 0.6, look.size))
        if not quantity.higher_is_better:
            ax.invert_yaxis()


def _mean(point: LevelPoint, what: str) -> tuple[float, float, float] | None:
    """A mean with its interval; an open end is replaced by the mean."""
    mean = point.accuracy if what == _ACCURACY else point.robustness
    if mean is None:
        return None
    ends = [end if np.isfinite(end) else mean.value for end in (mean.lower, mean.upper)]
    return mean.value, ends[0], ends[1]
