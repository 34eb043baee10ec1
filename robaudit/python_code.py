"""Import the user's Python functions by name, once the user has declared the code trusted."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robaudit.errors import RobauditError, did_you_mean

_imported_from: dict[str, Path] = {}  # top-level modules that came from a spec's folder


@contextlib.contextmanager
def user_function(
    target: str, folder: Path, refuse: Callable[[str, str], RobauditError]
) -> Iterator[Callable[..., Any]]:
    """The function that ``package.module:function`` names; modules in ``folder`` can be imported
    within the block only.

    The caller makes sure that the code is trusted.

    Args:
        target: the name, from a spec.
        folder: the spec file's.
        refuse: builds the error from the problem and the remedy.

    Raises:
        RobauditError: (built by ``refuse``) there is no such module or function, or the import
            fails.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not all(
        part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))
    ):
        raise refuse("is not a Python target", "write package.module:function")
    with _importable(folder, module_name):
        try:
            value: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise refuse(
                f"no module {error.name!r}", "install it, or put the file next to the spec"
            ) from None
        except Exception as error:  # noqa: BLE001  the user's module may raise anything
            raise refuse(
                f"importing {module_name} raised {describe(error)}", "fix the module"
            ) from None
        for part in attribute.split("."):
            if not hasattr(value, part):
                public = [
                    name
                    for name, member in getattr(value, "__dict__", {}).items()
                    if callable(member) and not name.startswith("_")
                ]
                raise refuse(
                    f"{module_name} has no function {attribute!r}", did_you_mean(part, public)
                )
            value = getattr(value, part)
        if not callable(value):
            raise refuse(
                f"{attribute} is {type(value).__name__}, not a function", "name a function"
            )
        yield value


def describe(error: Exception) -> str:
    """An exception as ``ValueError: its message``."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextlib.contextmanager
def _importable(folder: Path, module_name: str) -> Iterator[None]:
    """Make the modules of a folder importable within the block.

    A module of the same name from another spec's folder is forgotten first, so that two specs in
    one process each get their own code.
    """
    home = folder.resolve()
    top = module_name.partition(".")[0]
    entry = str(home)
    if _imported_from.get(top, home) != home:
        for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
            del sys.modules[name]
        del _imported_from[top]
    known = top in sys.modules
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)
        if not known and Path(
            getattr(sys.modules.get(top), "__file__", None) or "/"
        ).is_relative_to(home):
            _imported_from[top] = home
