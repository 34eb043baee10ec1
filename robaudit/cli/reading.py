"""Commands that read a run: `robaudit show`, `bias-report`, `flag-samples` and `export`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robaudit.cli.options import (
    BelowOption,
    DataOption,
    DataTrustOption,
    EstimatorFilter,
    FormatOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    RunArgument,
    SigmaFilter,
    TextFormat,
    image_source,
    levels,
)
from robaudit.errors import SpecError
from robaudit.levels import EVERY_LEVEL, LevelChoice, NoiseLevel

if TYPE_CHECKING:
    from rich.console import RenderableType

    from robaudit.rows import Row
    from robaudit.store.run import Run

Key = tuple[str, NoiseLevel]


class By(StrEnum):
    """The class that a sample counts towards."""

    LABEL = "label"
    PREDICTED = "predicted"


class Only(StrEnum):
    """Which samples to look at."""

    CORRECT = "correct"
    WRONG = "wrong"


class RowsFormat(StrEnum):
    """How rows are written."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def show(
    run: RunArgument, estimator: EstimatorFilter = None, noise: NoiseFilter = None, level: LevelFilter = None, sigma: SigmaFilter = None
) -> None:
    """Print the tables of a finished run again.

    Example: robaudit show runs/spec-1a2b3c4d
    """
    from robaudit.store.run import read_run

    print_run(read_run(run), estimator or (), levels(noise, level, sigma))


def print_run(run: Run, estimators: Sequence[str] = (), levels: LevelChoice = EVERY_LEVEL) -> None:
    """Print the header, the tables and the paths of the files."""
    from rich.markup import escape

    from robaudit.cli.console import output
    from robaudit.report.summary_tables import headline, overall_tables, warning_lines

    console = output()
    groups = {(group.key.estimator, group.key.at): group for group in run.summary()}
    chosen = [groups[key] for key in run.chosen(groups, estimators, levels)]
    for line in (*warning_lines(run.info), *headline(run.info)):
        console.print(escape(line))
    console.print()
    seconds = {key: spent for key in groups if (spent := run.seconds_of(*key)) is not None}
    console.print(overall_tables(chosen, seconds, run.quantities))
    console.print()
    console.print(escape(f"Files: {run.path}/samples.csv, samples.json, summary.json, run.json"))


def bias_report(
    run: RunArgument,
    by: Annotated[
        By | None, typer.Option(help="Group samples by their label or by the predicted class. Default: label, where there are labels.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Report the share of samples whose value is below this. Default: 0.9 for quantities from 0 to 1.")
    ] = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Report robustness by class, the gap between the least and the most robust class, and whether it is significant.

    Each estimator and noise level is reported separately; they are never pooled.

    Example: robaudit bias-report runs/spec-1a2b3c4d --estimator mc --sigma 0.05
    """
    from robaudit.report.class_tables import bias_csv, bias_table
    from robaudit.stats.classes import class_bias
    from robaudit.store.run import read_run

    opened = read_run(run)
    labels = by is By.LABEL if by else bool(opened.info["data"]["labelled"])
    results = [
        class_bias(
            rows,
            by="label" if labels else "predicted",
            threshold=threshold,
            class_names=opened.class_names,
            quantity=opened.quantities[rows[0].quantity],
        )
        for rows in opened.groups(estimator or (), levels(noise, level, sigma)).values()
    ]
    tables = [bias_table(one, opened.quantities[one.key.quantity]) for one in results]
    _emit_groups(format_, tables, lambda: [bias_csv(one) for one in results], [one.document() for one in results], output, opened)


def flag_samples(
    run: RunArgument,
    below: BelowOption = None,
    bottom: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="List the N least robust samples instead, below the threshold or not.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, metavar="N", help="Also list the N most robust samples.")] = None,
    per_class: Annotated[bool, typer.Option("--per-class", help="Make a list for each predicted class.")] = False,
    only: Annotated[Only | None, typer.Option(help="Only samples classified correctly, or wrongly, without noise.")] = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write each listed sample as a PNG, clean beside noisy.")] = None,
    data: DataOption = None,
    trust: DataTrustOption = False,
) -> None:
    """List the non-robust samples, least robust first, and say for which the whole interval is below the threshold.

    Example: robaudit flag-samples runs/spec-1a2b3c4d --below 0.9 --only correct --images worst/
    """
    source = image_source(data, trust)
    from robaudit.report.flag_tables import flags_csv, flags_table
    from robaudit.stats.flags import flag, usual_threshold
    from robaudit.store.run import read_run

    opened = read_run(run)
    groups: Mapping[Key, Sequence[Row]] = opened.groups(estimator or (), levels(noise, level, sigma))
    if below is None and bottom is None and top is None:
        groups = _with_threshold(opened, groups)
    results = [
        flag(
            rows,
            below=usual_threshold(opened.quantities[rows[0].quantity]) if below is None else below,
            bottom=bottom,
            top=top,
            per_class=per_class,
            only=None if only is None else only.value,
            quantity=opened.quantities[rows[0].quantity],
        )
        for rows in groups.values()
    ]
    names = opened.class_names
    tables = [flags_table(one, names, opened.quantities[one.key.quantity]) for one in results]
    documents = [one.document(names) for one in results]
    _emit_groups(format_, tables, lambda: [flags_csv(one, names) for one in results], documents, output, opened)
    if images is not None:
        from robaudit.cli.console import say
        from robaudit.report.gallery import write_gallery

        say(f"{write_gallery(opened, results, images, source)} pictures in {images}")


def _with_threshold(run: Run, groups: Mapping[Key, Sequence[Row]]) -> dict[Key, Sequence[Row]]:
    """The groups whose quantity has a usual threshold; a line names the others.

    Raises:
        SpecError: none has.
    """
    from robaudit.cli.console import say
    from robaudit.stats.flags import usual_threshold

    kept = {key: rows for key, rows in groups.items() if math.isfinite(usual_threshold(run.quantities[rows[0].quantity]))}
    lacking = ", ".join(dict.fromkeys(key[0] for key in groups if key not in kept))
    if groups and not kept:
        raise SpecError("flag-samples", f"{lacking} has no usual threshold", "give --below, or list the least robust with --bottom 10")
    if lacking:
        say(f"left out: {lacking}, without a usual threshold: give --below, or --bottom 10")
    return kept


def corruption_report(
    run: RunArgument,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="alexnet|RUN", help="Also print mCE: errors relative to AlexNet on ImageNet-C, or to another run's."),
    ] = None,
    estimator: Annotated[str | None, typer.Option(help="By the votes of this estimator. Default: the first that counts votes.")] = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Report accuracy by corruption and severity, the mean error and, against a baseline, the mean corruption error (mCE).

    It reads the noises of a run whose level is a severity: the kinds corruption and corrupted_set.

    Example: robaudit corruption-report runs/imagenet-c-1a2b3c4d --baseline alexnet
    """
    from robaudit.report.corruption_tables import corruption_csv, corruption_table
    from robaudit.stats.corruption import ALEXNET, baseline_of
    from robaudit.stats.corruption import corruption_report as report_of
    from robaudit.store.run import read_run

    opened, against = read_run(run), None
    if baseline == "alexnet":
        against = "AlexNet", ALEXNET
    elif baseline is not None:
        other = read_run(Path(baseline))
        against = other.info["name"], baseline_of(report_of(other.info, estimator, None, baseline))
    report = report_of(opened.info, estimator, against, str(run))
    _emit_groups(format_, [corruption_table(report)], lambda: [corruption_csv(report)], [report.document()], output, opened)


def _emit_groups(
    format_: TextFormat,
    tables: Sequence[RenderableType],
    csv: Callable[[], Sequence[str]],
    documents: Sequence[dict[str, Any]],
    to: Path | None,
    run: Run,
) -> None:
    """Print or write one report of several groups of a run; the CSV texts of all groups share one header."""
    from robaudit.cli.console import leading_warnings, output, plain_text
    from robaudit.cli.streams import emit
    from robaudit.store.serialise import document_json

    tables = [*leading_warnings([run], in_table=format_ is TextFormat.TABLE), *tables]
    if format_ is TextFormat.JSON:
        emit(document_json({"groups": list(documents)}), to)
    elif format_ is TextFormat.CSV:
        first, *others = csv()
        emit(first + "".join(text.partition("\n")[2] for text in others), to)
    elif to is not None:
        emit(plain_text(*tables), to)
    else:
        for table in tables:
            output().print(table)


def export(
    run: RunArgument,
    format_: Annotated[
        RowsFormat | None,
        typer.Option(
            "--format", help="As in samples.csv or samples.json, or those of samples.csv typed. Default: by the suffix of -o, else csv."
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Write the rows of a run as in samples.csv or samples.json, or as a Parquet table; if the run is unfinished, those it has so far.

    pandas, polars and DuckDB read the Parquet file as it is (it needs: pip install 'robaudit[parquet]').

    Example: robaudit export runs/spec-1a2b3c4d -o rows.parquet
    """
    from robaudit.cli.console import say
    from robaudit.cli.streams import check_output, put, write_output
    from robaudit.errors import RobauditError
    from robaudit.store.folder import RunFolder
    from robaudit.store.run import read_run
    from robaudit.store.serialise import rows_csv_chunks, rows_json_chunks
    from robaudit.store.table import parquet_pieces

    if output is not None:
        check_output(output)
    chosen = format_ or _format_by_suffix(output)
    if chosen is RowsFormat.PARQUET and output is None and sys.stdout.isatty():
        raise RobauditError("robaudit export", "a Parquet file cannot be shown on a terminal", "name a file with -o")
    folder = RunFolder(run)
    info = folder.info()
    finished = info["status"] == "complete"
    rows = read_run(run, kept=chosen is RowsFormat.JSON).rows if finished else folder.rows_so_far()
    names = info["data"]["class_names"]
    pieces: Iterable[str | bytes]
    if chosen is RowsFormat.PARQUET:
        pieces = parquet_pieces(rows, names, where="--format parquet")
    elif chosen is RowsFormat.CSV:
        pieces = rows_csv_chunks(rows, names)
    else:
        pieces = rows_json_chunks(rows)
    if output is None:
        put(pieces)
    else:
        write_output(output, pieces)
    if not finished:
        say(f"note: {run} is unfinished: these are the {len(rows)} rows it has so far")


def _format_by_suffix(output: Path | None) -> RowsFormat:
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return RowsFormat(suffix) if suffix in set(RowsFormat) else RowsFormat.CSV
