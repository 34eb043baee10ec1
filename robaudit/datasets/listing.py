"""The usual names of columns, and the visible files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from robaudit.datasets.dataset import name_text
from robaudit.errors import DataError
from robaudit.text import count, printable

# Both are in order of precedence: the first name that a table has is its column.
USUAL_PATHS = (
    "path",
    "file_name",
    "filename",
    "file",
    "filepath",
    "file_path",
    "image_path",
    "img_path",
    "image",
    "img",
)
"""Usual names of columns of image paths."""
USUAL_LABELS = (
    "label",
    "labels",
    "class",
    "cls",
    "class_id",
    "class_idx",
    "class_name",
    "target",
    "category",
    "label_id",
    "label_name",
    "y",
)
"""Usual names of columns of labels."""
METADATA = "metadata.csv"
"""The file with labels of the images in its folder, as in the library ``datasets``.

Its column of paths is ``file_name``.
"""

_MOST_SHOWN = 3  # names in a warning


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column for the first of these names that exists, ignoring case; None if none does."""
    # Reversed, so that the first of two columns that differ only in case stays.
    by_lower_case = {column.lower(): column for column in reversed(columns)}
    return next((by_lower_case[name] for name in names if name in by_lower_case), None)


def visible_files(root: Path, inside: str = "") -> Iterator[str]:
    """The visible files below a folder, as paths relative to ``root`` with slashes.

    Files and folders whose names begin with a dot are hidden. A link to a folder is not followed,
    because it may lead in a circle. It is listed like a file, with a slash at the end.

    Args:
        root: the folder.
        inside: a subfolder, to list only its files.

    Raises:
        DataError: a folder cannot be listed; without it, a class could be missing.
    """

    def refuse(error: OSError) -> NoReturn:
        raise DataError(
            str(error.filename),
            f"cannot be listed ({error.strerror})",
            "give folders that you may read",
        ) from None

    # Texts instead of Path objects: a data set may have a million files.
    for place, folders, names in os.walk(root / inside, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]  # os.walk skips others
        links = [f"{name}/" for name in folders if os.path.islink(f"{place}/{name}")]  # noqa: PTH114
        below = Path(place).relative_to(root).as_posix()
        prefix = "" if below == "." else f"{below}/"
        for name in (*names, *links):
            if not name.startswith("."):
                yield f"{prefix}{name}"


def visible_folders(folder: Path) -> list[str]:
    """The names of the subfolders that are not hidden, sorted.

    Raises:
        DataError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
        return sorted(name for name in folders if not name.startswith("."))
    except OSError as error:
        raise DataError(
            str(folder), f"cannot be listed ({error.strerror})", "give a folder that you may read"
        ) from None


def is_link(name: str) -> bool:
    """Whether a path from `visible_files` is a linked folder."""
    return name.endswith("/")


def not_read(
    names: Sequence[str], noun: str, rest: str = "", shown: Iterable[str] | None = None
) -> str:
    """The part of a warning that counts files or folders which are not read; empty without any.

    An example: ``2 linked folders (cat/more, dog/more)``.

    Args:
        names: of the files or folders.
        noun: what they are.
        rest: what follows the noun.
        shown: the examples in the brackets; default: the first names.
    """
    if not names:
        return ""
    examples = list(names[: _MOST_SHOWN + 1] if shown is None else shown)
    listed = ", ".join(printable(name_text(name.rstrip("/"))) for name in examples[:_MOST_SHOWN])
    ellipsis = ", ..." if len(examples) > _MOST_SHOWN else ""
    return f"{count(len(names), noun)}{rest} ({listed}{ellipsis})"
