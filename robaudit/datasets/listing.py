"""The usual names of columns, and the visible files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from robaudit.datasets.dataset import name_text
from robaudit.errors import DataError
from robaudit.text import count, printable

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
    *("label", "labels", "class", "cls", "class_id", "class_idx", "class_name"),
    *("target", "category", "label_id", "label_name", "y"),
)
"""Usual names of columns of labels."""
METADATA = "metadata.csv"
"""The file with labels of the images in its folder, as in the library ``datasets``; its column of
paths is ``file_name``."""

_SHOWN = 3  # names


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column for the first of these names that exists, ignoring case; None if none does."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def visible_files(root: Path, inside: str = "") -> Iterator[str]:
    """The files below a folder (or its subfolder ``inside``) that are not hidden, as paths relative
    to ``root`` with slashes.

    A link to a folder is not followed, because it may lead in a circle. It is listed like a file,
    with a slash at the end.

    Raises:
        DataError: a folder cannot be listed; without it, a class could be missing.
    """

    def refuse(error: OSError) -> NoReturn:
        raise DataError(
            str(error.filename),
            f"cannot be listed ({error.strerror})",
            "give folders that you may read",
        ) from None

    for place, folders, names in os.walk(root / inside, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [f"{name}/" for name in folders if os.path.islink(f"{place}/{name}")]  # noqa: PTH114
        below = Path(place).relative_to(root).as_posix()
        yield from (
            name if below == "." else f"{below}/{name}"
            for name in (*names, *links)
            if not name.startswith(".")
        )


def visible_folders(folder: Path) -> list[str]:
    """The names of the subfolders that are not hidden, sorted.

    Raises:
        DataError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
            )
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
    """Files or folders that are not read, for a warning: ``2 linked folders (cat/more, dog/more)``;
    empty without any.

    Args:
        names: of the files or folders.
        noun: what they are.
        rest: what follows the noun.
        shown: the examples in the brackets; default: the first names.
    """
    if not names:
        return ""
    examples = list(names[: _SHOWN + 1] if shown is None else shown)
    listed = ", ".join(printable(name_text(name.rstrip("/"))) for name in examples[:_SHOWN])
    return f"{count(len(names), noun)}{rest} ({listed}{', ...' if len(examples) > _SHOWN else ''})"
