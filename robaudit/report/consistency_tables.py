"""Contradictions between the results of a run, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robaudit.numerics.image_intervals import TAIL
from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.consistency import CONFIDENCE, Consistency, Contradiction
from robaudit.stats.relations import Verdict
from robaudit.text import count

MOST_CONTRADICTIONS = 10
_DECLARED = "the Lipschitz constant that the spec declares is false"
_MEANINGS = {
    Verdict.VIOLATION: "one of the two is wrong: a bug in an estimator",
    Verdict.DECLARED: _DECLARED,
    Verdict.APPROXIMATION: "an approximation is off by more than its interval says",
}
_COUNTED = {
    Verdict.DECLARED: "by a false declaration",
    Verdict.APPROXIMATION: "beyond an approximation's interval",
}
_BLAME = {Verdict.VIOLATION: "bug in an estimator", Verdict.DECLARED: _DECLARED}
_HEADS = (
    Column("relation"),
    *(Column(head, number=True) for head in ("compared", "images", "contradicted")),
    Column("meaning", wrap=True),
)


def checks(consistency: Consistency) -> Iterator[Table]:
    """What was compared, and what is inconsistent."""
    heading = "Consistency of the results"
    compared = [check for check in consistency.relations if check.comparisons]
    if not compared:
        yield Table(
            heading,
            lines=(
                "Nothing to compare: no two results of this run say something about the same "
                "number.",
            ),
        )
        return
    rows = []
    for check in compared:
        contradicted = Cell(f"{check.contradictions:,}", tone="bad" if check.contradictions else "")
        rows.append(
            (
                *cells((check.relation.name, f"{check.comparisons:,}", f"{check.images:,}")),
                contradicted,
                Cell(check.relation.says),
            )
        )
    notes = []
    if consistency.tail < TAIL:  # otherwise no comparison is random
        notes.append(
            f"Intervals hold simultaneously for all comparisons with {100 * CONFIDENCE:g} % "
            "confidence: "
            f"error probability of each end {consistency.tail:.2g}."
        )
    if none := [check.relation.name for check in consistency.relations if not check.comparisons]:
        notes.append(f"Nothing to compare: {', '.join(none)}.")
    counts = [
        count(consistency.violations, "violation"),
        *(
            f"{len(conflicts):,} {text}"
            for kind, text in _COUNTED.items()
            if (conflicts := consistency.of(kind))
        ),
    ]
    verdict = (
        f"{count(consistency.comparisons, 'comparison')} on "
        f"{count(consistency.images, 'image')}, {', '.join(counts)}."
    )
    conclusion = Cell(verdict, tone="bad" if consistency.contradictions else "strong")
    yield Table(heading, _HEADS, tuple(rows), conclusions=(conclusion,), notes=tuple(notes))
    for kind in Verdict:
        if conflicts := consistency.of(kind):
            lines = [
                *(_blamed(conflicts, "comparison") for conflicts in consistency.blamed(kind)),
                *(f"  {conflict.text} ({conflict.relation})" for conflict in conflicts),
            ]
            left = len(conflicts) - MOST_CONTRADICTIONS
            more = (f"... and {left:,} more: --format json has all.",) if left > 0 else ()
            yield Table(
                f"{kind.value.capitalize()}: {_MEANINGS[kind]}",
                lines=tuple(lines[: len(lines) - max(left, 0)]),
                notes=more,
            )


def blame_lines(consistency: Consistency) -> list[str]:
    """A line for each result that is blamed for violations, or depends on a false declaration, with
    the first case."""
    return [
        f"{text}: {_blamed(conflicts, 'violation')}; first: sample {conflicts[0].text}"
        for kind, text in _BLAME.items()
        for conflicts in consistency.blamed(kind)
    ]


def _blamed(conflicts: Sequence[Contradiction], noun: str) -> str:
    """A blamed result, and how often it is blamed."""
    return (
        f"{conflicts[0].blamed}: {count(len(conflicts), noun)} on "
        f"{count(len({conflict.sample_id for conflict in conflicts}), 'image')}"
    )
