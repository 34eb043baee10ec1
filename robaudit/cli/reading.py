"""Commands that print a run: `robaudit show`, `bias-report` and `flag-samples`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from robaudit.cli.options import (
    DataOption,
    DataTrustOption,
    EstimatorFilter,
    FormatOption,
    LabelOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    RunArgument,
    SigmaFilter,
    ThresholdOption,
    image_source,
    levels,
)
from robaudit.errors import RobauditError, SpecError
from robaudit.report.sections import (
    CLASSES,
    FLAGGED,
    ROWS,
    SUMMARY,
    Entry,
    SectionRequest,
    refuse_unused,
    section_csv,
    section_json,
    section_names,
    section_of,
    section_options,
)
from robaudit.settings import RESULTS

if TYPE_CHECKING:
    from robaudit.report.tables import Terminal
    from robaudit.runs.rows import Row
    from robaudit.runs.run import Run


ShowFormat = Literal["table", "csv", "json", "md", "latex", "parquet"]
_CLASSES = "Section classes"
_FLAGGED = "Sections flagged and sample"

ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="label|predicted|COLUMN",
        rich_help_panel=_CLASSES,
        help="Group samples by their label, the predicted class, or a column of the data set. "
        "Default: label, where there are labels.",
    ),
]
ColumnsOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="SPEC.yaml",
        rich_help_panel=_CLASSES,
        help="With --by COLUMN: read the column from this spec's data set instead of the run's "
        "own.",
    ),
]
BottomOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=_FLAGGED,
        help="List the N least robust samples, whether or not they are below the threshold.",
    ),
]
OnlyOption = Annotated[
    Literal["correct", "wrong"] | None,
    typer.Option(
        rich_help_panel=_FLAGGED,
        help="Only samples classified correctly, or wrongly, without noise.",
    ),
]


def show(
    run: RunArgument,
    section: str = SUMMARY,
    with_: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="RUN",
            rich_help_panel=RESULTS,
            help="Show this run side by side with RUN (repeatable).",
        ),
    ] = None,
    label: LabelOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    by: ByOption = None,
    data: ColumnsOption = None,
    bottom: BottomOption = None,
    only: OnlyOption = None,
    id_: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            rich_help_panel=_FLAGGED,
            help="sample: this image, with its intervals (repeatable).",
        ),
    ] = None,
    format_: Annotated[
        ShowFormat | None,
        typer.Option(
            "--format",
            rich_help_panel="Output",
            help="Output format; parquet only for rows. Default: by the suffix of -o, else table "
            "(rows: csv).",
        ),
    ] = None,
    output: OutputOption = None,
    **options: list[str] | None,
) -> None:
    """Print a section of a run: its summary, classes, certified accuracy, error curves, one sample,
    all rows, ...

    sample: all results of the least robust images side by side, from the average over noise to what
    is proven. rows: samples.csv, or what an unfinished run has written so far.

    Example: robaudit show runs/spec-1a2b3c4d certified --radius 0.5 --with runs/other-5e6f7a8b
    """
    given = {name: texts for name, texts in options.items() if texts}
    known = {option.name: option for option in section_options()} if given else {}
    request = SectionRequest(
        estimators=tuple(estimator or ()),
        levels=levels(noise, level, sigma),
        threshold=threshold,
        by=by,
        data=image_source(data, False),
        only=only,
        bottom=bottom,
        id=tuple(id_ or ()),
        label=tuple(label or ()),
        options={name: known[name].read(texts, f"--{name}") for name, texts in given.items()},
    )
    _show(section, [run, *(with_ or ())], request, format_, output)


def show_with_section_options() -> Callable[..., None]:
    """:func:`show` with the installed sections in its help, and with their options in place of
    ``**options``, as typer reads them."""

    @functools.wraps(show)
    def command(**values: Any) -> None:
        show(**values)

    written = inspect.signature(show, eval_str=True).parameters
    parameters = {
        name: one for name, one in written.items() if one.kind is not inspect.Parameter.VAR_KEYWORD
    }
    names = section_names()
    known = typer.Argument(
        metavar="SECTION", help=f"What to show: {', '.join(names)}.", autocompletion=lambda: names
    )
    parameters["section"] = parameters["section"].replace(annotation=Annotated[str, known])
    for option, section in section_options().items():
        typed = typer.Option(
            metavar=option.metavar, rich_help_panel=f"Section {section}", help=option.help
        )
        parameters[option.name] = inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[list[str] | None, typed],
        )
    setattr(command, "__signature__", inspect.Signature(list(parameters.values())))  # noqa: B010  a function's own attribute
    command.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return command


def bias_report(
    run: RunArgument,
    by: ByOption = None,
    data: ColumnsOption = None,
    threshold: ThresholdOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = "table",
    output: OutputOption = None,
) -> None:
    """Report robustness by class, the gap between the least and the most robust class, and whether
    it is significant.

    Each estimator and noise level is reported separately; they are never pooled. It is the section
    classes of robaudit show.

    Example: robaudit bias-report runs/spec-1a2b3c4d --estimator mc --sigma 0.05
    """
    chosen = levels(noise, level, sigma)
    request = SectionRequest(
        tuple(estimator or ()), chosen, threshold, by, image_source(data, False)
    )
    _show(CLASSES, [run], request, format_, output)


def flag_samples(
    run: RunArgument,
    threshold: ThresholdOption = None,
    bottom: BottomOption = None,
    only: OnlyOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = "table",
    output: OutputOption = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel="Images",
            help="Also write each listed sample as a PNG, clean beside noisy.",
        ),
    ] = None,
    data: DataOption = None,
    trust: DataTrustOption = False,
) -> None:
    """List the non-robust samples, least robust first, and say for which the whole interval is
    below the threshold.

    It is the section flagged of robaudit show.

    Example: robaudit flag-samples runs/spec-1a2b3c4d --threshold 0.9 --only correct --images worst/
    """
    source = image_source(data, trust)
    request = SectionRequest(
        estimators=tuple(estimator or ()),
        levels=levels(noise, level, sigma),
        threshold=threshold,
        only=only,
        bottom=bottom,
    )
    entries = _show(FLAGGED, [run], request, format_, output)
    if images is not None:
        from robaudit.cli.console import say
        from robaudit.report.gallery import write_gallery

        say(
            f"{write_gallery(entries[0].run, [entry.record for entry in entries], images, source)} pictures in {images}"
        )


def print_run(run: Run) -> None:
    """Print the summary of a run, and how to show its other sections."""
    from robaudit.cli.console import output

    output().print(_terminal(SUMMARY, [run], SectionRequest())[0])


def _show(
    name: str,
    paths: Sequence[Path],
    request: SectionRequest,
    format_: ShowFormat | None,
    to: Path | None,
) -> list[Entry[Any]]:
    """Print a section of some runs, or write it to a file; return its entries."""
    from robaudit.cli.console import leading_warnings, show
    from robaudit.cli.output_streams import check_output, emit
    from robaudit.report.tables import latex_text, markdown_text
    from robaudit.runs.run import read_run

    refuse_unused(name, request)
    if to is not None:
        check_output(to)
    form = format_ or _by_suffix(to, "csv" if name == ROWS else "table")
    if name == ROWS:
        _write_rows(paths, request, form, to)
        return []
    if form == "parquet":
        raise SpecError(
            "--format parquet", f"does not apply to the section {name}", "use it with rows"
        )
    runs = [read_run(path, kept=len(paths) > 1) for path in paths]
    if form == "table":
        table, entries = _terminal(name, runs, request)
        warnings = [] if name == SUMMARY else leading_warnings(runs, in_table=True)
        show(*warnings, table, to=to)
        return entries
    section = section_of(name)
    entries = section.find(runs, request)
    texts: dict[str, Callable[[], str]] = {
        "csv": lambda: section_csv(name, entries, request),
        "json": lambda: section_json(name, entries, request),
        "md": lambda: markdown_text(section.shown(entries, request)),
        "latex": lambda: latex_text(section.shown(entries, request)),
    }
    leading_warnings(runs, in_table=False)
    emit(texts[form](), to)
    return entries


def _terminal(
    name: str, runs: Sequence[Run], request: SectionRequest
) -> tuple[Terminal, list[Entry[Any]]]:
    """The tables of a section, around a summary also its head and foot, and the section's
    entries."""
    from robaudit.report.tables import Terminal

    section = section_of(name)
    entries = section.find(runs, request)
    tables = section.shown(entries, request)
    if name == SUMMARY:
        from robaudit.report.summary_section import foot_table, head_table

        several = len(runs) > 1
        heads = [
            replace(head_table(entry.run), heading=entry.name if several else "")
            for entry in entries
        ]
        tables = [*heads, *tables, *([] if several else [foot_table(runs[0])])]
    return Terminal(tables), entries


def _write_rows(paths: Sequence[Path], request: SectionRequest, form: str, to: Path | None) -> None:
    """Write a run's rows, or some results' rows; for an unfinished run, the rows so far.

    Raises:
        SpecError: several runs or a table are requested.
        RobauditError: a Parquet file would go to a terminal.
    """
    from robaudit.cli.console import say
    from robaudit.cli.output_streams import put, write_output
    from robaudit.runs.arrow import parquet_pieces
    from robaudit.runs.folder import RunFolder
    from robaudit.runs.groups import GroupKey
    from robaudit.runs.run import Run, chosen, read_run
    from robaudit.runs.serialise import rows_csv, rows_json

    if len(paths) > 1:
        raise SpecError(
            "--with",
            "does not apply to the section rows",
            "write the rows of each run to a file of its own",
        )
    if form in ("table", "md", "latex"):
        raise SpecError(
            f"--format {form}", "does not apply to the section rows", "choose csv, json or parquet"
        )
    if form == "parquet" and to is None and sys.stdout.isatty():
        raise RobauditError(
            "--format parquet",
            "a Parquet file cannot be shown on a terminal",
            "name a file with -o",
        )
    (path,) = paths
    folder = RunFolder(path)
    info = folder.info()
    finished = info.complete
    run = read_run(path, kept=form == "json") if finished else Run(path, info, folder.rows_so_far())
    rows: Iterable[Row] = run.rows
    if request.estimators or request.levels:
        wanted = set(
            chosen(
                dict.fromkeys(map(GroupKey.of, rows)), request.estimators, request.levels, str(path)
            )
        )
        rows = (row for row in run.rows if GroupKey.of(row) in wanted)
    names = info.data.class_names
    pieces = dict[str, Callable[[], Iterable[str | bytes]]]()
    pieces["parquet"] = lambda: parquet_pieces(rows, names, where="--format parquet")
    pieces["csv"] = lambda: rows_csv(rows, names)
    pieces["json"] = lambda: rows_json(rows)
    if to is None:
        put(pieces[form]())
    else:
        write_output(to, pieces[form]())
    if not finished:
        say(f"note: {path} is unfinished: these are the {len(run.rows)} rows it has so far")


_SUFFIXES = {"csv": "csv", "json": "json", "md": "md", "tex": "latex", "parquet": "parquet"}


def _by_suffix(to: Path | None, other: str) -> str:
    """The format by the suffix of a file.

    Raises:
        SpecError: show does not write this format.
    """
    suffix = "" if to is None else to.suffix.lower().removeprefix(".")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix in ("", "txt", "log", "text", "out"):
        return other
    known = ", ".join(f".{known_suffix}" for known_suffix in _SUFFIXES)
    raise SpecError(
        f"-o {to}",
        f"show writes no .{suffix}",
        f"name a file that ends in .txt, {known}; pages: robaudit report",
    )
