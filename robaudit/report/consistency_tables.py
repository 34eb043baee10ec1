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
# A false declaration or a rough approximation is no bug: the verdict counts them apart.
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
    """The comparisons by relation, then the contradictions."""
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
        compared_texts = (check.relation.name, f"{check.comparisons:,}", f"{check.images:,}")
        contradicted = Cell(f"{check.contradictions:,}", tone="bad" if check.contradictions else "")
        rows.append((*cells(compared_texts), contradicted, Cell(check.relation.says)))
    yield Table(
        heading,
        _HEADS,
        tuple(rows),
        conclusions=(_conclusion(consistency),),
        notes=tuple(_notes(consistency)),
    )
    for kind in Verdict:
        if conflicts := consistency.with_verdict(kind):
            yield _contradictions(kind, conflicts, consistency)


def _notes(consistency: Consistency) -> Iterator[str]:
    if consistency.tail < TAIL:  # otherwise no comparison is random
        yield (
            f"Intervals hold simultaneously for all comparisons with {100 * CONFIDENCE:g} % "
            f"confidence: error probability of each end {consistency.tail:.2g}."
        )
    none = [check.relation.name for check in consistency.relations if not check.comparisons]
    if none:
        yield f"Nothing to compare: {', '.join(none)}."


def _conclusion(consistency: Consistency) -> Cell:
    """How many comparisons were made, and how many contradictions of each kind were found."""
    counts = [count(consistency.violations, "violation")]
    for kind, text in _COUNTED.items():
        if conflicts := consistency.with_verdict(kind):
            counts.append(f"{len(conflicts):,} {text}")
    comparisons = count(consistency.comparisons, "comparison")
    verdict = f"{comparisons} on {count(consistency.images, 'image')}, {', '.join(counts)}."
    return Cell(verdict, tone="bad" if consistency.contradictions else "strong")


def _contradictions(
    kind: Verdict, conflicts: Sequence[Contradiction], consistency: Consistency
) -> Table:
    """The results that are blamed, then the first contradictions."""
    blamed = [_blamed(of_result, "comparison") for of_result in consistency.blamed(kind)]
    shown = conflicts[:MOST_CONTRADICTIONS]
    left = len(conflicts) - len(shown)
    return Table(
        f"{kind.value.capitalize()}: {_MEANINGS[kind]}",
        lines=(*blamed, *(f"  {conflict.text} ({conflict.relation})" for conflict in shown)),
        notes=(f"... and {left:,} more: --format json has all.",) if left else (),
    )


def blame_lines(consistency: Consistency) -> list[str]:
    """A line for each result that is blamed for violations, or depends on a false declaration, with
    the first case."""
    lines = []
    for kind, text in _BLAME.items():
        for conflicts in consistency.blamed(kind):
            blamed = _blamed(conflicts, "violation")
            lines.append(f"{text}: {blamed}; first: sample {conflicts[0].text}")
    return lines


def _blamed(conflicts: Sequence[Contradiction], noun: str) -> str:
    """A blamed result, and how often it is blamed."""
    images = {conflict.sample_id for conflict in conflicts}
    blamed = conflicts[0].blamed
    return f"{blamed}: {count(len(conflicts), noun)} on {count(len(images), 'image')}"
