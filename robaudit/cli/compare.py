"""`robaudit compare`: changes between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit import settings
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
    option,
)
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.compare.result import Comparison
    from robaudit.gates.decide import Decision, Verdict
    from robaudit.runs.run import Run

Format = Literal["table", "csv", "json", "md", "junit", "github"]


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="A run folder: the reference.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A run folder on the same samples.")],
    gates: Annotated[
        list[str] | None,
        option(
            settings.GATE,
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
    format_: Annotated[Format, option(settings.FORMAT)] = "table",
    output: OutputOption = None,
) -> None:
    """Compare a new run with a base run, sample by sample and on the same noise draws: exit code 0,
    or 1 and 4 by the gates.

    Quantities of gates: mean_drop, worst_class_drop, accuracy_drop, noisy_accuracy_drop,
    newly_flagged, share_worse.

    Example: robaudit compare runs/old runs/new --gate "mean_drop(estimator=mc, sigma=0.05) <= 0.01"
    """
    from robaudit.cli.output_streams import check_output
    from robaudit.compare.difference import compare as compare_runs
    from robaudit.compare.gate_changes import QUANTITIES, decide
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.spec.gate_grammar import parse_gate
    from robaudit.stats.reading import read_run

    if format_ in ("junit", "github") and not gates:
        raise SpecError(
            f"--format {format_}",
            "there is no gate to report",
            'add one, for example --gate "mean_drop <= 0.01"',
        )
    # Everything that can be refused without reading the runs, which may be large.
    level_choice = levels(noise, level, sigma)
    conditions = [parse_gate(text, QUANTITIES, settings.GATE.flag) for text in gates or ()]
    if output is not None:
        check_output(output)
    # With the draws that kept the class: two runs are compared draw by draw.
    base_run = read_run(base, kept=True)
    new_run = read_run(new, kept=True)
    comparison = compare_runs(
        base_run,
        new_run,
        estimators=estimator or (),
        levels=level_choice,
        below=threshold,
        confidence=_confidence((base_run, new_run), confidence),
    )
    decisions = decide(comparison, conditions, population=population, point=point)
    counts_as: Verdict = inconclusive or "inconclusive"
    _write(base_run, new_run, comparison, decisions, counts_as, format_, output)
    # Without gates a difference is information, and the command succeeds.
    if decisions:
        raise typer.Exit(EXIT_CODES[overall(decisions, counts_as)])


def _write(
    base: Run,
    new: Run,
    comparison: Comparison,
    decisions: Sequence[Decision],
    counts_as: Verdict,
    format_: Format,
    output: Path | None,
) -> None:
    """Print the comparison and the gates, or write them to the file of ``-o``.

    Args:
        base: the reference.
        new: the run compared with it.
        comparison: of the two.
        decisions: on the gates; may be empty.
        counts_as: what an inconclusive gate counts as.
        format_: of the output.
        output: the file; None: standard output.
    """
    from rich.text import Text

    from robaudit.cli.console import leading_warnings, show
    from robaudit.cli.gate import summarise
    from robaudit.cli.output_streams import emit
    from robaudit.gates.decision_text import lines
    from robaudit.report.ci.document import CompareDocument, Subject, json_text
    from robaudit.report.ci.github import github, step_summary
    from robaudit.report.ci.junit import junit
    from robaudit.report.comparison_tables import comparison_tables, csv_text
    from robaudit.report.tables import Terminal, markdown_text

    base_subject = Subject.from_info(base.info, "compare")
    subject = Subject.from_info(new.info, "compare", base_subject, comparison.left_out())
    names = new.class_names or base.class_names
    tables = list(comparison_tables(comparison, base.info, new.info, names))
    if format_ == "table":
        warnings = leading_warnings((base, new), in_table=True)
        verdicts = [Text(line) for _, line in lines(decisions, counts_as)] if decisions else []
        show(*warnings, Terminal(tables), *verdicts, to=output)
    elif format_ == "csv":
        emit(csv_text(comparison), output)
    elif format_ == "json":
        document = CompareDocument.from_decisions(
            decisions, subject, counts_as, comparison=comparison
        )
        emit(json_text(document.document(names)), output)
    elif format_ == "md":
        markdown = markdown_text(tables)
        if decisions:
            markdown += "\n" + step_summary(decisions, subject, inconclusive=counts_as)
        # As bytes: Markdown escapes what it holds.
        emit(markdown.encode(), output)
    elif format_ == "junit":
        emit(junit(decisions, subject, inconclusive=counts_as), output)
    else:
        # As bytes: its lines are commands, and what they hold is escaped.
        emit(github(decisions, subject, inconclusive=counts_as).encode(), output)
        summarise(decisions, subject, counts_as, markdown_text(tables))


def _confidence(runs: Sequence[Run], option: float | None) -> float:
    """The confidence of the intervals, and a note where a run chooses it.

    It is the value of ``--confidence``, else that of one interim analysis if a run was sampled
    until its gates were decided, else 0.95.
    """
    from robaudit.cli.console import say
    from robaudit.gates.sources import confidence_of

    confidence = max(confidence_of(run.info, option) for run in runs)
    if option is None and any(run.info.until_decided for run in runs):
        say(
            "a run was sampled until its gates were decided, so every interval is at "
            f"{100 * confidence:.3g} %"
        )
    return confidence
