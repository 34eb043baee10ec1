"""Recognise a data set by its path: what files and folders of each form are called, and the ``dataset`` section that reads them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp", ".gif"))
"""Of image files."""
SPLITS = ("test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "train", "training")
"""What the parts of a data set are called; those that an audit would rather take come first."""
USUAL_PATHS = ("path", "file_name", "filename", "file", "filepath", "file_path", "image_path", "img_path", "image", "img")
"""What columns of image paths are usually called."""
USUAL_LABELS = ("label", "labels", "class", "class_id", "class_idx", "class_name", "target", "category", "label_id", "label_name", "y")
"""What columns of labels are usually called."""
DELIMITERS = (",", ";", "\t")
"""Between the fields of a CSV file."""
JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON object on each line."""
METADATA = ("metadata.csv", "metadata.jsonl")
"""Files that give the labels of the images of their folder, as the library ``datasets`` has them."""
METADATA_PATH = "file_name"
"""Their column of paths."""

_SHARD = re.compile(r"(.+?)-\d+-of-\d+(-[0-9a-f]+)?")
_MOST_LISTED = 10**5  # entries of a folder that are looked at
_LONGEST_LINE = 2**20


def recognised(written: str, base: Path) -> dict[str, Any] | None:
    """The kind of a data set and the keys that its form needs; None where it is of none.

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
    if suffix in (".csv", ".tsv", *JSON_LINES):
        return {"kind": "manifest", "path": written, **_renamed(columns_of(path))}
    if suffix in (".parquet", ".pq"):
        return {"kind": "parquet", "path": written}
    compressed = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")  # its reader says what to do
    return {"kind": "webdataset", "path": written} if suffix == ".tar" or path.name.lower().endswith(compressed) else None


def is_pattern(written: str) -> bool:
    """Whether a path may name several files: with ``*``, ``?``, ``[ ]`` or a range ``{000..049}``."""
    return bool(re.search(r"[*?\[]|\{\d+\.\.\d+\}", written))


def _folder(written: str, path: Path) -> dict[str, Any]:
    if (path / "dataset_dict.json").is_file():
        return {"kind": "hf", "path": written, "split": preferred(_saved_splits(path))}
    if (path / "state.json").is_file():
        return {"kind": "hf", "path": written}
    if any((path / name).is_file() for name in METADATA):
        return {"kind": "images", "path": written}
    files = list(islice(_below(path), _MOST_LISTED))
    if tables := [file for file in files if file.suffix.lower() == ".parquet"]:
        splits = dict.fromkeys(split_of(file)[0] for file in tables)
        return {"kind": "hf", "path": written, "split": preferred(splits)} if len(splits) > 1 else {"kind": "parquet", "path": written}
    if tars := [file.relative_to(path) for file in files if file.suffix.lower() == ".tar"]:
        return {"kind": "webdataset", "path": written.rstrip("/") + _shards(tars)}
    return {"kind": "images", "path": written.rstrip("/") + _class_folders(path)}


def _shards(tars: Sequence[Path]) -> str:
    """What to add to the path of a folder of tars, so that it names one split."""
    groups = dict.fromkeys(re.sub(r"\d+$", "", file.with_suffix("").as_posix()) for file in tars)
    split_in = {group: preferred(words) for group in groups if (words := [word for word in _words(group) if word in SPLITS])}
    if len(groups) < 2 or not split_in:
        return ""
    best = preferred(split_in.values())
    return f"/{next(group for group in split_in if split_in[group] == best)}*.tar"


def _class_folders(path: Path) -> str:
    """What to add to the path of a folder of images, so that it is one split where there are splits of class folders."""
    folders = [name for name in _entries(path) if (path / name).is_dir()]
    if not folders or any(name.lower() not in SPLITS for name in folders):
        return ""
    best = preferred(folders)
    return f"/{best}" if len(folders) > 1 or any((path / best / name).is_dir() for name in _entries(path / best)) else ""


def preferred(splits: Iterable[str]) -> str:
    """The split that an audit would rather take: test, else validation, ..., else the first."""
    return min(splits, key=lambda name: SPLITS.index(name.lower()) if name.lower() in SPLITS else len(SPLITS))


def split_of(path: Path) -> tuple[str, Path]:
    """The split that a Parquet file belongs to, by its name or its folder's, and the folder that its data set is in."""
    shard = _SHARD.fullmatch(path.stem)
    if shard:
        return shard[1], path.parent
    named = next((word for word in _words(path.stem) if word in SPLITS), None)
    if named is not None:
        return named, path.parent
    return (path.parent.name, path.parent.parent) if path.parent.name in SPLITS else ("train", path.parent)


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column that has the most usual of these names, in whatever case."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def columns_of(path: Path) -> list[str]:
    """The names in the first line of a CSV or JSONL file; none where it has no such line."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LONGEST_LINE).decode("utf-8-sig")
        if path.suffix.lower() in JSON_LINES:
            return list(json.loads(line))
    except (OSError, ValueError, TypeError, RecursionError):
        return []
    delimiter = max(DELIMITERS, key=line.count)
    return [name.strip().strip('"') for name in line.split(delimiter)]


def _renamed(columns: Sequence[str]) -> dict[str, Any]:
    """The options for a manifest whose columns have other names than ours."""
    path, label = usual(USUAL_PATHS, columns), usual(USUAL_LABELS, columns)
    found = {"path_column": path if path and "path" not in columns else None, "label_column": label if "label" not in columns else None}
    return {key: name for key, name in found.items() if name is not None}


def _saved_splits(path: Path) -> list[str]:
    try:
        names = json.loads((path / "dataset_dict.json").read_bytes())["splits"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        names = []
    return [name for name in names if isinstance(name, str)] or ["test"] if isinstance(names, list) else ["test"]


def _words(text: str) -> list[str]:
    return re.split(r"[-._ /]", text)


def _below(path: Path) -> Iterator[Path]:
    """The visible files below a folder."""
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _entries(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))  # noqa: PTH208  names are enough
    except OSError:
        return []
