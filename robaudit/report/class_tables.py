"""Robustness by class, for terminals and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from robaudit.quantities import Quantity
from robaudit.report import numbers, words
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.summary_tables import approximate, circumstances, heading
from robaudit.report.tables import Cell, Column, Table, Terminal, cells
from robaudit.stats.classes import ClassBias, ClassStats, GapVerdict, class_bias
from robaudit.stats.groups import quantity_of
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.summary import Mean, Quantile, Share
from robaudit.store.run import Run
from robaudit.text import class_name, count

NAME_WIDTHS = {True: 14, False: 24}
OTHERS = "from the others"
"""The head of a class's difference from all other images."""
SINGLE_IMAGE = "( ) a single image says nothing about its class: listed but not tested."


class ClassSection(Section[ClassBias]):
    """Robustness by class, for each result: which classes differ from the others, and the gap between the least and the most robust."""

    uses = Section.uses | {"by", "threshold"}

    def records(self, run: Run, ask: Ask) -> list[ClassBias]:
        """A comparison of the classes for each result; they are never pooled."""
        by = ask.by or ("label" if run.info["data"]["labelled"] else "predicted")
        return [
            class_bias(
                one, by=by, threshold=ask.threshold, class_names=run.class_names, quantity=quantity_of(one.key.quantity, run.quantities)
            )
            for one in run.groups(ask.estimators, ask.levels).values()
        ]

    def table(self, one: Found[ClassBias], ask: Ask) -> Terminal:
        """See :func:`bias_table`."""
        return bias_table(one.record, one.run.quantities[one.record.key.quantity])

    def sheet(self, one: Found[ClassBias], ask: Ask) -> Sheet:
        """See :func:`bias_sheet`."""
        return bias_sheet(one.record)

    def document(self, one: Found[ClassBias], ask: Ask) -> dict[str, Any]:
        """The gap, the verdict and all classes."""
        return one.record.document()


def bias_table(bias: ClassBias, quantity: Quantity | None = None) -> Terminal:
    """A line per class, least robust first, then the gap and the verdict.

    Args:
        bias: from :func:`robaudit.stats.classes.class_bias`.
        quantity: what the values are; needed only for quantities of plugins.
    """
    known = quantity or quantity_of(bias.key.quantity, None)
    return Terminal(lambda narrow: [_table(bias, known, narrow)])


def bias_sheet(bias: ClassBias) -> Sheet:
    """A line per class, in order of class: the group, then the fields of :class:`ClassStats`.

    A field with parts becomes several columns: ``mean`` for its value, ``mean_lower`` and so on for the rest.
    """
    group = {"estimator": bias.key.estimator, **bias.key.at.document(), "by": bias.by, "threshold": bias.threshold}
    lines = [{**group, **_flat(one)} for one in bias.classes]
    return Sheet(list(lines[0]), [list(line.values()) for line in lines])


def label_of(one: ClassStats, width: int | None = None) -> str:
    """The name of the class, or its index, shortened to ``width``."""
    return class_name(one.index, None if one.name is None else {one.index: one.name}, width)


def weakest_first(bias: ClassBias) -> list[ClassStats]:
    """The classes by their means, the least robust first."""
    sign = 1.0 if bias.higher_is_better else -1.0
    return sorted(bias.classes, key=lambda one: sign * one.mean.value)


def difference_text(one: ClassStats, *, tight: bool = False) -> str:
    """The difference from the others with its interval; empty for a class that is not tested."""
    if one.difference is None or one.difference_lower is None or one.difference_upper is None:
        return ""
    text = numbers.change(one.difference, (one.difference_lower, one.difference_upper))
    return text.replace(", ", ",") if tight else text


def test_note(bias: ClassBias) -> str:
    """How to read the tests of a table."""
    return (
        f"{OTHERS}: mean minus the mean of all other images, with its {100 * (1 - bias.alpha):g} % interval, simultaneous over "
        f"the classes. p: permutation test of that difference, adjusted for the number of classes. "
        f"lower, higher: significant, p <= {bias.alpha:g}; the interval excludes 0."
    )


def _flat(one: ClassStats) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, Mean | Quantile | Share) or field.name == "below":
            for part in fields(Share if value is None else value):
                flat[field.name if part.name == "value" else f"{field.name}_{part.name}"] = getattr(value, part.name, None)
        else:
            flat[field.name] = value
    return flat


def _table(bias: ClassBias, quantity: Quantity, narrow: bool) -> Table:
    by = "by label" if bias.by == "label" else "by predicted class"
    known = bias.threshold is not None and bias.threshold <= quantity.high and quantity.higher_is_better
    share = (f"< {bias.threshold:g}",) if known else ()
    rows = []
    for one in weakest_first(bias):
        differs = one.differs if one.differs in ("lower", "higher") else ""
        rows.append((*cells(_cells(one, quantity, narrow, share=bool(share))), Cell(differs, tone="warning")))
    return Table(
        heading(bias.key, bias.unit),
        (
            Column("class"),
            Column("n", number=True),
            Column("mean [95% interval]", number=True, wrap=True),
            Column(OTHERS, number=True, wrap=True),
            *(Column(head, number=True) for head in (*share, "p")),
            Column(""),
        ),
        tuple(rows),
        lines=(circumstances(bias.key, bias.higher_is_better, str(bias.key), by),),
        conclusions=(Cell(words.gap_sentence(bias), tone="warning" if bias.verdict is GapVerdict.SIGNIFICANT else "strong"),),
        notes=tuple(_notes(bias, share=bool(share))),
    )


def _cells(one: ClassStats, quantity: Quantity, narrow: bool, *, share: bool) -> Iterator[str]:
    ends = quantity.low, quantity.high
    yield label_of(one, NAME_WIDTHS[narrow])
    yield f"{one.images:,}"
    if one.images == 1:
        yield f"({numbers.estimate(one.mean.value, one.mean.measured_lower, one.mean.measured_upper, *ends)})"
    else:
        mark = numbers.NO_INTERVAL if one.mean.measured_lower is None else ""
        yield mark + numbers.mean_estimate(one.mean, *ends, tight=narrow)
    yield difference_text(one, tight=narrow)
    if share and one.below is not None:
        yield numbers.share(one.below, tight=narrow) if one.images > 1 else ""
    yield "" if one.p_value is None else numbers.p_value(one.p_value)


def _notes(bias: ClassBias, *, share: bool) -> Iterator[str]:
    below = f"< {bias.threshold:g}: share of images below. " if share and bias.threshold is not None else ""
    yield f"[ ] 95 % interval for {LIKE_THESE}, each class alone. {below}{test_note(bias)}"
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
