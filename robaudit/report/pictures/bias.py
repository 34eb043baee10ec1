"""The picture of class bias: how far each class is from all others, the worst at the top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robaudit.levels import LevelChoice
from robaudit.quantities import Quantity
from robaudit.report.class_tables import label_of, weakest_first
from robaudit.report.numbers import estimate, mean_estimate, signs
from robaudit.report.pictures.groups import one_of, others_text
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put_level
from robaudit.report.pictures.style import CARD, FAINT, GRID, HIGHER, INK, LOWER, few_ticks
from robaudit.report.words import gap_sentence
from robaudit.stats.classes import ClassBias, ClassStats, class_bias
from robaudit.stats.frame import NO_CLASS
from robaudit.stats.groups import quantity_of
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.summary import Mean, mean_of
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALL, WORST, BEST = 25, 20, 5


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one estimator at one noise level.

    Attributes:
        bias: all classes, with their tests.
        quantity: what was measured.
        first, last: the classes that are shown, the worst first: all of them in ``first``, or the worst and the best.
        between: how many are not shown.
        overall: the mean over all images that have a class.
        others: other groups of the run.
    """

    bias: ClassBias
    quantity: Quantity
    first: tuple[ClassStats, ...]
    last: tuple[ClassStats, ...]
    between: int
    overall: Mean
    others: int


def classes_of(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> Classes:
    """The classes by label, or by prediction where the data has no labels.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there is no finite value.
    """
    rows, others = one_of(run, estimators, levels)
    quantity = quantity_of(rows.key.quantity, run.quantities)
    labelled = bool((rows.label != NO_CLASS).any())
    bias = class_bias(rows, by="label" if labelled else "predicted", class_names=run.class_names, quantity=quantity)
    ordered = weakest_first(bias)
    many = len(ordered) > ALL
    members = rows.finite.take((rows.finite.label if labelled else rows.finite.predicted) != NO_CLASS)
    return Classes(
        bias=bias,
        quantity=quantity,
        first=tuple(ordered[:WORST] if many else ordered),
        last=tuple(ordered[-BEST:] if many else ()),
        between=max(0, len(ordered) - WORST - BEST) if many else 0,
        overall=mean_of(members, quantity),
        others=others,
    )


_BELOW, _ABOVE, _WIDEST = 0.45, 0.05, 0.36  # inches, inches, share of the body for names


def sketch(classes: Classes) -> Sketch:
    """The picture of these classes."""
    lines = len(classes.first) + len(classes.last) + bool(classes.between)
    key = classes.bias.key
    return Sketch(
        title=f"Robustness by class: {key.estimator}, {key.at}",
        lead=gap_sentence(classes.bias),
        caption=_caption(classes),
        height=lambda look: lines * look.line * 1.35 + _BELOW + _ABOVE,
        draw=lambda figure, box, look: _draw(figure, box, look, classes),
    )


def _caption(classes: Classes) -> str:
    bias, ends = classes.bias, (classes.quantity.low, classes.quantity.high)
    images = sum(one.images for one in bias.classes)
    by = "label" if bias.by == "label" else "predicted class"
    parts = [f"{images:,} images in {len(bias.classes):,} classes, by {by}; mean of all {mean_estimate(classes.overall, *ends)}."]
    if any(one.difference is not None for one in bias.classes):
        parts.append(
            f"Dot: mean of the class minus the mean of all other images; bar: its {100 * (1 - bias.alpha):g} % interval for {LIKE_THESE}, "
            "simultaneous over all classes. Filled, and the bar excludes 0: differs significantly from the others. "
            "Right: mean of the class, and its number of images."
        )
    if any(one.images == 1 for one in bias.classes):
        parts.append("A class without a dot has a single image.")
    if bias.of_bounds:
        parts.append("Some values are only bounds: differences are between the bounds.")
    if classes.overall.measured_by == "none":
        parts.append("No image has an interval of its own: its value is an approximation of unknown error, which no bar covers.")
    if bias.left_out:
        parts.append(f"{bias.left_out:,} images without a class or a finite value are left out.")
    return " ".join(parts) + others_text(classes.others)


def _draw(figure: Figure, box: Box, look: Look, classes: Classes) -> None:
    shown = [*classes.first, *([None] if classes.between else []), *classes.last]
    counts = [_mean_text(one, classes.quantity) if one else "" for one in shown]
    right = max(measured(text, look.size) for text in counts) + 0.1
    names = [label_of(one) if one else "" for one in shown]
    room = min(_WIDEST * box.width, max(measured(name, look.size, bold=True) for name in names)) + 0.06
    ax = axes(figure, Box(box.x + room, box.y + _BELOW, box.width - room - right, box.height - _BELOW - _ABOVE), look)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(*_range(shown))
    ax.yaxis.set_ticks([])
    ax.grid(visible=False, axis="y")
    few_ticks(ax.xaxis)
    ax.set_xlabel(
        f"mean {classes.quantity.name} minus the mean of all other images"
        + ("" if classes.bias.higher_is_better else " (lower is better)"),
        color=FAINT,
        size=look.size,
        labelpad=3,
    )
    ax.axvline(0.0, color=FAINT, linewidth=1.0, zorder=1)
    step = (box.height - _BELOW - _ABOVE) / len(shown)
    for i, one in enumerate(shown):
        y = box.y + box.height - _ABOVE - (i + 0.5) * step
        if one is None:
            words = f"{classes.between:,} classes between"
            put_level(figure, box.x, y, words, size=look.size, color=FAINT)
            ax.axhline(i, color=GRID, linewidth=1.2, dashes=(1, 3))
            continue
        ink = {"lower": LOWER, "higher": HIGHER}.get(one.differs or "", FAINT)
        marked = one.differs in ("lower", "higher")
        name = fitted(names[i], room - 0.06, look.size, bold=marked)
        put_level(
            figure,
            box.x,
            y,
            name,
            size=look.size,
            color=ink if marked else INK,
            weight="bold" if marked else "normal",
        )
        put_level(figure, box.x + box.width, y, counts[i], size=look.size, color=FAINT, ha="right")
        _dot(ax, i, one, ink, marked=marked)


def _mean_text(one: ClassStats, quantity: Quantity) -> str:
    return f"{signs(estimate(one.mean.value, one.mean.lower, one.mean.upper, quantity.low, quantity.high))}, n {one.images:,}"


def _dot(ax: Axes, place: int, one: ClassStats, ink: str, *, marked: bool) -> None:
    if one.difference is None or one.difference_lower is None or one.difference_upper is None:
        return
    left, right = ax.get_xlim()
    ends = [min(max(end, left), right) for end in (one.difference_lower, one.difference_upper)]
    ax.plot(ends, [place, place], color=ink, linewidth=1.6, solid_capstyle="butt", alpha=0.85, zorder=2)
    style: dict[str, Any] = {"markerfacecolor": ink if marked else CARD, "markeredgecolor": ink, "markeredgewidth": 1.3}
    ax.plot([one.difference], [place], marker="o", markersize=6, linestyle="none", zorder=3, **style)


def _range(shown: list[ClassStats | None]) -> tuple[float, float]:
    """From the lowest to the highest end that is shown, with some room."""
    ends = [0.0]
    for one in (one for one in shown if one is not None):
        ends += [end for end in (one.difference, one.difference_lower, one.difference_upper) if end is not None and math.isfinite(end)]
    room = 0.05 * ((max(ends) - min(ends)) or 0.1)
    return min(ends) - room, max(ends) + room
