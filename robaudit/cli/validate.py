"""`robaudit validate`: are a spec's estimators right for its model and data?"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.estimate import OnError
from robaudit.cli.options import TrustOption


class Form(StrEnum):
    """How the summary is printed."""

    TEXT = "text"
    JSON = "json"


def validate(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="What to validate: model, data set, noise, estimators.")],
    samples: Annotated[int, typer.Option(min=2, metavar="N", help="Images, drawn at random with the run's seed.")] = 50,
    reference_draws: Annotated[
        int, typer.Option(min=100, max=10**8, metavar="N", help="Draws of the reference, for each image and noise level.")
    ] = 10_000,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Time for estimators and reference, as 5m: it gets the draws that they leave time for. --convergence is extra.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write. Default: runs/<spec name>-validation-<hash8>.")] = None,
    convergence: Annotated[
        bool, typer.Option("--convergence", help="Also measure the error of mc, mmse and logit_gaussian by number of draws.")
    ] = False,
    picture: Annotated[
        bool | None, typer.Option("--picture/--no-picture", help="Draw the pictures. Default: if matplotlib is installed.")
    ] = None,
    format_: Annotated[Form, typer.Option("--format", help="How to print the summary.")] = Form.TEXT,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any spec value: model.mean=[0.5], mc.samples=2000.")
    ] = None,
    trust: TrustOption = False,
    on_error: Annotated[OnError, typer.Option(help="At an unusable sample: stop, or leave it out and list it.")] = OnError.STOP,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors, on standard error.")] = False,
) -> None:
    """Compare every estimator of a spec with converged Monte Carlo on a few images, and say which to use.

    Writes validation.csv (one row for each image, noise level and estimator), validation.json and scatter.png and .svg.

    Example: robaudit validate spec.yaml --samples 50 --budget 5m
    """
    from robaudit.cli.console import Reporter, output
    from robaudit.planning.durations import seconds
    from robaudit.spec_file import load_spec

    limit = None if budget is None else seconds(budget)
    asked_spec = load_spec(spec, settings=set_ or ())
    from robaudit.cli.printing import put
    from robaudit.cli.process import keep_freed_memory
    from robaudit.pictures import can_draw
    from robaudit.provenance import command_line
    from robaudit.store.serialise import document_json
    from robaudit.validation.folder import asked, check_folder, default_out, document, write
    from robaudit.validation.study import validate as run
    from robaudit.validation.table import tables

    drawing = can_draw(required=picture is True) and picture is not False
    wanted = asked(asked_spec, samples, reference_draws, limit, convergence)
    folder = out or default_out(asked_spec, wanted)
    check_folder(folder, wanted)
    keep_freed_memory()
    with Reporter(quiet=quiet, patient=False) as reporter:
        found = run(
            asked_spec,
            samples=samples,
            draws=reference_draws,
            budget=limit,
            convergence=convergence,
            trust=trust,
            on_error=on_error.value,
            listener=reporter,
            command=command_line(sys.argv[1:]),
        )
        if drawing:
            from robaudit.pictures.validation import pictures

            files = write(folder, wanted, found, pictures(found))
        else:
            files = write(folder, wanted, found, {})
            if picture is None:
                reporter.note("no pictures: matplotlib is not installed (pip install 'robaudit[plot]')")
        reporter.note(f"{folder}: {', '.join(files)}")
    if format_ is Form.JSON:
        put([document_json(document(found))])
    elif not quiet:
        console = output()
        for part in tables(found):
            console.print(part)
