"""Robustness by class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robaudit.compare.side_by_side import Comparisons
from robaudit.estimates import Estimate
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES, MeanMethod
from robaudit.quantities import Quantity
from robaudit.records import columns_of
from robaudit.report import legends, numbers
from robaudit.report.differences import changes_of, difference, run_columns
from robaudit.report.numbers import estimate, signs
from robaudit.report.pictures.page import Drawing, PictureSize, cut, few_ticks, legend
from robaudit.report.pictures.style import CARD, COLOURS, FAINT, GRID, HIGHER, INK, LOWER
from robaudit.report.principal_result import one_result, same_result
from robaudit.report.sections import Entry, Section, SectionRequest, by_name
from robaudit.report.summary_section import about, approximate, by_the_votes, mean_ends, mean_text
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.runs.run import Run
from robaudit.runs.table import with_values
from robaudit.stats.class_differences import ClassBias, ClassStats, GapVerdict, class_bias
from robaudit.text import class_name, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

OTHERS = "from the others"
"""The head of a class's difference from all other images."""
SINGLE_IMAGE = "( ) a single image: shown with its own interval, not tested."
# classes in a table of a page, and in a figure
_ALL = 30
_MOST_DRAWN = 25
# of more classes: the least and the most robust
_WORST = 20
_BEST = 5
_CLASSES = ("label", "predicted")
_OPEN = 3  # results whose classes start unfolded


class ClassesSection(Section[ClassBias]):
    """Robustness by class, for each result: which classes differ from the others, and the gap
    between the least and the most robust."""

    title = "Classes, least robust first"
    place = 2
    uses = Section.uses | {"by", "data", "threshold"}
    main_only = True

    def records(self, run: Run, request: SectionRequest) -> list[ClassBias]:
        """A comparison of the classes for each result; they are never pooled."""
        by = request.by or ("label" if run.info.data.labelled else "predicted")
        groups = None
        if by not in _CLASSES:
            from robaudit.auditing.claim import column_of_run  # and with it torch

            groups = column_of_run(run, by, None if request.data is None else request.data.spec)
        return [
            class_bias(
                columns,
                by=by,
                groups=groups,
                threshold=request.threshold,
                class_names=run.class_names,
                quantity=run.quantities[columns.key.quantity],
            )
            for columns in with_values(run.groups(request.estimators, request.levels).values())
        ]

    def tables(
        self, entries: Sequence[Entry[ClassBias]], request: SectionRequest
    ) -> Iterator[Table]:
        """A table for each result."""
        several = len(by_name(entries)) > 1
        changes = changes_of(entries) if several else {}
        for key in dict.fromkeys(entry.record.key for entry in entries):
            alike = [entry for entry in entries if entry.record.key == key]
            if several:
                yield _side_by_side(alike, changes)
            else:
                yield bias_table(alike[0].record)

    def page_tables(
        self, entries: Sequence[Entry[ClassBias]], request: SectionRequest
    ) -> Iterator[Table]:
        """The tables for a page: of many classes the least and the most robust."""
        for i, table in enumerate(self.tables(entries, request)):
            if len(table.rows) == 1:
                yield Table(table.heading, notes=("All images are of one class.",))
            elif len(table.rows) <= _ALL:
                yield replace(table, folded=i >= _OPEN)
            else:
                line = (
                    f"The {_WORST} least and the {_BEST} most robust of {len(table.rows):,} "
                    "classes; robaudit show RUN classes has all."
                )
                yield replace(
                    table,
                    rows=(*table.rows[:_WORST], *table.rows[-_BEST:]),
                    lines=(*table.lines, line),
                    folded=i >= _OPEN,
                )

    def narrowed(self, runs: Sequence[Run], request: SectionRequest) -> SectionRequest:
        """Narrow to one result of each run."""
        return one_result(runs, request)

    def figure(self, entries: Sequence[Entry[ClassBias]], request: SectionRequest) -> Drawing:
        """How far the mean of each class is from all others, in the order of the first run, a
        colour for each run."""
        entries = same_result(entries, lambda record: record.key)
        order = [stats.index for stats in weakest_first(entries[0].record)]
        shown: list[int | None] = (
            [*order] if len(order) <= _MOST_DRAWN else [*order[:_WORST], None, *order[-_BEST:]]
        )
        runs = [entry.name for entry in entries]
        return Drawing(
            title="Robustness by class",
            about=str(entries[0].record.key),
            caption=" ".join(
                _caption(entries, len(order) - len(shown) + 1 if None in shown else 0)
            ),
            height=lambda look: len(shown) * look.line * (1.25 + 0.35 * (len(runs) - 1)) + 0.45,
            draw=lambda body, look: _draw(body, look, entries, shown),
        )

    def lines(
        self, entry: Entry[ClassBias], request: SectionRequest
    ) -> Iterator[Mapping[str, Any]]:
        """A line for each class, in order of class."""
        bias = entry.record
        group = {
            "estimator": bias.key.estimator,
            **bias.key.at.document(),
            "by": bias.by,
            "threshold": bias.threshold,
        }
        return ({**group, **columns_of(of_class)} for of_class in bias.classes)


def heading_of(bias: ClassBias) -> str:
    """The heading of a table of classes."""
    return f"{bias.key}, {'by predicted class' if bias.by == 'predicted' else f'by {bias.by}'}"


def bias_table(bias: ClassBias) -> Table:
    """A line per class, least robust first, then the gap and the verdict."""
    quantity = bias.quantity
    known = (
        bias.threshold is not None and bias.threshold <= quantity.high and quantity.higher_is_better
    )
    share = (f"< {bias.threshold:g}",) if known else ()
    rows = [tuple(_cells(stats, quantity, share=bool(share))) for stats in weakest_first(bias)]
    return Table(
        heading_of(bias),
        (
            Column("class" if bias.by in _CLASSES else bias.by),
            Column("n", number=True),
            Column("mean [95% interval]", number=True),
            Column(f"[{THESE_IMAGES}]", number=True, detail=True),
            Column(f"median [{THESE_IMAGES}]", number=True, detail=True),
            Column(OTHERS, number=True),
            *(Column(head, number=True) for head in (*share, "p")),
            Column(""),
        ),
        tuple(rows),
        lines=(about(bias.quantity),),
        conclusions=(_conclusion(bias),),
        notes=tuple(_notes(bias, share=bool(share))),
    )


def _side_by_side(entries: Sequence[Entry[ClassBias]], changes: Mapping[str, Comparisons]) -> Table:
    """The means of the classes in several runs, and their differences from the first."""
    first = entries[0].record
    names = [entry.name for entry in entries]
    means = [
        {label_of(of_class): of_class for of_class in entry.record.classes} for entry in entries
    ]
    key = first.key.estimator, first.key.at
    moved = [
        {stats.index: stats.difference for stats in group.classes}
        if (group := changes[name].get(key)) is not None and first.by == "label"
        else {}
        for name in names[1:]
    ]
    rows = [
        (
            label_of(stats),
            *(
                class_mean(by_label[label_of(stats)], first.quantity)
                if label_of(stats) in by_label
                else numbers.NONE
                for by_label in means
            ),
            *(
                difference(differences.get(stats.index))
                for differences in moved
                if first.by == "label"
            ),
        )
        for stats in weakest_first(first)
    ]
    lines = (about(first.quantity),)
    conclusions = tuple(
        replace(cell, text=f"{entry.name}: {cell.text}")
        for entry in entries
        for cell in (_conclusion(entry.record),)
    )
    shown = first.by == "label"
    note = f"[ ] 95 % interval for {LIKE_THESE}" + (
        "; of the differences for all classes together." if shown else "."
    )
    single = any(stats.images == 1 for entry in entries for stats in entry.record.classes)
    notes = (
        note,
        *([SINGLE_IMAGE] if single else []),
        *([] if shown else [f"No differences by {first.by}: they are computed by label only."]),
    )
    return Table(
        heading_of(first),
        (
            Column("class" if first.by in _CLASSES else first.by),
            *run_columns(names, compared=shown),
        ),
        tuple(map(cells, rows)),
        lines,
        conclusions,
        notes,
    )


def _conclusion(bias: ClassBias) -> Cell:
    return Cell(
        legends.gap_sentence(bias),
        tone="warning" if bias.verdict is GapVerdict.SIGNIFICANT else "strong",
    )


def label_of(stats: ClassStats) -> str:
    """The name of the class, or its index."""
    return class_name(stats.index, None if stats.name is None else {stats.index: stats.name})


def weakest_first(bias: ClassBias) -> list[ClassStats]:
    """The classes by their means, the least robust first."""
    sign = 1.0 if bias.quantity.higher_is_better else -1.0
    return sorted(bias.classes, key=lambda stats: sign * stats.mean.value)


def difference_text(stats: ClassStats) -> str:
    """The difference from the others with its interval; empty for a class that is not tested."""
    return (
        ""
        if stats.difference is None
        else numbers.change(stats.difference.value, *stats.difference.ends)
    )


def class_mean(stats: ClassStats, quantity: Quantity) -> str:
    """The mean of a class with its interval; in brackets if it has a single image, with that
    image's own."""
    text = mean_text(
        stats.mean, quantity, exact=stats.mean.measured.has_interval, alone=stats.images == 1
    )
    return f"({text})" if stats.images == 1 else text


def _cells(stats: ClassStats, quantity: Quantity, *, share: bool) -> Iterator[Cell]:
    ends = quantity.low, quantity.high
    measured = numbers.ends(*stats.mean.measured.ends, *ends)
    median = numbers.quantile_estimate(stats.median, *ends)
    below = (
        [numbers.share(stats.below) if stats.below is not None and stats.images > 1 else ""]
        if share
        else []
    )
    p = "" if stats.p_value is None else numbers.p_value(stats.p_value)
    yield from cells(
        (
            label_of(stats),
            f"{stats.images:,}",
            class_mean(stats, quantity),
            measured,
            median,
            difference_text(stats),
            *below,
            p,
        )
    )
    yield Cell(stats.differs if stats.differs in ("lower", "higher") else "", tone="warning")


def _notes(bias: ClassBias, *, share: bool) -> Iterator[str]:
    below = (
        f"< {bias.threshold:g}: share of images below. "
        if share and bias.threshold is not None
        else ""
    )
    yield (
        f"[ ] 95 % interval for {LIKE_THESE}, each class alone. {below}{OTHERS}: mean minus the "
        "mean of all other images, with its "
        f"{100 * (1 - bias.alpha):g} % interval, simultaneous over the classes. p: permutation "
        "test of that difference, adjusted for the "
        f"number of classes. lower, higher: significant, p <= {bias.alpha:g}; the interval "
        "excludes 0."
    )
    if any(stats.images == 1 for stats in bias.classes):
        yield SINGLE_IMAGE
    if bias.by_votes:
        yield by_the_votes([ResultName.parse(bias.key.estimator).estimator])
    if bias.of_bounds:
        yield (
            "Some values are only bounds: differences and gap are between the bounds, and the "
            "true ones may be smaller or larger."
        )
    if any(not stats.mean.measured.has_interval for stats in bias.classes):
        yield approximate("[ ]")
    if bias.threshold is None:
        yield (
            f"{bias.key.quantity} has no usual threshold: --threshold adds the share of images "
            "below one."
        )
    if bias.left_out:
        yield f"{count(bias.left_out, 'sample')} left out: no {bias.by}, or no finite value."


# --- the figure


def _caption(entries: Sequence[Entry[ClassBias]], between: int) -> Iterator[str]:
    biases = [entry.record for entry in entries]
    yield from (
        f"{entry.name}: {legends.gap_sentence(entry.record)}"
        if len(entries) > 1
        else legends.gap_sentence(entry.record)
        for entry in entries
    )
    images = sum(stats.images for stats in biases[0].classes)
    by = "label" if biases[0].by == "label" else "predicted class"
    yield f"{images:,} images in {len(biases[0].classes):,} classes, by {by}."
    if any(stats.difference is not None for bias in biases for stats in bias.classes):
        yield (
            "Dot: mean of the class minus the mean of all other images; bar: its "
            f"{100 * (1 - biases[0].alpha):g} % interval for "
            f"{LIKE_THESE}, simultaneous over all classes. Filled, and the bar excludes 0: "
            "differs significantly from the others."
        )
    if len(entries) == 1:
        yield "Right: mean of the class, and its number of images."
    if between:
        yield f"{between:,} classes between are not shown."
    if any(stats.images == 1 for bias in biases for stats in bias.classes):
        yield "A class without a dot has a single image."
    if voted := list(dict.fromkeys(bias.key.estimator for bias in biases if bias.by_votes)):
        yield by_the_votes(voted)
    if any(bias.of_bounds for bias in biases):
        yield "Some values are only bounds: differences are between the bounds."
    if any(
        stats.mean.measured.method == MeanMethod.NONE for bias in biases for stats in bias.classes
    ):
        yield (
            "No image has an interval of its own: its value is an approximation of unknown "
            "error, which no bar covers."
        )
    if left_out := sum(bias.left_out for bias in biases):
        yield f"{left_out:,} images without a class or a finite value are left out."


def _draw(
    body: SubFigure,
    look: PictureSize,
    entries: Sequence[Entry[ClassBias]],
    shown: Sequence[int | None],
) -> None:
    ax: Axes = body.subplots()
    several = len(entries) > 1
    classes = [{stats.index: stats for stats in each.record.classes} for each in entries]
    ends = [0.0]
    for run, by_index in enumerate(classes):
        shift = 0.0 if not several else (run - (len(classes) - 1) / 2) / (len(classes) + 1)
        for place, index in enumerate(shown):
            stats = by_index.get(index) if index is not None else None
            if stats is not None and stats.difference is not None:
                ends += _dot(
                    ax, place + shift, stats, COLOURS[run % len(COLOURS)] if several else ""
                )
    for place, index in enumerate(shown):
        if index is None:
            ax.axhline(place, color=GRID, linewidth=1.4, linestyle=(0, (1, 3)))
    room = 0.05 * ((max(ends) - min(ends)) or 0.1)
    ax.set(xlim=(min(ends) - room, max(ends) + room), ylim=(len(shown) - 0.4, -0.6))
    ax.grid(visible=False, axis="y")
    ax.axvline(0.0, color=FAINT, linewidth=1.0, zorder=1)
    few_ticks(ax.xaxis)
    bias = entries[0].record
    way = "" if bias.quantity.higher_is_better else " (lower is better)"
    ax.set_xlabel(
        cut(
            f"{bias.key.quantity}: difference from all other images{way}",
            look.letters(0.75 * look.body),
        )
    )
    _names(ax, look, classes[0], shown, marked=not several)
    if several:
        legend(
            body,
            {
                entry.name: {"color": COLOURS[i % len(COLOURS)], "marker": "o"}
                for i, entry in enumerate(entries)
            },
            look,
        )
    else:
        _means(ax, bias.quantity, classes[0], shown)


def _names(
    ax: Axes,
    look: PictureSize,
    classes: Mapping[int, ClassStats],
    shown: Sequence[int | None],
    *,
    marked: bool,
) -> None:
    texts = [
        f"{len(classes) - len(shown) + 1:,} classes" if index is None else label_of(classes[index])
        for index in shown
    ]
    ax.set_yticks(range(len(shown)), [cut(text, look.letters(0.32 * look.body)) for text in texts])
    for label, index in zip(ax.get_yticklabels(), shown, strict=True):
        differs = classes[index].differs if index is not None and marked else None
        label.set_color({"lower": LOWER, "higher": HIGHER}.get(differs or "", INK))
        label.set_fontweight("bold" if differs in ("lower", "higher") else "normal")


def _means(
    ax: Axes, quantity: Quantity, classes: Mapping[int, ClassStats], shown: Sequence[int | None]
) -> None:
    right = ax.secondary_yaxis("right")
    right.spines[:].set_visible(False)
    texts = []
    for index in shown:
        stats = None if index is None else classes[index]
        if stats is None:
            texts.append("")
            continue
        mean = estimate(
            stats.mean.value,
            *mean_ends(stats.mean, alone=stats.images == 1),
            quantity.low,
            quantity.high,
        )
        texts.append(f"{signs(mean)}, n {stats.images:,}")
    right.set_yticks(range(len(shown)), texts)


def _dot(ax: Axes, y: float, stats: ClassStats, colour: str) -> list[float]:
    """Draw the difference of a class with its interval; the values that must be visible."""
    marked = stats.differs in ("lower", "higher")
    ink = colour or {"lower": LOWER, "higher": HIGHER}.get(stats.differs or "", FAINT)
    difference = stats.difference or Estimate(0.0)
    ends = difference.bounds or ()
    style: dict[str, Any] = {
        "markerfacecolor": ink if marked else CARD,
        "markeredgecolor": ink,
        "markeredgewidth": 1.3,
        "color": ink,
    }
    ax.plot(
        ends, [y] * len(ends), color=ink, linewidth=1.6, solid_capstyle="butt", alpha=0.85, zorder=2
    )
    ax.plot([difference.value], [y], marker="o", zorder=3, **style)
    return [end for end in (*ends, difference.value) if math.isfinite(end)]
