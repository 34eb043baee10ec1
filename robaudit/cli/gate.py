"""`robaudit gate`: decide whether a run meets its thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit import settings
from robaudit.cli.options import (
    ConfidenceOption,
    InconclusiveOption,
    OutputOption,
    PointOption,
    PopulationOption,
    RunArgument,
    StrictOption,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.decide import Decision, Verdict
    from robaudit.report.ci.document import Subject


Format = Literal["text", "json", "junit", "github"]


def gate(
    run: RunArgument,
    gates: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GATE",
            help='Conditions to meet, in quotes: "mean(sigma=0.05) >= 0.9". Default: the run\'s '
            "own.",
        ),
    ] = None,
    population: PopulationOption = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    strict: StrictOption = False,
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC.yaml",
            rich_help_panel=settings.GATES,
            help="Take the gates from this spec.",
        ),
    ] = None,
    format_: Annotated[Format, option(settings.FORMAT)] = "text",
    output: OutputOption = None,
) -> None:
    """Decide whether a run meets its gates: exit code 0 if all pass, 1 if one fails, 4 if one is
    inconclusive.

    Quantities: mean, median, p05, worst_class, class_gap, share_below(t=...), accuracy,
    noisy_accuracy, warnings (their number), certified_accuracy(radius=...) as in robaudit show RUN
    certified, and r_m, r_w, slope, ... as in robaudit show RUN scores.

    Example: robaudit gate runs/spec-1a2b3c4d "mean(estimator=mc) >= 0.9" "worst_class >= 0.7"
    """
    from robaudit.cli.console import say
    from robaudit.gates.sources import confidence_of, decide_by, find_rules
    from robaudit.report.ci.document import Subject
    from robaudit.stats.reading import read_run
    from robaudit.text import printable

    opened = read_run(run)
    # Of the command line, of --spec, or of the run itself: the first that has any.
    rules = find_rules(gates or (), opened, where="gate", spec=spec, strict=strict)
    decisions = decide_by(
        rules, opened, population=population, point=point, confidence=confidence, strict=strict
    )
    # Gates that the user has not just typed are named with their source.
    if rules.where != "the command line":
        say(f"gates of {printable(rules.where)}")
    # Their error was split over all possible analyses, so each has a higher confidence.
    if opened.info.until_decided is not None and confidence is None:
        level = confidence_of(opened.info, confidence)
        say(
            "this run was sampled until its gates were decided: each interim analysis, and so "
            f"every gate, is at {100 * level:.4g} %"
        )
    skipped = opened.info.totals.skipped
    if skipped:
        say(f"{skipped} samples were skipped: the gates say nothing about them")
    counts_as: Verdict = inconclusive or "inconclusive"
    subject = Subject.from_info(opened.info, "gate")
    code = report_gates(decisions, counts_as, format_, output, subject)
    if any(_asks_for_draws(decision) for decision in decisions):
        say(
            "deciding again after more draws adds to the error probability: robaudit estimate "
            "--until-decided accounts for it"
        )
    raise typer.Exit(code)


def _asks_for_draws(decision: Decision) -> bool:
    """Whether a decision says how many more draws would probably decide the gate."""
    from robaudit.estimates import Covers

    # Of the population, more images would decide it.
    return decision.more is not None and decision.estimate.covers is Covers.MEASUREMENT


def report_gates(
    decisions: Sequence[Decision],
    inconclusive: Verdict,
    format_: Format,
    output: Path | None,
    subject: Subject,
) -> int:
    """Print the decisions or write them to the file of ``-o``.

    Args:
        decisions: on all gates.
        inconclusive: what an inconclusive gate counts as.
        format_: of the output.
        output: the file; None: standard output.
        subject: the run, for documents.

    Returns:
        The exit code of the command.
    """
    from robaudit.cli.output_streams import emit
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.report.ci.document import gates_json
    from robaudit.report.ci.github import github
    from robaudit.report.ci.junit import junit

    if format_ == "text":
        _print_text(decisions, inconclusive, subject, output)
    else:
        render = {"json": gates_json, "junit": junit, "github": github}[format_]
        text = render(decisions, subject, inconclusive=inconclusive)
        # GitHub's lines are commands, which emit would escape in a text; what they hold is escaped.
        emit(text.encode() if format_ == "github" else text, output)
    # Annotations are short; the step summary has the table.
    if format_ == "github":
        summarise(decisions, subject, inconclusive)
    return EXIT_CODES[overall(decisions, inconclusive)]


def summarise(
    decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict, added: str = ""
) -> None:
    """Append the gates, and further Markdown, to the step summary if this is a GitHub job."""
    from robaudit.cli.console import say
    from robaudit.cli.output_streams import append_step_summary
    from robaudit.report.ci.github import step_summary

    text = step_summary(decisions, subject, inconclusive=inconclusive)
    if added:
        text += f"\n{added}"
    problem = append_step_summary(text)
    # Only a warning: the gates are decided all the same.
    if problem is not None:
        say(f"warning: {problem}")


def _print_text(
    decisions: Sequence[Decision], inconclusive: Verdict, subject: Subject, to: Path | None
) -> None:
    """Print the run's warnings and one line per gate, its verdict in colour on a terminal."""
    from rich.text import Text

    from robaudit.cli.console import show
    from robaudit.gates.decision_text import lines
    from robaudit.text import printable

    colours = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
    # A gate on warnings reports them itself.
    renderables = [
        Text(printable(f"warning: {text}"), "yellow")
        for text in subject.unreported_warnings(decisions)
    ]
    for verdict, line in lines(decisions, inconclusive):
        text = Text(line)
        # From the beginning of the line to the end of the verdict.
        text.stylize(f"bold {colours[verdict]}", 0, line.index(verdict) + len(verdict))
        renderables.append(text)
    show(*renderables, to=to)
