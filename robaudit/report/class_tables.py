"""Robustness by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from robaudit.quantities import Quantity
from robaudit.report import numbers, words
from robaudit.report.differences import Changes, changes_of, difference, run_columns
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.summary_tables import about, approximate, mean_cell
from robaudit.report.tables import Cell, Column, Table, cells, columns
from robaudit.stats.classes import ClassBias, ClassStats, GapVerdict, class_bias
from robaudit.stats.groups import quantity_of
from robaudit.stats.intervals import LIKE_THESE, THESE_IMAGES
from robaudit.store.run import Run
from robaudit.text import class_name, count

OTHERS = "from the others"
"""The head of a class's difference from all other images."""
SINGLE_IMAGE = "( ) a single image: shown with its own interval, not tested."
_ALL, _WORST, _BEST = 30, 20, 5  # of the classes on a page
_CLASSES = ("label", "predicted")
_OPEN = 3  # results whose classes start unfolded


class ClassSection(Section[ClassBias]):
    """Robustness by class, for each result: which classes differ from the others, and the gap between the least and the most robust."""

    title = "Classes, least robust first"
    uses = Section.uses | {"by", "data", "threshold"}
    main_only = True

    def records(self, run: Run, ask: Ask) -> list[ClassBias]:
        """A comparison of the classes for each result; they are never pooled."""
        by, groups = ask.by or ("label" if run.info["data"]["labelled"] else "predicted"), None
        if by not in _CLASSES:
            from robaudit.auditing.claim import column_of_run  # and with it torch

            groups = column_of_run(run, by, ask.data)
        return [
            class_bias(
                one,
                by=by,
                groups=groups,
                threshold=ask.threshold,
                class_names=run.class_names,
                quantity=quantity_of(one.key.quantity, run.quantities),
            )
            for one in run.groups(ask.estimators, ask.levels).values()
        ]

    def tables(self, found: Sequence[Found[ClassBias]], ask: Ask) -> Iterator[Table]:
        """A table for each result."""
        several = len(by_name(found)) > 1
        changes = changes_of(found) if several else {}
        for key in dict.fromkeys(one.record.key for one in found):
            mine = [one for one in found if one.record.key == key]
            if several:
                yield _side_by_side(mine, changes)
            else:
                yield bias_table(mine[0].record, mine[0].run.quantities[key.quantity])

    def page_tables(self, found: Sequence[Found[ClassBias]], ask: Ask) -> Iterator[Table]:
        """The same, of many classes the least and the most robust first; a line where there are more classes than images of each."""
        for i, table in enumerate(self.tables(found, ask)):
            records = [one.record for one in found if heading_of(one.record) == table.heading]
            most = max(max(one.images for one in record.classes) for record in records)
            if len(table.rows) == 1:
                yield Table(table.heading, notes=("All images are of one class.",))
            elif len(table.rows) > most and len(table.rows) > _BEST:
                yield replace(
                    table,
                    columns=(),
                    rows=(),
                    notes=(f"No table: {len(table.rows):,} classes, and at most {count(most, 'image')} of each. robaudit show has it.",),
                )
            elif len(table.rows) <= _ALL:
                yield replace(table, folded=i >= _OPEN)
            else:
                parts = table.rows[:_WORST], table.rows[_WORST:-_BEST], table.rows[-_BEST:]
                yield replace(table, rows=parts[0], lines=(*table.lines, f"The {_WORST} least robust:"))
                yield Table(f"The {_BEST} most robust", table.columns, parts[2])
                yield Table(f"The other {len(parts[1])} classes", table.columns, parts[1], folded=True)

    def lines(self, one: Found[ClassBias], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each class, in order of class."""
        bias = one.record
        group = {"estimator": bias.key.estimator, **bias.key.at.document(), "by": bias.by, "threshold": bias.threshold}
        return ({**group, **asdict(of_class)} for of_class in bias.classes)


def heading_of(bias: ClassBias) -> str:
    """The heading of a table of classes."""
    return f"{bias.key}, {'by predicted class' if bias.by == 'predicted' else f'by {bias.by}'}"


def bias_table(bias: ClassBias, quantity: Quantity | None = None) -> Table:
    """A line per class, least robust first, then the gap and the verdict.

    Args:
        bias: from :func:`robaudit.stats.classes.class_bias`.
        quantity: what the values are; needed only for quantities of plugins.
    """
    quantity = quantity or quantity_of(bias.key.quantity, None)
    known = bias.threshold is not None and bias.threshold <= quantity.high and quantity.higher_is_better
    share = (f"< {bias.threshold:g}",) if known else ()
    rows = [tuple(_cells(one, quantity, share=bool(share))) for one in weakest_first(bias)]
    return Table(
        heading_of(bias),
        (
            Column("class" if bias.by in _CLASSES else bias.by),
            Column("n", number=True),
            Column("mean [95% interval]", number=True),
            Column(f"[{THESE_IMAGES}]", number=True, detail=True),
            Column("median", number=True, detail=True),
            Column(OTHERS, number=True),
            *(Column(head, number=True) for head in (*share, "p")),
            Column(""),
        ),
        tuple(rows),
        lines=(about(bias.key, bias.unit, bias.higher_is_better),),
        conclusions=(_conclusion(bias),),
        notes=tuple(_notes(bias, share=bool(share))),
    )


def _side_by_side(found: Sequence[Found[ClassBias]], changes: Mapping[str, Changes]) -> Table:
    """The means of the classes in several runs, and their differences from the first."""
    first, names = found[0].record, [one.name for one in found]
    quantity = found[0].run.quantities[first.key.quantity]
    means = [{label_of(of_class): of_class for of_class in one.record.classes} for one in found]
    key = first.key.estimator, first.key.at
    moved = [
        {one.index: one.difference for one in group.classes}
        if (group := changes[name].get(key)) is not None and first.by == "label"
        else {}
        for name in names[1:]
    ]
    rows = [
        (
            Cell(label_of(one)),
            *(_mean(of[label_of(one)], quantity) if label_of(one) in of else Cell(numbers.NONE) for of in means),
            *(Cell(difference(some.get(one.index))) for some in moved if first.by == "label"),
        )
        for one in weakest_first(first)
    ]
    lines = (about(first.key, first.unit, first.higher_is_better),)
    conclusions = tuple(replace(cell, text=f"{one.name}: {cell.text}") for one in found for cell in (_conclusion(one.record),))
    shown = first.by == "label"
    note = f"[ ] 95 % interval for {LIKE_THESE}" + ("; of the differences for all classes together." if shown else ".")
    notes = (note, *([] if shown else [f"No differences by {first.by}: they are computed by label only."]))
    return Table(
        heading_of(first),
        (Column("class" if first.by in _CLASSES else first.by), *(run_columns(names) if shown else columns((), names))),
        tuple(rows),
        lines,
        conclusions,
        notes,
    )


def _conclusion(bias: ClassBias) -> Cell:
    return Cell(words.gap_sentence(bias), tone="warning" if bias.verdict is GapVerdict.SIGNIFICANT else "strong")


def label_of(one: ClassStats) -> str:
    """The name of the class, or its index."""
    return class_name(one.index, None if one.name is None else {one.index: one.name})


def weakest_first(bias: ClassBias) -> list[ClassStats]:
    """The classes by their means, the least robust first."""
    sign = 1.0 if bias.higher_is_better else -1.0
    return sorted(bias.classes, key=lambda one: sign * one.mean.value)


def difference_text(one: ClassStats) -> str:
    """The difference from the others with its interval; empty for a class that is not tested."""
    if one.difference is None or one.difference_lower is None or one.difference_upper is None:
        return ""
    return numbers.change(one.difference, (one.difference_lower, one.difference_upper))


def _mean(one: ClassStats, quantity: Quantity) -> Cell:
    cell = mean_cell(one.mean, quantity, exact=one.mean.measured_lower is not None, alone=one.images == 1)
    return replace(cell, text=f"({cell.text})") if one.images == 1 else cell


def _cells(one: ClassStats, quantity: Quantity, *, share: bool) -> Iterator[Cell]:
    ends = quantity.low, quantity.high
    yield from cells((label_of(one), f"{one.images:,}"))
    yield _mean(one, quantity)
    yield Cell(numbers.ends(one.mean.measured_lower, one.mean.measured_upper, *ends))
    yield Cell(numbers.quantile_estimate(one.median, *ends))
    yield Cell(difference_text(one))
    if share:
        yield Cell(numbers.share(one.below) if one.below is not None and one.images > 1 else "")
    yield Cell("" if one.p_value is None else numbers.p_value(one.p_value))
    yield Cell(one.differs if one.differs in ("lower", "higher") else "", tone="warning")


def _notes(bias: ClassBias, *, share: bool) -> Iterator[str]:
    below = f"< {bias.threshold:g}: share of images below. " if share and bias.threshold is not None else ""
    yield (
        f"[ ] 95 % interval for {LIKE_THESE}, each class alone. {below}{OTHERS}: mean minus the mean of all other images, with its "
        f"{100 * (1 - bias.alpha):g} % interval, simultaneous over the classes. p: permutation test of that difference, adjusted for the "
        f"number of classes. lower, higher: significant, p <= {bias.alpha:g}; the interval excludes 0."
    )
    if any(one.images == 1 for one in bias.classes):
        yield SINGLE_IMAGE
    if bias.of_bounds:
        yield "Some values are only bounds: differences and gap are between the bounds, and the true ones may be smaller or larger."
    if any(one.mean.measured_lower is None for one in bias.classes):
        yield approximate("[ ]")
    if bias.threshold is None:
        yield f"{bias.key.quantity} has no usual threshold: --threshold adds the share of images below one."
    if bias.left_out:
        yield f"{count(bias.left_out, 'sample')} left out: no {bias.by}, or no finite value."
