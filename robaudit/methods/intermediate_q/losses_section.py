"""Losses between the average and the worst case: their means by q, and the images with the
highest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.errors import RunError
from robaudit.levels import NoiseLevel
from robaudit.methods.intermediate_q.losses_by_q import (
    MOST_WORST,
    Losses,
    LossResult,
    loss_changes,
    losses,
)
from robaudit.names import PartName, ResultName
from robaudit.numerics.image_intervals import THESE_IMAGES
from robaudit.quantities import LOSS
from robaudit.records import columns_of
from robaudit.report import numbers
from robaudit.report.differences import (
    P_VALUE,
    paired_changes,
)
from robaudit.report.pictures.page import (
    Drawing,
    PictureSize,
    few_ticks,
    log_scale,
    paneled,
    styles_of,
    told_apart,
)
from robaudit.report.pictures.style import GRID
from robaudit.report.sections import Entry, Section, SectionRequest
from robaudit.report.summary_section import (
    QUANTILE_ENDS,
    caveats,
    covered,
    group_mean,
    how_to_read,
    left_open,
    mean_ends,
)
from robaudit.report.typed import (
    TEXT,
    WRITTEN,
    Beside,
    Changes,
    TypedColumn,
    TypedTable,
    data_columns,
)
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.settings import EXTEND
from robaudit.stats.summary import GroupSummary
from robaudit.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LossesSection(Section[tuple[Losses, ...]]):
    """The loss between its average over the noise and its maximum, by the order q of its norm."""

    title = "From the average to the worst case"
    place = 70
    words = (
        "The loss at q is the q-norm (E[l^q])^(1/q) over the noise, where l is the cross-entropy "
        "of a noisy copy of the image. q=1 is the "
        "mean; the larger q is, the more the upper tail counts; the limit is the maximum, which "
        "an attack searches for. Lower is better. "
        "A flat curve means that the loss hardly varies with the noise; a steep one, that rare "
        "noise gives a much larger loss than the "
        "mean. Sampling rarely reaches the tail, so values at large q are biased low, as is the "
        "attack's: where two disagree beyond "
        "their intervals, the higher one is closer to the true value."
    )
    uses = Section.uses | {"bottom"}

    def applies(self, run: Run) -> bool:
        """Whether it has losses by q, not only by attacks."""
        return LOSS.name in run.quantities and any(
            key.quantity == LOSS.name and _order(key.estimator) < math.inf for key in run.table
        )

    def records(self, run: Run, request: SectionRequest) -> list[tuple[Losses, ...]]:
        """The losses at all noise levels, together.

        Raises:
            RunError: the run has no losses by q.
        """
        by_level = losses(
            run,
            request.estimators,
            request.levels,
            MOST_WORST if request.bottom is None else request.bottom,
        )
        if not by_level:
            raise RunError(
                str(run.path),
                "has no losses by q",
                "add qnorm_path to its estimators: " + EXTEND + " computes it",
            )
        return [by_level]

    def typed_tables(
        self, entry: Entry[tuple[Losses, ...]], request: SectionRequest
    ) -> Iterator[TypedTable]:
        """The means by q, then the images with the highest losses."""
        yield self.table(entry, request)
        yield from _worst_losses(entry.record)

    def table(self, entry: Entry[tuple[Losses, ...]], request: SectionRequest) -> TypedTable:
        """The means by q: a row for each noise level and result."""
        texts = numbers.level_texts(level.at for level in entry.record)
        groups = _groups_of(entry.record)
        interval = f"[ ] 95 % interval of the mean, {covered(groups)}."
        # beside other runs there is room for the means only
        columns = _COLUMNS if entry.several else (*_COLUMNS, *_SPREAD)
        columns = (*columns, *data_columns(_DATA))
        rows = []
        keys = []
        for level in entry.record:
            for result in level.results:
                estimator, order = _named(result)
                spread = () if entry.several else _spread(result.summary)
                written = (texts[level.at], estimator, order, group_mean(result.summary), *spread)
                rows.append((*written, *_data(level, result)))
                keys.append(GroupKey(result.name, level.at, LOSS.name))
        limits = tuple(how_to_read(groups, "[ ]") if entry.several else caveats(groups, "[ ]"))
        # counts follow the name of their run
        open_values = tuple(left_open(groups)) if entry.several else ()
        failed = _failed_attacks(entry.record)
        return TypedTable(
            f"Mean loss by q ({LOSS.unit}, lower is better)",
            columns,
            rows,
            keys=keys,
            facts=(f"{numbers.span([group.images for group in groups])} images",),
            notes=(
                _ORDER,
                interval if entry.several else f"{interval} {QUANTILE_ENDS}",
                *limits,
            ),
            remarks=(*open_values, failed) if failed else open_values,
            beside=Beside.COLUMNS,
        )

    def changes(
        self, entries: Sequence[Entry[tuple[Losses, ...]]], request: SectionRequest
    ) -> Changes:
        """The differences of the means from the first run's."""
        differences = partial(loss_changes, estimators=request.estimators, levels=request.levels)
        return Changes(
            paired_changes(entries, differences),
            tested=True,
            about=_about_difference,
            notes=(
                "Differences: of the images with a value in both runs, with Student's t for pairs.",
                f"{P_VALUE}.",
            ),
        )

    def figure(
        self, entries: Sequence[Entry[tuple[Losses, ...]]], request: SectionRequest
    ) -> Drawing:
        """From the average to the worst case: a panel for each noise level, a line for each run and
        estimator."""
        by_level: dict[NoiseLevel, list[Line]] = {}
        for entry in entries:
            for level in entry.record:
                by_level.setdefault(level.at, []).append((entry.name, level))
        shown = dict(list(by_level.items())[:_MOST_PANELS])
        names = _names(shown)
        texts = numbers.level_texts(shown)
        styles = dict(zip(names, styles_of(list(names), marks=True), strict=True))
        limits = _limits(_levels_of(shown))

        def draw(ax: Axes, at: NoiseLevel, _: PictureSize) -> None:
            ax.set_ylim(*limits)
            if limits[0] > 0:
                log_scale(ax, "y")
            else:
                few_ticks(ax.yaxis)
            _panel(ax, shown[at], styles, limits)

        return paneled(
            "Loss from the average to the worst case",
            _caption(shown, list(by_level)[_MOST_PANELS:], several=len(entries) > 1),
            list(shown),
            draw,
            wide=3.0,
            high=2.4,
            titles=[texts[at] for at in shown],
            styles=dict(zip(names.values(), styles.values(), strict=True)),
            ylabel=f"loss in {LOSS.unit}, lower is better",
            sharey=True,
        )

    def document(self, entry: Entry[tuple[Losses, ...]], request: SectionRequest) -> dict[str, Any]:
        """The means by q and the values of the images with the highest losses."""
        return {"levels": [_document(level) for level in entry.record]}


_DATA = ("estimator", "noise", "level_name", "level", "q", "images", "mean")


def _data(level: Losses, result: LossResult) -> tuple[Any, ...]:
    """The values below :data:`_DATA`."""
    members = columns_of(result.mean)
    mean = {part: members[part] for part in _PARTS}
    return (result.name, *level.at.document().values(), result.q, result.summary.images, mean)


def _about_difference(key: GroupKey) -> dict[str, Any]:
    """The columns of a result in CSV and JSON."""
    return {"estimator": key.estimator, **key.at.document(), "q": _order(key.estimator)}


def _order(name: str) -> float:
    """The order of a result's norm; infinity for the maximum."""
    part = ResultName.parse(name).part
    return part.number if part is not None and part.name is PartName.Q else math.inf


_PARTS = ("value", "lower", "upper", "measured_lower", "measured_upper")


def _document(level: Losses) -> dict[str, Any]:
    """The losses at a noise level as JSON values."""
    results = [
        {
            "estimator": result.name,
            "q": result.q if math.isfinite(result.q) else None,
            "images": result.summary.images,
            "mean": result.mean.document(),
        }
        for result in level.results
    ]
    worst = [
        {"id": flag.id, **{result.name: result.worst[i] for result in level.results}}
        for i, flag in enumerate(level.worst)
    ]
    return {
        **level.at.document(),
        "results": results,
        "attacked": level.attacked,
        "beaten": level.beaten,
        "worst": worst,
    }


_ORDER = (
    "q = 1 is the mean loss of an image's noisy copies; a larger q gives the worst copies "
    "more weight; max is the attack."
)


_COLUMNS = (
    TypedColumn("", TEXT, head="noise"),
    TypedColumn("", TEXT, head="estimator"),
    TypedColumn("", WRITTEN, head="q", names=True),
    TypedColumn("", WRITTEN, head="mean [95% interval]"),
)
_SPREAD = (
    TypedColumn("", WRITTEN, head=f"[{THESE_IMAGES}]", detail=True),
    TypedColumn("", WRITTEN, head="median"),
    TypedColumn("", WRITTEN, head="95th %ile"),
)


def _spread(group: GroupSummary) -> Iterator[str]:
    """The mean of these images, the median and the 95th percentile."""
    yield numbers.ends(*group.mean.measured.ends, LOSS.low, LOSS.high)
    yield numbers.quantile_estimate(group.median, LOSS.low, LOSS.high)
    yield numbers.quantile_estimate(group.bad_end, LOSS.low, LOSS.high)


def _worst_losses(by_level: Sequence[Losses]) -> Iterator[TypedTable]:
    """The images with the highest losses at each noise level, worst first: the values that rank
    them, at each q, and the attack's."""
    levels = numbers.level_texts(level.at for level in by_level)
    for level in by_level:
        results = (*level.ranking, *level.attacks)
        columns = [TypedColumn("", TEXT, head="sample")]
        for result in results:
            head = f"q={result.q:.6g}" if math.isfinite(result.q) else result.name
            columns.append(TypedColumn("", WRITTEN, head=head))
        rows = []
        for i, sample in enumerate(level.worst):
            values = (_loss(result.worst[i], result.at_least[i]) for result in results)
            rows.append((sample.id, *values))
        yield TypedTable(
            f"Images with the highest loss, {level.ranking[-1].estimator}, {levels[level.at]}",
            tuple(columns),
            rows,
            beside=Beside.APART,
            folded=True,
        )


def _loss(value: float | None, at_least: float | None) -> str:
    """The loss of an image; without an upper end of its interval, the lower end as a bound."""
    if value is None:
        return numbers.NONE
    if at_least is not None:
        return numbers.beside(value, at_least, None, LOSS.low, LOSS.high)
    return numbers.plain(value, LOSS.low, LOSS.high)


def _named(result: LossResult) -> tuple[str, str]:
    """The estimator and the order, as tables have them."""
    return (result.name, "max") if math.isinf(result.q) else (result.estimator, f"{result.q:.6g}")


# --- the figure

_MOST_PANELS = 6
_MOST_TICKS = 6
_FAR = 12.0  # the ratio of losses from which the scale is logarithmic
_TINY = 1e-300
_LEAST = 1e-6  # the lower end of such a scale, relative to the largest loss
_BESIDE = 0.02  # decades of q between the means of two lines

Line = tuple[str, Losses]
"""The losses of a run at one noise level, and the name of the run."""


def _levels_of(shown: Mapping[NoiseLevel, Sequence[Line]]) -> list[Losses]:
    """The losses of all runs at all noise levels."""
    return [level for _, level in chain.from_iterable(shown.values())]


def _groups_of(levels: Iterable[Losses]) -> list[GroupSummary]:
    """The summaries of all results."""
    results = chain.from_iterable(level.results for level in levels)
    return [result.summary for result in results]


def _names(shown: Mapping[NoiseLevel, Sequence[Line]]) -> dict[tuple[str, str], str]:
    """Names of the lines and of attacks without a line, by run and estimator."""
    keys: dict[tuple[str, str], None] = {}
    for lines in shown.values():
        for run, level in lines:
            keys |= dict.fromkeys((run, label) for label in level.curves)
            keys |= dict.fromkeys((run, result.name) for result in level.attacks[1:])
    return dict(zip(keys, told_apart(list(keys)), strict=True))


# --- words


def _caption(
    shown: Mapping[NoiseLevel, Sequence[Line]], left: Sequence[NoiseLevel], *, several: bool
) -> Iterator[str]:
    """The sentences of the caption; ``left``: the noise levels that are not drawn."""
    levels = _levels_of(shown)
    groups = _groups_of(levels)
    yield (
        f"{numbers.span([group.images for group in groups])} images. Mean over the images; "
        f"bars: its 95 % interval, {covered(groups)}."
    )
    if any(level.attacks for level in levels):
        yield "Grey: the highest loss that the attack found; the limit is at least as high."
    by_run: dict[str, list[Losses]] = {}
    for lines in shown.values():
        for name, level in lines:
            by_run.setdefault(name, []).append(level)
    for name, of_run in by_run.items():
        failed = _failed_attacks(of_run)
        if failed:
            yield f"{name}: {failed}" if several else failed
    yield from caveats(groups, "[ ]")
    if left:
        yield f"Not shown: {', '.join(numbers.level_texts(left).values())}."


def _ends(result: LossResult) -> tuple[float, float]:
    """The interval of the mean; infinite where it is open."""
    lower, upper = mean_ends(result.mean, alone=result.summary.images == 1)
    return -math.inf if lower is None else lower, math.inf if upper is None else upper


def _known(result: LossResult) -> bool:
    """Whether the interval of the mean says anything."""
    lower, upper = _ends(result)
    return math.isfinite(upper) or lower > 0


# --- drawing


def _limits(levels: Sequence[Losses]) -> tuple[float, float]:
    """The vertical range of all panels: from 0, or, where values are far apart, of a logarithmic
    scale."""
    results = list(chain.from_iterable(level.results for level in levels))
    values = [result.mean.value for result in results]
    ends = [upper for _, upper in map(_ends, results) if math.isfinite(upper)]
    # smaller numbers count as 0, which has neither ratios nor logarithms
    high = max([*values, *ends, _TINY])
    positive = [value for value in values if value > _TINY]
    if not positive or max(positive) <= _FAR * min(positive):
        return 0.0, 1.08 * high
    low = max(min(positive), _LEAST * max(positive))
    room = (high / low) ** 0.05
    return low / room, high * room


def _panel(
    ax: Axes,
    lines: Sequence[Line],
    styles: Mapping[tuple[str, str], dict[str, Any]],
    limits: tuple[float, float],
) -> None:
    """Draw the losses at a noise level: by q, then of the attack, at the end of the scale."""
    curves = chain.from_iterable(level.curves.values() for _, level in lines)
    orders = sorted({result.q for result in chain.from_iterable(curves)})
    reach = math.log10(orders[-1] / orders[0])
    limit = math.log10(orders[-1]) + max(0.35, 0.22 * reach)  # where the attack is
    attacked = any(level.attacks for _, level in lines)
    if attacked:
        ax.axvspan(
            limit - 0.08 * (reach + 1),
            limit + 0.08 * (reach + 1),
            color=GRID,
            alpha=0.5,
            linewidth=0,
            zorder=0,
        )
    drawn = 0
    for run, level in lines:
        for label, curve in level.curves.items():
            style = styles[run, label]
            # bars of several lines would lie on each other
            shift = _BESIDE * (reach + 1) * drawn
            drawn += 1
            points = [(math.log10(result.q) + shift, result) for result in curve]
            ax.plot(*_xy(points, limits), zorder=4, **style)
            if level.attacks:
                # dotted: between the last q and the attack nothing is measured
                best = max(level.attacks, key=lambda result: result.mean.value)
                way = [points[-1], (limit + shift, best)]
                ax.plot(
                    *_xy(way, limits),
                    color=style["color"],
                    linewidth=1.3,
                    linestyle=(0, (1, 1.5)),
                    zorder=3.5,
                )
                points.append((limit + shift, level.attacks[0]))
                ax.plot(*_xy(points[-1:], limits), zorder=4, **style)
            for x, result in points:
                _bar(ax, x, result, limits, style["color"])
        for i, result in enumerate(level.attacks[1:], start=1):
            style = styles[run, result.name]
            x = limit + _BESIDE * (reach + 1) * (drawn + i)
            ax.plot(*_xy([(x, result)], limits), zorder=4, **style)
            _bar(ax, x, result, limits, style["color"])
    _orders(ax, orders, limit if attacked else None)


def _xy(
    points: Sequence[tuple[float, LossResult]], limits: tuple[float, float]
) -> tuple[list[float], list[float]]:
    """The places of points, inside the vertical limits."""
    places = [x for x, _ in points]
    return places, [float(np.clip(result.mean.value, *limits)) for _, result in points]


def _bar(ax: Axes, x: float, result: LossResult, limits: tuple[float, float], ink: str) -> None:
    """Draw the interval of a mean; none where it says nothing."""
    if _known(result):
        ends = np.clip(_ends(result), *limits)
        ax.plot([x, x], ends, color=ink, linewidth=1.3, alpha=0.8, zorder=4)


def _orders(ax: Axes, orders: Sequence[float], limit: float | None) -> None:
    """Set ticks at the orders, at some of them if there are many, and at the attack."""
    step = math.ceil(len(orders) / _MOST_TICKS)
    shown = list(orders[::-1][::step])[::-1]  # from the largest on, which always has a tick
    places = [math.log10(order) for order in shown]
    texts = [f"{order:.6g}".replace("e+0", "e").replace("e+", "e") for order in shown]
    if limit is not None:
        places.append(limit)
        texts.append("attack")
    ax.set_xticks(places, texts)
    ax.set_xlabel("q (1: the average)")


def _failed_attacks(levels: Sequence[Losses]) -> str:
    """For how many images the attack failed, as a sentence; empty where it did not."""
    texts = numbers.level_texts(level.at for level in levels)
    failed = []
    for level in levels:
        if level.beaten:
            at = f" at {texts[level.at]}" if len(levels) > 1 else ""
            failed.append(f"{level.beaten:,} of {count(level.attacked, 'image')}{at}")
    if not failed:
        return ""
    # such a loss proves that the attack's is not the maximum
    why = "where the chains of a q met a higher loss, or a whole interval is above what it found"
    return f"The attack failed for {', '.join(failed)}, {why}."
