"""`robaudit report`: write one run or several as an HTML page or as Markdown."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import EstimatorFilter, LevelFilter, NoiseFilter, OutputOption, SigmaFilter, ThresholdOption, TrustOption, levels


class ReportFormat(StrEnum):
    """What is written."""

    HTML = "html"
    MD = "md"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders written by robaudit estimate.")],
    output: OutputOption = None,
    format_: Annotated[
        ReportFormat | None, typer.Option("--format", help="html, or md for a pull request. Default: by the suffix of -o, else html.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    estimator: EstimatorFilter = None,
    noise: NoiseFilter = None,
    level: LevelFilter = None,
    sigma: SigmaFilter = None,
    threshold: ThresholdOption = None,
    max_images: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show at most N flagged samples for each estimator and noise level.")
    ] = 60,
    no_images: Annotated[bool, typer.Option("--no-images", help="List the flagged samples without images.")] = False,
    trust: TrustOption = False,
) -> None:
    """Write the results of an audit as one HTML file that needs no network and no other files.

    Several runs are compared with each other first. If the data set cannot be opened, the report says why and has no images.

    Example: robaudit report runs/spec-1a2b3c4d -o report.html
    """
    from robaudit.cli.console import Reporter
    from robaudit.cli.streams import check_output, put, write_output
    from robaudit.errors import RobauditError
    from robaudit.gates.sources import decisions_of
    from robaudit.report.html.content import Choice, gather_all
    from robaudit.store.run import read_run

    markdown = format_ is ReportFormat.MD or (format_ is None and output is not None and output.suffix.lower() in (".md", ".markdown"))
    if output is not None:
        check_output(output)
    if format_ is None and output is not None and output.suffix.lower() in (".pdf", ".png", ".svg"):
        raise RobauditError(
            f"-o {output}", "a report is HTML or Markdown", "name a file that ends in .html or .md; robaudit plot makes pictures"
        )
    if not markdown and output is None and sys.stdout.isatty():
        raise RobauditError("robaudit report", "an HTML page cannot be shown on a terminal", "name a file with -o, or give --format md")
    if not markdown:
        from robaudit.report.html.render import environment

        environment()  # reports a missing package before any work is done
    choice = Choice(tuple(estimator or ()), levels(noise, level, sigma), threshold, max_images)
    gathered, problems = gather_all([read_run(run) for run in runs], choice)
    contents = []
    for content in gathered:
        decisions, problem = decisions_of(content.run)
        contents.append(replace(content, decisions=decisions))
        problems += [f"no gates: {problem}"] if problem else []
    if markdown:
        from robaudit.report.html.markdown import markdown_report

        text = markdown_report(contents, title=title)
    else:
        from robaudit.report.html.render import page

        text, missing = page(contents, title=title, images=not no_images, trust=trust, threshold=threshold)
        problems += [f"no images: {problem}" for problem in missing]
    with Reporter() as reporter:
        for problem in problems:
            reporter.note(problem)
        if output is None:
            put([text])
            return
        write_output(output, [text])
        reporter.note(f"{output}: {len(text.encode()) / 1e6:.2f} MB, one file")
