"""Contradictions between the results of a run, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.consistency import CONFIDENCE, Consistency, Contradiction
from robaudit.stats.intervals import TAIL
from robaudit.stats.relations import Verdict
from robaudit.text import count

MOST_CONTRADICTIONS = 10
_DECLARED = "what the spec declares about the network (lipschitz, or linear: true) is false"
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


def checks(found: Consistency) -> Iterator[Table]:
    """What was compared, and what is inconsistent."""
    heading, compared = "Consistency of the results", [one for one in found.relations if one.comparisons]
    if not compared:
        yield Table(heading, lines=("Nothing to compare: no two results of this run say something about the same number.",))
        return
    rows = []
    for one in compared:
        contradicted = Cell(f"{one.contradictions:,}", tone="bad" if one.contradictions else "")
        rows.append((*cells((one.relation.name, f"{one.comparisons:,}", f"{one.images:,}")), contradicted, Cell(one.relation.says)))
    notes = []
    if found.tail < TAIL:  # else none of them is about anything random
        notes.append(
            f"Intervals hold simultaneously for all comparisons with {100 * CONFIDENCE:g} % confidence: "
            f"error probability of each end {found.tail:.2g}."
        )
    if none := [one.relation.name for one in found.relations if not one.comparisons]:
        notes.append(f"Nothing to compare: {', '.join(none)}.")
    counts = [
        count(found.violations, "violation"),
        *(f"{len(some):,} {said}" for kind, said in _COUNTED.items() if (some := found.of(kind))),
    ]
    verdict = f"{count(found.comparisons, 'comparison')} on {count(found.images, 'image')}, {', '.join(counts)}."
    conclusion = Cell(verdict, tone="bad" if found.contradictions else "strong")
    yield Table(heading, _HEADS, tuple(rows), conclusions=(conclusion,), notes=tuple(notes))
    for kind in Verdict:
        if some := found.of(kind):
            lines = [*(_accused(one, "comparison") for one in found.blamed(kind)), *(f"  {one.text} ({one.relation})" for one in some)]
            left = len(some) - MOST_CONTRADICTIONS
            more = (f"... and {left:,} more: --format json has all.",) if left > 0 else ()
            yield Table(f"{kind.value.capitalize()}: {_MEANINGS[kind]}", lines=tuple(lines[: len(lines) - max(left, 0)]), notes=more)


def blame_lines(found: Consistency) -> list[str]:
    """A line for each result that is accused of violations, or depends on a false declaration, with the first of them."""
    return [
        f"{said}: {_accused(some, 'violation')}; first: sample {some[0].text}"
        for kind, said in _BLAME.items()
        for some in found.blamed(kind)
    ]


def _accused(some: Sequence[Contradiction], noun: str) -> str:
    """A result, and how often it is accused."""
    return f"{some[0].blamed}: {count(len(some), noun)} on {count(len({one.sample_id for one in some}), 'image')}"
