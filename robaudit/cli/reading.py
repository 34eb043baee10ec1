"""Commands that print a run: `robaudit show`, `bias-report` and `flag-samples`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from robaudit import settings
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
    option,
)
from robaudit.errors import NoResultsYetError, RobauditError, SpecError
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

if TYPE_CHECKING:
    from robaudit.report.tables import Terminal
    from robaudit.runs.rows import Row
    from robaudit.runs.run import Run


ShowFormat = Literal["table", "csv", "json", "md", "latex", "parquet"]

ByOption = Annotated[str | None, option(settings.BY)]
ColumnsOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="SPEC.yaml",
        rich_help_panel=settings.SECTION_CLASSES,
        help="With --by COLUMN: read the column from this spec's data set instead of the run's "
        "own.",
    ),
]
BottomOption = Annotated[int | None, option(settings.BOTTOM)]
OnlyOption = Annotated[Literal["correct", "wrong"] | None, option(settings.ONLY)]


def show(
    run: RunArgument,
    section: str = SUMMARY,
    with_: Annotated[list[Path] | None, option(settings.WITH)] = None,
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
    id_: Annotated[list[str] | None, option(settings.ID)] = None,
    format_: Annotated[
        ShowFormat | None,
        option(
            settings.FORMAT,
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
        options=_read_section_options(options),
    )
    try:
        _show(section, [run, *(with_ or ())], request, format_, output)
    except NoResultsYetError as error:
        # An audit that has just begun, or was killed before its first result, is no mistake.
        from robaudit.cli.console import say

        say(f"{error.where} {error.what}")


def _read_section_options(written: Mapping[str, list[str] | None]) -> dict[str, Any]:
    """The values of the options that only one section has, as that section reads them.

    Raises:
        SpecError: a value is not valid.
    """
    given = {name: texts for name, texts in written.items() if texts}
    if not given:
        # Without options no section is imported.
        return {}
    known = {section_option.name: section_option for section_option in section_options()}
    return {name: known[name].read(texts, f"--{name}") for name, texts in given.items()}


def show_with_section_options() -> Callable[..., None]:
    """The command ``show`` as typer reads it.

    It has the installed sections in its help, and their options in place of ``**options``.
    """

    # wraps gives it the name and the docstring, which become the command's help.
    @functools.wraps(show)
    def command(**values: Any) -> None:
        show(**values)

    parameters = dict(inspect.signature(show, eval_str=True).parameters)
    del parameters["options"]
    names = section_names()
    section_argument = typer.Argument(
        metavar="SECTION", help=f"What to show: {', '.join(names)}.", autocompletion=lambda: names
    )
    parameters["section"] = parameters["section"].replace(
        annotation=Annotated[str, section_argument]
    )
    for section_option, section in section_options().items():
        declared = typer.Option(
            metavar=section_option.metavar,
            rich_help_panel=f"Section {section}",
            help=section_option.help,
        )
        parameters[section_option.name] = inspect.Parameter(
            section_option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[list[str] | None, declared],
        )
    # typer reads the signature and the annotations; both must agree.
    signature = inspect.Signature(list(parameters.values()))
    setattr(command, "__signature__", signature)  # noqa: B010  mypy knows no such attribute
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
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
    request = SectionRequest(
        estimators=tuple(estimator or ()),
        levels=levels(noise, level, sigma),
        threshold=threshold,
        by=by,
        # Not trusted: a data set of Python code is refused.
        data=image_source(data, False),
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
    # The list is printed first; pictures need the data set, which may be gone.
    if images is not None:
        from robaudit.cli.console import say
        from robaudit.report.gallery import write_gallery

        records = [entry.record for entry in entries]
        pictures = write_gallery(entries[0].run, records, images, source)
        say(f"{pictures} pictures in {images}")


def print_run(run: Run) -> None:
    """Print the summary of a run, and how to show its other sections."""
    from robaudit.cli.console import output

    table, _ = _terminal(SUMMARY, [run], SectionRequest())
    output().print(table)


def _show(
    name: str,
    paths: Sequence[Path],
    request: SectionRequest,
    format_: ShowFormat | None,
    to: Path | None,
) -> list[Entry[Any]]:
    """Print a section of some runs, or write it to a file; return its entries.

    Args:
        name: the section.
        paths: the run folders.
        request: the options of the section.
        format_: None: by the suffix of the file.
        to: the file; None: standard output.

    Raises:
        RobauditError: a run, an option or the file is refused.
    """
    from robaudit.cli.console import leading_warnings, show
    from robaudit.cli.output_streams import check_output, emit
    from robaudit.report.tables import latex_text, markdown_text
    from robaudit.stats.reading import read_run

    # Mistakes in the command come first, before a run is read.
    refuse_unused(name, request)
    if to is not None:
        check_output(to)
    # An explicit format wins over the suffix.
    form = format_ or _by_suffix(to, "csv" if name == ROWS else "table")
    if name == ROWS:
        _write_rows(paths, request, form, to)
        return []
    if form == "parquet":
        raise SpecError(
            "--format parquet", f"does not apply to the section {name}", "use it with rows"
        )
    # Comparing runs needs to know which draws kept the class, and that takes memory.
    runs = [read_run(path, kept=len(paths) > 1) for path in paths]
    if form == "table":
        table, entries = _terminal(name, runs, request)
        # The head of a summary has the warnings already.
        warnings = [] if name == SUMMARY else leading_warnings(runs, in_table=True)
        show(*warnings, table, to=to)
        return entries
    section = section_of(name)
    entries = section.find(runs, request)
    # To standard error, as the output may be read by a program.
    leading_warnings(runs, in_table=False)
    if form == "csv":
        text = section_csv(name, entries, request)
    elif form == "json":
        text = section_json(name, entries, request)
    elif form == "md":
        text = markdown_text(section.shown(entries, request))
    else:
        text = latex_text(section.shown(entries, request))
    emit(text, to)
    return entries


def _terminal(
    name: str, runs: Sequence[Run], request: SectionRequest
) -> tuple[Terminal, list[Entry[Any]]]:
    """The tables of a section, and its entries; a summary also has a head and a foot."""
    from robaudit.report.tables import Terminal

    section = section_of(name)
    entries = section.find(runs, request)
    tables = section.shown(entries, request)
    if name == SUMMARY:
        from robaudit.report.summary_section import foot_table, head_table

        several = len(runs) > 1
        heads = []
        for entry in entries:
            heading = entry.name if several else ""
            heads.append(replace(head_table(entry.run), heading=heading))
        # The foot names the commands that show more of one run.
        foot = [] if several else [foot_table(runs[0])]
        tables = [*heads, *tables, *foot]
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
    from robaudit.runs.groups import GroupKey
    from robaudit.runs.run import chosen
    from robaudit.runs.serialise import rows_csv, rows_json
    from robaudit.stats.reading import read_run

    _refuse_for_rows(paths, form, to)
    (path,) = paths
    run = read_run(path, kept=form == "json")
    info = run.info
    rows: Iterable[Row] = run.rows
    if request.estimators or request.levels:
        keys = dict.fromkeys(map(GroupKey.from_row, rows))
        wanted_keys = set(chosen(keys, request.estimators, request.levels, str(path)))
        rows = (row for row in run.rows if GroupKey.from_row(row) in wanted_keys)
    names = info.class_names
    # Piece by piece: the rows of a large run do not fit into memory as one text.
    pieces: Iterable[str | bytes]
    if form == "parquet":
        pieces = parquet_pieces(rows, names, where="--format parquet")
    elif form == "csv":
        pieces = rows_csv(rows, names)
    else:
        pieces = rows_json(rows)
    if to is None:
        put(pieces)
    else:
        write_output(to, pieces)
    if not info.complete:
        say(f"note: {path}: {info.so_far}")


def _refuse_for_rows(paths: Sequence[Path], form: str, to: Path | None) -> None:
    """Refuse what the section rows cannot do.

    Raises:
        SpecError: several runs or a table are requested.
        RobauditError: a Parquet file would go to a terminal.
    """
    if len(paths) > 1:
        raise SpecError(
            settings.WITH,
            "does not apply to the section rows",
            "write the rows of each run to a file of its own",
        )
    if form in ("table", "md", "latex"):
        raise SpecError(
            f"--format {form}", "does not apply to the section rows", "choose csv, json or parquet"
        )
    on_terminal = to is None and sys.stdout.isatty()
    if form == "parquet" and on_terminal:
        raise RobauditError(
            "--format parquet",
            "a Parquet file cannot be shown on a terminal",
            "name a file with -o",
        )


_SUFFIXES = {"csv": "csv", "json": "json", "md": "md", "tex": "latex", "parquet": "parquet"}


def _by_suffix(to: Path | None, other: str) -> str:
    """The format by the suffix of a file.

    Raises:
        SpecError: show does not write this format.
    """
    suffix = "" if to is None else to.suffix.lower().removeprefix(".")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    # Names of plain text say nothing about the format.
    if suffix in ("", "txt", "log", "text", "out"):
        return other
    known = ", ".join(f".{known_suffix}" for known_suffix in _SUFFIXES)
    raise SpecError(
        f"-o {to}",
        f"show writes no .{suffix}",
        f"name a file that ends in .txt, {known}; pages: robaudit report",
    )
