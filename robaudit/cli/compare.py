"""`robaudit compare`: what has changed between two runs on the same samples?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.gate import ConfidenceOption, GatesOption, Inconclusive, PointOption, PopulationOption
from robaudit.cli.options import EstimatorFilter, OutputOption, SigmaFilter, sigmas
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.gates.result import Verdict
    from robaudit.store.run import Run


class Include(StrEnum):
    """Which samples below the threshold are findings."""

    SURELY = "surely"
    MAYBE = "maybe"


class CompareFormat(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"
    JUNIT = "junit"
    GITHUB = "github"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="BASE NEW", help="Two run folders on the same samples; with --baseline only NEW.")],
    gates: GatesOption = None,
    below: Annotated[
        float | None,
        typer.Option(help="The threshold of flagged samples. Default: 0.5; log10_p_fail: -0.3.", show_default=False),
    ] = None,
    estimator: EstimatorFilter = None,
    sigma: SigmaFilter = None,
    population: PopulationOption = False,
    point: PointOption = False,
    confidence: ConfidenceOption = None,
    inconclusive: Annotated[
        Inconclusive, typer.Option(help="What a gate counts as that cannot be told: exit 0, 1 or 4.")
    ] = Inconclusive.INCONCLUSIVE,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of BASE: a JSON file of accepted findings; exit 1 when there is a new one.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="With --baseline: write the findings of this run to the file.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="With --update: drop findings whose sample or result is not in this run.")] = False,
    include: Annotated[
        Include | None,
        typer.Option(help="With --baseline: findings are samples surely below the threshold, or all. Default: what the file says, surely."),
    ] = None,
    format_: Annotated[CompareFormat, typer.Option("--format", help="How to print it.")] = CompareFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Compare a new run with a base run, sample by sample and on the same noise draws: exit 0, or 1 and 4 by the gates.

    Quantities of gates: mean_drop, worst_class_drop, accuracy_drop, noisy_accuracy_drop, newly_flagged, share_worse.

    Example: robaudit compare runs/old runs/new --gate "mean_drop(estimator=mc, sigma=0.05) <= 0.01"
    """
    wanted = 1 if baseline is not None else 2
    if len(runs) != wanted:
        words = "with --baseline one run is compared" if wanted == 1 else "two runs are compared"
        raise SpecError("robaudit compare", f"{words}, not {len(runs)}", "write: robaudit compare BASE NEW, or --baseline FILE NEW")
    if baseline is None and (update or include is not None):
        raise SpecError("--update" if update else "--include", "goes with --baseline FILE", "name the file of accepted findings")
    if prune and not update:
        raise SpecError("--prune", "goes with --update", "write: robaudit compare --baseline FILE NEW --update --prune")
    if baseline is not None:
        from robaudit.cli.accepted import against_baseline

        if gates:
            raise SpecError("--gate", "does not go with --baseline", "gates compare two runs: robaudit compare BASE NEW --gate ...")
        if format_ in (CompareFormat.CSV, CompareFormat.MD):
            raise SpecError(f"--format {format_}", "does not go with --baseline", "use table, json, junit or github")
        code = against_baseline(
            runs[0],
            baseline,
            below,
            estimator or (),
            sigmas(sigma),
            include=include,
            update=update,
            prune=prune,
            format_=format_.value,
            output=output,
        )
        raise typer.Exit(code)
    if format_ in (CompareFormat.JUNIT, CompareFormat.GITHUB) and not gates:
        raise SpecError(f"--format {format_}", "there is no gate to report", 'add one, for example --gate "mean_drop <= 0.01"')
    raise typer.Exit(
        _compare(
            runs, gates or (), below, estimator or (), sigmas(sigma), population, point, confidence, inconclusive.value, format_, output
        )
    )


def _compare(
    runs: Sequence[Path],
    gates: Sequence[str],
    below: float | None,
    estimators: Sequence[str],
    levels: Sequence[float],
    population: bool,
    point: bool,
    confidence: float | None,
    inconclusive: Verdict,
    format_: CompareFormat,
    output: Path | None,
) -> int:
    """Compare two runs, print what was found, and return the exit code."""
    from robaudit.cli.compared import emit_table, emit_text, gates_text, markdown_gates, summarise
    from robaudit.compare.comparison import compare as compare_runs
    from robaudit.compare.gates import QUANTITIES, decide
    from robaudit.compare.sections import sections
    from robaudit.compare.texts import csv_text, json_text, markdown_text, table
    from robaudit.gates.formats import Subject
    from robaudit.gates.grammar import parse_gate
    from robaudit.gates.result import EXIT_CODES, overall
    from robaudit.store.run import read_run

    asked = [parse_gate(text, QUANTITIES, "--gate") for text in gates]
    base, new = (read_run(path, kept=True) for path in runs)
    sure = _confidence((base, new), confidence)
    found = compare_runs(base, new, estimators=estimators, sigmas=levels, below=below, confidence=sure)
    decisions = decide(found, asked, population=population, point=point)
    subject = Subject.of(new.info, "compare", Subject.of(base.info, "compare"), found.left_out())
    parts = sections(found, base.info, new.info, new.class_names or base.class_names)
    if format_ is CompareFormat.TABLE:
        emit_table(table(parts), decisions, inconclusive, output)
    else:
        text = {
            CompareFormat.CSV: lambda: csv_text(found),
            CompareFormat.JSON: lambda: json_text(found, decisions, subject, inconclusive),
            CompareFormat.MD: lambda: markdown_text(parts) + markdown_gates(decisions, subject, inconclusive),
        }.get(format_, lambda: gates_text(format_.value, decisions, subject, inconclusive))()
        emit_text(text, output)
    if format_ is CompareFormat.GITHUB:
        summarise(decisions, subject, inconclusive, markdown_text(sections(found, base.info, new.info, new.class_names)))
    if not decisions:
        return 0
    return EXIT_CODES[overall(decisions, inconclusive)]


def _confidence(runs: Sequence[Run], option: float | None) -> float:
    """That of ``--confidence``; else of one look, where a run was sampled until its gates were decided; else the usual one."""
    from robaudit.cli.console import messages
    from robaudit.gates.record import confidence_of, read_looks

    looks = [None if option is not None else read_looks(run.path, run.info) for run in runs]
    found = max(confidence_of(one, option, None) for one in looks)
    if any(looks):
        told = f"a run was sampled until gates were decided: each look, and so every interval, is at {100 * found:g} %"
        messages().print(told, markup=False)
    return found
