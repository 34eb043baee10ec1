"""`robaudit gate`: decide whether a run meets its thresholds."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import (
    ConfidenceOption,
    InconclusiveOption,
    OutputOption,
    PointOption,
    PopulationOption,
    RunArgument,
    StrictOption,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.decide import Decision, Verdict
    from robaudit.report.ci.document import Subject


class GateFormat(StrEnum):
    """How decisions are printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


def gate(
    run: RunArgument,
    gates: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GATE]...", help='Conditions to meet, for example "mean(estimator=mc, sigma=0.05) >= 0.9". Default: those of the run.'
        ),
    ] = None,
    population: PopulationOption = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    strict: StrictOption = False,
    spec: Annotated[Path | None, typer.Option(metavar="SPEC.yaml", help="Take the gates from this spec.")] = None,
    pyproject: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the gates from tool.robaudit in this file. Default: ./pyproject.toml.")
    ] = None,
    format_: Annotated[GateFormat, typer.Option("--format", help="Output format.")] = GateFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Decide whether a run meets its gates: exit code 0 if all pass, 1 if one fails, 4 if one is inconclusive.

    Quantities: mean, median, p05, worst_class, class_gap, share_below(t=...), accuracy, noisy_accuracy, warnings (how many the run has),
    certified_accuracy(radius=...) (see robaudit show RUN certified), and the scores of radii: r_m, r_w, r_nu, median_ratio, slope,
    r_margin, relative_variation, ... (see robaudit show RUN scores).

    Example: robaudit gate runs/spec-1a2b3c4d "mean(estimator=mc) >= 0.9" "worst_class >= 0.7"
    """
    from robaudit.cli.console import say
    from robaudit.gates.decide import Covers, decide
    from robaudit.gates.sources import confidence_of, find_rules, gates_of
    from robaudit.report.ci.document import Subject
    from robaudit.store.run import read_run
    from robaudit.text import printable

    opened = read_run(run)
    of_run = gates_of(opened)
    rules = find_rules(gates or (), spec=spec, pyproject=pyproject, of_run=of_run, strict=strict)
    each = confidence_of(of_run.record, confidence, rules.confidence)
    decisions = decide(
        opened,
        rules.gates,
        population=population or bool(rules.population),
        point=point or bool(rules.point) or (rules.where == of_run.where and of_run.point),
        confidence=each,
        strict=strict,
    )
    if rules.where != "the command line":
        say(f"gates of {printable(rules.where)}")
    if of_run.record is not None and confidence is None:
        say(f"this run was sampled until its gates were decided: each interim analysis, and so every gate, is at {100 * each:.3g} %")
    if skipped := opened.info["totals"]["skipped"]:
        say(f"{skipped} samples were skipped: the gates say nothing about them")
    if any(one.more is not None and one.covers is Covers.MEASUREMENT for one in decisions):
        say("deciding again after more draws adds to the error probability: robaudit estimate --until-decided accounts for it")
    counts: Verdict = inconclusive.value if inconclusive is not None else rules.inconclusive or "inconclusive"
    raise typer.Exit(report_gates(decisions, counts, format_, output, Subject.of(opened.info, "gate")))


def report_gates(decisions: Sequence[Decision], inconclusive: Verdict, format_: GateFormat, output: Path | None, subject: Subject) -> int:
    """Print the decisions or write them to the file of ``-o``; return the exit code."""
    from robaudit.cli.streams import emit
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.report.ci import github, junit
    from robaudit.report.ci.document import gates_json

    if format_ is GateFormat.TEXT:
        _print_text(decisions, inconclusive, subject, output)
    else:
        render = {GateFormat.JSON: gates_json, GateFormat.JUNIT: junit, GateFormat.GITHUB: github}[format_]
        text = render(decisions, subject, inconclusive=inconclusive)
        emit(text.encode() if format_ is GateFormat.GITHUB else text, output)  # its lines are commands; what they hold is escaped
    if format_ is GateFormat.GITHUB:
        summarise(decisions, subject, inconclusive)
    return EXIT_CODES[overall(decisions, inconclusive)]


def summarise(decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict, more: str = "") -> None:
    """Append the gates, and more Markdown, to the step summary if this is a GitHub job."""
    from robaudit.cli.console import say
    from robaudit.cli.streams import append_step_summary
    from robaudit.report.ci.github import step_summary

    problem = append_step_summary(step_summary(decisions, subject, inconclusive=inconclusive) + (f"\n{more}" if more else ""))
    if problem is not None:
        say(f"warning: {problem}")


def _print_text(decisions: Sequence[Decision], inconclusive: Verdict, subject: Subject, to: Path | None) -> None:
    """Print the run's warnings and one line per gate; on a terminal, the verdict at its beginning is coloured."""
    from rich.text import Text

    from robaudit.cli.console import output
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.gates.text import lines
    from robaudit.text import printable

    warnings = [printable(f"warning: {text}") for text in subject.untold(decisions)]
    verdicts = lines(decisions, inconclusive)
    if to is not None or not output().is_terminal:
        emit("".join(f"{line}\n" for line in [*warnings, *(line for _, line in verdicts)]), to)
        return
    colours = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
    with reader_may_leave():
        for line in warnings:
            output().print(Text(line, "yellow"), soft_wrap=True)
        for verdict, line in verdicts:
            shown = Text(line)
            shown.stylize(f"bold {colours[verdict]}", 0, line.index(verdict) + len(verdict))
            output().print(shown, soft_wrap=True)
