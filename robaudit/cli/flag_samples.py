"""`robaudit flag-samples`: which samples are not robust?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.options import EstimatorFilter, FormatOption, OutputOption, RunArgument, SigmaFilter, TextFormat, sigmas, write_output


class Only(StrEnum):
    """Which samples to look at."""

    CORRECT = "correct"
    WRONG = "wrong"


def flag_samples(
    run: RunArgument,
    below: Annotated[
        float | None,
        typer.Option(
            help="Flag the samples whose value is below it (log10_p_fail: above it). Default: 0.5; log10_p_fail: -0.3.", show_default=False
        ),
    ] = None,
    bottom: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="List the N least robust samples instead, below it or not.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, metavar="N", help="List the N most robust samples too.")] = None,
    per_class: Annotated[bool, typer.Option("--per-class", help="Make the lists class by class (of the prediction).")] = False,
    only: Annotated[Only | None, typer.Option(help="Only samples classified correct or wrong without noise.")] = None,
    estimator: EstimatorFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the listed samples as PNG, clean beside noisy.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="For --images: allow the Python data set that the spec names.")] = False,
) -> None:
    """List the non-robust samples, worst first, and say which are below the threshold beyond their interval.

    Example: robaudit flag-samples runs/spec-1a2b3c4d --below 0.9 --only correct --images worst/
    """
    from rich.console import Group

    from robaudit.cli.printing import emit
    from robaudit.reports.flags_table import flags_csv, flags_table
    from robaudit.store.run import read_run
    from robaudit.summary.flags import flag, usual_threshold

    opened = read_run(run)
    groups = opened.groups(estimator or (), sigmas(sigma))
    found = [
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
    tables = [flags_table(one, opened.class_names, opened.quantities[one.key.quantity]) for one in found]
    emit(
        format_,
        table=lambda: Group(*tables),
        csv=[flags_csv(one) for one in found],
        documents=[one.document() for one in found],
        to=output,
        write=write_output,
    )
    if images is not None:
        from robaudit.gallery import write_gallery

        count = write_gallery(opened, found, images, trust=trust)
        typer.echo(f"{count} pictures in {images}", err=True)
