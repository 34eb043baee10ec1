"""`robaudit report`: a run, or several, as one page or as Markdown."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import EstimatorFilter, OutputOption, SigmaFilter, TrustOption, check_output, sigmas, write_output


class ReportFormat(StrEnum):
    """What is written."""

    HTML = "html"
    MD = "md"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders that robaudit estimate has written.")],
    output: OutputOption = None,
    format_: Annotated[
        ReportFormat | None, typer.Option("--format", help="html, or md for a pull request. Default: by the ending of -o, else html.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    estimator: EstimatorFilter = None,
    sigma: SigmaFilter = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Flag the samples whose value is below it (log10_p_fail: above it). Default: 0.5; log10_p_fail: -0.3.", show_default=False
        ),
    ] = None,
    max_images: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show at most N flagged samples for each estimator and noise level.")
    ] = 60,
    no_images: Annotated[bool, typer.Option("--no-images", help="List the flagged samples without images.")] = False,
    trust: TrustOption = False,
) -> None:
    """Write what an audit found as one HTML file that people can read: no network, no other files.

    Several runs are compared first. Images are left out, and the report says why, where the data set cannot be opened.

    Example: robaudit report runs/spec-1a2b3c4d -o report.html
    """
    from robaudit.cli.console import Reporter
    from robaudit.cli.printing import put
    from robaudit.errors import RobauditError
    from robaudit.gates.standing import standing
    from robaudit.html.content import Choice
    from robaudit.html.several import gather_all
    from robaudit.store.run import read_run

    markdown = format_ is ReportFormat.MD or (format_ is None and output is not None and output.suffix.lower() in (".md", ".markdown"))
    if output is not None:
        check_output(output)
    if not markdown and output is None and sys.stdout.isatty():
        raise RobauditError("robaudit report", "a page is no text for a terminal", "name a file with -o, or --format md")
    if not markdown:
        from robaudit.html.render import environment

        environment()  # what is not installed is said before any work
    choice = Choice(tuple(estimator or ()), tuple(sigmas(sigma)), threshold, max_images)
    found, problems = gather_all([read_run(run) for run in runs], choice)
    contents = []
    for content in found:
        decisions, problem = standing(content.run)
        contents.append(replace(content, decisions=decisions))
        problems += [f"no gates: {problem}"] if problem else []
    if markdown:
        from robaudit.html.markdown import markdown_report

        text = markdown_report(contents, title=title)
    else:
        from robaudit.html.render import page

        text, missing = page(contents, title=title, images=not no_images, trust=trust, threshold=threshold)
        problems += [f"no images: {problem}" for problem in missing]
    with Reporter() as reporter:
        for problem in problems:
            reporter.note(problem)
        if output is None:
            put([text])
            return
        write_output(output, text)
        reporter.note(f"{output}: {len(text.encode()) / 1e6:.2f} MB, one file")
