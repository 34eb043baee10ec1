"""`robaudit plan`: propose the estimator, draws and images that fit a budget."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from robaudit.cli.options import OnError, OnErrorOption, SetOption, SpecArgument, SummaryFormat, SummaryFormatOption, TrustOption


class For(StrEnum):
    """What the numbers are for."""

    IMAGES = "images"
    MEAN = "mean"


def plan(
    spec: SpecArgument,
    budget: Annotated[str, typer.Option(metavar="DURATION", help="Time the run may take: 90s, 10m, 2h, 1h30m.")],
    for_: Annotated[For, typer.Option("--for", help="Plan for a decision about each image, or for a mean over the images.")] = For.IMAGES,
    format_: SummaryFormatOption = SummaryFormat.TEXT,
    set_: SetOption = None,
    trust: TrustOption = False,
    on_error: OnErrorOption = OnError.STOP,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the proposal, warnings and errors.")] = False,
) -> None:
    """Try the estimators briefly and say which of them, with how many draws and images, fits the budget best.

    Writes nothing. The budget is that of the run; this trial takes about a tenth of it in addition.

    Example: robaudit plan spec.yaml --budget 10m --for mean
    """
    started = time.perf_counter()
    from robaudit.cli.console import Reporter, output, starting
    from robaudit.progress import parse_duration
    from robaudit.spec.load import load_spec

    limit = parse_duration(budget)
    asked = load_spec(spec, settings=set_ or ())
    with starting(quiet=quiet):
        from robaudit.advice.plan import propose
    from robaudit.cli.streams import put
    from robaudit.report.advice_tables import plan_tables
    from robaudit.store.serialise import document_json

    loading = time.perf_counter() - started
    with Reporter(quiet=quiet, patient=False) as reporter:
        proposal = propose(
            asked,
            limit,
            question=for_.value,
            trust=trust,
            skip_bad=on_error is OnError.SKIP,
            listener=reporter,
            already=loading,
            typed=budget,
        )
    if format_ is SummaryFormat.JSON:
        put([document_json(proposal.document())])
        return
    console = output()
    for part in plan_tables(proposal):
        console.print(part)
