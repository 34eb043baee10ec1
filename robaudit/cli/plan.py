"""`robaudit plan`: what estimator, how many draws and images fit a budget?"""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robaudit.cli.estimate import OnError
from robaudit.cli.options import TrustOption
from robaudit.cli.validate import Form


class For(StrEnum):
    """What the numbers are for."""

    IMAGES = "images"
    MEAN = "mean"


def plan(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="Model, data set and noise; further estimators to think of.")],
    budget: Annotated[str, typer.Option(metavar="DURATION", help="What the run may take: 90s, 10m, 2h, 1h30m.")],
    for_: Annotated[For, typer.Option("--for", help="A decision about each image, or a mean over the images.")] = For.IMAGES,
    format_: Annotated[Form, typer.Option("--format", help="How to print it.")] = Form.TEXT,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any spec value: model.mean=[0.5], dataset.limit=1000.")
    ] = None,
    trust: TrustOption = False,
    on_error: Annotated[OnError, typer.Option(help="At an unusable sample: stop, or leave it out.")] = OnError.STOP,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the proposal, warnings and errors.")] = False,
) -> None:
    """Try the estimators for a moment and say which of them, with how many draws and images, fits the budget best.

    Writes nothing. The budget is that of the run; this trial takes about a tenth of it on top.

    Example: robaudit plan spec.yaml --budget 10m --for mean
    """
    started = time.perf_counter()
    from robaudit.cli.console import Reporter, output
    from robaudit.planning.durations import seconds
    from robaudit.spec_file import load_spec

    limit = seconds(budget)
    asked = load_spec(spec, settings=set_ or ())
    from robaudit.cli.printing import put
    from robaudit.cli.process import keep_freed_memory
    from robaudit.planning.proposal import propose
    from robaudit.planning.table import tables
    from robaudit.store.serialise import document_json

    keep_freed_memory()
    loading = time.perf_counter() - started
    with Reporter(quiet=quiet, patient=False) as reporter:
        found = propose(
            asked,
            limit,
            question=for_.value,
            trust=trust,
            skip_bad=on_error is OnError.SKIP,
            listener=reporter,
            already=loading,
            typed=budget,
        )
    if format_ is Form.JSON:
        put([document_json(found.document())])
        return
    console = output()
    for part in tables(found):
        console.print(part)
