"""A CSV or JSONL file of image paths and labels as a data set that remembers where each row begins, not its text."""

from __future__ import annotations

import csv
import json
import os
import re
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from robaudit.datasets.base import Labels, Sample, find, reason
from robaudit.datasets.classes import class_indices
from robaudit.datasets.decode import read_image
from robaudit.errors import DataError, did_you_mean
from robaudit.files import expanded
from robaudit.spec.data_files import DELIMITERS, JSON_LINES, SUFFIXES, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.spec.model import ManifestSpec
from robaudit.text import clipped

_COLUMNS = ("path", "label", "id")
_LONGEST_LINE = 2**20


class ManifestDataset:
    """Rows of a CSV file (UTF-8) with the column path and, optionally, label and id, by these or other names; other columns are ignored.

    A file that ends in .jsonl has a JSON object on each line instead. Paths are relative to the file or absolute, and may lead anywhere,
    but only to regular files. A sample's id is its id, or its path as written. An empty label means no label.

    A row takes 12 bytes, however long it is: its byte offset and the code of its label. It is read again from the file, which stays
    open, through one descriptor for all threads, as long as the data set exists.
    """

    def __init__(self, spec: ManifestSpec, *, base_dir: Path, where: str | None = None) -> None:
        self.where, self._spec = where or spec.path, spec
        self._path = find(spec.path, base_dir, "file")
        self._starts, self._codes = array("q"), array("i")  # of every row: its byte offset, and the code of its label (-1: none)
        self._end = self._longest = 0  # the offset after the last row, and the bytes of the longest one
        self._columns: dict[str, int] = {}  # the place of each of our columns that the header has
        self._json = self._path.suffix.lower() in JSON_LINES
        self._delimiter: str = spec.delimiter or ","
        self._open()
        first_lines = self._scan()
        indices, names = class_indices(first_lines, self.where, spec.class_names, spec.class_ids)
        self.class_names: tuple[str, ...] | None = names
        self._by_code = np.array([*(indices[text] for text in first_lines), -1], dtype=np.int64)  # code -1 is the last entry

    def __len__(self) -> int:
        return len(self._starts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_descriptor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()  # each process opens its own

    def sample_id(self, index: int) -> str:
        """The row's id, or its path as written."""
        return self._row(index)[1]

    def labels(self) -> Labels | None:
        """The class of every row (-1: none), looked up each time, or None without a label column."""
        return self._by_code[np.frombuffer(self._codes, dtype=np.int32)] if "label" in self._columns else None

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one row.

        Raises:
            SampleError: it cannot be decoded.
        """
        path, sample_id = self._row(index)
        pixels = read_image(self._path.parent / expanded(path), f"{self.where}, {path}", self._spec)
        label = int(self._by_code[self._codes[index]])
        return Sample(sample_id, pixels, None if label < 0 else label)

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise DataError(self.where, f"cannot be read ({reason(error)})", "give a file that you may read") from None
        weakref.finalize(self, os.close, self._descriptor)

    def _row(self, index: int) -> tuple[str, str]:
        """Path and id of one row, read from the file."""
        index = range(len(self))[index]
        start, end = self._starts[index], self._starts[index + 1] if index + 1 < len(self) else self._end
        try:
            # between two rows there are only empty lines, which the reader skips
            text = os.pread(self._descriptor, min(end - start, self._longest), start).decode("utf-8")
            fields = self._json_fields(text, self.where) if self._json else next(csv.reader([text], delimiter=self._delimiter, strict=True))
            return self._path_and_id(fields)
        except (OSError, ValueError, csv.Error, IndexError, StopIteration, DataError) as error:
            raise DataError(self.where, f"changed while it was in use ({reason(error)})", "start again") from None

    def _path_and_id(self, fields: list[str]) -> tuple[str, str]:
        path = fields[self._columns["path"]].strip()
        return path, fields[self._columns["id"]].strip() if "id" in self._columns else path

    def _scan(self) -> dict[str, int]:
        """Check every row and note where it begins; returns each distinct label with the line on which it first appears.

        Raises:
            DataError: bad encoding or quoting, no path column, too few or too many fields, an empty path or id, an id that appears twice.
        """
        hashes, codes, first_lines = array("q"), dict[str, int](), dict[str, int]()
        try:
            with os.fdopen(self._descriptor, "rb", closefd=False) as file:
                lines = _Lines(file, self.where)
                reader, width = self._rows(lines)
                start, line = (0, lines.number) if self._json else (lines.offset, lines.number + 1)
                for fields in reader:  # csv.DictReader skips empty lines and does not say where a row begins
                    if fields:
                        hashes.append(hash(self._checked_id(fields, width, f"{self.where}:{line}")))
                        self._starts.append(start)
                        self._end, self._longest = lines.offset, max(self._longest, lines.offset - start)
                        label = fields[self._columns["label"]].strip() if "label" in self._columns else ""
                        self._codes.append(codes.setdefault(label, len(codes)) if label else -1)
                        if label:
                            first_lines.setdefault(label, line)
                    start, line = lines.offset, lines.number + 1
        except OSError as error:
            raise DataError(self.where, f"cannot be read ({reason(error)})", "give a file that you may read") from None
        except csv.Error as error:
            remedy = f'fields are separated by {_spoken(self._delimiter)} and quoted by "'
            raise DataError(f"{self.where}:{lines.number}", f"is not valid CSV ({error})", remedy) from None
        self._refuse_duplicates(hashes)
        return first_lines

    def _rows(self, lines: _Lines) -> tuple[Iterable[list[str]], int]:
        """The rows after the header, empty where the line is, and the number of fields that each must have."""
        texts = iter(lines)
        first = next(texts, "")
        if not self._json:
            self._delimiter = self._spec.delimiter or self._guessed(first)
            reader = csv.reader(chain([first] if first else [], texts), delimiter=self._delimiter, strict=True)
            return reader, self._read_header(next(reader, []))
        while first and not first.strip():
            first = next(texts, "")
        self._read_header(list(_object(first, f"{self.where}:{lines.number}")) if first else [])
        self._columns = {name: place for place, name in enumerate(_COLUMNS) if name in self._columns}
        return (self._json_fields(text, f"{self.where}:{lines.number}") for text in chain([first], texts)), len(_COLUMNS)

    def _guessed(self, header: str) -> str:
        """The delimiter that makes the path's column one of the header's, else the most frequent one."""
        for delimiter in DELIMITERS:
            if self._spec.path_column in (name.strip().strip('"') for name in header.split(delimiter)):
                return delimiter
        return str(max(DELIMITERS, key=header.count))

    def _json_fields(self, text: str, where: str) -> list[str]:
        """Path, label and id of a line of JSON, as text."""
        text = text.lstrip("\ufeff")
        if not text.strip():
            return []
        values = _object(text, where)
        fields = []
        for name, key in zip(_COLUMNS, self._keys(), strict=True):
            value = values.get(key) if key is not None and name in self._columns else None
            if isinstance(value, bool | float | list | dict):
                raise DataError(where, f"its {key!r} is {clipped(json.dumps(value), 60)}", "it must be text or a whole number")
            fields.append("" if value is None else str(value))
        return fields

    def _keys(self) -> tuple[str, str | None, str]:
        """What our columns are called in this file."""
        return self._spec.path_column, self._spec.label_column, self._spec.id_column

    def _read_header(self, header: list[str]) -> int:
        """Note the places of our columns; returns how many columns there are."""
        names = [name.strip() for name in header]
        path, label, sample_id = self._keys()
        held = clipped(", ".join(names[:20]), 200) or "none"
        if path not in names:
            raise DataError(self.where, f"has no column {path!r} in its first line (columns: {held})", self._renamed(names))
        for option, key, usually in (("label_column", label, "label"), ("id_column", sample_id, "id")):
            if key not in (None, usually, *names):
                raise DataError(self.where, f"has no column {key!r} (columns: {held})", f"{option}: {did_you_mean(str(key), names)}")
        if label is not None and label not in names and (other := usual(USUAL_LABELS, names)) is not None:
            raise DataError(self.where, f"has no column {label!r}, but {other!r}", f"set label_column: {other} (null: no labels)")
        for key in self._keys():
            if key is not None and names.count(key) > 1:
                raise DataError(self.where, f"has the column {key!r} twice", "keep one")
        places = {name: key for name, key in zip(_COLUMNS, self._keys(), strict=True) if key is not None and key in names}
        self._columns = {name: names.index(key) for name, key in places.items()}
        return len(names)

    def _renamed(self, names: Sequence[str]) -> str:
        """The options that would make a header without our columns work."""
        if any(os.path.splitext(name)[1].lower() in SUFFIXES for name in names):  # noqa: PTH122
            return "begin the file with a line that names its columns, such as path,label"
        if len(names) < 2 and self._spec.path_column in re.split(r"\W", names[0] if names else "") and not self._json:
            return f"separate the columns by {', '.join(map(_spoken, DELIMITERS[:-1]))} or {_spoken(DELIMITERS[-1])}"
        if self._spec.path_column != "path" or (path := usual(USUAL_PATHS, names)) is None:
            return did_you_mean(self._spec.path_column, names)
        label = None if self._spec.label_column in names else usual(USUAL_LABELS, names)
        return f"set path_column: {path}" + (f" and label_column: {label}" if label else "")

    def _checked_id(self, fields: list[str], width: int, where: str) -> str:
        if len(fields) != width:
            few = "few" if len(fields) < width else "many"
            raise DataError(
                where, f"has {len(fields)} fields, too {few}: the header has {width}", f"quote fields with {_spoken(self._delimiter)}"
            )
        path, sample_id = self._path_and_id(fields)
        if not path or not sample_id:
            raise DataError(
                where, f"has an empty {self._spec.id_column if path else self._spec.path_column}", "fill it in, or remove the line"
            )
        return sample_id

    def _refuse_duplicates(self, hashes: array[int]) -> None:
        """Refuse an id that appears twice: so does its hash, and rows with such hashes are read again and compared as text."""
        values = np.frombuffer(hashes, dtype=np.int64)
        values.sort()  # in place
        suspects = set(values[1:][values[1:] == values[:-1]].tolist())
        seen: dict[str, int] = {}
        for index in range(len(self)) if suspects else ():
            sample_id = self.sample_id(index)
            if hash(sample_id) in suspects and seen.setdefault(sample_id, index) != index:
                what = f"lines {self._line(seen[sample_id])} and {self._line(index)} have the same id {sample_id!r}"
                raise DataError(self.where, what, "ids must differ" if "id" in self._columns else "add a column id to use a path twice")

    def _line(self, index: int) -> int:
        """The line (from 1) on which a row begins, counted for a message."""
        at, count = 0, 1
        while at < self._starts[index] and (chunk := os.pread(self._descriptor, min(self._starts[index] - at, 1 << 20), at)):
            count += chunk.count(b"\n")
            at += len(chunk)
        return count


def _spoken(delimiter: str) -> str:
    return {",": "commas", ";": "semicolons", "\t": "tabs"}[delimiter]


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise DataError(where, "is not a JSON object", 'each line is an object such as {"path": "a.png", "label": 0}')
    return values


class _Lines:
    """The lines of a binary file as text, with the number and the end offset of the last one given."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where = file, where
        self.offset = self.number = 0

    def __iter__(self) -> Iterator[str]:
        while raw := self._file.readline(_LONGEST_LINE + 1):
            self.offset += len(raw)
            self.number += 1
            if len(raw) > _LONGEST_LINE:
                raise DataError(f"{self._where}:{self.number}", f"the line has more than {_LONGEST_LINE} bytes", "give a CSV file")
            try:
                yield raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DataError(f"{self._where}:{self.number}", "is not UTF-8 text", "save the file as UTF-8") from None
