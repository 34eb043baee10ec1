"""How is a run against the accepted findings judged, and shown to a reader?"""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.compare.baseline import NOT_FINITE, SKIPPED, STATES, Finding, Standing
from robaudit.gates.grammar import Gate
from robaudit.gates.result import Decision, judge
from robaudit.report import numbers
from robaudit.report.comparison import Section
from robaudit.text import Names, class_name, count, shortened

_SHOWN = 20
_NAMED = 5


def decisions(standing: Standing, groups: Sequence[tuple[str, float]], *, accepting: bool = False) -> tuple[Decision, ...]:
    """A gate for each group: no new finding; it passes in any case where the new ones are about to be accepted.

    Samples of which nothing is known may be new findings: they leave it open.
    """
    return tuple(_decision(standing, group, accepting) for group in groups)


def _decision(standing: Standing, group: tuple[str, float], accepting: bool) -> Decision:
    new = standing.of("new", group)
    counts = ", ".join(f"{len(standing.of(state, group))} {state}" for state in STATES)
    named = ", ".join(one.sample_id for one in new[:_NAMED]) + (", ..." if len(new) > _NAMED else "")
    unknown = standing.of("unknown", group)
    value, most = float(len(new)), float(len(new) + len(unknown))
    verdict = "pass" if accepting else judge("<=", 0.0, value, most)
    words = f"{counts} below {standing.thresholds[group]:g}" + (f"; new{' and accepted now' if accepting else ''}: {named}" if new else "")
    if unknown:
        reasons = " and ".join(f"{sum(one.why == why for one in unknown)} {words_of}" for why, words_of in _reasons(unknown))
        words += f"; {len(unknown)} may be findings: {reasons}"
    method = "counted" if unknown else "exact"
    return Decision(Gate("new_findings", "<=", 0.0, *group), value, value, most, method, "these images", 0.95, verdict, words)


def _reasons(unknown: Sequence[Finding]) -> list[tuple[str, str]]:
    words = {NOT_FINITE: "without a finite value", SKIPPED: "skipped"}
    return [(why, words[why]) for why in dict.fromkeys(one.why for one in unknown)]


def baseline_sections(standing: Standing, names: Names | None) -> list[Section]:
    """The report for a reader."""
    head = ", ".join(f"{len(standing.of(state)):,} {state}" for state in STATES)
    rows = [_row(one, names) for one in standing.findings if one.state != "persisting" or one.why]
    left = len(rows) - _SHOWN
    notes = [f"... and {left:,} more, which --format json holds."] if left > 0 else []
    lines = [f"{count(len(standing.findings), 'finding')}: {head}"]
    if not rows:
        return [Section("against the accepted findings", lines)]
    columns = ("", "estimator", "sigma", "sample", "label", "predicted", "accepted", "now [95 %]", "remark")
    return [Section("against the accepted findings", lines, columns, rows[:_SHOWN], 6, notes)]


def _row(one: Finding, names: Names | None) -> tuple[str, ...]:
    now = "" if one.value is None else numbers.with_interval(one.value, one.lower, one.upper, float("-inf"), float("inf"))
    before = "" if one.accepted is None else f"{one.accepted:.4g}"
    classes = (class_name(index, names, 20) for index in (one.label, one.predicted))
    remark = "; ".join(filter(None, [one.why, one.reason or ""]))
    return (one.state, one.estimator, f"{one.sigma:.6g}", shortened(one.sample_id, 40), *classes, before, now, remark[:60])
