"""`robaudit compare`: changes between two runs, or since the findings of a run were accepted."""

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
from robaudit.errors import RunError, SpecError
from robaudit.levels import LevelChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from robaudit.compare.accepted import BaselineReport
    from robaudit.gates.decide import Decision, Verdict
    from robaudit.report.ci.document import Subject
    from robaudit.store.run import Run


class Include(StrEnum):
    """Which samples below the threshold count as findings."""

    CONFIRMED = "confirmed"
    ALL = "all"


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
    runs: Annotated[list[Path], typer.Argument(metavar="BASE NEW", help="Two run folders on the same samples; with --baseline only NEW.")],
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
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of BASE: a JSON file of accepted findings; exit code 1 if there is a new one."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="With --baseline: write the findings of this run to the file.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="With --update: drop findings whose sample or result is not in this run.")] = False,
    include: Annotated[
        Include | None,
        typer.Option(
            help="With --baseline: which samples are findings, those whose whole interval is below the threshold or all whose value is. "
            "Default: as in the file, else confirmed."
        ),
    ] = None,
    format_: Annotated[CompareFormat, typer.Option("--format", help="Output format.")] = CompareFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Compare a new run with a base run, sample by sample and on the same noise draws: exit code 0, or 1 and 4 by the gates.

    Quantities of gates: mean_drop, worst_class_drop, accuracy_drop, noisy_accuracy_drop, newly_flagged, share_worse.

    Example: robaudit compare runs/old runs/new --gate "mean_drop(estimator=mc, sigma=0.05) <= 0.01"
    """
    _check_options(len(runs), gates, baseline, update, prune, include, format_)
    selection = _Selection(estimator or (), levels(noise, level, sigma), below)
    if baseline is not None:
        raise typer.Exit(_against_baseline(runs[0], baseline, selection, include, update, prune, format_, output))
    counts: Verdict = "inconclusive" if inconclusive is None else inconclusive.value
    raise typer.Exit(_compare(runs[0], runs[1], gates or (), selection, population, point, confidence, counts, format_, output))


def _check_options(
    runs: int,
    gates: Sequence[str] | None,
    baseline: Path | None,
    update: bool,
    prune: bool,
    include: Include | None,
    format_: CompareFormat,
) -> None:
    """Refuse options that contradict each other.

    Raises:
        SpecError: they do.
    """
    wanted = 1 if baseline is not None else 2
    if runs != wanted:
        expected = "--baseline compares one run" if wanted == 1 else "two runs are compared"
        raise SpecError("robaudit compare", f"{expected}, not {runs}", "write: robaudit compare BASE NEW, or --baseline FILE NEW")
    if baseline is None and (update or include is not None):
        raise SpecError("--update" if update else "--include", "needs --baseline FILE", "name the file of accepted findings")
    if prune and not update:
        raise SpecError("--prune", "needs --update", "write: robaudit compare --baseline FILE NEW --update --prune")
    if baseline is not None and gates:
        raise SpecError("--gate", "cannot be used with --baseline", "gates compare two runs: robaudit compare BASE NEW --gate ...")
    if baseline is not None and format_ in (CompareFormat.CSV, CompareFormat.MD):
        raise SpecError(f"--format {format_}", "cannot be used with --baseline", "use table, json, junit or github")
    if baseline is None and format_ in (CompareFormat.JUNIT, CompareFormat.GITHUB) and not gates:
        raise SpecError(f"--format {format_}", "there is no gate to report", 'add one, for example --gate "mean_drop <= 0.01"')


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
    from robaudit.report.comparison import comparison_document, comparison_tables, csv_text, markdown_text
    from robaudit.report.tables import Terminal
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
        _emit_table(Terminal(lambda _: tables), (base, new), decisions, inconclusive, output)
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


def _against_baseline(
    path: Path,
    baseline: Path,
    selection: _Selection,
    include: Include | None,
    update: bool,
    prune: bool,
    format_: CompareFormat,
    output: Path | None,
) -> int:
    """Compare a run's findings with the file of accepted ones, print the result and return the exit code.

    Raises:
        RunError: the file is damaged, or does not exist and --update is not given.
    """
    import math

    from robaudit.cli.gate import summarise
    from robaudit.cli.streams import emit
    from robaudit.compare.accepted import against_accepted, decisions, read_accepted
    from robaudit.gates.decide import EXIT_CODES, overall
    from robaudit.report.ci.document import Subject, decisions_document, json_text
    from robaudit.report.comparison import baseline_table
    from robaudit.report.tables import Terminal
    from robaudit.store.run import read_run

    accepted = read_accepted(baseline)
    if accepted is None and not update:
        raise RunError(str(baseline), "no such file", "add --update to write it from the findings of this run")
    run = read_run(path)
    wanted = include.value if include is not None else "confirmed" if accepted is None else accepted.include
    report = against_accepted(run, accepted, selection.below, selection.estimators, selection.levels, every=wanted == "all")
    groups = run.chosen(dict.fromkeys((row.estimator, row.at) for row in run.rows), selection.estimators, selection.levels)
    decided = decisions(report, groups, accepting=update)
    not_finite = sum(not math.isfinite(row.value) for row in run.rows if (row.estimator, row.at) in groups)
    subject = Subject.of(run.info, "compare", left_out={"not_finite": not_finite})
    if format_ is CompareFormat.TABLE:
        table = baseline_table(report, run.class_names)
        _emit_table(Terminal(lambda _: [table]), (run,), decided, "inconclusive", output)
    elif format_ is CompareFormat.JSON:
        document = {**decisions_document(decided, subject), "baseline": report.document(run.class_names)}
        emit(json_text(document), output)
    else:
        _emit_gates(format_, decided, subject, "inconclusive", output)
    if format_ is CompareFormat.GITHUB:
        summarise(decided, subject, "inconclusive")
    if not update:
        return EXIT_CODES[overall(decided)]
    _accept(run, baseline, report, wanted, prune)
    return 0


def _accept(run: Run, baseline: Path, report: BaselineReport, include: str, prune: bool) -> None:
    """Write a run's findings to the file of accepted ones."""
    from robaudit.cli.console import say
    from robaudit.compare.accepted import write_accepted
    from robaudit.compare.matching import described
    from robaudit.text import count

    model = run.info["model"]
    header = {"model": {"name": model["name"], "sha256": model["sha256"]}, "noises": dict(described(run).noises), "include": include}
    kept = report.accepted_now(prune=prune)
    write_accepted(baseline, header, report.thresholds, kept)
    say(f"{baseline}: {len(kept)} accepted findings")
    if unknown := report.of("unknown"):
        say(f"{count(len(unknown), 'result')} skipped or without a finite value: not accepted, though they may be findings")


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

    from robaudit.cli.console import leading_warnings, output, plain_text
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.gates.text import lines

    shown = Group(*leading_warnings(runs, in_table=True), shown)
    verdicts = Group(*(Text(line) for _, line in lines(decisions, inconclusive))) if decisions else Group()
    if to is not None:
        emit(plain_text(shown) + plain_text(verdicts, soft_wrap=True), to)
        return
    with reader_may_leave():
        output().print(shown)
        output().print(verdicts, soft_wrap=True)
