"""`robaudit schema`: what may stand in a spec, and in the JSON that other commands write?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Document(StrEnum):
    """Which document is described."""

    SPEC = "spec"
    GATES = "gates"
    COMPARE = "compare"


def schema(
    for_: Annotated[
        Document, typer.Option("--for", help="The spec, or what robaudit gate and robaudit compare write with --format json.")
    ] = Document.SPEC,
) -> None:
    """Print a JSON schema: of the spec, with the options of every installed estimator, or of a command's JSON.

    Example: robaudit schema > robaudit.schema.json
    """
    import json

    if for_ is not Document.SPEC:
        from robaudit.report.ci.document import published

        typer.echo(published(for_.value), nl=False)
        return
    from robaudit.estimators import registry
    from robaudit.spec_schema import spec_schema

    classes = {name: registry.load(name) for name in registry.installed()}
    typer.echo(json.dumps(spec_schema(classes), indent=2))
