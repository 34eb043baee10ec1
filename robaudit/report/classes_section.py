"""Robustness by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from robaudit.compare.result import ClassChange
from robaudit.errors import NothingLeftError
from robaudit.estimates import Estimate
from robaudit.names import ResultName
from robaudit.numerics.image_intervals import LIKE_THESE, THESE_IMAGES, MeanMethod
from robaudit.quantities import Quantity
from robaudit.records import columns_of
from robaudit.report import legends, numbers
from robaudit.report.differences import changes_of, for_the_population
from robaudit.report.layout import laid_out
from robaudit.report.numbers import signs
from robaudit.report.pictures.page import Drawing, PictureSize, cut, few_ticks, in_words, legend
from robaudit.report.pictures.style import CARD, COLOURS, FAINT, GRID, HIGHER, INK, LOWER
from robaudit.report.principal_result import one_result, same_result
from robaudit.report.sections import Entry, Section, SectionRequest, name_in_pictures
from robaudit.report.summary_section import about, approximate, by_the_votes, mean_text
from robaudit.report.tables import Cell, Table, Tone
from robaudit.report.typed import (
    COUNT,
    TEXT,
    WRITTEN,
    Beside,
    Changes,
    Kind,
    TypedColumn,
    TypedTable,
    data_columns,
)
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.runs.table import with_values
from robaudit.stats.class_differences import ClassBias, ClassStats, GapVerdict, class_bias
from robaudit.text import class_name, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

TOO_FEW = "No two of the {} classes have two images or more, so none is compared with others."
_ONE_CLASS = "All images are of one class."
_IN_CSV = "--format csv has all classes."
OTHERS = "from the others"
"""The head of a class's difference from all other images."""
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
    by_class = True

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

    def table(self, entry: Entry[ClassBias], request: SectionRequest) -> TypedTable:
        """A row for each class, least robust first; then the gap and the verdict."""
        return _mean_table(entry.record) if entry.several else _bias_table(entry.record)

    def changes(self, entries: Sequence[Entry[ClassBias]], request: SectionRequest) -> Changes:
        """The differences of the class means from the first run's; by label only."""
        # a comparison knows the labels of the images, not the columns of the data
        if entries[0].record.by != "label":
            return Changes()
        by_run = {}
        for name, groups in changes_of(entries).items():
            differences = {}
            for group in groups.values():
                for change in group.classes:
                    key = _row_key(group.key, change, "label")
                    differences[key] = for_the_population(change.difference, change.images)
            by_run[name] = differences
        return Changes(by_run, notes=("[ ] of the differences: for all classes together.",))

    def page_tables(
        self, entries: Sequence[Entry[ClassBias]], request: SectionRequest
    ) -> Iterator[Table]:
        """The tables for a page: of many classes the least and the most robust; a sentence where
        no result has classes to compare."""
        if not any(entry.record.compared for entry in entries):
            classes = len(entries[0].record.classes)
            yield Table(notes=(_ONE_CLASS if classes == 1 else TOO_FEW.format(f"{classes:,}"),))
            return
        for i, table in enumerate(self.tables(entries, request)):
            if len(table.rows) == 1:
                yield Table(table.heading, notes=(_ONE_CLASS,))
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
        """The difference between each class's mean and the mean of the rest.

        Classes are in the order of the first run; each run has a colour.

        Raises:
            NothingLeftError: no class differs from others, because each has a single image.
        """
        entries = same_result(entries, lambda record: record.key)
        compared = [stats for entry in entries for stats in entry.record.compared]
        if all(stats.difference is None for stats in compared):
            raise NothingLeftError(
                "classes",
                "fewer than two classes have two images to compare",
                "audit more images",
            )
        order = [stats.index for stats in weakest_first(entries[0].record) if stats.has_enough]
        shown: list[int | None] = [*order]
        between = 0
        if len(order) > _MOST_DRAWN:
            # None: the place of the classes between, which are left out
            shown = [*order[:_WORST], None, *order[-_BEST:]]
            between = len(order) - _WORST - _BEST
        # each further run adds a dot to the line of a class
        lines_of_class = 1.25 + 0.35 * (len(entries) - 1)
        return Drawing(
            title="Robustness by class",
            about=name_in_pictures(entries, entries[0].record.key),
            caption=" ".join(_caption(entries, between)),
            height=lambda size: len(shown) * size.line * lines_of_class + 0.45,
            draw=lambda body, size: _draw(body, size, entries, shown),
        )

    def lines(
        self, entry: Entry[ClassBias], request: SectionRequest
    ) -> Iterable[Mapping[str, Any]]:
        """A line for each class, in order of class."""
        # CSV is the same with and without other runs beside it
        lines = self.table(replace(entry, several=False), request).csv_lines()
        return sorted(lines, key=lambda line: line["index"])


def heading_of(bias: ClassBias) -> str:
    """The heading of a table of classes."""
    return f"{bias.key}, {'by predicted class' if bias.by == 'predicted' else f'by {bias.by}'}"


def bias_table(bias: ClassBias) -> Table:
    """A line per class, least robust first, then the gap and the verdict."""
    return laid_out([("", _bias_table(bias))], several=False)


def _bias_table(bias: ClassBias) -> TypedTable:
    """The classes of one run, with the test of each."""
    quantity = bias.quantity
    classes = weakest_first(bias)
    has_share = bool(_share_head(bias))
    columns = [
        _class_column(bias),
        TypedColumn("", COUNT, head="n"),
        TypedColumn("", WRITTEN, head="mean [95% interval]"),
        TypedColumn("", WRITTEN, head=f"[{THESE_IMAGES}]", detail=True),
        TypedColumn("", WRITTEN, head=f"median [{THESE_IMAGES}]", detail=True),
        TypedColumn("", WRITTEN, head=OTHERS),
    ]
    if has_share:
        columns.append(TypedColumn("", WRITTEN, head=_share_head(bias)))
    columns += [
        TypedColumn("", WRITTEN, head="p"),
        TypedColumn("", _DIFFERS),
        *data_columns(list(columns_of(classes[0]))),
    ]
    rows = []
    for stats in classes:
        rows.append((*_texts(stats, quantity, share=has_share), *columns_of(stats).values()))
    return TypedTable(
        heading_of(bias),
        tuple(columns),
        rows,
        about={
            "estimator": bias.key.estimator,
            **bias.key.at.document(),
            "by": bias.by,
            "threshold": bias.threshold,
        },
        lines=(about(quantity),),
        conclusions=(_conclusion(bias),),
        notes=tuple(_notes(bias, share=has_share)),
        shows=_is_compared(bias),
    )


def _class_column(bias: ClassBias) -> TypedColumn:
    return TypedColumn("", TEXT, head="class" if bias.by in _CLASSES else bias.by)


def _share_head(bias: ClassBias) -> str:
    """The head of the share of images below the threshold; empty where no image can be below."""
    if bias.threshold is None or not bias.quantity.higher_is_better:
        return ""
    return f"< {bias.threshold:g}" if bias.threshold <= bias.quantity.high else ""


def _mean_table(bias: ClassBias) -> TypedTable:
    """The means of the classes, for a column beside those of other runs."""
    classes = weakest_first(bias)
    notes = [f"[ ] 95 % interval for {LIKE_THESE}."]
    if single := _single(bias):
        notes.append(f"{single} {_IN_CSV}")
    if bias.by != "label":
        notes.append(f"No differences by {bias.by}: they are computed by label only.")
    return TypedTable(
        heading_of(bias),
        (
            _class_column(bias),
            TypedColumn("", WRITTEN, head="mean"),
        ),
        [(label_of(stats), class_mean(stats, bias.quantity)) for stats in classes],
        keys=[_row_key(bias.key, stats, bias.by) for stats in classes],
        lines=(about(bias.quantity),),
        conclusions=(_conclusion(bias),),
        notes=tuple(notes),
        shows=_is_compared(bias),
        beside=Beside.COLUMNS,
    )


def _is_compared(bias: ClassBias) -> Callable[[Sequence[Any]], bool]:
    """Whether people see a row: of a class that is compared with others."""
    shown = {label_of(stats) for stats in bias.compared}
    return lambda row: row[0] in shown


def _single(bias: ClassBias) -> str:
    """How many classes have too few images to be compared, and the mean of these; empty if none
    has."""
    values = [stats.mean.value for stats in bias.classes if not stats.has_enough]
    if not values:
        return ""
    mean = numbers.plain(sum(values) / len(values), bias.quantity.low, bias.quantity.high)
    if len(values) == 1:
        return f"1 class has a single image (value {mean}) and is not shown."
    return f"{len(values):,} classes have a single image each (mean {mean}) and are not shown."


def _row_key(key: GroupKey, stats: ClassStats | ClassChange, by: str) -> tuple[GroupKey, int | str]:
    """The key of a class: its index, as each model may spell its name in another way.

    Groups of a column of the data may have other indices in other runs, and have their names.
    """
    return key, stats.index if by in _CLASSES else label_of(stats)


def _differs_tone(_: str) -> Tone:
    return "warning"


_DIFFERS = Kind(str, number=False, tone=_differs_tone)


def _conclusion(bias: ClassBias) -> Cell:
    return Cell(
        legends.gap_sentence(bias),
        tone="warning" if bias.verdict is GapVerdict.SIGNIFICANT else "strong",
    )


def label_of(stats: ClassStats | ClassChange) -> str:
    """The name of the class, or its index."""
    return class_name(stats.index, None if stats.name is None else {stats.index: stats.name})


def weakest_first(bias: ClassBias) -> list[ClassStats]:
    """The classes by their means, the least robust first."""
    sign = 1.0 if bias.quantity.higher_is_better else -1.0
    return sorted(bias.classes, key=lambda stats: sign * stats.mean.value)


def difference_text(stats: ClassStats) -> str:
    """The difference from the others with its interval; empty for a class that is not tested."""
    if stats.difference is None:
        return ""
    return numbers.change(stats.difference.value, *stats.difference.ends)


def class_mean(stats: ClassStats, quantity: Quantity) -> str:
    """The mean of a class with its interval; of a single image, with the image's own."""
    return mean_text(
        stats.mean, quantity, exact=stats.mean.measured.has_interval, alone=not stats.has_enough
    )


def _texts(stats: ClassStats, quantity: Quantity, *, share: bool) -> Iterator[Any]:
    """The values of a class below the columns for people."""
    ends = (quantity.low, quantity.high)
    yield label_of(stats)
    yield stats.images
    yield class_mean(stats, quantity)
    yield numbers.ends(*stats.mean.measured.ends, *ends)
    yield numbers.quantile_estimate(stats.median, *ends)
    yield difference_text(stats)
    if share:
        # the share of a single image says nothing
        known = stats.below is not None and stats.images > 1
        yield numbers.share(stats.below) if stats.below is not None and known else ""
    yield "" if stats.p_value is None else numbers.p_value(stats.p_value)
    yield stats.differs if stats.differs in ("lower", "higher") else ""


def _notes(bias: ClassBias, *, share: bool) -> Iterator[str]:
    """How to read the table of one run, and what it leaves out."""
    if not bias.compared:
        yield f"{_single(bias)} {_IN_CSV}"
        return
    below = ""
    if share and bias.threshold is not None:
        below = f"< {bias.threshold:g}: share of images below. "
    yield (
        f"[ ] 95 % interval for {LIKE_THESE}, each class alone. {below}{OTHERS}: mean minus the "
        "mean of all other images, with its "
        f"{100 * (1 - bias.alpha):g} % interval, simultaneous over the classes. p: permutation "
        "test of that difference, adjusted for the "
        f"number of classes. lower, higher: significant, p <= {bias.alpha:g}; the interval "
        "excludes 0."
    )
    if single := _single(bias):
        yield f"{single} {_IN_CSV}"
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
    """The sentences of the caption; ``between``: the number of classes that are not drawn."""
    biases = [entry.record for entry in entries]
    for entry in entries:
        name = f"{entry.name}: " if len(entries) > 1 else ""
        yield name + legends.gap_sentence(entry.record)
    classes = list(chain.from_iterable(bias.classes for bias in biases))
    images = sum(stats.images for stats in biases[0].classes)
    by = "label" if biases[0].by == "label" else "predicted class"
    yield f"{images:,} images in {len(biases[0].classes):,} classes, by {by}."
    if any(stats.difference is not None for stats in classes):
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
    yield from dict.fromkeys(filter(None, map(_single, biases)))
    if voted := list(dict.fromkeys(bias.key.estimator for bias in biases if bias.by_votes)):
        yield by_the_votes(voted)
    if any(bias.of_bounds for bias in biases):
        yield "Some values are only bounds: differences are between the bounds."
    if any(stats.mean.measured.method == MeanMethod.NONE for stats in classes):
        yield (
            "No image has an interval of its own: its value is an approximation of unknown "
            "error, which no bar covers."
        )
    if left_out := sum(bias.left_out for bias in biases):
        yield f"{left_out:,} images without a class or a finite value are left out."


def _draw(
    body: SubFigure,
    size: PictureSize,
    entries: Sequence[Entry[ClassBias]],
    shown: Sequence[int | None],
) -> None:
    ax: Axes = body.subplots()
    several = len(entries) > 1
    classes = [{stats.index: stats for stats in entry.record.classes} for entry in entries]
    ends = [0.0]
    for run, by_index in enumerate(classes):
        # the dots of a class, one of each run, are spread over its line
        shift = (run - (len(classes) - 1) / 2) / (len(classes) + 1) if several else 0.0
        colour = COLOURS[run % len(COLOURS)] if several else ""
        for place, index in enumerate(shown):
            stats = by_index.get(index) if index is not None else None
            if stats is not None and stats.difference is not None:
                ends += _dot(ax, place + shift, stats, colour)
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
    label = f"{in_words(bias.key.quantity)}: difference from all other images{way}"
    ax.set_xlabel(cut(label, size.letters(0.75 * size.body)))
    _names(ax, size, classes[0], shown, marked=not several)
    if several:
        styles = {
            entry.name: {"color": COLOURS[i % len(COLOURS)], "marker": "o"}
            for i, entry in enumerate(entries)
        }
        legend(body, styles, size)
    else:
        _means(ax, bias.quantity, classes[0], shown)


def _names(
    ax: Axes,
    size: PictureSize,
    classes: Mapping[int, ClassStats],
    shown: Sequence[int | None],
    *,
    marked: bool,
) -> None:
    """Write the names of the classes; ``marked``: those that differ in colour."""
    between = f"{len(classes) - len(shown) + 1:,} classes"
    texts = [between if index is None else label_of(classes[index]) for index in shown]
    ax.set_yticks(range(len(shown)), [cut(text, size.letters(0.32 * size.body)) for text in texts])
    for label, index in zip(ax.get_yticklabels(), shown, strict=True):
        differs = classes[index].differs if index is not None and marked else None
        label.set_color({"lower": LOWER, "higher": HIGHER}.get(differs or "", INK))
        label.set_fontweight("bold" if differs in ("lower", "higher") else "normal")


def _means(
    ax: Axes, quantity: Quantity, classes: Mapping[int, ClassStats], shown: Sequence[int | None]
) -> None:
    """Write the mean of each class and its number of images to the right of the figure."""
    right = ax.secondary_yaxis("right")
    right.spines[:].set_visible(False)
    texts = []
    for index in shown:
        stats = None if index is None else classes[index]
        if stats is None:
            texts.append("")
            continue
        texts.append(f"{signs(class_mean(stats, quantity))}, n {stats.images:,}")
    right.set_yticks(range(len(shown)), texts)


def _dot(ax: Axes, y: float, stats: ClassStats, colour: str) -> list[float]:
    """Draw the difference of a class with its interval; the values that must be visible."""
    # a class that differs significantly is filled
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
