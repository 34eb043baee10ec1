"""`robaudit compare`: changes between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import (
    BelowOption,
    ConfidenceOption,
    EstimatorFilter,
    GatesOption,
    InconclusiveOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    PointOption,
    PopulationOption,
    SigmaFilter,
    levels,
)
from robaudit.errors import SpecError
from robaudit.levels import LevelChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from robaudit.gates.decide import Decision, Verdict
    from robaudit.report.ci.document import Subject
    from robaudit.store.run import Run


class CompareFormat(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"
    JUNIT = "junit"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class _Selection:
    """What is compared: estimators and noise levels (none: all), and the threshold for flagged samples."""

    estimators: Sequence[str]
    levels: LevelChoice
    below: float | None


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="A run folder: the reference.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A run folder on the same samples.")],
    gates: GatesOption = None,
    below: BelowOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    population: PopulationOption = False,
    point: PointOption = False,
    confidence: ConfidenceOption = None,
    inconclusive: InconclusiveOption = None,
    format_: Annotated[CompareFormat, typer.Option("--format", help="Output format.")] = CompareFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Compare a new run with a base run, sample by sample and on the same noise draws: exit code 0, or 1 and 4 by the gates.

    Quantities of gates: mean_drop, worst_class_drop, accuracy_drop, noisy_accuracy_drop, newly_flagged, share_worse.

    Example: robaudit compare runs/old runs/new --gate "mean_drop(estimator=mc, sigma=0.05) <= 0.01"
    """
    if format_ in (CompareFormat.JUNIT, CompareFormat.GITHUB) and not gates:
        raise SpecError(f"--format {format_}", "there is no gate to report", 'add one, for example --gate "mean_drop <= 0.01"')
    selection = _Selection(estimator or (), levels(noise, level, sigma), below)
    counts: Verdict = "inconclusive" if inconclusive is None else inconclusive.value
    raise typer.Exit(_compare(base, new, gates or (), selection, population, point, confidence, counts, format_, output))


def _compare(
    base_path: Path,
    new_path: Path,
    gates: Sequence[str],
    selection: _Selection,
    population: bool,
    point: bool,
    confidence: float | None,
    inconclusive: Verdict,
    format_: CompareFormat,
    output: Path | None,
) -> int:
    """Compare two runs, print the comparison and return the exit code."""
    from robaudit.cli.gate import summarise
    from robaudit.cli.streams import emit
    from robaudit.compare.difference import compare as compare_runs
    from robaudit.compare.gates import QUANTITIES, decide
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.report.ci.document import Subject, json_text
    from robaudit.report.ci.github import step_summary
    from robaudit.report.comparison import comparison_document, comparison_tables, csv_text
    from robaudit.report.tables import Terminal, markdown_text
    from robaudit.spec.gates import parse_gate
    from robaudit.store.run import read_run

    asked = [parse_gate(text, QUANTITIES, "--gate") for text in gates]
    base, new = read_run(base_path, kept=True), read_run(new_path, kept=True)
    sure = _confidence((base, new), confidence)
    comparison = compare_runs(base, new, estimators=selection.estimators, levels=selection.levels, below=selection.below, confidence=sure)
    decisions = decide(comparison, asked, population=population, point=point)
    subject = Subject.of(new.info, "compare", Subject.of(base.info, "compare"), comparison.left_out())
    names = new.class_names or base.class_names
    tables = list(comparison_tables(comparison, base.info, new.info, names))
    if format_ is CompareFormat.TABLE:
        _emit_table(Terminal(tables), (base, new), decisions, inconclusive, output)
    elif format_ is CompareFormat.CSV:
        emit(csv_text(comparison), output)
    elif format_ is CompareFormat.JSON:
        emit(json_text(comparison_document(comparison, decisions, subject, inconclusive, names)), output)
    elif format_ is CompareFormat.MD:
        verdicts = "\n" + step_summary(decisions, subject, inconclusive=inconclusive) if decisions else ""
        emit((markdown_text(tables) + verdicts).encode(), output)
    else:
        _emit_gates(format_, decisions, subject, inconclusive, output)
    if format_ is CompareFormat.GITHUB:
        summarise(decisions, subject, inconclusive, markdown_text(tables))
    return EXIT_CODES[overall(decisions, inconclusive)] if decisions else 0


def _confidence(runs: Sequence[Run], option: float | None) -> float:
    """The confidence of ``--confidence``, else of one interim analysis if a run was sampled until its gates were decided, else 0.95."""
    from robaudit.cli.console import say
    from robaudit.gates.interim import read_record
    from robaudit.gates.sources import confidence_of

    records = [None if option is not None else read_record(run.path, run.info) for run in runs]
    confidence = max(confidence_of(one, option, None) for one in records)
    if any(records):
        say(f"a run was sampled until its gates were decided: each interim analysis, and so every interval, is at {100 * confidence:.3g} %")
    return confidence


def _emit_gates(
    format_: CompareFormat, decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict, output: Path | None
) -> None:
    from robaudit.cli.streams import emit
    from robaudit.report.ci import github, junit

    if format_ is CompareFormat.JUNIT:
        emit(junit(decisions, subject, inconclusive=inconclusive), output)
    else:
        emit(github(decisions, subject, inconclusive=inconclusive).encode(), output)


def _emit_table(shown: RenderableType, runs: Sequence[Run], decisions: Sequence[Decision], inconclusive: Verdict, to: Path | None) -> None:
    """Print a table with the gates below it, or write both to a file."""
    from rich.console import Group
    from rich.text import Text

    from robaudit.cli.console import leading_warnings, show
    from robaudit.gates.text import lines

    verdicts = [Text(line, no_wrap=True, overflow="ignore") for _, line in lines(decisions, inconclusive)] if decisions else []
    show(Group(*leading_warnings(runs, in_table=True), shown), *verdicts, to=to)
