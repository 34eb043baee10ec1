"""`robaudit --version` and `robaudit list`: the program describes itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import FormatOption, TextFormat
from robaudit.errors import SpecError

if TYPE_CHECKING:
    from rich.table import Table

    from robaudit.report.catalogue import AnyEntry


class What(StrEnum):
    """What is listed."""

    OVERVIEW = "overview"
    ESTIMATORS = "estimators"
    NOISES = "noises"
    DATASETS = "datasets"
    FORMATS = "formats"
    SCHEMA = "schema"


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


def list_(
    what: Annotated[What, typer.Argument(help="What to list; schema: the JSON schema of a document.")] = What.OVERVIEW,
    format_: FormatOption = TextFormat.TABLE,
    for_: Annotated[
        Document,
        typer.Option("--for", rich_help_panel="Schema", help="Of the spec, or of what robaudit gate or compare writes with --format json."),
    ] = Document.SPEC,
) -> None:
    """List what is installed, plugins included: estimators, kinds of noise, of data sets and of models, with options and sources.

    Example: robaudit list estimators
    """
    if what is What.SCHEMA:
        typer.echo(_schema(for_), nl=False)
        return
    if for_ is not Document.SPEC:
        raise SpecError("--for", "is about the schema", f"write: robaudit list schema --for {for_.value}")
    from robaudit.report import catalogue

    if what is What.ESTIMATORS:
        _print(format_, entries := catalogue.estimator_entries(), catalogue.catalogue_table(entries))
    elif what is What.NOISES:
        _print(format_, kinds := catalogue.noise_entries(), catalogue.noise_table(kinds))
    else:
        listed = {What.DATASETS: catalogue.dataset_entries, What.FORMATS: catalogue.format_entries, What.OVERVIEW: catalogue.overview}
        _print(format_, named := listed[what](), catalogue.named_table(named))


def _print(format_: TextFormat, entries: Sequence[AnyEntry], table: Table) -> None:
    from robaudit.cli.console import output
    from robaudit.cli.streams import put
    from robaudit.report.catalogue import entries_csv, entries_json

    if format_ is TextFormat.TABLE:
        output().print(table)
    else:
        put([entries_csv(entries) if format_ is TextFormat.CSV else entries_json(entries)])


def _schema(document: Document) -> str:
    """The schema of the spec with the options of every installed estimator, or of a command's JSON output."""
    import json

    if document is not Document.SPEC:
        from robaudit.report.ci.document import published

        return published(document.value)
    from robaudit.estimators import registry
    from robaudit.noise import registry as noise_registry
    from robaudit.spec.schema import spec_schema

    classes = {name: registry.load(name) for name in registry.registered()}
    kinds = {name: noise_registry.load(name) for name in noise_registry.registered()}
    return json.dumps(spec_schema(classes, {name: (kind.level_name, kind) for name, kind in kinds.items()}), indent=2) + "\n"
