"""The flagged samples, for terminals and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from robaudit.errors import SpecError
from robaudit.quantities import Quantity
from robaudit.report import numbers, words
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.summary_tables import circumstances, heading
from robaudit.report.tables import Cell, Column, Table, Terminal, cells
from robaudit.rows import with_names
from robaudit.stats.flags import Certainty, Flag, Flagged, flag, usual_threshold
from robaudit.stats.groups import quantity_of
from robaudit.store.run import Run
from robaudit.text import Names, class_name, count, printable, shortened

ID_WIDTHS = {True: 16, False: 30}
CLASS_WIDTHS = {True: 11, False: 20}


class FlaggedSection(Section[Flagged]):
    """The samples that are not robust, for each result, and how certain that is."""

    uses = Section.uses | {"threshold", "bottom", "top", "per_class", "only"}

    def applies(self, run: Run) -> bool:
        """Whether a quantity of the run has a usual threshold."""
        return any(math.isfinite(usual_threshold(quantity)) for quantity in run.quantities.values())

    def records(self, run: Run, ask: Ask) -> list[Flagged]:
        """The flagged samples of each result.

        Raises:
            SpecError: there is no threshold, and nothing else says which samples are meant.
        """
        found = [
            flag(
                one,
                below=usual_threshold(quantity) if ask.threshold is None else ask.threshold,
                bottom=ask.bottom,
                top=ask.top,
                per_class=ask.per_class,
                only=ask.only,
                quantity=quantity,
            )
            for one in run.groups(ask.estimators, ask.levels).values()
            for quantity in (run.quantities[one.key.quantity],)
        ]
        if ask.bottom is None and ask.top is None and found and not any(one.has_threshold for one in found):
            lacking = ", ".join(dict.fromkeys(one.key.estimator for one in found))
            raise SpecError("flagged", f"{lacking} has no usual threshold", "give --threshold, or list the least robust with --bottom 10")
        return found

    def table(self, one: Found[Flagged], ask: Ask) -> Terminal:
        """See :func:`flags_table`."""
        return flags_table(one.record, one.run.class_names, one.run.quantities[one.record.key.quantity])

    def sheet(self, one: Found[Flagged], ask: Ask) -> Sheet:
        """See :func:`flags_sheet`."""
        return flags_sheet(one.record, one.run.class_names)

    def document(self, one: Found[Flagged], ask: Ask) -> dict[str, Any]:
        """Counts and lists."""
        return one.record.document(one.run.class_names)


def flags_table(flagged: Flagged, class_names: Names | None = None, quantity: Quantity | None = None, limit: int | None = 50) -> Terminal:
    """How many are flagged, then the list, worst first, then the most robust ones if asked for.

    Args:
        flagged: from :func:`robaudit.stats.flags.flag`.
        class_names: by class index.
        quantity: what the values are; needed only for quantities of plugins.
        limit: the most lines printed of a list (the rest are counted); None prints all.
    """
    known = quantity or quantity_of(flagged.key.quantity, None)

    def build(narrow: bool) -> list[Table]:
        about = circumstances(flagged.key, flagged.higher_is_better, str(flagged.key))
        tables = [Table(heading(flagged.key, flagged.unit), lines=(about, count_line(flagged)))]
        for order, samples in (("Least robust first", flagged.samples), ("Most robust first", flagged.robust)):
            if samples:
                title = f"{order}{', class by class' if flagged.per_class else ''}:"
                rest = 0 if limit is None else max(0, len(samples) - limit)
                more = (f"... and {rest:,} more, which -o FILE writes too.",) if rest else ()
                tables.append(replace(_table(samples[:limit], flagged, class_names, known, narrow), lines=(title,), notes=more))
        tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *_notes(flagged)))
        return tables

    return Terminal(build)


def flags_sheet(flagged: Flagged, class_names: Names | None = None) -> Sheet:
    """A line per sample: the group, the list it is on ("flagged" or "robust"), then the fields of :class:`Flag` and class names.

    Args:
        flagged: from :func:`robaudit.stats.flags.flag`.
        class_names: by class index.
    """
    names = with_names(dict.fromkeys(field.name for field in fields(Flag)), None)
    group = [flagged.key.estimator, *flagged.key.at.document().values(), flagged.threshold if flagged.has_threshold else None]
    lists = (("flagged", flagged.samples), ("robust", flagged.robust))
    lines = [[*group, name, *sample.named(class_names).values()] for name, samples in lists for sample in samples]
    return Sheet(["estimator", "noise", "level_name", "level", "threshold", "list", *names], lines)


def is_beyond(sample: Flag, flagged: Flagged) -> bool:
    """Whether a listed sample is flagged, or only listed as one of the least robust."""
    return sample.value < flagged.threshold if flagged.higher_is_better else sample.value > flagged.threshold


def count_line(flagged: Flagged) -> str:
    """How many of how many are beyond the threshold, and how certain that is."""
    side = "below" if flagged.higher_is_better else "above"
    kind = f"{flagged.only} " if flagged.only else ""
    if not flagged.has_threshold:
        return f"{flagged.total:,} {kind}samples; {flagged.key.quantity} has no usual threshold, so none is flagged: --threshold gives one."
    text = f"{flagged.beyond:,} of {flagged.total:,} {kind}samples are {side} {flagged.threshold:g}"
    certain = words.certainties(flagged)
    return f"{text}: {certain}." if flagged.beyond and certain else f"{text}; {certain}." if certain else f"{text}."


def _table(samples: Sequence[Flag], flagged: Flagged, names: Names | None, quantity: Quantity, narrow: bool) -> Table:
    rows = []
    for one in samples:
        texts = (
            shortened(printable(one.id), ID_WIDTHS[narrow]),
            *(class_name(index, names, CLASS_WIDTHS[narrow]) for index in (one.label, one.predicted)),
            numbers.sample_value(one, quantity.low, quantity.high, tight=narrow),
            class_name(one.flips_to, names, CLASS_WIDTHS[narrow]),
        )
        answer = (Cell(_answer(one, flagged), tone="bad" if one.certainty is Certainty.CONFIRMED else ""),) if flagged.has_threshold else ()
        rows.append((*cells(texts), *answer))
    value = Column("value [95% interval]", number=True, wrap=True)
    question = Column(f"{'<' if flagged.higher_is_better else '>'} {flagged.threshold:g}?")
    heads = (*map(Column, ("sample", "label", "predicted")), value, Column("flips to"), *((question,) if flagged.has_threshold else ()))
    return Table(columns=heads, rows=tuple(rows))


def _answer(one: Flag, flagged: Flagged) -> str:
    """Whether the sample is beyond the threshold, as the table says it."""
    if one.certainty is not Certainty.NO_INTERVAL:
        return one.certainty
    return "~yes" if is_beyond(one, flagged) else "~no"


def _notes(flagged: Flagged) -> Iterator[str]:
    certainties = {one.certainty for one in flagged.samples + flagged.robust}
    yield from (text for name, text in words.CERTAINTIES.items() if name in certainties and flagged.has_threshold)
    if flagged.censored:
        yield f"> {flagged.censored:,} of {flagged.total:,} values are only known to be larger."
    if flagged.filtered:
        yield f"{count(flagged.filtered, 'sample')} filtered out: not known to be {flagged.only}."
    if flagged.not_finite:
        yield f"{count(flagged.not_finite, 'sample')} left out: not a finite value."
