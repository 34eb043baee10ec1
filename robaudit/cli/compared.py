"""How do a comparison and the gates on it leave the program: a table, a text, the summary of a GitHub job?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.cli.options import write_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.decide import Decision, Verdict
    from robaudit.report.ci import Subject


def emit_table(shown: Any, decisions: Sequence[Decision], inconclusive: Verdict, output: Path | None) -> None:
    """Print a table, or write it to a file, with the gates below it."""
    import io

    from rich.console import Console, Group
    from rich.text import Text

    from robaudit.cli.console import output as screen
    from robaudit.cli.unread import unread_is_no_end
    from robaudit.gates.text import lines

    told = Group(*(Text(line) for _, line in lines(decisions, inconclusive))) if decisions else Group()
    if output is None:
        with unread_is_no_end():
            screen().print(shown)
            screen().print(told, soft_wrap=True)
        return
    plain = Console(file=io.StringIO(), width=120, highlight=False, color_system=None)
    with plain.capture() as captured:
        plain.print(shown)
        plain.print(told, soft_wrap=True)
    write_output(output, captured.get())


def emit_text(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file."""
    from robaudit.cli.printing import put
    from robaudit.cli.unread import unread_is_no_end

    if output is None:
        with unread_is_no_end():
            put([text])
    else:
        write_output(output, text)


def gates_text(format_: str, decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict) -> str:
    """Gates as JUnit XML or as GitHub's commands."""
    from robaudit.report.ci import github, junit

    return (junit if format_ == "junit" else github)(decisions, subject, inconclusive=inconclusive)


def markdown_gates(decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict) -> str:
    """Gates as Markdown; nothing without any."""
    from robaudit.report.ci import step_summary

    return "\n" + step_summary(decisions, subject, inconclusive=inconclusive) if decisions else ""


def summarise(decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict, more: str = "") -> None:
    """Append the step summary of a GitHub job, where this is one."""
    from robaudit.cli.console import messages
    from robaudit.cli.step_summary import append_step_summary
    from robaudit.report.ci import step_summary

    trouble = append_step_summary(step_summary(decisions, subject, inconclusive=inconclusive) + (f"\n{more}" if more else ""))
    if trouble is not None:
        messages().print(f"warning: {trouble}", markup=False)
