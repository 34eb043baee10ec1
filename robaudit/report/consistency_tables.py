"""What the comparison of a run's results has found, for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from robaudit.report.tables import Cell, Column, Table, cells
from robaudit.stats.consistency import CONFIDENCE, Consistency
from robaudit.stats.intervals import TAIL
from robaudit.stats.relations import Verdict
from robaudit.text import count

MOST_CONTRADICTIONS = 10
_MEANINGS = {
    Verdict.VIOLATION: "one of the two is wrong: a bug in an estimator",
    Verdict.DECLARED: "what the spec declares about the network (lipschitz, or linear: true) is false",
    Verdict.MISSED: "a search missed what another result found; no theorem says that it must find it",
    Verdict.APPROXIMATION: "an approximation is off by more than its interval says",
}

_TOLD = {
    Verdict.DECLARED: "by a false declaration",
    Verdict.MISSED: "missed by a search",
    Verdict.APPROXIMATION: "beyond an approximation's interval",
}

_BLAME = {
    Verdict.VIOLATION: "bug in an estimator",
    Verdict.DECLARED: "what the spec declares about the network (lipschitz, or linear: true) is false",
}


def checks(consistency: Consistency) -> Iterator[Table]:
    """What was compared, and what is inconsistent."""
    compared = [one for one in consistency.checked if one.comparisons]
    rows = [
        (
            *cells((one.relation.name, f"{one.comparisons:,}", f"{one.images:,}")),
            Cell(f"{one.contradictions:,}", tone="bad" if one.contradictions and one.relation.verdict is Verdict.VIOLATION else ""),
            Cell(one.relation.says),
        )
        for one in compared
    ]
    heads = (
        Column("relation"),
        *(Column(head, number=True) for head in ("compared", "images", "contradicted")),
        Column("meaning", wrap=True),
    )
    if not compared:
        yield Table("Consistency of the results", lines=("No two results of this run bound the same number.",))
        return
    total = sum(one.comparisons for one in compared)
    notes = []
    if consistency.tail < TAIL:  # else none of them is about anything random
        notes.append(
            f"Intervals hold simultaneously for all comparisons with {100 * CONFIDENCE:g} % confidence: "
            f"error probability of each end {consistency.tail:.2g}."
        )
    if none := [one.relation.name for one in consistency.checked if not one.comparisons]:
        notes.append(f"Nothing to compare: {', '.join(none)}.")
    found = [count(len(consistency.violations), "violation")]
    found += [f"{len(some):,} {_TOLD[kind]}" for kind in _TOLD if (some := consistency.of(kind))]
    verdict = f"{count(total, 'comparison')} on {count(consistency.images, 'image')}, {', '.join(found)}."
    conclusion = Cell(verdict, tone="bad" if consistency.found else "strong")
    yield Table("Consistency of the results", heads, tuple(rows), conclusions=(conclusion,), notes=tuple(notes))
    for kind in Verdict:
        if some := consistency.of(kind):
            summary = [
                f"{one.name}: {count(len(one.contradictions), 'comparison')} on {count(one.images, 'image')}"
                for one in consistency.blamed(kind)
            ]
            listed = [f"  {one.text} ({one.relation.name})" for one in some[:MOST_CONTRADICTIONS]]
            rest = len(some) - len(listed)
            more = (f"... and {rest:,} more: --format json has all.",) if rest else ()
            heading = f"{kind.value.capitalize()}: {_MEANINGS[kind]}"
            yield Table(heading, lines=(*summary, *listed), notes=more)


def blame_lines(consistency: Consistency) -> list[str]:
    """A line for each result that is accused of violations, or hangs on a false declaration, with the first of them."""
    lines = []
    for kind, what in _BLAME.items():
        for one in consistency.blamed(kind):
            counts = f"{count(len(one.contradictions), 'violation')} on {count(one.images, 'image')}"
            lines.append(f"{what}: {one.name}: {counts}; first: sample {one.contradictions[0].text}")
    return lines
