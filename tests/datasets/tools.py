"""What tests of several kinds of data sets need."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """The files below a folder that this process has open, nameless ones included."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except FileNotFoundError:  # that of this listing
            continue
    return sorted(name for name in found if name.startswith(f"{folder}{os.sep}"))
