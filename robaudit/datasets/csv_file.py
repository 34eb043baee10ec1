"""A CSV file of image paths and labels as a data set."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TextIO

from pydantic import Field

from robaudit.datasets.base import boundary, different, find, reason
from robaudit.datasets.classes import text_labels
from robaudit.datasets.image_set import ImageSet
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.data_files import DELIMITERS, SUFFIXES, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.spec.model import FilesSpec

_LONGEST_LINE = 2**20  # characters; a longer line is read in pieces, which are not rows


class CsvSpec(FilesSpec):
    """A CSV file with columns path, label and optionally id; paths are relative to the file."""

    kind: Literal["csv"] = "csv"
    path_column: str = "path"
    label_column: str | None = Field("label", description="null: no labels")
    id_column: str = Field("id", description="where there is no such column, ids are the paths")

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the rows; other columns are ignored, and an empty label means no label.

        Until the columns are known, no message quotes the file: it may be any file.

        Raises:
            DataError: the file is not such a table, or its ids or labels are invalid.
        """
        from robaudit.datasets.decode import file_pixels  # imports torch, which reading a spec does not need

        path = find(self.path, base_dir, "file")
        found, labels, names = self._table(path), None, self.class_names
        if "label" in found:
            labels, names = text_labels(found["label"], self.path, self.class_names, self.class_ids)
        decode = partial(file_pixels, folder=path.parent, root=boundary(self.root, base_dir, path.parent), options=self)
        ids = different(found.get("id", found["path"]), self.path)
        return ImageSet(self.path, found["path"], decode, labels=labels, ids=ids, class_names=names)

    def column(self, name: str, base_dir: Path) -> list[str]:
        """A further column.

        Raises:
            DataError: there is no column of this name.
        """
        return self._table(find(self.path, base_dir, "file"), name)["other"]

    def _table(self, path: Path, other: str | None = None) -> dict[str, list[str]]:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _read(self, file, other)
        except UnicodeDecodeError:
            raise DataError(self.path, "is not UTF-8 text", "save the file as UTF-8") from None
        except OSError as error:
            raise DataError(self.path, f"cannot be read ({reason(error)})", "give a file that you may read") from None


def _read(spec: CsvSpec, file: TextIO, other: str | None) -> dict[str, list[str]]:
    """The values of the columns by their use: path, label, id, other."""
    lines: Iterator[str] = iter(partial(file.readline, _LONGEST_LINE), "")
    head = next(lines, "")
    delimiter = _delimiter(spec, head)
    reader = csv.reader(chain([head], lines), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        places = _columns(spec, header, other)
        found: dict[str, list[str]] = {use: [] for use in places}
        for fields in reader:
            if not fields:
                continue
            where = f"{spec.path}:{reader.line_num}"
            if len(fields) != len(header):
                what = f"has {len(fields)} fields, but the header has {len(header)}"
                raise DataError(where, what, f"quote fields with {delimiter!r}")
            for use, place in places.items():
                text = fields[place] if use == "other" else fields[place].strip()
                if not text and use in ("path", "id"):
                    raise DataError(where, f"has an empty {header[place]}", "fill it in, or remove the line")
                found[use].append(sys.intern(text) if use == "label" else text)
    except csv.Error as error:
        raise DataError(f"{spec.path}:{reader.line_num}", f"is not valid CSV ({error})", 'fields are quoted by "') from None
    return found


def _delimiter(spec: CsvSpec, header: str) -> str:
    """The delimiter that gives the header a path column, otherwise the most frequent one."""
    for delimiter in DELIMITERS:
        if spec.path_column in (name.strip().strip('"') for name in header.split(delimiter)):
            return delimiter
    return str(max(DELIMITERS, key=header.count))


def _columns(spec: CsvSpec, header: Sequence[str], other: str | None) -> dict[str, int]:
    """The places of the columns by their use; those of label and id may be absent under their usual names."""
    path, label, key = spec.path_column, spec.label_column, spec.id_column
    if path not in header:
        raise DataError(spec.path, f"has no column {path!r} in its first line", _remedy(spec, header))
    for option, name, usually in (("label_column", label, "label"), ("id_column", key, "id")):
        if name not in (None, usually, *header):
            raise DataError(spec.path, f"has no column {name!r}", f"{option}: {did_you_mean(str(name), header)}")
    if label is not None and label not in header and (near := usual(USUAL_LABELS, header)) is not None:
        raise DataError(spec.path, f"has no column {label!r}, but {near!r}", f"set label_column: {near} (null: no labels)")
    for name in (path, label, key):
        if name is not None and header.count(name) > 1:
            raise DataError(spec.path, f"has the column {name!r} twice", "keep one")
    if other is not None and other not in header:
        raise DataError(spec.path, f"has no column {other!r}", f"it has {', '.join(header)}")
    uses = {"path": path, "label": label, "id": key, "other": other}
    return {use: header.index(name) for use, name in uses.items() if name is not None and name in header}


def _remedy(spec: CsvSpec, header: Sequence[str]) -> str:
    """The options that would make a header without our columns work; only usual names are quoted from the file."""
    if any(name.lower().endswith(tuple(SUFFIXES)) for name in header):
        return "begin the file with a line that names its columns, such as path,label"
    if (path := usual(USUAL_PATHS, header)) is None:
        return "columns are separated by commas, semicolons or tabs; set path_column to the one that holds the paths of the images"
    label = None if spec.label_column in header else usual(USUAL_LABELS, header)
    return f"set path_column: {path}" + (f" and label_column: {label}" if label else "")
