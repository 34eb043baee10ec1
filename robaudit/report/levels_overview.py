"""The figure of many noises: a row for each, and a cell with a number and a colour for each
level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from robaudit.quantities import Quantity
from robaudit.report import numbers
from robaudit.report.pictures.page import Drawing, PictureSize, cut, in_words, paneled, told_apart
from robaudit.report.pictures.style import GRID, heat_colours
from robaudit.report.sections import Entry, has_several_estimators
from robaudit.report.summary_section import covered, group_mean
from robaudit.stats.level_curves import LevelCurve
from robaudit.stats.summary import GroupSummary
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MANY = 3  # noises of an overview, at least
_MOST_PANELS = 8
_HIGH = 0.55  # inches of a row
_WIDE = 3.0  # inches of a panel, at least
_NAMES = 1.05  # inches of the names of the noises
# Shares that are all near their best value are drawn in pale colours.
_LEAST_SPAN = 0.1
# The colours between white and orange, on which dark letters can be read; on dark pages, too, as
# neither is a colour of the page.
_PALEST = 0.03
_DARKEST = 0.55
_LETTERS = "#20242a"
_FAINT_LETTERS = "#454c55"


class _Panel(NamedTuple):
    """What is measured, of which run and estimator; and the curves of all noises.

    The quantity is None for accuracy.
    """

    name: tuple[str, str, str]
    quantity: Quantity | None
    curves: tuple[LevelCurve, ...]


def is_overview(entries: Sequence[Entry[LevelCurve]]) -> bool:
    """Whether the curves are of so many noises that an overview shows them better."""
    return len({_noise(entry.record) for entry in entries}) >= _MANY


def overview(entries: Sequence[Entry[LevelCurve]]) -> Drawing:
    """Robustness and accuracy of every noise at every level, a panel for each run and estimator."""
    panels = _panels(entries)
    shown = panels[:_MOST_PANELS]
    noises = list(dict.fromkeys(_noise(entry.record) for entry in entries))
    points = [point for panel in shown for point in chain.from_iterable(panel.curves)]
    caption = [
        f"{numbers.span([point.images for point in points])} images. A row is a noise, a cell "
        f"one of its levels, little noise first: mean and its 95 % interval, {covered(points)}, "
        "where it fits.",
        *_without_noise(entries),
    ]
    if left := len(panels) - len(shown):
        caption.append(f"Not shown: {count(left, 'further panel')}.")
    estimators = {panel.name[2] for panel in panels}
    named = len(estimators) == 1 and has_several_estimators(entries)

    def draw(ax: Axes, panel: _Panel, size: PictureSize) -> None:
        width = size.body / size.across(len(shown), _WIDE) - _NAMES
        _draw(ax, panel, noises, size, width)

    return paneled(
        "Robustness and accuracy by noise and level",
        caption,
        shown,
        draw,
        wide=_WIDE,
        high=_HIGH * len(noises) + 0.35,
        titles=told_apart([panel.name for panel in shown]),
        about=estimators.pop() if named else "",
    )


def _noise(curve: LevelCurve) -> str:
    return curve[0].key.noise


def _panels(entries: Sequence[Entry[LevelCurve]]) -> list[_Panel]:
    """The panels: first the robustness, then the accuracy of each run and estimator."""
    curves: dict[tuple[str, str], list[LevelCurve]] = {}
    for entry in entries:
        curves.setdefault((entry.name, entry.record[0].key.estimator), []).append(entry.record)
    panels = []
    for (run, estimator), members in curves.items():
        quantity = members[0][0].quantity
        panels.append(_Panel((in_words(quantity.name), run, estimator), quantity, tuple(members)))
        if any(point.noisy_accuracy for point in chain.from_iterable(members)):
            panels.append(_Panel(("accuracy", run, estimator), None, tuple(members)))
    return panels


def _without_noise(entries: Sequence[Entry[LevelCurve]]) -> list[str]:
    """The accuracy without noise of each run, with its interval."""
    several = len({entry.name for entry in entries}) > 1
    lines = {}
    for entry in entries:
        clean = entry.record[0].clean_accuracy
        if clean is not None:
            name = f"{entry.name}: accuracy" if several else "Accuracy"
            lines[entry.name] = f"{name} without noise {numbers.percents(clean.estimate)}."
    return list(lines.values())


def _value(panel: _Panel, point: GroupSummary) -> float:
    """The value of a cell; NaN without one."""
    if panel.quantity is not None:
        return point.mean.value
    return math.nan if point.noisy_accuracy is None else point.noisy_accuracy.value


def _text(panel: _Panel, point: GroupSummary) -> str:
    """The value of a cell with its interval."""
    if panel.quantity is not None:
        return group_mean(point)
    return numbers.percents(point.noisy_accuracy.population) if point.noisy_accuracy else ""


def _ends_of_scale(panel: _Panel) -> tuple[float, float]:
    """The values of the palest and of the strongest colour."""
    points = chain.from_iterable(panel.curves)
    values = [value for point in points if math.isfinite(value := _value(panel, point))]
    higher_is_better = panel.quantity is None or panel.quantity.higher_is_better
    ordered = sorted(values, reverse=higher_is_better) or [0.0]
    if panel.quantity is None or (panel.quantity.is_share and higher_is_better):
        return 1.0, min(ordered[-1], 1.0 - _LEAST_SPAN)
    return ordered[0], ordered[-1]


def _draw(ax: Axes, panel: _Panel, noises: Sequence[str], size: PictureSize, width: float) -> None:
    """Draw a panel whose cells have this width together, in inches."""
    from matplotlib.patches import Rectangle

    best, worst = _ends_of_scale(panel)
    colours = heat_colours()
    columns = max(map(len, panel.curves))
    small = size.points - 1.5
    letters = size.letters(width / columns) * size.points / small
    for curve in panel.curves:
        row = noises.index(_noise(curve))
        texts = numbers.level_numbers(point.key.at for point in curve)
        for column, point in enumerate(curve):
            value = _value(panel, point)
            if not math.isfinite(value):
                continue
            strength = (value - best) / ((worst - best) or 1.0)
            colour = colours(_PALEST + (_DARKEST - _PALEST) * strength)
            cell = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour)
            cell.set_edgecolor(GRID)
            ax.add_patch(cell)
            mean, _, ends = _text(panel, point).partition(" ")
            level = cut(f"{point.key.at.name} {texts[point.key.at]}", int(letters))
            centre: dict[str, Any] = {"ha": "center", "va": "center"}
            ax.text(column, row - 0.29, level, size=small, color=_FAINT_LETTERS, **centre)
            ax.text(column, row, mean, weight="bold", color=_LETTERS, **centre)
            if len(ends) <= letters:
                ax.text(column, row + 0.29, ends, size=small, color=_FAINT_LETTERS, **centre)
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(len(noises) - 0.5, -0.5), xticks=[])
    ax.set_yticks(range(len(noises)), [cut(name, size.letters(_NAMES)) for name in noises])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
