"""Write docs/commands.md: every command with its arguments and options, taken from the program itself.

python -m tests.commands_page
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from robaudit.cli.main import make_app

PATH = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_HEAD = """# The commands

Written by `python -m tests.commands_page`. `robaudit COMMAND --help` prints the same in a terminal.
`robaudit --install-completion` makes your shell complete commands and options; `--show-completion` prints what it would install.
"""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option of a command."""

    flags: tuple[str, ...]  # none: an argument
    value: str  # what stands for its value; empty: a switch
    help: str
    default: str
    needed: bool


def commands() -> dict[str, Callable[..., Any]]:
    """The functions by the names of their commands."""
    return {str(one.name): one.callback for one in make_app().registered_commands if one.callback is not None}


def about(function: Callable[..., Any]) -> str:
    """What the command does, with its example."""
    return inspect.cleandoc(function.__doc__ or "")


def parameters(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Arguments and options in order."""
    hints = typing.get_type_hints(function, include_extras=True)
    for name, one in inspect.signature(function).parameters.items():
        if hints[name] is typer.Context:
            continue
        annotated, info = typing.get_args(hints[name])[:2]
        if isinstance(info, ArgumentInfo):
            flags: tuple[str, ...] = ()
        else:
            assert isinstance(info, OptionInfo), name
            first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []  # typer keeps it there
            flags = (*first, *(info.param_decls or ())) or (f"--{name.replace('_', '-')}",)
        yield Parameter(flags, _value(annotated, info, name), " ".join((info.help or "").split()), _default(one), one.default is one.empty)


def _plain(annotated: Any) -> Any:
    """The type without None and list."""
    if typing.get_origin(annotated) in (typing.Union, types.UnionType):
        return _plain(next(one for one in typing.get_args(annotated) if one is not types.NoneType))
    return _plain(typing.get_args(annotated)[0]) if typing.get_origin(annotated) is list else annotated


def _value(annotated: Any, info: ArgumentInfo | OptionInfo, name: str) -> str:
    plain = _plain(annotated)
    if plain is bool:
        return ""
    if inspect.isclass(plain) and issubclass(plain, Enum):
        return "|".join(str(choice.value) for choice in plain)
    return info.metavar or {int: "N", float: "NUMBER"}.get(plain, name.strip("_").upper())


def _default(one: inspect.Parameter) -> str:
    value = getattr(one.default, "value", one.default)
    return "" if value is one.empty or value is None or isinstance(value, bool) else str(value)


def text() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(line for name, function in commands().items() for line in _command(name, function))])


def _command(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"## robaudit {name}\n"
    yield about(function).replace("Example: ", "Example:\n\n    ") + "\n"
    ones = list(parameters(function))
    if ones:
        yield "| argument or option | meaning |\n|---|---|"
    for one in ones:
        left = ", ".join(f"`{flag} {one.value}`" if one.value else f"`{flag}`" for flag in one.flags) or f"`{one.value}`"
        default = f" Default: {one.default}." if one.default and "efault" not in one.help else ""
        yield f"| {left.replace('|', chr(92) + '|')} | {one.help.replace('|', chr(92) + '|').replace('<', '&lt;')}{default} |"
    yield ""


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
