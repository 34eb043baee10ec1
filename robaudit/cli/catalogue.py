"""`robaudit --version` and `robaudit list`: the program describes itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from robaudit.cli.options import (
    SummaryFormatOption,
)
from robaudit.errors import RobauditError, SpecError
from robaudit.settings import OUTPUT

if TYPE_CHECKING:
    from pydantic import BaseModel

Entry = Mapping[str, str]
"""An installed component as text: ``name``, ``summary``, and more by kind."""


What = Literal["overview", "estimators", "noises", "datasets", "formats", "objectives", "schema"]


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"robaudit {version('robaudit')}")
        raise typer.Exit


def program(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


def list_(
    what: Annotated[
        What, typer.Argument(metavar="WHAT", help=f"One of {', '.join(get_args(What))}.")
    ] = "overview",
    format_: SummaryFormatOption = "text",
    for_: Annotated[
        Literal["spec", "gates", "compare"],
        typer.Option(
            "--for",
            rich_help_panel=OUTPUT,
            help="schema: of a spec, or of the JSON that robaudit gate or compare writes.",
        ),
    ] = "spec",
) -> None:
    """List what a spec can name: estimators, noises, data sets, model formats and training
    objectives.

    Plugins are included, with their options and sources.

    schema prints the JSON schema of a spec, for editors.

    Example: robaudit list estimators
    """
    if what == "schema":
        typer.echo(_schema(for_), nl=False)
        return
    if for_ != "spec":
        raise SpecError("--for", "applies only to schema", f"robaudit list schema --for {for_}")
    lists = {
        "estimators": _estimators,
        "noises": _noises,
        "datasets": _datasets,
        "formats": _formats,
        "objectives": _objectives,
    }
    if what == "overview":
        listed: dict[str, list[Entry]] = {
            kind: [_brief(kind, entry) for entry in entries()] for kind, entries in lists.items()
        }
    else:
        listed = {what: list(lists[what]())}
    if format_ == "json":
        typer.echo(json.dumps([entry for part in listed.values() for entry in part], indent=2))
    else:
        _print_table(listed)


def _brief(kind: str, entry: Entry) -> Entry:
    return {"of": kind, "name": entry["name"], "summary": entry["summary"]}


def _estimators() -> Iterator[Entry]:
    from pydantic import ValidationError

    from robaudit.engine import registry
    from robaudit.plugins import blaming

    for name in sorted(registry.registered()):
        cls = registry.load(name)
        try:
            with blaming(f"estimator {name}", cls):
                forwards, backwards = cls().passes(10)
            passes = "pass" if forwards + backwards == 1 else "passes"
            cost = (
                f"{forwards:,} forward{f', {backwards:,} backward' if backwards else ''} "
                f"{passes} an image, with 10 classes"
            )
        except ValidationError:  # an option has no default
            cost = "depends on its options"
        yield {
            "name": name,
            "summary": cls.summary,
            "prefer": cls.prefer,
            "quantity": cls.quantity.name,
            "unit": cls.quantity.unit,
            "needs": ", ".join(sorted(str(need.name).lower() for need in cls.needs)) or "nothing",
            "cost": cost,
            "interval": cls.interval.text,
            "options": _options(cls),
            "source": cls.source,
        }


def _noises() -> Iterator[Entry]:
    from robaudit.noise import installed

    for name in sorted(installed.registered()):
        cls = installed.load(name)
        level = f"{cls.level_name}, {cls.least:g} to {cls.most:g}"
        options = _options(cls, "name", "clip")
        yield {
            "name": name,
            "summary": cls.summary,
            "models": cls.prefer,
            "level": level,
            "options": options,
            "source": cls.source,
        }


def _datasets() -> Iterator[Entry]:
    from robaudit.spec.model import dataset_kind, dataset_kinds

    for name in dataset_kinds():
        cls = dataset_kind(name)
        yield {"name": name, "summary": _first_line(cls), "options": _options(cls, "kind")}


def _formats() -> Iterator[Entry]:
    from robaudit.models.load_model import FORMATS

    for form in FORMATS:
        yield {
            "name": form.name,
            "summary": _first_line(form.load).removeprefix("Load "),
            "files": ", ".join(form.suffixes),
        }
    yield {
        "name": "timm",
        "summary": "a folder that timm has saved",
        "files": "config.json, model.safetensors",
    }
    yield {
        "name": "Transformers",
        "summary": "a folder of save_pretrained",
        "files": "config.json, model.safetensors",
    }


def _objectives() -> Iterator[Entry]:
    from robaudit.plugins import OBJECTIVES, installed, load_object

    for name in sorted(installed(OBJECTIVES, "objective")):
        cls: Any = load_object(OBJECTIVES, "objective", name, type)
        if not hasattr(cls, "summary") or not hasattr(cls, "model_fields"):
            what = f"{cls.__module__}:{cls.__qualname__} is not an objective"
            raise RobauditError(f"objective {name}", what, "fix or uninstall the plugin")
        yield {"name": name, "summary": cls.summary, "options": _options(cls), "source": cls.source}


def _first_line(described: object) -> str:
    return (described.__doc__ or "").partition("\n")[0].rstrip(".").replace("`", "")


def _options(cls: type[BaseModel], *but: str) -> str:
    """The options of a class with their defaults."""
    return ", ".join(
        f"{key} (required)"
        if field.is_required()
        else f"{key}={json.dumps(field.get_default(call_default_factory=True))}"
        for key, field in cls.model_fields.items()
        if key not in but
    )


def _print_table(lists: Mapping[str, Sequence[Entry]]) -> None:
    """Print each list below its name: names on the left, summaries and facts on the right."""
    from rich.table import Table
    from rich.text import Text

    from robaudit.cli.console import output

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, min_width=20)
    table.add_column()
    for kind, entries in lists.items():
        more = f"  (options and more: robaudit list {kind})" if len(lists) > 1 else ""
        table.add_row(Text(kind, "bold"), Text(more.strip(), "dim"))
        for entry in entries:
            facts = [
                f"\n{key}: {text}"
                for key, text in entry.items()
                if key not in ("of", "name", "summary") and text
            ]
            table.add_row(
                Text(f"  {entry['name']}"), Text(entry["summary"]).append("".join(facts), "dim")
            )
            if len(lists) == 1:
                table.add_row()
        if len(lists) > 1:
            table.add_row()
    output().print(table)


def _schema(document: str) -> str:
    """The schema of the spec with the options of every installed estimator, or of a command's JSON
    output."""
    if document != "spec":
        from robaudit.report.ci.document import published

        return published(document)
    from robaudit.engine import registry
    from robaudit.noise import installed as noise_kinds
    from robaudit.spec.schema import spec_schema

    classes = {name: registry.load(name) for name in registry.registered()}
    kinds = {name: noise_kinds.load(name) for name in noise_kinds.registered()}
    return (
        json.dumps(
            spec_schema(classes, {name: (kind.level_name, kind) for name, kind in kinds.items()}),
            indent=2,
        )
        + "\n"
    )
