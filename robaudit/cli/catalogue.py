"""`robaudit --version`, `robaudit estimators`, `robaudit noises` and `robaudit schema`: the program describes itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import FormatOption, TextFormat

if TYPE_CHECKING:
    from rich.table import Table

    from robaudit.report.catalogue import Entry, NoiseEntry


class Document(StrEnum):
    """Which document is described."""

    SPEC = "spec"
    GATES = "gates"
    COMPARE = "compare"


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"robaudit {version('robaudit')}")
        raise typer.Exit


def program(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Options of the program itself."""


def estimators(format_: FormatOption = TextFormat.TABLE) -> None:
    """List the installed estimators: quantity, requirements, cost, when to prefer which, and source.

    Example: robaudit estimators
    """
    from robaudit.estimators import registry
    from robaudit.report.catalogue import catalogue, catalogue_table

    entries = catalogue({name: registry.load(name) for name in registry.registered()})
    _print(format_, entries, catalogue_table(entries))


def noises(format_: FormatOption = TextFormat.TABLE) -> None:
    """List the installed kinds of noise: level, options, what they do to a pixel, and source.

    Example: robaudit noises
    """
    from robaudit.noise import registry
    from robaudit.report.catalogue import noise_entries, noise_table

    entries = noise_entries({name: registry.load(name) for name in registry.registered()})
    _print(format_, entries, noise_table(entries))


def _print(format_: TextFormat, entries: Sequence[Entry | NoiseEntry], table: Table) -> None:
    from robaudit.cli.console import output
    from robaudit.cli.streams import put
    from robaudit.report.catalogue import entries_csv, entries_json

    if format_ is TextFormat.TABLE:
        output().print(table)
    else:
        put([entries_csv(entries) if format_ is TextFormat.CSV else entries_json(entries)])


def schema(
    for_: Annotated[
        Document, typer.Option("--for", help="Describe the spec, or what robaudit gate or robaudit compare writes with --format json.")
    ] = Document.SPEC,
) -> None:
    """Print a JSON schema: of the spec with the options of every installed estimator, or of a command's JSON output.

    Example: robaudit schema > robaudit.schema.json
    """
    import json

    if for_ is not Document.SPEC:
        from robaudit.report.ci.document import published

        typer.echo(published(for_.value), nl=False)
        return
    from robaudit.estimators import registry
    from robaudit.noise import registry as noise_registry
    from robaudit.spec.schema import spec_schema

    classes = {name: registry.load(name) for name in registry.registered()}
    kinds = {name: noise_registry.load(name) for name in noise_registry.registered()}
    noises = {name: (kind.level_name, kind) for name, kind in kinds.items()}
    typer.echo(json.dumps(spec_schema(classes, noises), indent=2))
