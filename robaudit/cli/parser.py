"""The parser: all commands of the program, those of plugins included."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from types import FunctionType
from typing import Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

from robaudit.cli import (
    catalogue,
    compare,
    demo,
    estimate,
    gate,
    init,
    measure_noise,
    plot,
    reading,
    report,
    validate,
    verify,
)
from robaudit.errors import RobauditError
from robaudit.files import expanded
from robaudit.plugins import COMMANDS, blaming, entry_point, load_object, names_in

_SHOW = "show"
_LIST = "list"
_HELP = {"help_option_names": ["-h", "--help"]}


class Program(TyperGroup):
    """All commands.

    Sections of ``show`` have options of their own, and are imported only when it is called: so the
    help of the program stays fast.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; while a shell completes a line, ``show`` with all its options."""
        if cmd_name == _SHOW and ctx.resilient_parsing:
            return _show()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called."""
        name, command, rest = super().resolve_command(ctx, args)
        if name == _SHOW:
            command = _show()
        return name, command, rest


@functools.cache
def program() -> TyperGroup:
    """The parser with all commands."""
    app = typer.Typer(
        name="robaudit",
        help="Audit how robust an image classifier is to everyday sensor noise: per-sample "
        "robustness with error bars.",
        epilog="Start with: robaudit demo",
        cls=Program,
        no_args_is_help=True,
        # main() prints errors in one line of its own.
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    app.callback()(catalogue.program)
    core: dict[str, Callable[..., Any]] = {
        "demo": demo.demo,
        "init": init.init,
        "measure-noise": measure_noise.measure_noise,
        "estimate": estimate.estimate,
        _SHOW: reading.show,
        "bias-report": reading.bias_report,
        "flag-samples": reading.flag_samples,
        "gate": gate.gate,
        "compare": compare.compare,
        "report": report.report,
        "plot": plot.plot,
        "validate": validate.validate,
        "verify": verify.verify,
    }
    for name, command in core.items():
        _add(app, name, command)
    for name in names_in(COMMANDS):
        # A plugin does not replace a command of ours.
        if name not in (*core, _LIST):
            _add_plugin(app, name)
    # Last on the help page: it is about the program itself.
    _add(app, _LIST, catalogue.list_)
    return cast("TyperGroup", get_command(app))


def commands() -> dict[str, Any]:
    """The commands by name, with all their options."""
    return {
        name: _show() if name == _SHOW else command for name, command in program().commands.items()
    }


@functools.cache
def _show() -> Any:
    """The command ``show`` with the options of all installed sections."""
    app = typer.Typer(context_settings=_HELP, pretty_exceptions_enable=False, add_completion=False)
    _add(app, _SHOW, reading.show_with_section_options())
    return get_command(app)


def _add_plugin(app: typer.Typer, name: str) -> None:
    """Add the command of a plugin.

    A broken one says what is wrong when it is called, and leaves the other commands alone.
    """
    try:
        command = load_object(COMMANDS, "command", name, FunctionType)
        _add(app, name, _blamed(name, command))
    except RobauditError as error:
        _add(app, name, _refusing(error))
    except Exception as error:  # noqa: BLE001
        # typer raises exceptions of many types for parameters that it does not understand.
        what = f"typer cannot read it: {type(error).__name__}: {error}"
        refusal = RobauditError(f"command {name}", what, "fix or uninstall the plugin")
        _add(app, name, _refusing(refusal))


def _blamed(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
    """A plugin's command, whose exceptions name the plugin."""

    @functools.wraps(command)
    def blamed(*args: Any, **options: Any) -> Any:
        with blaming(f"command {name}", entry_point(COMMANDS, "command", name)):
            return command(*args, **options)

    return blamed


def _refusing(error: RobauditError) -> Callable[..., Any]:
    """A command in place of a broken one."""

    def command() -> None:
        """A command whose plugin is broken."""
        raise error

    return command


def _add(app: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Add a command with its docstring as help."""
    # The command of show has a signature with types; the others have annotations as text.
    if not hasattr(command, "__signature__"):
        command.__annotations__ = get_type_hints(command, include_extras=True)
    for hint in command.__annotations__.values():
        type_and_option = get_args(hint)
        if type_and_option[:1] == (bool,):
            # typer would print a type for a switch.
            type_and_option[1].metavar = ""
    # Docstrings are wrapped for the source; on a help page the terminal wraps paragraphs.
    text = cleandoc(command.__doc__ or "").replace("\nExample:", "\n\nExample:")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    app.command(name, help="\n\n".join(paragraphs))(_at_home(command))


def _at_home(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with ``~`` in its paths expanded, which shells do not do in ``--out=~/run``."""

    @functools.wraps(command)
    def at_home(**options: Any) -> Any:
        return command(**{name: _path_at_home(value) for name, value in options.items()})

    return at_home


def _path_at_home(value: Any) -> Any:
    """A path, or each of a list of them, with ``~`` expanded; any other value unchanged."""
    if isinstance(value, list):
        return [_path_at_home(entry) for entry in value]
    return expanded(str(value)) if isinstance(value, Path) else value
