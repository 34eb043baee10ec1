"""The picture of a summary: the values of all images, sorted, a panel for each result and a line for each noise level or run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.levels import GAUSSIAN, NONE, NoiseLevel
from robaudit.quantities import Quantity
from robaudit.report.numbers import level_numbers, mean_estimate, signs, span
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, panels, percent_scale, rows_of
from robaudit.report.pictures.style import CARD, FAINT, level_colours, line_style
from robaudit.report.sections import Ask, Found
from robaudit.report.summary_tables import MEANINGS, caveats
from robaudit.stats.flags import usual_threshold
from robaudit.stats.groups import quantity_of
from robaudit.stats.intervals import LIKE_THESE, Floats
from robaudit.stats.summary import GroupSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_MOST_PANELS, _MOST_POINTS, _MOST_NAMED = 6, 400, 4
_WIDE, _HIGH = 3.0, 2.15  # inches of a panel


@dataclass(frozen=True, slots=True)
class _Line:
    """One result of one run, and its values from the least to the most robust image."""

    run: str
    group: GroupSummary
    values: Floats


@dataclass(frozen=True, slots=True)
class _Panel:
    """Lines of one quantity, and the value beyond which an image is not robust (NaN: none)."""

    title: str
    quantity: Quantity
    threshold: float
    lines: tuple[_Line, ...]


def sketch(found: Sequence[Found[tuple[GroupSummary, ...]]], ask: Ask) -> Sketch:
    """The picture of the results of these runs."""
    every = list(_panels(found, ask))
    shown = every[:_MOST_PANELS]
    names = {one.quantity.name for one in shown}
    return Sketch(
        title="Robustness of the images, sorted" if names == {"p_robust"} else "Values of the images, sorted",
        caption=" ".join(_caption(shown, every[_MOST_PANELS:])),
        height=lambda look: rows_of(len(shown), look, _WIDE) * _HIGH,
        draw=lambda body, look: _draw(body, look, shown),
    )


def _panels(found: Sequence[Found[tuple[GroupSummary, ...]]], ask: Ask) -> Iterator[_Panel]:
    """A panel for each estimator and noise, and for each run where there are several levels; else the runs share it."""
    several = len(found) > 1
    grouped: dict[tuple[str, ...], list[_Line]] = {}
    quantities = {name: quantity for one in found for name, quantity in one.run.quantities.items()}
    for one in found:
        every = one.run.frame
        for group in one.record:
            key = group.key
            levels = {other.key.at for other in one.record if (other.key.estimator, other.key.noise) == (key.estimator, key.noise)}
            quantity = quantity_of(key.quantity, quantities)
            values = np.sort(every[key].finite.values)[:: 1 if quantity.higher_is_better else -1]
            place = (key.estimator, key.quantity, key.noise, one.name if len(levels) > 1 else "")
            grouped.setdefault(place, []).append(_Line(one.name, group, values))
    results = list(dict.fromkeys(place[:3] for place in grouped))
    for (estimator, name, noise, run), lines in sorted(grouped.items(), key=lambda one: results.index(one[0][:3])):
        quantity = quantity_of(name, quantities)
        usual = usual_threshold(quantity)
        asked = ask.threshold is not None and quantity.low <= ask.threshold <= quantity.high
        under = "" if noise in (GAUSSIAN, NONE) else f", {noise}"
        title = f"{estimator}{under}" + (f": {run}" if run and several else "")
        ordered = sorted(lines, key=lambda line: line.group.key.at.strength) if run else lines
        yield _Panel(title, quantity, ask.threshold if asked and ask.threshold is not None else usual, tuple(ordered))


def _caption(shown: Sequence[_Panel], left: Sequence[_Panel]) -> Iterator[str]:
    groups = [line.group for panel in shown for line in panel.lines]
    most = max(group.images for group in groups)
    yield (
        f"{span([group.images for group in groups])} images, sorted from the least to the most robust: a curve gives the share of images "
        f"with a value or a worse one. Numbers: mean and, where it fits, its [95 % interval, {LIKE_THESE}]."
    )
    limits = {panel.quantity.name: panel.threshold for panel in shown if math.isfinite(panel.threshold)}
    if len(set(limits.values())) == 1:
        yield f"Dashed: {next(iter(limits.values())):.3g}."
    elif limits:
        yield f"Dashed: {', '.join(f'{value:.3g} ({name})' for name, value in limits.items())}."
    for name in dict.fromkeys(panel.quantity.name for panel in shown):
        if name in MEANINGS:
            yield f"{name}: {MEANINGS[name].rstrip('.')}."
    for line in dict.fromkeys(signs(text) for text in caveats(groups, "[ ]")):
        yield line if line.endswith(".") else f"{line}."
    if most > _MOST_POINTS:
        yield f"Curves go through {_MOST_POINTS} images; all numbers are for all images."
    if left:
        names = list(dict.fromkeys(panel.title.partition(": ")[0] for panel in left))
        listed = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
        yield f"Not shown: {listed} (choose with --estimator and --noise)."


def _draw(body: SubFigure, look: PictureSize, shown: Sequence[_Panel]) -> None:
    width = look.body / look.across(len(shown), _WIDE)
    for ax, panel in zip(panels(body, len(shown), look, _WIDE, titles=[one.title for one in shown]), shown, strict=True):
        _draw_panel(ax, panel, look, width)


def _draw_panel(ax: Axes, panel: _Panel, look: PictureSize, width: float) -> None:
    quantity = panel.quantity
    texts = level_numbers(line.group.key.at for line in panel.lines)
    by_level = len({line.group.key.at for line in panel.lines}) > 1
    ends = []
    for line, style in zip(panel.lines, _styles(panel.lines, by_level), strict=True):
        count = len(line.values)
        places = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).round().astype(int))
        shares, values = np.append(0.0, (places + 1) / count), line.values[np.append(places[:1], places)]
        mean = signs(mean_estimate(line.group.mean, quantity.low, quantity.high))
        name = _name(line, texts, by_level, len(panel.lines) > 1)
        label = f"{name}{mean}"
        if name and len(label) * look.size * 0.0085 > width - 0.9:  # about as wide as the panel
            label = f"{name}{mean.partition(' [')[0]}"
        ax.plot(shares, values, drawstyle="steps-pre", label=fitted(label, width - 0.9, look.size), **style)
        ends += [float(values.min()), float(values.max()), line.group.mean.value]
    if math.isfinite(panel.threshold):
        ax.axhline(panel.threshold, color=FAINT, linewidth=0.8, dashes=(4, 3), zorder=1)
    low = quantity.low if math.isfinite(quantity.low) else min(ends)
    high = quantity.high if math.isfinite(quantity.high) else max(ends)
    room = 0.04 * ((high - low) or 1.0)
    ax.set_ylim((low - room, high + room) if quantity.higher_is_better else (high + room, low - room))
    ax.set_xlim(-0.01, 1.02)
    percent_scale(ax.xaxis)
    few_ticks(ax.yaxis)
    ax.set_xlabel("images, least robust first")
    ax.set_ylabel(fitted(quantity.name, _HIGH - 0.5, look.size))
    ax.legend(loc="best", handlelength=1.2, labelspacing=0.2, frameon=True, facecolor=CARD, edgecolor="none", framealpha=0.85)


def _styles(lines: Sequence[_Line], by_level: bool) -> list[dict[str, Any]]:
    if not by_level:
        return [line_style(i) for i in range(len(lines))]
    return [{"color": colour} for colour in level_colours(len(lines))]


def _name(line: _Line, texts: dict[NoiseLevel, str], by_level: bool, several: bool) -> str:
    at = line.group.key.at
    if by_level and at.level is not None:
        return f"{at.name} {texts[at]}: "
    return f"{line.run}: " if several else "" if at.level is None else f"{at.name} {texts[at]}: "
