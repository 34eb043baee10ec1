"""Robustness and accuracy against the noise level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.quantities import P_ROBUST, Quantity
from robaudit.records import json_values
from robaudit.report import numbers
from robaudit.report.differences import mean_changes
from robaudit.report.legends import TURNS
from robaudit.report.levels_overview import is_overview, overview
from robaudit.report.numbers import span
from robaudit.report.pictures.page import (
    KEPT_SHARE,
    Drawing,
    PictureSize,
    cut,
    few_ticks,
    in_words,
    level_name,
    log_scale,
    paneled,
    percent_scale,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import ring
from robaudit.report.sections import Entry, Section, SectionRequest, has_several_estimators
from robaudit.report.summary_section import covered, mean_ends, mean_text
from robaudit.report.tables import Table
from robaudit.report.typed import (
    TEXT,
    WRITTEN,
    Beside,
    Changes,
    TypedColumn,
    TypedTable,
    data_columns,
)
from robaudit.runs.run import Run
from robaudit.stats.level_curves import LevelCurve, level_curves
from robaudit.stats.summary import GroupSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform


class LevelsSection(Section[LevelCurve]):
    """Accuracy under noise and robustness by the level of the noise, for each estimator and
    noise."""

    title = "Accuracy and robustness by noise level"
    place = 1
    main_only = True
    words = (
        "Accuracy under noise counts the noisy copies that are classified as labelled; "
        "robustness compares with the prediction on the "
        "clean image, right or wrong."
    )

    def applies(self, run: Run) -> bool:
        """Whether a noise has levels."""
        return bool(run.info.spec.get("noise"))

    def records(self, run: Run, request: SectionRequest) -> Sequence[LevelCurve]:
        """A curve for each result and noise."""
        return level_curves(run, request.estimators, request.levels)

    def table(self, entry: Entry[LevelCurve], request: SectionRequest) -> TypedTable:
        """A row for each level; people also see the accuracy without noise."""
        curve = entry.record
        estimator, noise, quantity = _key(curve)
        labelled = any(point.noisy_accuracy for point in curve)
        clean = curve[0].clean_accuracy
        texts = numbers.level_numbers(point.key.at for point in curve)
        mean = "robustness" if quantity == P_ROBUST.name else f"mean {quantity}"
        accuracies: tuple[TypedColumn, ...] = ()
        notes = [f"[ ] 95 % interval, {covered(curve)}."]
        if labelled:
            accuracies = _ACCURACIES
        # beside other runs there is no room for them
        if labelled and not entry.several:
            accuracies += _TURNS
            notes.append(TURNS)
        columns = (
            TypedColumn("", TEXT, head=str(curve[0].key.at.name)),
            *accuracies,
            TypedColumn("", WRITTEN, head=mean),
            *data_columns(_POINT),
        )
        keys: list[NoiseLevel | None] = []
        rows: list[list[Any]] = []
        if labelled and clean is not None:
            keys.append(None)
            nothing = [None] * (len(accuracies) + len(_POINT))
            rows.append(["no noise", numbers.percents(clean.estimate), *nothing])
        for point in curve:
            accuracy = _accuracy_texts(point)[: len(accuracies)]
            keys.append(point.key.at)
            rows.append(
                [texts[point.key.at], *accuracy, _robustness(point), *_point(point).values()]
            )
        return TypedTable(
            f"{estimator}, {noise} noise",
            columns,
            rows,
            keys=[(estimator, at) for at in keys],
            about={"estimator": estimator, "noise": noise, "quantity": quantity},
            notes=tuple(notes),
            beside=Beside.KEYS,
        )

    def page_tables(
        self, entries: Sequence[Entry[LevelCurve]], request: SectionRequest
    ) -> Iterable[Table]:
        """The tables for a page, folded where an overview has their numbers."""
        return [
            replace(table, folded=is_overview(entries)) for table in self.tables(entries, request)
        ]

    def changes(self, entries: Sequence[Entry[LevelCurve]], request: SectionRequest) -> Changes:
        """The differences of the means from the first run's."""
        return mean_changes(entries)

    def figure(self, entries: Sequence[Entry[LevelCurve]], request: SectionRequest) -> Drawing:
        """Robustness and accuracy against the level, a panel for each noise and measure, a line for
        each run and result; no lines of single points. Of many noises, an overview."""
        if is_overview(entries):
            return overview(entries)
        every = [((entry.name, entry.record[0].key.estimator), entry.record) for entry in entries]
        names = list(dict.fromkeys(name for name, _ in every))
        shown = names[:_MOST_LINES]
        lines = [(name, curve) for name, curve in every if name in shown]
        curves = [curve for _, curve in lines]
        quantities = {curve[0].quantity.name: curve[0].quantity for curve in curves}
        keys = list(dict.fromkeys(_keys(curves)))
        styles = dict(zip(shown, styles_of(shown, marks=True), strict=True))
        several = {noise for noise, _ in keys} != {GAUSSIAN}
        estimators = {estimator for _, estimator in names}
        named = len(estimators) == 1 and has_several_estimators(entries)

        def draw(ax: Axes, key: Key, size: PictureSize) -> None:
            noise, what = key
            of_panel = [
                (curve, styles[name])
                for name, curve in lines
                if noise == _key(curve)[1] and what in (_key(curve)[2], _ACCURACY)
            ]
            _panel(ax, of_panel, None if what == _ACCURACY else quantities[what], size)

        return paneled(
            "Robustness and accuracy by noise level",
            _caption(curves, told_apart(names)[_MOST_LINES:]),
            keys,
            draw,
            wide=3.0,
            high=_HIGH,
            titles=[
                f"{in_words(what)}, {noise}" if several else in_words(what) for noise, what in keys
            ],
            styles=dict(zip(told_apart(shown), styles.values(), strict=True)),
            about=next(iter(estimators)) if named else "",
        )

    def document(self, entry: Entry[LevelCurve], request: SectionRequest) -> dict[str, Any]:
        """The result, accuracy without noise, and the points."""
        estimator, noise, quantity = _key(entry.record)
        clean = json_values(entry.record[0].clean_accuracy)
        points = [_point(group) for group in entry.record]
        return {
            "estimator": estimator,
            "noise": noise,
            "quantity": quantity,
            "clean_accuracy": clean,
            "points": points,
        }


def _key(curve: LevelCurve) -> tuple[str, str, str]:
    """Estimator, noise and quantity."""
    key = curve[0].key
    return key.estimator, key.noise, key.quantity


_POINT = ("level_name", "level", "images", "robustness", "accuracy")


def _point(group: GroupSummary) -> dict[str, Any]:
    """A level as JSON values."""
    about = {"level_name": group.key.at.name, "level": group.key.at.level, "images": group.images}
    point: dict[str, Any] = json_values(
        {**about, "robustness": group.mean, "accuracy": group.noisy_accuracy}
    )
    return point


_ACCURACIES = (TypedColumn("", WRITTEN, head="accuracy"),)
_TURNS = (
    TypedColumn("", WRITTEN, head="right stays right"),
    TypedColumn("", WRITTEN, head="wrong is repaired"),
)


def _accuracy_texts(point: GroupSummary) -> list[str | None]:
    """The accuracy under noise, of all images, of the right ones and of the others."""
    noisy = point.noisy_accuracy
    if noisy is None:
        return [None] * 3
    shares = (noisy.population, noisy.stays_right, noisy.repaired)
    return [None if share is None else numbers.percents(share) for share in shares]


def _robustness(point: GroupSummary) -> str:
    mean = point.mean
    return mean_text(
        mean, point.quantity, exact=mean.measured.has_interval, alone=point.images == 1
    )


# --- the figure

_HIGH = 2.2  # inches of a panel
_ASIDE = 0.08  # inches between points at one level
_UPPER = 0.5  # where all means are above it, the scale begins just below them
_FAR = 30.0  # the ratio of levels from which the scale is logarithmic
_MOST_LINES = 12
_ACCURACY = "accuracy"
Key = tuple[str, str]
"""Run and estimator; or noise and what is measured."""


def _keys(curves: Sequence[LevelCurve]) -> Iterator[Key]:
    """The panels: noise and what is measured."""
    for noise in dict.fromkeys(_key(curve)[1] for curve in curves):
        same_noise = [curve for curve in curves if _key(curve)[1] == noise]
        yield from ((noise, _key(curve)[2]) for curve in same_noise)
        if any(point.noisy_accuracy for point in chain.from_iterable(same_noise)):
            yield noise, _ACCURACY


def _caption(curves: Sequence[LevelCurve], left: Sequence[str]) -> Iterator[str]:
    points = list(chain.from_iterable(curves))
    yield (
        f"{span([point.images for point in points])} images. Bands: 95 % intervals of the "
        f"mean, {covered(points)}."
    )
    if any(point.noisy_accuracy for point in points):
        yield (
            "Accuracy: share of noisy copies classified as labelled; ring: accuracy without noise."
        )
    if left:
        yield f"Not shown: {', '.join(left)}."


def _panel(
    ax: Axes,
    lines: Sequence[tuple[LevelCurve, dict[str, Any]]],
    quantity: Quantity | None,
    size: PictureSize,
) -> None:
    """Draw the means of a quantity; None: accuracy."""
    points = chain.from_iterable(curve for curve, _ in lines)
    levels = [point.key.at for point in points]
    lowest = 1.0
    no_noise = _level_axis(ax, levels)
    aside = _aside(ax, len(lines)) if len(set(levels)) == 1 else [ax.transData] * len(lines)
    for (curve, style), place in zip(lines, aside, strict=True):
        drawn = [
            point for point in curve if quantity is not None or point.noisy_accuracy is not None
        ]
        if drawn:
            ends = [
                (point.key.at.number, *_ends(point, accuracy=quantity is None)) for point in drawn
            ]
            x, y, lower, upper = np.array(ends).T
            if len(x) > 1:
                ax.fill_between(x, lower, upper, color=style["color"], alpha=0.15, linewidth=0)
            else:
                bar = {"color": style["color"], "linewidth": 1.2, "transform": place}
                ax.plot([x, x], [lower, upper], **bar)
            ax.plot(x, y, **style, transform=place)
            lowest = min(lowest, float(lower.min()))
        if quantity is None and (clean := curve[0].clean_accuracy) is not None:
            ax.plot([no_noise], [clean.value], **ring(style["color"]))
            lowest = min(lowest, clean.value)
    if quantity is None:
        ax.set_ylabel("share of noisy copies\nclassified as labelled")
    elif quantity == P_ROBUST:
        ax.set_ylabel(KEPT_SHARE)
    if quantity is None or quantity.is_share:
        # high shares are drawn from just below the lowest, so that their differences can be seen
        if lowest >= _UPPER:
            ax.set_ylim(np.floor(10 * lowest) / 10, 1.01)
        else:
            ax.set_ylim(0.0, 1.03)
        percent_scale(ax.yaxis)
    else:
        few_ticks(ax.yaxis)
        ax.set_ylabel(cut(quantity.unit, size.letters(_HIGH - 0.6)))
        if not quantity.higher_is_better:
            ax.invert_yaxis()


def _aside(ax: Axes, number: int) -> list[Transform]:
    """Places beside each other for the points of this many lines at one level, where they would
    hide each other."""
    from matplotlib.transforms import ScaledTranslation

    scale = ax.figure.dpi_scale_trans
    return [
        ax.transData + ScaledTranslation(_ASIDE * (i - (number - 1) / 2), 0.0, scale)
        for i in range(number)
    ]


def _level_axis(ax: Axes, levels: Sequence[NoiseLevel]) -> float:
    """Set the scale of the noise levels; the place of no noise on it."""
    low = min(level.number for level in levels)
    high = max(level.number for level in levels)
    name = levels[0].name
    ax.set_xlabel(level_name(str(name)))
    if name is LevelName.PHOTONS:
        # fewer photons are more noise, so the scale runs backwards
        log_scale(ax, "x")
        ax.set_xlim(high * 1.5, low / 1.5)
        return high * 1.5
    if high > _FAR * low:
        log_scale(ax, "x")
        ax.set_xlim(low / 1.5, high * 1.5)
        return low / 1.5
    ax.set_xlim(0.0, 1.04 * high)
    if name is LevelName.SEVERITY:
        # There are none between.
        ax.set_xticks(sorted({level.number for level in levels}))
    else:
        few_ticks(ax.xaxis)
    return 0.0


def _ends(point: GroupSummary, *, accuracy: bool) -> tuple[float, float, float]:
    """A mean with its interval; an open end is replaced by the mean."""
    mean = point.mean.value
    ends = mean_ends(point.mean, alone=point.images == 1)
    if accuracy and point.noisy_accuracy is not None:
        mean = point.noisy_accuracy.value
        ends = point.noisy_accuracy.population.ends
    lower, upper = (mean if end is None or not np.isfinite(end) else end for end in ends)
    return mean, lower, upper
