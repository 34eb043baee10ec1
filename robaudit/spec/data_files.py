"""Recognise a data set by its path, and write the ``dataset`` section that reads it."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from robaudit.errors import DataError

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp", ".gif"))
"""Suffixes of image files."""
SPLITS = ("test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "train", "training")
"""Names of splits, in order of preference."""
USUAL_PATHS = ("path", "file_name", "filename", "file", "filepath", "file_path", "image_path", "img_path", "image", "img")
"""Usual names of columns of image paths."""
USUAL_LABELS = (
    *("label", "labels", "class", "cls", "class_id", "class_idx", "class_name"),
    *("target", "category", "label_id", "label_name", "y"),
)
"""Usual names of columns of labels."""
DELIMITERS = (",", ";", "\t")
"""Delimiters of a CSV file."""
FORMS = {
    ".arrow": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tar": "webdataset",
    ".tar.gz": "webdataset",
    ".tgz": "webdataset",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The readers of the library ``datasets``, by file suffix."""
METADATA = "metadata.csv"
"""The file with labels of the images in its folder, as in the library ``datasets`` (also metadata.jsonl)."""
METADATA_PATH = "file_name"
"""The column of paths in this file."""

_SHARD = re.compile(r"(.+?)-\d+-of-\d+(-[0-9a-f]+)?")
_MOST_LISTED = 10**5  # entries of a folder that are examined
_LONGEST_LINE = 2**20


def recognised(written: str, base: Path) -> dict[str, Any] | None:
    """The kind of a data set and the keys that its files need; None if not recognised.

    Args:
        written: the path, relative to ``base``: a file, a folder, or a pattern of files.
        base: the folder of the spec.
    """
    path = base / written
    if path.is_dir():
        return _folder(written, path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return {"kind": "npz", "path": written}
    if suffix in (".csv", ".tsv"):
        return {"kind": "csv", "path": written, **_renamed(_columns_of(path))}
    return {"kind": "hf", "path": written} if form_of(written) else None


def form_of(name: str) -> str | None:
    """The reader of the library ``datasets`` for a file of this name, if any."""
    own_cache = name.rpartition("/")[2].startswith("cache-")  # beside what it has saved
    return None if own_cache else next((form for suffix, form in FORMS.items() if name.lower().endswith(suffix)), None)


def is_pattern(written: str) -> bool:
    """Whether a path may name several files: with ``*``, ``?`` or ``[ ]``."""
    return bool(re.search(r"[*?\[]", written))


def _folder(written: str, path: Path) -> dict[str, Any]:
    inner = written.rstrip("/")
    if (path / METADATA).is_file():
        return {"kind": "csv", "path": f"{inner}/{METADATA}", **_renamed(_columns_of(path / METADATA))}
    if any(form_of(name) for name in islice(visible_files(path), _MOST_LISTED)):
        return {"kind": "hf", "path": written}
    return {"kind": "images", "path": inner + _class_folders(path)}


def visible_files(root: Path, inside: str = "") -> Iterator[str]:
    """The files below a folder (or one folder in it) that are not hidden, as paths relative to ``root`` with slashes.

    Raises:
        DataError: a folder cannot be listed; without it, a class could be missing.
    """

    def refuse(error: OSError) -> NoReturn:
        raise DataError(str(error.filename), f"cannot be listed ({error.strerror})", "give folders that you may read") from None

    for place, folders, names in os.walk(root / inside, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(place).relative_to(root).as_posix()
        yield from (name if below == "." else f"{below}/{name}" for name in names if not name.startswith("."))


def _class_folders(path: Path) -> str:
    """The subfolder to add to the path of a folder of images, if it has splits of class folders."""
    folders = [name for name in _entries(path) if (path / name).is_dir()]
    if not folders or any(name.lower() not in SPLITS for name in folders):
        return ""
    best = preferred(folders)
    return f"/{best}" if len(folders) > 1 or any((path / best / name).is_dir() for name in _entries(path / best)) else ""


def preferred(splits: Iterable[str]) -> str:
    """The preferred split for an audit: test, otherwise validation, ..., otherwise the first."""
    return min(splits, key=lambda name: SPLITS.index(name.lower()) if name.lower() in SPLITS else len(SPLITS))


def split_of(path: Path) -> str:
    """The split that a data file of a folder belongs to, by its name or its folder's, as on the Hub; '' if they name none.

    ``test-00000-of-00002.parquet``, ``my_val_images.tar`` and ``test/data-00000-of-00001.arrow`` belong to test, val and test.
    """
    shard = _SHARD.fullmatch(path.stem)
    if shard and shard[1] != "data":
        return shard[1]
    return next((word for word in (*re.split(r"[-._ ]", path.stem), path.parent.name) if word in SPLITS), "")


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column with the most usual of these names, ignoring case."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def header_of(line: str) -> tuple[str, list[str]]:
    """The delimiter and the names of columns in the first line of a CSV file."""
    delimiter = str(max(DELIMITERS, key=line.count))
    return delimiter, [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]


def _columns_of(path: Path) -> list[str]:
    """The names in the first line of a CSV file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return header_of(file.readline(_LONGEST_LINE).decode("utf-8-sig"))[1]
    except (OSError, ValueError, csv.Error):
        return []


def _renamed(columns: Sequence[str]) -> dict[str, Any]:
    """The options for a CSV file whose columns have other names than ours."""
    path, label = usual(USUAL_PATHS, columns), usual(USUAL_LABELS, columns)
    found = {"path_column": path if path and "path" not in columns else None, "label_column": label if "label" not in columns else None}
    return {key: name for key, name in found.items() if name is not None}


def _entries(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))  # noqa: PTH208  names are enough
    except OSError:
        return []
