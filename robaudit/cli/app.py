"""Which commands are there?"""

from __future__ import annotations

from typing import Annotated

import typer

from robaudit.cli import (
    bias_report,
    compare,
    demo,
    estimate,
    estimators,
    export,
    flag_samples,
    gate,
    init,
    plan,
    plot,
    report,
    schema,
    show,
    validate,
    verify,
)

app = typer.Typer(
    name="robaudit",
    help="How robust is an image classifier to the noise that sensors make every day? Per-sample robustness with error bars.",
    epilog="Start with: robaudit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"robaudit {version('robaudit')}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """What all commands share."""


app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("estimate")(estimate.estimate)
app.command("show")(show.show)
app.command("bias-report")(bias_report.bias_report)
app.command("flag-samples")(flag_samples.flag_samples)
app.command("gate")(gate.gate)
app.command("compare")(compare.compare)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("validate")(validate.validate)
app.command("plan")(plan.plan)
app.command("plot")(plot.plot)
app.command("estimators")(estimators.estimators)
app.command("schema")(schema.schema)
