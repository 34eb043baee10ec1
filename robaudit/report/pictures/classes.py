"""The picture of classes: how far the mean of each is from all others, the least robust at the top, a colour for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robaudit.report.class_tables import label_of, weakest_first
from robaudit.report.numbers import estimate, signs
from robaudit.report.pictures.chosen import one_result, same_result
from robaudit.report.pictures.page import PictureSize, Sketch, few_ticks, fitted, legend, legend_rows
from robaudit.report.pictures.style import CARD, COLOURS, FAINT, GRID, HIGHER, INK, LOWER
from robaudit.report.sections import Ask, Found
from robaudit.report.words import gap_sentence
from robaudit.stats.classes import ClassBias, ClassStats
from robaudit.stats.intervals import LIKE_THESE
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_ALL, _WORST, _BEST = 25, 20, 5


def narrowed(runs: Sequence[Run], ask: Ask) -> Ask:
    """One result of each run is shown."""
    return one_result(runs, ask)


def sketch(found: Sequence[Found[ClassBias]], _: Ask) -> Sketch:
    """The picture of one result of each run: classes in the order of the first."""
    found = same_result(found, lambda record: record.key)
    first = found[0]
    key = first.record.key
    order = [one.index for one in weakest_first(first.record)]
    shown: list[int | None] = [*order]
    if len(order) > _ALL:
        shown = [*order[:_WORST], None, *order[-_BEST:]]
    runs = [one.name for one in found]
    leads = [gap_sentence(one.record) for one in found]
    return Sketch(
        title="Robustness by class",
        about=str(key),
        lead=leads[0] if len(found) == 1 else " ".join(f"{name}: {text}" for name, text in zip(runs, leads, strict=True)),
        caption=" ".join(_caption(found, len(order) - len(shown) + 1 if None in shown else 0)),
        height=lambda look: len(shown) * look.line * (1.25 + 0.35 * (len(runs) - 1)) + 0.45 + legend_rows(runs, look) * look.line,
        draw=lambda body, look: _draw(body, look, found, shown),
    )


def _caption(found: Sequence[Found[ClassBias]], between: int) -> Iterator[str]:
    biases = [one.record for one in found]
    images, by = sum(one.images for one in biases[0].classes), "label" if biases[0].by == "label" else "predicted class"
    yield f"{images:,} images in {len(biases[0].classes):,} classes, by {by}."
    if any(one.difference is not None for bias in biases for one in bias.classes):
        yield (
            f"Dot: mean of the class minus the mean of all other images; bar: its {100 * (1 - biases[0].alpha):g} % interval for "
            f"{LIKE_THESE}, simultaneous over all classes. Filled, and the bar excludes 0: differs significantly from the others."
        )
    if len(found) == 1:
        yield "Right: mean of the class, and its number of images."
    if between:
        yield f"{between:,} classes between are not shown."
    if any(one.images == 1 for bias in biases for one in bias.classes):
        yield "A class without a dot has a single image."
    if any(bias.of_bounds for bias in biases):
        yield "Some values are only bounds: differences are between the bounds."
    if any(one.mean.measured_by == "none" for bias in biases for one in bias.classes):
        yield "No image has an interval of its own: its value is an approximation of unknown error, which no bar covers."
    if left_out := sum(bias.left_out for bias in biases):
        yield f"{left_out:,} images without a class or a finite value are left out."


def _draw(body: SubFigure, look: PictureSize, found: Sequence[Found[ClassBias]], shown: Sequence[int | None]) -> None:
    ax: Axes = body.subplots()
    several, classes = len(found) > 1, [{one.index: one for one in each.record.classes} for each in found]
    ends = [0.0]
    for run, of in enumerate(classes):
        shift = 0.0 if not several else (run - (len(classes) - 1) / 2) / (len(classes) + 1)
        for place, index in enumerate(shown):
            one = of.get(index) if index is not None else None
            if one is not None and one.difference is not None:
                ends += _dot(ax, place + shift, one, COLOURS[run % len(COLOURS)] if several else "")
    for place, index in enumerate(shown):
        if index is None:
            ax.axhline(place, color=GRID, linewidth=1.4, linestyle=(0, (1, 3)))
    room = 0.05 * ((max(ends) - min(ends)) or 0.1)
    ax.set(xlim=(min(ends) - room, max(ends) + room), ylim=(len(shown) - 0.4, -0.6))
    ax.grid(visible=False, axis="y")
    ax.axvline(0.0, color=FAINT, linewidth=1.0, zorder=1)
    few_ticks(ax.xaxis)
    bias = found[0].record
    way = "" if bias.higher_is_better else " (lower is better)"
    ax.set_xlabel(fitted(f"{bias.key.quantity}: difference from all other images{way}", 0.75 * look.body, look.size))
    _names(ax, look, classes[0], shown, marked=not several)
    if several:
        styles = [{"color": COLOURS[i % len(COLOURS)], "marker": "o"} for i in range(len(found))]
        legend(body, [one.name for one in found], styles, look)
    else:
        _means(ax, found[0], classes[0], shown)


def _names(ax: Axes, look: PictureSize, classes: Mapping[int, ClassStats], shown: Sequence[int | None], *, marked: bool) -> None:
    texts = [f"{len(classes) - len(shown) + 1:,} classes" if index is None else label_of(classes[index]) for index in shown]
    ax.set_yticks(range(len(shown)), [fitted(text, 0.32 * look.body, look.size) for text in texts])
    for label, index in zip(ax.get_yticklabels(), shown, strict=True):
        differs = classes[index].differs if index is not None and marked else None
        label.set_color({"lower": LOWER, "higher": HIGHER}.get(differs or "", INK))
        label.set_fontweight("bold" if differs in ("lower", "higher") else "normal")


def _means(ax: Axes, one: Found[ClassBias], classes: Mapping[int, ClassStats], shown: Sequence[int | None]) -> None:
    quantity = one.run.quantities[one.record.key.quantity]
    right = ax.secondary_yaxis("right")
    right.spines[:].set_visible(False)
    texts = []
    for index in shown:
        stats = None if index is None else classes[index]
        mean = stats and signs(estimate(stats.mean.value, stats.mean.lower, stats.mean.upper, quantity.low, quantity.high))
        texts.append(f"{mean}, n {stats.images:,}" if stats else "")
    right.set_yticks(range(len(shown)), texts)


def _dot(ax: Axes, y: float, one: ClassStats, colour: str) -> list[float]:
    """The difference of a class with its interval; returns the numbers that must be seen."""
    marked = one.differs in ("lower", "higher")
    ink = colour or {"lower": LOWER, "higher": HIGHER}.get(one.differs or "", FAINT)
    ends = [end for end in (one.difference_lower, one.difference_upper) if end is not None]
    style: dict[str, Any] = {"markerfacecolor": ink if marked else CARD, "markeredgecolor": ink, "markeredgewidth": 1.3, "color": ink}
    ax.plot(ends, [y] * len(ends), color=ink, linewidth=1.6, solid_capstyle="butt", alpha=0.85, zorder=2)
    ax.plot([one.difference or 0.0], [y], marker="o", zorder=3, **style)
    return [end for end in (*ends, one.difference) if end is not None and math.isfinite(end)]
