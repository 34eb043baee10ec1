"""From where may trusted Python code be imported, and for how long?"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

_imported_from: dict[str, Path] = {}  # top-level modules that came from a spec's folder


@contextlib.contextmanager
def importable(folder: Path, module_name: str) -> Iterator[None]:
    """Make the modules of a spec's folder importable while the block runs.

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
