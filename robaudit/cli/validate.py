"""`robaudit validate`: measure the error of a spec's estimators for its model and data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import (
    OnErrorOption,
    QuietOption,
    SetOption,
    SpecArgument,
    SummaryFormatOption,
    TrustOption,
)
from robaudit.settings import OUTPUT, RUNNING


def validate(
    spec: SpecArgument,
    images: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="N",
            rich_help_panel=RUNNING,
            help="Number of images, drawn at random with the run's seed.",
        ),
    ] = 50,
    reference_draws: Annotated[
        int,
        typer.Option(
            min=100,
            max=10**8,
            metavar="N",
            rich_help_panel=RUNNING,
            help="Draws of the reference for each image and noise level.",
        ),
    ] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Folder to write. Default: runs/<spec name>-validation-<hash8>.",
        ),
    ] = None,
    format_: SummaryFormatOption = "text",
    set_: SetOption = None,
    trust: TrustOption = False,
    on_error: OnErrorOption = "stop",
    quiet: QuietOption = False,
) -> None:
    """Compare every estimator of a spec with converged Monte Carlo on a few images, and say which
    to use.

    Writes validation.csv (one row per image, noise level and estimator) and validation.json.

    Example: robaudit validate spec.yaml --images 50 --reference-draws 10000
    """
    from robaudit.cli.console import Reporter, output, starting
    from robaudit.spec.read import load_spec
    from robaudit.spec.skipping import on_error_of

    audit_spec = load_spec(spec, settings=set_ or ())
    with starting(quiet=quiet):
        # These import torch, which takes seconds.
        from robaudit.auditing.environment import command_line
        from robaudit.cli.output_streams import put
        from robaudit.report.tables import Terminal
        from robaudit.report.validation import validation_tables
        from robaudit.runs.serialise import document_json
        from robaudit.validation.against_reference import validate as run_study
        from robaudit.validation.output_files import check_folder, default_out, document, write
    folder = out or default_out(audit_spec)
    # Before the work of minutes.
    check_folder(folder)
    # Not patient: nothing is on disk until the end, so there is no part worth waiting for.
    with Reporter(quiet=quiet, patient=False) as reporter:
        study = run_study(
            audit_spec,
            images=images,
            draws=reference_draws,
            trust=trust,
            on_error=on_error_of(on_error),
            listener=reporter,
            command=command_line(sys.argv[1:]),
        )
        files = write(folder, study)
        reporter.note(f"{folder}: {', '.join(files)}")
    if format_ == "json":
        put([document_json(document(study))])
    elif not quiet:
        output().print(Terminal(validation_tables(study)))
