"""The usual names of columns, and the visible files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from robaudit.errors import DataError

USUAL_PATHS = ("path", "file_name", "filename", "file", "filepath", "file_path", "image_path", "img_path", "image", "img")
"""Usual names of columns of image paths."""
USUAL_LABELS = (
    *("label", "labels", "class", "cls", "class_id", "class_idx", "class_name"),
    *("target", "category", "label_id", "label_name", "y"),
)
"""Usual names of columns of labels."""
METADATA = "metadata.csv"
"""The file with labels of the images in its folder, as in the library ``datasets``; its column of paths is ``file_name``."""


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column for the first of these names that exists, ignoring case; None if none does."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def visible_files(root: Path, inside: str = "") -> Iterator[str]:
    """The files below a folder (or its subfolder ``inside``) that are not hidden, as paths relative to ``root`` with slashes.

    Raises:
        DataError: a folder cannot be listed; without it, a class could be missing.
    """

    def refuse(error: OSError) -> NoReturn:
        raise DataError(str(error.filename), f"cannot be listed ({error.strerror})", "give folders that you may read") from None

    for place, folders, names in os.walk(root / inside, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(place).relative_to(root).as_posix()
        yield from (name if below == "." else f"{below}/{name}" for name in names if not name.startswith("."))


def visible_folders(folder: Path) -> list[str]:
    """The names of the subfolders that are not hidden, sorted.

    Raises:
        DataError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(str(folder), f"cannot be listed ({error.strerror})", "give a folder that you may read") from None
