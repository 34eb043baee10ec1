"""`robaudit report`: write one run or several as an HTML page or as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robaudit.cli.options import (
    DataOption,
    DataTrustOption,
    EstimatorFilter,
    LabelOption,
    LevelFilter,
    NoiseFilter,
    OutputOption,
    SigmaFilter,
    ThresholdOption,
    image_source,
    levels,
    option,
)
from robaudit.settings import FORMAT, OUTPUT

if TYPE_CHECKING:
    from robaudit.gates.decide import Decision
    from robaudit.report.gallery import ImageSource
    from robaudit.report.html.content import Content
    from robaudit.runs.run import Run

_HTML = (".html", ".htm")
_MARKDOWN = (".md", ".markdown")

SHOWN = 60
"""How many flagged samples a report shows for each estimator and noise level by default."""


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders written by robaudit estimate."),
    ],
    output: OutputOption = None,
    format_: Annotated[
        Literal["html", "md"] | None,
        option(
            FORMAT,
            help="html, or md for a pull request. Default: by the suffix of -o, else html.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", rich_help_panel=OUTPUT, help="Heading of the report."),
    ] = None,
    label: LabelOption = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    max_images: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            rich_help_panel="Images",
            help="Show at most N flagged samples for each estimator and noise level.",
        ),
    ] = SHOWN,
    no_images: Annotated[
        bool,
        typer.Option(
            "--no-images", rich_help_panel="Images", help="List the flagged samples without images."
        ),
    ] = False,
    data: DataOption = None,
    trust: DataTrustOption = False,
) -> None:
    """Write the results of an audit as one HTML file that needs no network and no other files.

    Several runs stand side by side in every section. If the data set cannot be opened, the report
    says why and has no images.

    Example: robaudit report runs/spec-1a2b3c4d -o report.html
    """
    from robaudit.cli.console import Reporter
    from robaudit.cli.output_streams import put, write_output
    from robaudit.report.html.content import gather
    from robaudit.report.sections import SectionRequest
    from robaudit.stats.reading import read_run

    markdown = check_report(output, format_)
    source = image_source(data, trust)
    request = SectionRequest(
        estimators=tuple(estimator or ()),
        levels=levels(noise, level, sigma),
        threshold=threshold,
        label=tuple(label or ()),
    )
    # Comparing runs needs to know which draws kept the class, and that takes memory.
    opened = [read_run(run, kept=len(runs) > 1) for run in runs]
    content = gather(opened, request, most=max_images)
    text, missing = _rendered(content, markdown, title=title, images=not no_images, source=source)
    with Reporter() as reporter:
        for problem in (*content.problems, *missing):
            reporter.note(problem)
        if output is None:
            # As bytes: the page escapes what it holds, and is UTF-8 by its own words.
            put([text.encode()])
            return
        write_output(output, [text])
        reporter.note(f"{output}: {len(text.encode()) / 1e6:.2f} MB, one file")


def check_report(
    output: Path | None, format_: str | None = None, flag: str = "-o", *, by_name: bool = False
) -> bool:
    """Refuse a report that cannot be written, before any work is done.

    Args:
        output: the file; None: standard output.
        format_: as typed; None: by the file's name, else HTML.
        flag: the option that names the file.
        by_name: the suffix must say the format, as no option does.

    Returns:
        Whether it is Markdown, by the format or the file's name.

    Raises:
        RobauditError: the file cannot be written or is of another kind, a page would go to a
            terminal, or a package is missing.
    """
    from robaudit.cli.output_streams import check_output
    from robaudit.errors import RobauditError

    suffix = "" if output is None else output.suffix.lower()
    if output is not None:
        check_output(output)
    unfit = suffix in (".pdf", ".png", ".svg")
    if by_name:
        unfit = suffix not in (*_HTML, *_MARKDOWN)
    # Any other suffix becomes HTML.
    if format_ is None and unfit:
        raise RobauditError(
            f"{flag} {output}",
            "a report is HTML or Markdown",
            "name a file that ends in .html or .md; robaudit plot makes pictures",
        )
    if format_ == "md" or (format_ is None and suffix in _MARKDOWN):
        return True
    # A pipe may take it: robaudit report RUN > page.html.
    if output is None and sys.stdout.isatty():
        raise RobauditError(
            "robaudit report",
            "an HTML page cannot be shown on a terminal",
            "name a file with -o, or give --format md",
        )
    from robaudit.report.html.render import environment

    # It raises if the package for pages is not installed.
    environment()
    return False


def write_reports(
    run: Run, files: Sequence[Path], decisions: Sequence[Decision] | None, source: ImageSource
) -> list[str]:
    """Write the report of one run, with its gates as they were decided, to some files.

    Args:
        run: the run.
        files: the files to write; :func:`check_report` has passed them.
        decisions: on the run's gates; None: decide its spec's gates.
        source: where to read the images.

    Returns:
        What the report lacks, one line each.
    """
    from robaudit.cli.output_streams import write_output
    from robaudit.report.html.content import gather

    # Once for all files: HTML and Markdown show the same content.
    content = gather([run], decisions=decisions)
    problems = list(content.problems)
    for file in files:
        text, missing = _rendered(content, check_report(file), source=source)
        problems += missing
        write_output(file, [text])
    return problems


def _rendered(
    content: Content,
    markdown: bool,
    *,
    title: str | None = None,
    images: bool = True,
    source: ImageSource | None = None,
) -> tuple[str, list[str]]:
    """The text of a report, and what it lacks."""
    if markdown:
        from robaudit.report.html.markdown import markdown_report

        return markdown_report(content, title=title), []
    from robaudit.report.html.render import page

    text, missing = page(content, title=title, images=images, source=source)
    return text, [f"no images: {problem}" for problem in missing]
