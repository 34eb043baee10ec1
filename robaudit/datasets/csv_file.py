"""A CSV file of image paths and labels as a data set."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np

from robaudit.datasets.base import Labels, Sample, boundary, different, find, reason
from robaudit.datasets.classes import class_indices
from robaudit.datasets.decode import read_image
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.data_files import DELIMITERS, SUFFIXES, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.spec.model import CsvSpec

_LONGEST_LINE = 2**20  # characters; a longer line is read in pieces, which are no rows


class CsvDataset:
    """Rows of a CSV file (UTF-8) with the column path and, optionally, label and id, by these or other names; other columns are ignored.

    Paths are relative to the file. A sample's id is its id, or its path as written. An empty label means no label.
    Until the columns are found, no message quotes the file: it may be any file.
    """

    def __init__(self, spec: CsvSpec, *, base_dir: Path) -> None:
        self.where, self._spec = spec.path, spec
        path = find(spec.path, base_dir, "file")
        self._folder, self._root = path.parent, boundary(spec.root, base_dir, path.parent)
        self._paths, self._ids = list[str](), list[str]()
        self._labels: Labels | None = None
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                texts, lines = self._read(file)
        except UnicodeDecodeError:
            raise DataError(self.where, "is not UTF-8 text", "save the file as UTF-8") from None
        except OSError as error:
            raise DataError(self.where, f"cannot be read ({reason(error)})", "give a file that you may read") from None
        different(self._ids, self.where, "add a column id to use a path twice" if self._ids is self._paths else "ids must differ")
        indices, self.class_names = class_indices(lines, self.where, spec.class_names, spec.class_ids)
        if texts is not None:
            self._labels = np.array([indices.get(text, -1) for text in texts], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._paths)

    def sample_id(self, index: int) -> str:
        """The row's id, or its path as written."""
        return self._ids[index]

    def labels(self) -> Labels | None:
        """The class of every row (-1: none), or None without a label column."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one row.

        Raises:
            SampleError: it cannot be decoded, or lies elsewhere.
        """
        path = self._paths[index]
        pixels = read_image(self._folder / path, f"{self.where}, {path}", self._spec, self._root)
        label = -1 if self._labels is None else int(self._labels[index])
        return Sample(self._ids[index], pixels, None if label < 0 else label)

    def _read(self, file: TextIO) -> tuple[list[str] | None, dict[str, int]]:
        """Read paths and ids; returns the label of every row as text, and the line on which each label first appears."""
        lines: Iterator[str] = iter(partial(file.readline, _LONGEST_LINE), "")
        first = next(lines, "")
        delimiter = self._delimiter(first)
        reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
        texts, first_lines, same = list[str](), dict[str, int](), dict[str, str]()
        try:
            header = [name.strip() for name in next(reader, [])]
            path, label, key = self._columns(header)
            for fields in reader:
                if not fields:
                    continue
                where = f"{self.where}:{reader.line_num}"
                if len(fields) != len(header):
                    what = f"has {len(fields)} fields, but the header has {len(header)}"
                    raise DataError(where, what, f"quote fields with {delimiter!r}")
                name = fields[path].strip()
                if not name or (key is not None and not fields[key].strip()):
                    what = f"has an empty {self._spec.id_column if name else self._spec.path_column}"
                    raise DataError(where, what, "fill it in, or remove the line")
                self._paths.append(name)
                if key is not None:
                    self._ids.append(fields[key].strip())
                if label is not None:
                    text = fields[label].strip()
                    texts.append(same.setdefault(text, text))
                    if text:
                        first_lines.setdefault(text, reader.line_num)
        except csv.Error as error:
            raise DataError(f"{self.where}:{reader.line_num}", f"is not valid CSV ({error})", 'fields are quoted by "') from None
        if key is None:
            self._ids = self._paths
        return None if label is None else texts, first_lines

    def _delimiter(self, header: str) -> str:
        """The delimiter that makes the path's column one of the header's, else the most frequent one."""
        for delimiter in DELIMITERS:
            if self._spec.path_column in (name.strip().strip('"') for name in header.split(delimiter)):
                return delimiter
        return str(max(DELIMITERS, key=header.count))

    def _columns(self, header: Sequence[str]) -> tuple[int, int | None, int | None]:
        """The places of path, label and id; the last two may be absent under their usual names."""
        path, label, key = self._spec.path_column, self._spec.label_column, self._spec.id_column
        if path not in header:
            raise DataError(self.where, f"has no column {path!r} in its first line", self._remedy(header))
        for option, name, usually in (("label_column", label, "label"), ("id_column", key, "id")):
            if name not in (None, usually, *header):
                raise DataError(self.where, f"has no column {name!r}", f"{option}: {did_you_mean(str(name), header)}")
        if label is not None and label not in header and (other := usual(USUAL_LABELS, header)) is not None:
            raise DataError(self.where, f"has no column {label!r}, but {other!r}", f"set label_column: {other} (null: no labels)")
        for name in (path, label, key):
            if name is not None and header.count(name) > 1:
                raise DataError(self.where, f"has the column {name!r} twice", "keep one")
        places = (header.index(name) if name is not None and name in header else None for name in (label, key))
        return header.index(path), next(places), next(places)

    def _remedy(self, header: Sequence[str]) -> str:
        """The options that would make a header without our columns work; of the file, only names that are usual are told."""
        if any(name.lower().endswith(tuple(SUFFIXES)) for name in header):
            return "begin the file with a line that names its columns, such as path,label"
        if (path := usual(USUAL_PATHS, header)) is None:
            return "columns are separated by commas, semicolons or tabs; set path_column to the one that holds the paths of the images"
        label = None if self._spec.label_column in header else usual(USUAL_LABELS, header)
        return f"set path_column: {path}" + (f" and label_column: {label}" if label else "")
