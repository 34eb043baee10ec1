"""Import the user's Python functions by name, from code that the user has declared trusted."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robaudit.errors import RobauditError, did_you_mean

_imported_from: dict[str, Path] = {}  # the spec's folder of each top-level module imported from one


@contextlib.contextmanager
def user_function(
    target: str, folder: Path, refuse: Callable[[str, str], RobauditError]
) -> Iterator[Callable[..., Any]]:
    """The function that ``package.module:function`` names.

    Modules in ``folder`` can be imported within the block only. The caller makes sure that the code
    is trusted.

    Args:
        target: the name, from a spec.
        folder: the folder of the spec file.
        refuse: builds the error from the problem and the remedy.

    Raises:
        RobauditError: (built by ``refuse``) there is no such module or function, or the import
            fails.
    """
    module_name, colon, attribute = target.partition(":")
    parts = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise refuse("is not a Python target", "write package.module:function")
    # The block includes the caller's: the function may import further modules when it is called.
    with _importable(folder, module_name):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise refuse(
                f"no module {error.name!r}", "install it, or put the file next to the spec"
            ) from None
        except Exception as error:  # noqa: BLE001  the user's module may raise anything
            raise refuse(
                f"importing {module_name} raised {describe(error)}", "fix the module"
            ) from None
        value: Any = module
        for part in attribute.split("."):
            if not hasattr(value, part):
                raise refuse(
                    f"{module_name} has no function {attribute!r}",
                    did_you_mean(part, _public_functions(value)),
                )
            value = getattr(value, part)
        if not callable(value):
            raise refuse(
                f"{attribute} is {type(value).__name__}, not a function", "name a function"
            )
        yield value


def _public_functions(owner: object) -> list[str]:
    """The names of the public callables of a module or a class."""
    members = getattr(owner, "__dict__", {})
    return [
        name for name, member in members.items() if callable(member) and not name.startswith("_")
    ]


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
        for name in list(sys.modules):
            if name == top or name.startswith(f"{top}."):
                del sys.modules[name]
        del _imported_from[top]
    was_imported = top in sys.modules
    sys.path.insert(0, entry)
    importlib.invalidate_caches()  # the file may be newer than Python's listing of the folder
    try:
        yield
    finally:
        if entry in sys.path:  # the user's code may have removed it
            sys.path.remove(entry)
        file = getattr(sys.modules.get(top), "__file__", None) or "/"
        if not was_imported and Path(file).is_relative_to(home):
            _imported_from[top] = home
