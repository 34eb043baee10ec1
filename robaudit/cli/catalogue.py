"""`robaudit --version` and `robaudit list`: the program describes itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from robaudit.cli.options import (
    SummaryFormatOption,
)
from robaudit.errors import RobauditError, SpecError
from robaudit.settings import OUTPUT
from robaudit.text import first_paragraph

if TYPE_CHECKING:
    from pydantic import BaseModel

    from robaudit.engine.estimator import Estimator

_CLASSES = 10
"""The number of classes for which costs are stated."""

Entry = Mapping[str, str]
"""An installed component as text: ``name``, ``summary``, and more by kind."""


What = Literal["overview", "estimators", "noises", "datasets", "formats", "objectives", "schema"]


_ABOUT = ("torch", "torchvision", "numpy", "scipy")
"""Packages whose versions a bug report needs."""


def _version(value: bool) -> None:
    """Print the version, and what else a bug report needs, and end the program, if ``--version`` is
    given."""
    if value:
        import platform
        from importlib.metadata import version

        from robaudit.system import cores, gpu_names, processor_name
        from robaudit.text import count, printable

        typer.echo(f"robaudit {version('robaudit')}")
        packages = ", ".join(f"{name} {version(name)}" for name in _ABOUT)
        typer.echo(f"Python {platform.python_version()}, {packages}")
        processor = processor_name() or platform.machine()
        gpus = ", ".join(gpu_names()) or "no NVIDIA GPU"
        machine = f"{platform.system()} {platform.machine()}"
        typer.echo(printable(f"{machine}, {processor}, {count(cores(), 'core')}; {gpus}"))
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
    # The default of --for says nothing, so only another value is a mistake.
    if for_ != "spec":
        raise SpecError("--for", "applies only to schema", f"robaudit list schema --for {for_}")
    lists = {
        "estimators": _estimators,
        "noises": _noises,
        "datasets": _datasets,
        "formats": _formats,
        "objectives": _objectives,
    }
    listed: dict[str, list[Entry]] = {}
    if what == "overview":
        for kind, entries in lists.items():
            listed[kind] = [_brief(kind, entry) for entry in entries()]
    else:
        listed[what] = list(lists[what]())
    if format_ == "json":
        # One list: in the overview each entry names its kind.
        typer.echo(json.dumps(list(chain.from_iterable(listed.values())), indent=2))
    else:
        _print_table(listed)


def _brief(kind: str, entry: Entry) -> Entry:
    """An entry of the overview."""
    return {"of": kind, "name": entry["name"], "summary": entry["summary"]}


def _estimators() -> Iterator[Entry]:
    """The installed estimators, those of plugins included."""
    # Here and in the other lists, because components import torch when they are loaded.
    from robaudit.engine import registry

    for name in sorted(registry.registered()):
        cls = registry.load(name)
        yield {
            "name": name,
            "summary": cls.summary,
            "prefer": cls.prefer,
            "quantity": cls.quantity.name,
            "unit": cls.quantity.unit,
            "needs": ", ".join(sorted(str(need.name).lower() for need in cls.needs)) or "nothing",
            "cost": _cost(name, cls),
            "interval": cls.interval.text,
            "options": _options(cls),
            "source": cls.source,
        }


def _cost(name: str, cls: type[Estimator]) -> str:
    """The passes of an estimator with its default options.

    Raises:
        PluginError: it cannot say.
    """
    from pydantic import ValidationError

    from robaudit.plugins import blaming

    try:
        with blaming(f"estimator {name}", cls):
            forwards, backwards = cls().passes(_CLASSES)
    except ValidationError:
        # An option has no default.
        return "depends on its options"
    number = f"{forwards:,} forward"
    if backwards:
        number += f", {backwards:,} backward"
    passes = "pass" if forwards + backwards == 1 else "passes"
    return f"{number} {passes} an image, with {_CLASSES} classes"


def _noises() -> Iterator[Entry]:
    """The installed kinds of noise."""
    from robaudit.noise import installed

    for name in sorted(installed.registered()):
        cls = installed.load(name)
        level = f"{cls.level_name}, {cls.least:g} to {cls.most:g}"
        # Every noise has these two.
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
    """The installed kinds of data set."""
    from robaudit.spec.model import dataset_kind, dataset_kinds

    for name in dataset_kinds():
        cls = dataset_kind(name)
        yield {"name": name, "summary": _summary(cls), "options": _options(cls, "kind")}


def _formats() -> Iterator[Entry]:
    """The formats of models."""
    from robaudit.models.load_model import FORMATS

    for form in FORMATS:
        yield {
            "name": form.name,
            "summary": _summary(form.load).removeprefix("Load "),
            "files": ", ".join(form.suffixes),
        }
    # Folders of these libraries are recognised by their files, before any format.
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
    """The installed objectives of training.

    Raises:
        RobauditError: a plugin is no objective.
    """
    from robaudit.plugins import OBJECTIVES, installed, load_object

    for name in sorted(installed(OBJECTIVES, "objective")):
        cls: Any = load_object(OBJECTIVES, "objective", name, type)
        # The class of objectives is in a family, which the command line does not import.
        if not hasattr(cls, "summary") or not hasattr(cls, "model_fields"):
            what = f"{cls.__module__}:{cls.__qualname__} is not an objective"
            raise RobauditError(f"objective {name}", what, "fix or uninstall the plugin")
        yield {"name": name, "summary": cls.summary, "options": _options(cls), "source": cls.source}


def _summary(described: object) -> str:
    """The first paragraph of a docstring, as a summary."""
    return first_paragraph(described).rstrip(".").replace("`", "")


def _options(cls: type[BaseModel], *but: str) -> str:
    """The options of a class with their defaults, except some."""
    options = []
    for key, field in cls.model_fields.items():
        if key in but:
            continue
        if field.is_required():
            options.append(f"{key} (required)")
        else:
            default = field.get_default(call_default_factory=True)
            options.append(f"{key}={json.dumps(default)}")
    return ", ".join(options)


def _print_table(lists: Mapping[str, Sequence[Entry]]) -> None:
    """Print each list below its name: names on the left, summaries and facts on the right."""
    from rich.table import Table
    from rich.text import Text

    from robaudit.cli.console import output

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, min_width=20)
    table.add_column()
    for kind, entries in lists.items():
        hint = f"  (options and more: robaudit list {kind})" if len(lists) > 1 else ""
        table.add_row(Text(kind, "bold"), Text(hint.strip(), "dim"))
        for entry in entries:
            facts = [
                f"\n{key}: {text}"
                for key, text in entry.items()
                if key not in ("of", "name", "summary") and text
            ]
            description = Text(entry["summary"]).append("".join(facts), "dim")
            table.add_row(Text(f"  {entry['name']}"), description)
            # An entry with all its facts takes several lines, so a gap follows.
            if len(lists) == 1:
                table.add_row()
        if len(lists) > 1:
            table.add_row()
    output().print(table)


def _schema(document: str) -> str:
    """A JSON schema.

    Args:
        document: ``spec``: of the spec, with the options of every installed estimator and noise;
            otherwise of the JSON that this command writes.
    """
    if document != "spec":
        from robaudit.report.ci.document import published

        return published(document)
    from robaudit.engine import registry
    from robaudit.noise import installed as noise_kinds
    from robaudit.spec.schema import spec_schema

    classes = {name: registry.load(name) for name in registry.registered()}
    kinds = {}
    for name in noise_kinds.registered():
        kind = noise_kinds.load(name)
        kinds[name] = (kind.level_name, kind)
    return json.dumps(spec_schema(classes, kinds), indent=2) + "\n"
