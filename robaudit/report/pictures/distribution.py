"""The picture of the distribution over images: sorted values beside means and boxes, a row for each estimator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from robaudit.levels import GAUSSIAN, NO_NOISE, LevelChoice, NoiseLevel
from robaudit.quantities import Quantity
from robaudit.report.numbers import level_numbers, mean_estimate, span
from robaudit.report.pictures.groups import columns_of
from robaudit.report.pictures.page import Box, Look, Sketch, axes, fitted, measured, put
from robaudit.report.pictures.style import CARD, FAINT, level_colours, number_ticks
from robaudit.report.summary_tables import MEANINGS
from robaudit.stats.frame import Columns
from robaudit.stats.groups import GroupKey, quantity_of
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.summary import Mean, Share, mean_of, share
from robaudit.store.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 400
_BOX = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class Level:
    """One estimator at one noise level.

    Attributes:
        at: the noise level.
        images: with a finite value; ``left_out``: without.
        with_interval, approximate: images with an interval of their own; of those, with one that covers the draws only.
        shares, values: the curve: this share of the images is at least as bad as the value; from the worst image to the best.
        box: 5 %, 25 %, 50 %, 75 % and 95 % quantile of the values.
        mean: as in the summary.
        beyond: images beyond the threshold.
        censored: images only known to be beyond ``cap``; ``upper_bounds``: images whose true value is at most theirs.
    """

    at: NoiseLevel
    images: int
    left_out: int
    with_interval: int
    approximate: int
    shares: tuple[float, ...]
    values: tuple[float, ...]
    box: tuple[float, ...]
    mean: Mean
    beyond: Share
    censored: int
    cap: float
    upper_bounds: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """All levels of one noise for one estimator, the smallest first."""

    estimator: str
    quantity: Quantity
    threshold: float
    levels: tuple[Level, ...]


def distributions(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = (), threshold: float | None = None
) -> tuple[Distribution, ...]:
    """One for each estimator and noise, in the run's order.

    Args:
        run: a finished run.
        estimators, levels: only these.
        threshold: for the share beyond it; each quantity's usual one where None, or where it is out of its range.

    Raises:
        RunError: the run has no such estimator or noise level.
        NothingLeftError: there is no finite value.
    """
    from robaudit.stats.flags import usual_threshold

    groups_of: dict[tuple[str, str, str], list[tuple[GroupKey, Columns]]] = {}
    for key, columns in columns_of(run, estimators, levels).items():
        groups_of.setdefault((key.estimator, key.quantity, key.noise), []).append((key, columns))
    made = []
    for (estimator, name, _), groups in groups_of.items():
        quantity = quantity_of(name, run.quantities)
        limit = threshold if threshold is not None and quantity.low <= threshold <= quantity.high else usual_threshold(quantity)
        ordered = sorted(groups, key=lambda group: group[0].at.level)
        made.append(Distribution(estimator, quantity, limit, tuple(_level(key.at, columns, quantity, limit) for key, columns in ordered)))
    return tuple(made)


def _level(at: NoiseLevel, columns: Columns, quantity: Quantity, threshold: float) -> Level:
    values = columns.values
    ranked = np.sort(values) if quantity.higher_is_better else -np.sort(-values)  # the worst first
    count = len(ranked)
    places = np.arange(count) if count <= MOST_POINTS else np.unique(np.linspace(0, count - 1, MOST_POINTS).round().astype(int))
    beyond = int((values < threshold).sum() if quantity.higher_is_better else (values > threshold).sum())
    return Level(
        at=at,
        images=count,
        left_out=columns.not_finite,
        with_interval=columns.bounded,
        approximate=columns.approximate,
        shares=tuple(((places + 1) / count).tolist()),
        values=tuple(ranked[places].tolist()),
        box=tuple(np.quantile(values, _BOX).tolist()),
        mean=mean_of(columns, quantity),
        beyond=share(beyond, count),
        censored=columns.censored,
        cap=columns.cap,
        upper_bounds=columns.upper_bounds,
    )


def band(images: int) -> float:
    """Half the width of a 95 % band about the whole curve, for the population: sqrt(log(2 / .05) / (2 n)).

    Source: Dvoretzky, Kiefer and Wolfowitz (1956), with the constant of Massart (1990).
    """
    return min(1.0, math.sqrt(math.log(40.0) / (2 * images)))


MOST_ROWS = 6
_SIDE = 0.45  # room beside the first and the last level, in steps between levels
_ROW, _TICKS, _HEAD = 1.5, 0.58, 0.3  # inches: of the axes, below and above them


def sketch(every: Sequence[Distribution]) -> Sketch:
    """The picture of these distributions."""
    shown = every[:MOST_ROWS]
    return Sketch(
        title=_title(shown),
        caption=_caption(shown, every[MOST_ROWS:]),
        height=lambda _: len(shown) * (_ROW + _TICKS + _HEAD),
        draw=lambda figure, box, look: _draw(figure, box, look, shown),
    )


def _title(shown: Sequence[Distribution]) -> str:
    names = {one.quantity.name for one in shown}
    return "Robustness of the images by noise level" if names == {"p_robust"} else "Distribution over the images by noise level"


def _caption(shown: Sequence[Distribution], left: Sequence[Distribution]) -> str:
    levels = [level for one in shown for level in one.levels]
    fewest, most = min(level.images for level in levels), max(level.images for level in levels)
    parts = [
        f"{span((fewest, most))} images.",
        "Left: images sorted from the least to the most robust; where a curve crosses a value, that share of them has it or a worse one "
        f"(95 % band of a whole curve, {LIKE_THESE}: ± {100 * band(fewest):.0f} points).",
        f"Right: dot: mean; line: its 95 % interval, {LIKE_THESE}; box: middle half of the images; thin line: 5 % to 95 % of them.",
    ]
    if limits := _thresholds(shown):
        parts.append(f"Dashed: {limits}.")
    parts += censoring_text(shown)
    for name in dict.fromkeys(one.quantity.name for one in shown):
        if name in MEANINGS:
            parts.append(f"{name}: {MEANINGS[name].rstrip('.')}.")
    without = sum(level.left_out for level in levels)
    if without:
        parts.append(f"{without:,} results without a finite value are left out.")
    if not all(math.isfinite(level.mean.upper - level.mean.lower) for level in levels):
        parts.append("An interval that reaches the edge of the picture is open on that side.")
    parts += _approximate(shown)
    if most > MOST_POINTS:
        parts.append(f"Curves go through {MOST_POINTS} images; all numbers are for all images.")
    if left:
        parts.append(f"Not shown: {', '.join(dict.fromkeys(_named(one) for one in left))}.")
    return " ".join(parts)


def _named(one: Distribution) -> str:
    """The estimator, with the noise unless that is isotropic Gaussian noise."""
    label = one.levels[0].at.noise
    return one.estimator if label in (GAUSSIAN, NO_NOISE.noise) else f"{one.estimator} under {label}"


def _thresholds(shown: Sequence[Distribution]) -> str:
    known = {one.quantity.name: one.threshold for one in shown if math.isfinite(one.threshold)}
    if len(set(known.values())) == 1:
        return f"{next(iter(known.values())):.3g}"
    return ", ".join(f"{threshold:.3g} ({name})" for name, threshold in known.items())


def censoring_text(shown: Sequence[Distribution]) -> list[str]:
    """How many values of which estimators are only known to be larger, or are upper bounds."""
    parts = [
        f"{one.estimator}: {level.censored:,} of {level.images:,} images are censored at {level.cap:.3g}."
        for one in shown
        for level in one.levels
        if level.censored
    ]
    bounds = dict.fromkeys(one.estimator for one in shown if any(level.upper_bounds for level in one.levels))
    return parts + ([f"{', '.join(bounds)}: upper bounds."] if bounds else [])


def _approximate(shown: Sequence[Distribution]) -> list[str]:
    """Which estimators give values of unknown error, or intervals without their bias."""
    none = [one.estimator for one in shown if not any(level.with_interval for level in one.levels)]
    biased = [one.estimator for one in shown if any(level.approximate for level in one.levels)]
    none, biased = (list(dict.fromkeys(names)) for names in (none, biased))
    parts = [f"{', '.join(none)}: approximations of unknown error."] if none else []
    return parts + ([f"{', '.join(biased)}: no interval covers the bias of the approximation."] if biased else [])


def _draw(figure: Figure, box: Box, look: Look, shown: Sequence[Distribution]) -> None:
    texts = level_numbers(level.at for one in shown for level in one.levels)
    colours = level_palette(texts)
    step = _ROW + _TICKS + _HEAD
    left, gap = 0.12 + 4.2 * look.size / 72, 0.3
    half = (box.width - left - gap) / 2
    for i, one in enumerate(shown):
        bottom = box.y + box.height - (i + 1) * step + _TICKS
        label = one.levels[0].at.noise
        at = one.levels[0].at
        under = f", {at}" if at.levelless else "" if label == GAUSSIAN else f", {label}"
        name = fitted(f"{one.estimator}: {one.quantity.name}{under}", box.width, look.size, bold=True)
        put(figure, box.x, bottom + _ROW + 0.09, name, size=look.size, weight="bold", va="bottom")
        curves = axes(figure, Box(box.x + left, bottom, half, _ROW), look)
        means = axes(figure, Box(box.x + left + half + gap, bottom, half, _ROW), look)
        low, high = _range(one)
        for ax in (curves, means):
            ax.set_ylim(low, high)
            if math.isfinite(one.threshold):
                ax.axhline(one.threshold, color=FAINT, linewidth=0.8, dashes=(4, 3), zorder=1)
        _curves(curves, one.levels, colours, look)
        _means(means, one, colours, texts, half, look)
        for ax in (curves, means):
            number_ticks(ax.yaxis, _ticks(one, low, high))
        means.yaxis.set_tick_params(labelleft=False)


def level_palette(levels: Iterable[NoiseLevel]) -> dict[NoiseLevel, str]:
    """A colour for each level, from the weakest to the strongest of each noise."""
    colours: dict[NoiseLevel, str] = {}
    known = list(levels)
    for label in dict.fromkeys(at.noise for at in known):
        ordered = sorted((at for at in known if at.noise == label), key=lambda at: at.strength)
        colours.update(zip(ordered, level_colours(len(ordered)), strict=True))
    return colours


def _range(one: Distribution) -> tuple[float, float]:
    """The quantity's range, or that of the values where it has no end; better is up."""
    values = [value for level in one.levels for value in (*level.values, level.mean.value)]
    low = one.quantity.low if math.isfinite(one.quantity.low) else min(values)
    high = one.quantity.high if math.isfinite(one.quantity.high) else max(values)
    room = 0.04 * ((high - low) or 1.0)
    ends = low - room, high + room
    return ends if one.quantity.higher_is_better else ends[::-1]


def _ticks(one: Distribution, low: float, high: float) -> list[float]:
    if (one.quantity.low, one.quantity.high) == (0.0, 1.0):
        return [0.0, 0.25, 0.5, 0.75, 1.0]
    from matplotlib.ticker import MaxNLocator

    ends = sorted((low, high))
    return [float(t) for t in MaxNLocator(nbins=4, steps=[1, 2, 5, 10]).tick_values(*ends) if ends[0] <= t <= ends[1]]


def _curves(ax: Axes, levels: Sequence[Level], colours: dict[NoiseLevel, str], look: Look) -> None:
    for level in levels:
        x, y = _steps(level, *ax.get_ylim())
        ax.plot(x, y, color=colours[level.at], linewidth=1.7, drawstyle="steps-pre", solid_joinstyle="round", zorder=3)
    ax.set_xlim(-0.01, 1.02)
    number_ticks(ax.xaxis, [0, 0.25, 0.5, 0.75, 1], ["0 %", "25", "50", "75", "100"])
    ax.set_xlabel("images, least robust first", color=FAINT, size=look.size, labelpad=2)


def _steps(level: Level, low: float, high: float) -> tuple[list[float], list[float]]:
    """The curve without the points that change nothing visible."""
    unit = abs(high - low) / 500
    x, y = [0.0], [level.values[0]]
    for place, value in zip(level.shares, level.values, strict=True):
        if len(x) > 1 and round(value / unit) == round(y[-1] / unit):
            x[-1] = place
        else:
            x.append(place)
            y.append(value)
    return x, y


def _means(ax: Axes, one: Distribution, colours: dict[NoiseLevel, str], texts: dict[NoiseLevel, str], inches: float, look: Look) -> None:
    levels = one.levels
    places, numbers, every = _labels(one, texts, inches, look)
    width = 0.42 * min((b - a for a, b in pairwise(places)), default=0.6)
    for x, level in zip(places, levels, strict=True):
        ink = colours[level.at]
        ax.plot([x, x], [level.box[0], level.box[4]], color=ink, linewidth=0.9, alpha=0.6, zorder=2)
        ax.fill_between([x - width / 2, x + width / 2], level.box[1], level.box[3], color=ink, alpha=0.25, linewidth=0.6, zorder=2)
        ax.plot([x - width / 2, x + width / 2], [level.box[2]] * 2, color=ink, linewidth=0.9, alpha=0.8, zorder=2)
        low, high = sorted(ax.get_ylim())
        reach = [min(max(end, low), high) for end in (level.mean.lower, level.mean.upper)]
        ax.plot([x, x], reach, color=ink, linewidth=2.4, solid_capstyle="butt", zorder=3)
        ax.plot([x], [level.mean.value], marker="o", markersize=5.5, color=ink, markeredgecolor=CARD, markeredgewidth=0.8, zorder=4)
    ax.set_xlim(places[0] - _SIDE, places[-1] + _SIDE)
    ax.grid(visible=False, axis="x")
    shown = range(0, len(levels), every)
    names = ["" if levels[i].at.levelless else texts[levels[i].at] for i in shown]
    number_ticks(ax.xaxis, [places[i] for i in shown], [(name + numbers[i]).strip() for i, name in zip(shown, names, strict=True)])
    for label, i in zip(ax.get_xticklabels(), shown, strict=True):
        label.set_color(colours[levels[i].at])
        label.set_fontweight("bold")
    words = [*([] if levels[0].at.levelless else [levels[0].at.name.value]), *(["mean"] if numbers[0] else [])]
    ax.set_xlabel(", and ".join(words), color=FAINT, size=look.size, labelpad=2)


def _labels(one: Distribution, texts: dict[NoiseLevel, str], inches: float, look: Look) -> tuple[list[float], list[str], int]:
    """Positions of the levels, the texts below them, and which of them have room for a label: every first, second, ...

    Means are written if they fit, with even steps between the levels if necessary.
    """
    ends = one.quantity.low, one.quantity.high
    numbers = [f"\n{mean_estimate(level.mean, *ends).partition(' [')[0]}" for level in one.levels]
    count = len(one.levels)
    need = max(measured(text, look.size, bold=True) for text in (*(n.strip() for n in numbers), *texts.values())) + 0.08
    bare = max(measured(text, look.size, bold=True) for text in texts.values()) + 0.08
    step = inches / max(count - 1 + 2 * _SIDE, 1)
    proportional, even = _places([level.at.level for level in one.levels]), [float(i) for i in range(count)]
    for width, written in ((need, numbers), (bare, [""] * count)):
        for places in (proportional, even):
            if width <= step * min((b - a for a, b in pairwise(places)), default=math.inf):
                return places, written, 1
    return even, [""] * count, math.ceil(bare / step)


def _places(levels: Sequence[float]) -> list[float]:
    """Positions of the levels, from 0 to their number less one: in proportion if that keeps them apart, else by logarithms, else evenly."""
    count = len(levels)
    if count == 1:
        return [0.0]
    for scale in (float, math.log):
        at = [scale(level) for level in levels]
        places = [(a - at[0]) / (at[-1] - at[0]) * (count - 1) for a in at]
        if min(b - a for a, b in pairwise(places)) >= 0.55:
            return places
    return [float(i) for i in range(count)]
