"""`robaudit schema`: what may stand in a spec?"""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the spec's JSON schema, with the options of every installed estimator.

    Example: robaudit schema > robaudit.schema.json
    """
    import json

    from robaudit import registry
    from robaudit.spec_schema import spec_schema

    classes = {name: registry.load(name) for name in registry.installed()}
    typer.echo(json.dumps(spec_schema(classes), indent=2))
