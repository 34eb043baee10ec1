"""A CSV file of image paths and labels as a data set."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
from pydantic import Field

from robaudit.datasets.base import boundary, different, find, reason
from robaudit.datasets.classes import class_indices
from robaudit.datasets.files import FileDataset
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.data_files import DELIMITERS, SUFFIXES, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.spec.model import FilesSpec

_LONGEST_LINE = 2**20  # characters; a longer line is read in pieces, which are not rows


@dataclass(slots=True)
class _Rows:
    """Paths, ids and labels of a CSV file; ids and labels are None without such a column.

    Attributes:
        first: the line on which each label first appears.
        others: the values of a further requested column.
    """

    ids: list[str] | None
    labels: list[str] | None
    paths: list[str] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


class CsvSpec(FilesSpec):
    """A CSV file with columns path, label and optionally id; paths are relative to the file."""

    kind: Literal["csv"] = "csv"
    path_column: str = "path"
    label_column: str | None = Field("label", description="null: no labels")
    id_column: str = Field("id", description="where there is no such column, ids are the paths")

    def open(self, base_dir: Path, *, trust: bool) -> FileDataset:
        """Read the rows; other columns are ignored, and an empty label means no label.

        Until the columns are known, no message quotes the file: it may be any file.

        Raises:
            DataError: the file is not such a table, or its ids or labels are invalid.
        """
        rows, path = self._rows(base_dir)
        root = boundary(self.root, base_dir, path.parent)
        different(rows.ids or rows.paths, self.path, "ids must differ" if rows.ids else "add a column id to use a path twice")
        indices, names = class_indices(rows.first, self.path, self.class_names, self.class_ids)
        labels = None if rows.labels is None else np.array([indices.get(text, -1) for text in rows.labels], dtype=np.int64)
        return FileDataset((self.path, f"{self.path}, "), path.parent, root, rows.paths, labels, self, names, rows.ids)

    def column(self, name: str, base_dir: Path) -> list[str]:
        """A further column.

        Raises:
            DataError: there is no column of this name.
        """
        return self._rows(base_dir, name)[0].others

    def _rows(self, base_dir: Path, other: str | None = None) -> tuple[_Rows, Path]:
        path = find(self.path, base_dir, "file")
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _read(self, file, other), path
        except UnicodeDecodeError:
            raise DataError(self.path, "is not UTF-8 text", "save the file as UTF-8") from None
        except OSError as error:
            raise DataError(self.path, f"cannot be read ({reason(error)})", "give a file that you may read") from None


def _read(spec: CsvSpec, file: TextIO, other: str | None) -> _Rows:
    lines: Iterator[str] = iter(partial(file.readline, _LONGEST_LINE), "")
    first = next(lines, "")
    delimiter = _delimiter(spec, first)
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    same = dict[str, str]()
    try:
        header = [name.strip() for name in next(reader, [])]
        path, label, key = _columns(spec, header)
        if other is not None and other not in header:
            raise DataError(spec.path, f"has no column {other!r}", f"it has {', '.join(header)}")
        further = None if other is None else header.index(other)
        rows = _Rows(None if key is None else [], None if label is None else [])
        for fields in reader:
            if not fields:
                continue
            where = f"{spec.path}:{reader.line_num}"
            if len(fields) != len(header):
                what = f"has {len(fields)} fields, but the header has {len(header)}"
                raise DataError(where, what, f"quote fields with {delimiter!r}")
            name = fields[path].strip()
            if not name or (key is not None and not fields[key].strip()):
                raise DataError(where, f"has an empty {spec.id_column if name else spec.path_column}", "fill it in, or remove the line")
            rows.paths.append(name)
            if further is not None:
                rows.others.append(fields[further])
            if key is not None and rows.ids is not None:
                rows.ids.append(fields[key].strip())
            if label is not None and rows.labels is not None:
                text = fields[label].strip()
                rows.labels.append(same.setdefault(text, text))
                if text:
                    rows.first.setdefault(text, reader.line_num)
    except csv.Error as error:
        raise DataError(f"{spec.path}:{reader.line_num}", f"is not valid CSV ({error})", 'fields are quoted by "') from None
    return rows


def _delimiter(spec: CsvSpec, header: str) -> str:
    """The delimiter that gives the header a path column, otherwise the most frequent one."""
    for delimiter in DELIMITERS:
        if spec.path_column in (name.strip().strip('"') for name in header.split(delimiter)):
            return delimiter
    return str(max(DELIMITERS, key=header.count))


def _columns(spec: CsvSpec, header: Sequence[str]) -> tuple[int, int | None, int | None]:
    """The indices of path, label and id; the last two may be absent under their usual names."""
    path, label, key = spec.path_column, spec.label_column, spec.id_column
    if path not in header:
        raise DataError(spec.path, f"has no column {path!r} in its first line", _remedy(spec, header))
    for option, name, usually in (("label_column", label, "label"), ("id_column", key, "id")):
        if name not in (None, usually, *header):
            raise DataError(spec.path, f"has no column {name!r}", f"{option}: {did_you_mean(str(name), header)}")
    if label is not None and label not in header and (other := usual(USUAL_LABELS, header)) is not None:
        raise DataError(spec.path, f"has no column {label!r}, but {other!r}", f"set label_column: {other} (null: no labels)")
    for name in (path, label, key):
        if name is not None and header.count(name) > 1:
            raise DataError(spec.path, f"has the column {name!r} twice", "keep one")
    places = (header.index(name) if name is not None and name in header else None for name in (label, key))
    return header.index(path), next(places), next(places)


def _remedy(spec: CsvSpec, header: Sequence[str]) -> str:
    """The options that would make a header without our columns work; only usual names are quoted from the file."""
    if any(name.lower().endswith(tuple(SUFFIXES)) for name in header):
        return "begin the file with a line that names its columns, such as path,label"
    if (path := usual(USUAL_PATHS, header)) is None:
        return "columns are separated by commas, semicolons or tabs; set path_column to the one that holds the paths of the images"
    label = None if spec.label_column in header else usual(USUAL_LABELS, header)
    return f"set path_column: {path}" + (f" and label_column: {label}" if label else "")
