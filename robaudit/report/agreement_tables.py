"""How far estimators of the same quantity agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from robaudit.errors import RunError
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, by_name
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.agreement import Agreement, agreements, comparable
from robaudit.stats.intervals import LIKE_THESE
from robaudit.store.run import Run


class AgreementSection(Section[Agreement]):
    """How far the estimators of one quantity agree, image by image."""

    title = "Agreement of estimators"
    words = "Pairs of estimators of the same quantity, on the same images."

    def applies(self, run: Run) -> bool:
        """Whether two estimators measure the same."""
        return bool(comparable(run.frame))

    def records(self, run: Run, ask: Ask) -> Sequence[Agreement]:
        """The pairs at each noise level.

        Raises:
            RunError: no two estimators measure the same.
        """
        found = agreements(run, ask.estimators, ask.levels)
        if not found:
            raise RunError(str(run.path), "has no two estimators of the same quantity", "add one, such as taylor: --extend computes it")
        return found

    def tables(self, found: Sequence[Found[Agreement]], ask: Ask) -> Iterator[Table]:
        """A line for each pair of estimators and noise level."""
        several, levels = len(by_name(found)) > 1, numbers.level_texts(one.record.at for one in found)
        rows = [
            cells(
                (
                    *([one.name] if several else []),
                    levels[one.record.at],
                    one.record.quantity,
                    f"{pair.first} - {pair.second}",
                    f"{pair.images:,}",
                    numbers.change(pair.difference, (pair.lower, pair.upper)),
                    numbers.plain(pair.rms, digits=4),
                    numbers.rank(pair.rank),
                )
            )
            for one in found
            for pair in one.record.pairs
        ]
        heads = ("images", "mean difference", "RMS difference", "rank correlation")
        yield Table(
            "",
            (
                *map(Column, (*(["run"] if several else []), "noise", "quantity", "estimators")),
                *(Column(head, number=True) for head in heads),
            ),
            tuple(rows),
            notes=(
                f"Mean difference: the first named minus the second, [ ] 95 % interval, {LIKE_THESE}. RMS: root mean square of the "
                "differences, including the noise of both. Rank correlation: Spearman's.",
            ),
        )

    def document(self, one: Found[Agreement], ask: Ask) -> dict[str, Any]:
        """The pairs at a level."""
        return {**one.record.at.document(), "quantity": one.record.quantity, "pairs": list(self.lines(one, ask))}

    def lines(self, one: Found[Agreement], ask: Ask) -> Iterator[dict[str, Any]]:
        """A line for each pair."""
        for pair in one.record.pairs:
            yield {**one.record.at.document(), "quantity": one.record.quantity, **pair.document()}
