"""Which class turns into which under noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from robaudit.documents import json_values
from robaudit.errors import SpecError
from robaudit.report import numbers
from robaudit.report.pictures.chosen import same_result
from robaudit.report.sections import Ask, Found, Section
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.confusion import Confusion, Turn, confusions
from robaudit.stats.intervals import LIKE_THESE
from robaudit.store.run import Run
from robaudit.text import class_name, count, known_name

_MOST = 15


class ConfusionSection(Section[Confusion]):
    """Which class turns into which under noise: the share of noisy copies of a class that are classified as another one."""

    title = "Which class turns into which"
    words = "The share of the noisy copies of the images of a class that are classified as another class, the largest first."
    uses = Section.uses | {"by"}
    main_only = True

    def applies(self, run: Run) -> bool:
        """Whether noisy copies were counted."""
        return bool(run.info["noisy_accuracy"])

    def records(self, run: Run, ask: Ask) -> Sequence[Confusion]:
        """A matrix for each result with votes.

        Raises:
            SpecError: images are to be grouped by a column of the data.
        """
        if ask.by in (None, "label", "predicted"):
            return confusions(run, ask.estimators, ask.levels, ask.by)
        raise SpecError(f"--by {ask.by}", "does not apply to the section confusion", "use label or predicted")

    def tables(self, found: Sequence[Found[Confusion]], ask: Ask) -> Iterator[Table]:
        """The most frequent turns of each result, runs side by side."""
        for key in dict.fromkeys(one.record.key for one in found):
            yield _table([one for one in found if one.record.key == key])

    def page_tables(self, found: Sequence[Found[Confusion]], ask: Ask) -> Iterator[Table]:
        """At the strongest level of the first noise, which the picture shows."""
        (table,) = self.tables(same_result(found, lambda record: record.key), ask)
        rest = len({one.record.key for one in found}) - 1
        more = (f"{count(rest, 'other result')}: robaudit show RUN confusion.",) if rest else ()
        yield replace(table, notes=(*table.notes, *more))

    def document(self, one: Found[Confusion], ask: Ask) -> dict[str, Any]:
        """The matrix and the turns."""
        record, names = one.record, one.run.class_names
        return {
            **record.key.document(),
            "by": record.by,
            "classes": [
                {"index": i, "name": known_name(i, names), "images": n} for i, n in zip(record.classes, record.images, strict=True)
            ],
            "shares": json_values(record.shares),
            "turns": json_values(record.turns),
        }

    def lines(self, one: Found[Confusion], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each pair of classes that occurs."""
        names, record = one.run.class_names, one.record
        for turn in record.turns:
            pair = {"start_name": known_name(turn.start, names), "to_name": known_name(turn.to, names)}
            yield {**record.key.document(), "by": record.by, **turn.document(), **pair}


def _table(found: Sequence[Found[Confusion]]) -> Table:
    first, several = found[0], len(found) > 1
    names = first.run.class_names
    turns = [{(turn.start, turn.to): turn for turn in one.record.turns} for one in found]
    pairs = sorted({pair for some in turns for pair in some}, key=lambda pair: -max(_share(some.get(pair)) for some in turns))
    rows = [
        cells((class_name(start, names), class_name(to, names), *(_text(some.get((start, to))) for some in turns)))
        for start, to in pairs[:_MOST]
    ]
    rest = len(pairs) - len(rows)
    more = (f"... and {rest:,} more pairs: --format csv has the {'first 100' if rest > 100 - _MOST else 'rest'}.",) if rest else ()
    kind = "label" if first.record.by == "label" else "predicted without noise"
    heads = [one.name for one in found] if several else ["share of copies"]
    return Table(
        f"{first.record.key}",
        (Column(kind), Column("classified as"), *(Column(head, number=True) for head in heads)),
        tuple(rows),
        conclusions=() if rows else (Cell("No noisy copy changes class."),),
        notes=(*more, *([f"[ ] 95 % interval, {LIKE_THESE} of the class."] if rows else [])),
    )


def _share(turn: Turn | None) -> float:
    return 0.0 if turn is None else turn.share


def _text(turn: Turn | None) -> str:
    return numbers.NONE if turn is None else numbers.with_percents(turn.share, turn.lower, turn.upper)
