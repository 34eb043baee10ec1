"""`robaudit bias-report`: are some classes less robust than others?"""

from __future__ import annotations

from typing import Annotated

import typer

from robaudit.cli.options import (
    By,
    EstimatorFilter,
    FormatOption,
    OutputOption,
    RunArgument,
    SigmaFilter,
    TextFormat,
    sigmas,
    write_output,
)


def bias_report(
    run: RunArgument,
    by: Annotated[By | None, typer.Option(help="Class of a sample: its label (default where there are labels) or the prediction.")] = None,
    threshold: Annotated[float, typer.Option(help="For the share of samples below it.")] = 0.9,
    estimator: EstimatorFilter = None,
    sigma: SigmaFilter = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Robustness by class, the gap between the least and the most robust one, and whether chance alone explains it.

    Estimators and noise levels are reported one by one, never pooled.

    Example: robaudit bias-report runs/spec-1a2b3c4d --estimator mc --sigma 0.05
    """
    from rich.console import Group

    from robaudit.cli.printing import emit
    from robaudit.reports.bias_table import bias_csv, bias_table
    from robaudit.store.run import read_run
    from robaudit.summary.bias import class_bias

    opened = read_run(run)
    groups = opened.groups(estimator or (), sigmas(sigma))
    labels = by is By.LABEL if by else bool(opened.info["data"]["labelled"])
    found = [
        class_bias(
            rows,
            by="label" if labels else "predicted",
            threshold=threshold,
            class_names=opened.class_names,
            quantity=opened.quantities[rows[0].quantity],
        )
        for rows in groups.values()
    ]
    tables = [bias_table(one, opened.quantities[one.key.quantity]) for one in found]
    emit(
        format_,
        table=lambda: Group(*tables),
        csv=[bias_csv(one) for one in found],
        documents=[one.document() for one in found],
        to=output,
        write=write_output,
    )
