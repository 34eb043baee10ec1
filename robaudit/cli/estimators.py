"""`robaudit estimators`: which estimators are installed?"""

from __future__ import annotations

from typing import Annotated

import typer

from robaudit.cli.options import TextFormat


def estimators(
    format_: Annotated[TextFormat, typer.Option("--format", help="How to print it.")] = TextFormat.TABLE,
) -> None:
    """List the installed estimators: quantity, needs, cost, when to prefer which, source.

    Example: robaudit estimators
    """
    from robaudit.cli.console import output
    from robaudit.estimators import registry
    from robaudit.report.catalogue import catalogue, catalogue_csv, catalogue_json, catalogue_table

    entries = catalogue({name: registry.load(name) for name in registry.installed()})
    if format_ is TextFormat.TABLE:
        output().print(catalogue_table(entries))
    else:
        typer.echo(catalogue_csv(entries) if format_ is TextFormat.CSV else catalogue_json(entries), nl=False)
