"""`robaudit compare`: changes between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit.cli.options import (
    ConfidenceOption,
    EstimatorFilter,
    InconclusiveOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    PointOption,
    PopulationOption,
    SigmaFilter,
    ThresholdOption,
    levels,
)
from robaudit.errors import SpecError
from robaudit.settings import GATES, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.decide import Verdict
    from robaudit.runs.run import Run


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="A run folder: the reference.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A run folder on the same samples.")],
    gates: Annotated[
        list[str] | None,
        typer.Option(
            "--gate",
            metavar="GATE",
            rich_help_panel=GATES,
            help='A condition to meet: "mean_drop(sigma=0.05) <= 0.01" (repeatable).',
        ),
    ] = None,
    threshold: ThresholdOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    population: PopulationOption = False,
    point: PointOption = False,
    confidence: ConfidenceOption = None,
    inconclusive: InconclusiveOption = None,
    format_: Annotated[
        Literal["table", "csv", "json", "md", "junit", "github"],
        typer.Option("--format", rich_help_panel=OUTPUT, help="Output format."),
    ] = "table",
    output: OutputOption = None,
) -> None:
    """Compare a new run with a base run, sample by sample and on the same noise draws: exit code 0,
    or 1 and 4 by the gates.

    Quantities of gates: mean_drop, worst_class_drop, accuracy_drop, noisy_accuracy_drop,
    newly_flagged, share_worse.

    Example: robaudit compare runs/old runs/new --gate "mean_drop(estimator=mc, sigma=0.05) <= 0.01"
    """
    from rich.text import Text

    from robaudit.cli.console import leading_warnings, show
    from robaudit.cli.gate import summarise
    from robaudit.cli.output_streams import check_output, emit
    from robaudit.compare.difference import compare as compare_runs
    from robaudit.compare.gate_changes import QUANTITIES, decide
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.gates.decision_text import lines
    from robaudit.report.ci.document import CompareDocument, Subject, json_text
    from robaudit.report.ci.github import github, step_summary
    from robaudit.report.ci.junit import junit
    from robaudit.report.comparison_tables import comparison_tables, csv_text
    from robaudit.report.tables import Terminal, markdown_text
    from robaudit.runs.run import read_run
    from robaudit.spec.gate_grammar import parse_gate

    if format_ in ("junit", "github") and not gates:
        raise SpecError(
            f"--format {format_}",
            "there is no gate to report",
            'add one, for example --gate "mean_drop <= 0.01"',
        )
    chosen = levels(noise, level, sigma)
    conditions = [parse_gate(text, QUANTITIES, "--gate") for text in gates or ()]
    if output is not None:
        check_output(output)
    runs = base_run, new_run = read_run(base, kept=True), read_run(new, kept=True)
    confidence = _confidence(runs, confidence)
    comparison = compare_runs(
        base_run,
        new_run,
        estimators=estimator or (),
        levels=chosen,
        below=threshold,
        confidence=confidence,
    )
    decisions = decide(comparison, conditions, population=population, point=point)
    counts_as: Verdict = inconclusive or "inconclusive"
    subject = Subject.of(
        new_run.info, "compare", Subject.of(base_run.info, "compare"), comparison.left_out()
    )
    names = new_run.class_names or base_run.class_names
    tables = list(comparison_tables(comparison, base_run.info, new_run.info, names))
    if format_ == "table":
        verdicts = [Text(line) for _, line in lines(decisions, counts_as)] if decisions else []
        show(*leading_warnings(runs, in_table=True), Terminal(tables), *verdicts, to=output)
    elif format_ == "csv":
        emit(csv_text(comparison), output)
    elif format_ == "json":
        emit(
            json_text(
                CompareDocument.of(decisions, subject, counts_as, comparison=comparison).document(
                    names
                )
            ),
            output,
        )
    elif format_ == "md":
        markdown = (
            "\n" + step_summary(decisions, subject, inconclusive=counts_as) if decisions else ""
        )
        emit((markdown_text(tables) + markdown).encode(), output)
    elif format_ == "junit":
        emit(junit(decisions, subject, inconclusive=counts_as), output)
    else:
        emit(github(decisions, subject, inconclusive=counts_as).encode(), output)
        summarise(decisions, subject, counts_as, markdown_text(tables))
    if decisions:
        raise typer.Exit(EXIT_CODES[overall(decisions, counts_as)])


def _confidence(runs: Sequence[Run], option: float | None) -> float:
    """The confidence of ``--confidence``, else of one interim analysis if a run was sampled until
    its gates were decided, else 0.95."""
    from robaudit.cli.console import say
    from robaudit.gates.sources import confidence_of

    confidence = max(confidence_of(run.info, option) for run in runs)
    if option is None and any(run.info.until_decided for run in runs):
        say(
            "a run was sampled until its gates were decided, so every interval is at "
            f"{100 * confidence:.3g} %"
        )
    return confidence
