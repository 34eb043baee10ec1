"""What a command looks up in every process, looked up once for all commands of a test process.

Most tests of the command line run it in this process, many times. Each time it would build its parser, read the metadata of every
installed package and parse the text file of the digits again: most of the time of a small audit, and always with the same outcome.
Commands in processes of their own do all this as a user's do.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

import typer.main

from robaudit import plugins


def keep() -> None:
    """Look things up once from now on; to be called before anything has imported these functions by name."""
    program: Any = importlib.import_module("robaudit.cli.main")
    program.make_app = functools.cache(program.make_app)
    typer.main.get_command = functools.cache(typer.main.get_command)
    importlib.metadata.version = while_the_path_stays(importlib.metadata.version)
    importlib.metadata.entry_points = while_the_path_stays(importlib.metadata.entry_points)
    setattr(plugins, "entry_points", importlib.metadata.entry_points)  # noqa: B010  imported by name already


def keep_digits() -> None:
    """Read the digits once from now on: nobody can change the arrays."""
    from sklearn import datasets

    @functools.cache
    def load() -> Any:
        found = read()
        for array in (found.images, found.data, found.target):
            array.flags.writeable = False
        return found

    read, datasets.load_digits = datasets.load_digits, load


def while_the_path_stays(look: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its answers kept by ``sys.path``: a test's own packages are found there, and are gone with it."""

    @functools.cache
    def kept(_: tuple[str, ...], *args: str, **options: str) -> Any:
        return look(*args, **options)

    @functools.wraps(look)
    def found(*args: str, **options: str) -> Any:
        return kept(tuple(sys.path), *args, **options)

    return found
