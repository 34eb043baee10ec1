"""Python functions of the user: found by name, imported and called only once the user has said that the code is trusted."""

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
def user_function(target: str, folder: Path, refuse: Callable[[str, str], RobauditError]) -> Iterator[Callable[..., Any]]:
    """The function that ``package.module:function`` names; modules in ``folder`` can be imported while the block runs, and only then.

    The caller has made sure that the code is trusted.

    Args:
        target: the name, from a spec.
        folder: that of the spec file.
        refuse: makes the error to raise from what is wrong and what would be right.

    Raises:
        RobauditError: (of ``refuse``) there is no such module or function, or the import fails.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise refuse("is not a Python target", "write package.module:function")
    with _importable(folder, module_name):
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise refuse(f"no module {error.name!r}", "install it, or put the file beside the spec file") from None
        except Exception as error:  # noqa: BLE001  the user's module may raise anything
            raise refuse(f"importing {module_name} raised {describe(error)}", "repair the module") from None
        for part in attribute.split("."):
            if not hasattr(found, part):
                public = [name for name, value in getattr(found, "__dict__", {}).items() if callable(value) and not name.startswith("_")]
                raise refuse(f"{module_name} has no function {attribute!r}", did_you_mean(part, public))
            found = getattr(found, part)
        if not callable(found):
            raise refuse(f"{attribute} is {type(found).__name__}, not a function", "name a function")
        yield found


def describe(error: Exception) -> str:
    """An exception as ``ValueError: its message``."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextlib.contextmanager
def _importable(folder: Path, module_name: str) -> Iterator[None]:
    """Modules of the folder can be imported while the block runs.

    A module of the same name that came from another spec's folder is forgotten first, so that two specs in one process each get
    their own code.
    """
    home = folder.resolve()
    top, entry = module_name.partition(".")[0], str(home)
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
        if not known and Path(getattr(sys.modules.get(top), "__file__", None) or "/").is_relative_to(home):
            _imported_from[top] = home
