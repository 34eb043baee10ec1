"""The flagged samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from robaudit.documents import with_names
from robaudit.errors import SpecError
from robaudit.quantities import Quantity
from robaudit.report import numbers, words
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.summary_tables import about
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.flags import Certainty, Flag, Flagged, check_threshold, flag, usual_threshold
from robaudit.stats.groups import quantity_of
from robaudit.store.run import Run
from robaudit.text import Names, class_name, count


class FlaggedSection(Section[Flagged]):
    """The samples that are not robust, for each result, and how certain that is."""

    title = "Flagged samples"
    uses = Section.uses | {"threshold", "bottom", "top", "per_class", "only"}
    main_only = True

    def applies(self, run: Run) -> bool:
        """Whether a quantity of the run has a usual threshold."""
        return any(math.isfinite(usual_threshold(quantity)) for quantity in run.quantities.values())

    def records(self, run: Run, ask: Ask) -> list[Flagged]:
        """The flagged samples of each result.

        Raises:
            SpecError: there is no threshold, and nothing else says which samples are meant.
        """
        found = self.listed(run, ask)
        if ask.bottom is None and ask.top is None and found and not any(one.has_threshold for one in found):
            lacking = ", ".join(dict.fromkeys(one.key.estimator for one in found))
            raise SpecError("flagged", f"{lacking} has no usual threshold", "give --threshold, or list the least robust with --bottom 10")
        return found

    def listed(self, run: Run, ask: Ask) -> list[Flagged]:
        """The same, also where nothing says which samples are meant.

        Raises:
            RobauditError: a threshold that a quantity cannot have.
        """
        groups = run.groups(ask.estimators, ask.levels).values()
        if ask.threshold is not None:
            for name in {one.key.quantity: None for one in groups}:
                check_threshold(ask.threshold, run.quantities[name], f"--threshold {ask.threshold:g}", name)
        return [
            flag(
                one,
                below=usual_threshold(quantity) if ask.threshold is None else ask.threshold,
                bottom=ask.bottom,
                top=ask.top,
                per_class=ask.per_class,
                only=ask.only,
                quantity=quantity,
            )
            for one in groups
            for quantity in (run.quantities[one.key.quantity],)
        ]

    def tables(self, found: Sequence[Found[Flagged]], ask: Ask) -> Iterator[Table]:
        """How many are flagged, of several runs side by side, then the lists of each."""
        several = len(by_name(found)) > 1
        if several:
            yield _counts(found)
        for one in found:
            name = f"{one.name}: " if several else ""
            for table in flags_tables(one.record, one.run.class_names, one.run.quantities[one.record.key.quantity]):
                yield replace(table, heading=table.heading and name + table.heading)

    def columns(self) -> Sequence[str]:
        """As :meth:`lines` has them."""
        names = with_names(dict.fromkeys(field.name for field in fields(Flag)), None)
        return ["estimator", "noise", "level_name", "level", "threshold", "list", *names]

    def lines(self, one: Found[Flagged], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line per sample: the result, the list it is on ("flagged" or "robust"), and the sample."""
        flagged = one.record
        group = {
            "estimator": flagged.key.estimator,
            **flagged.key.at.document(),
            "threshold": flagged.threshold if flagged.has_threshold else None,
        }
        for name, samples in (("flagged", flagged.samples), ("robust", flagged.robust)):
            yield from ({**group, "list": name, **sample.document(one.run.class_names)} for sample in samples)


def _counts(found: Sequence[Found[Flagged]]) -> Table:
    """How many samples of each run are flagged, by result."""
    runs, keys = by_name(found), list(dict.fromkeys(one.record.key for one in found))
    rows = []
    for key in keys:
        mine = [next((one.record for one in some if one.record.key == key), None) for some in runs.values()]
        texts = (numbers.NONE if one is None or not one.has_threshold else f"{one.beyond:,} of {one.total:,}" for one in mine)
        rows.append(cells((str(key), *texts)))
    return Table("Flagged samples by run", (Column("result"), *(Column(name, number=True) for name in runs)), tuple(rows))


def flags_tables(
    flagged: Flagged,
    class_names: Names | None = None,
    quantity: Quantity | None = None,
    limit: int | None = 50,
    where: str = "--format csv",
) -> list[Table]:
    """How many are flagged, then the list, worst first, then the most robust ones if asked for.

    Args:
        flagged: from :func:`robaudit.stats.flags.flag`.
        class_names: by class index.
        quantity: what the values are; needed only for quantities of plugins.
        limit: the most lines of a list (the rest are counted); None: all.
        where: what has the rest.
    """
    known = quantity or quantity_of(flagged.key.quantity, None)
    lines = about(flagged.key, flagged.unit, flagged.higher_is_better), count_line(flagged)
    tables = [Table(str(flagged.key), lines=lines)]
    for order, samples in (("Least robust first", flagged.samples), ("Most robust first", flagged.robust)):
        if samples:
            title = f"{order}{', class by class' if flagged.per_class else ''}:"
            rest = 0 if limit is None else max(0, len(samples) - limit)
            more = (f"... and {rest:,} more: {where} has all.",) if rest else ()
            tables.append(replace(_table(samples[:limit], flagged, class_names, known), lines=(title,), notes=more))
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *_notes(flagged)))
    return tables


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


def _table(samples: Sequence[Flag], flagged: Flagged, names: Names | None, quantity: Quantity) -> Table:
    rows = []
    for one in samples:
        texts = (
            one.id,
            *(class_name(index, names) for index in (one.label, one.predicted)),
            numbers.sample_value(one, quantity.low, quantity.high),
            class_name(one.flips_to, names),
        )
        answer = (Cell(_answer(one, flagged), tone="bad" if one.certainty is Certainty.CONFIRMED else ""),) if flagged.has_threshold else ()
        rows.append((*cells(texts), *answer))
    question = Column(f"{'<' if flagged.higher_is_better else '>'} {flagged.threshold:g}?")
    value = Column("value [95% interval]", number=True)
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
