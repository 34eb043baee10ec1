"""Decided gates for GitHub: annotations on the run, and a step summary in Markdown.

GitHub shows ten annotations of a kind from a step and takes one MiB of step summary; it drops the
rest, so what to show is chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.gates.decide import Decision, Verdict, overall
from robaudit.gates.decision_text import class_numbers, coverage_text, numbers, sentence
from robaudit.report.ci.document import Subject, counted
from robaudit.report.tables import Table, cells, columns, markdown, markdown_rows
from robaudit.text import clipped, count, printable

MOST = 10
"""The most annotations written."""

LARGEST = 2**20
"""The most bytes of a step summary."""

LEFT_OUT = "\n_The rest is left out: GitHub takes 1 MiB of step summary._\n"

_LEVELS: dict[Verdict, str] = {"fail": "error", "inconclusive": "warning", "pass": "notice"}
# the worst first: annotations beyond the tenth are dropped
_ORDER = ("fail", "inconclusive", "pass")
# characters of a title and of a message
_LONGEST_NAME = 300
_LONGEST_MESSAGE = 2000
_WARNINGS = 3  # of the run, at most: gates need the room
_SIGNS: dict[Verdict, str] = {"pass": "✅", "fail": "❌", "inconclusive": "❔"}
_MOST_CLASSES = 20


def github(
    decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive"
) -> str:
    """Workflow commands, one a line: the run's first warnings, an error for a failed gate, a
    warning for an inconclusive one, and a notice that says how many passed.

    An inconclusive gate that counts as failed is an error, one that counts as passed a notice. At
    most ten lines, the failures first; if there are more, the last says how many.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    title = f"robaudit {subject.command}"
    warned = [
        _command("warning", title, f"{subject.name}: {text}")
        for text in subject.unreported_warnings(decisions)[:_WARNINGS]
    ]
    open_gates = [decision for decision in decisions if decision.verdict != "pass"]
    # stable: otherwise as they were given
    open_gates.sort(key=lambda decision: _ORDER.index(counted(decision, inconclusive)))
    lines = [
        _command(
            _LEVELS[counted(decision, inconclusive)],
            f"{title}: {decision.gate}",
            f"{subject.name}: {sentence(decision)}",
        )
        for decision in open_gates
    ]
    passed = len(decisions) - len(open_gates)
    if passed:
        words = f"{subject.name}: {passed} of {count(len(decisions), 'gate')} passed"
        lines.append(_command("notice", title, words))
    room = MOST - len(warned)
    if len(lines) > room:
        # the last line stands for all that are left out, and is as severe as the worst of them
        left = len(open_gates) - (room - 1)
        level = _LEVELS[counted(open_gates[room - 1], inconclusive)]
        words = (
            f"{subject.name}: {left} more gates did not pass, {passed} passed; all are in "
            "the log and the step summary"
        )
        lines = [*lines[: room - 1], _command(level, title, words)]
    return "".join(line + "\n" for line in [*warned, *lines])


def step_summary(
    decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive"
) -> str:
    """The Markdown for ``$GITHUB_STEP_SUMMARY``: the verdict, a table of the gates, the classes
    behind them.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    verdict = overall(decisions, inconclusive)
    lines = [f"### {_SIGNS[verdict]} robaudit {subject.command}: {verdict}", ""]
    lines += [
        f"**Warning:** {markdown(clipped(text, _LONGEST_NAME))}\n"
        for text in subject.unreported_warnings(decisions)
    ]
    lines.append(_about(subject))
    if subject.against is not None:
        lines += ["", f"compared with {_about(subject.against)}"]
    left_out = [
        f"{number:,} {name.replace('_', ' ')}" for name, number in subject.counts.items() if number
    ]
    if left_out:
        lines += ["", f"samples left out: {markdown(', '.join(left_out))}"]
    rows = []
    for decision in decisions:
        verdict_text = f"{_SIGNS[decision.verdict]} {decision.verdict}"
        gate = str(decision.gate)
        rows.append(cells((verdict_text, gate, numbers(decision), coverage_text(decision))))
    table = Table(columns=columns(("", "gate", "value", "about")), rows=tuple(rows))
    lines += ["", markdown_rows(table), ""]
    for decision in decisions:
        if decision.evidence:
            lines.append(f"- {markdown(str(decision.gate))}: {markdown(decision.evidence)}")
    for decision in decisions:
        lines += _classes(decision)
    return "\n".join(lines).rstrip("\n") + "\n"


def _about(subject: Subject) -> str:
    """The run and its model, in Markdown."""
    return (
        f"{markdown(subject.name)}: model {markdown(subject.model.name)} (sha256 "
        f"{markdown(subject.model.sha256[:8])})"
    )


def _classes(decision: Decision) -> list[str]:
    """The worst classes behind a gate, as a table."""
    if not decision.classes:
        return []
    limit = decision.gate.threshold
    rows = [
        cells((f"class {part.text}", f"{part.images}", class_numbers(part, limit)))
        for part in decision.classes[:_MOST_CLASSES]
    ]
    left = len(decision.classes) - _MOST_CLASSES
    if left > 0:
        rows.append(cells((f"and {left} more", "", "")))
    table = Table(columns=columns(("class",), ("images", "value")), rows=tuple(rows))
    return ["", f"{markdown(str(decision.gate))}, least robust first:", "", markdown_rows(table)]


def _command(level: str, title: str, message: str) -> str:
    """``::error title=...::message``, escaped as the runner parses it."""
    # a title is a property of the command, which ends at a colon or a comma
    name = _data(clipped(printable(title), _LONGEST_NAME)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_data(clipped(printable(message), _LONGEST_MESSAGE))}"


def _data(text: str) -> str:
    # the percent sign first, as the other escapes begin with one
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
