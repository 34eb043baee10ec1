"""Where in a CSV file does each row stand? One pass over it that keeps numbers, not rows."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from robaudit.datasets.files import reason
from robaudit.errors import DataError, did_you_mean
from robaudit.text import clipped

COLUMNS = ("path", "label", "id")
_LONGEST_LINE = 2**20


@dataclass(slots=True)
class Table:
    """A CSV file as offsets: 24 bytes a row, however long the rows are.

    Attributes:
        places: column number by name, for those of path, label and id that the header has.
        starts: byte offset of every row.
        ends: byte offset after every row.
        codes: number of the row's label in ``labels``, -1 for none.
        labels: distinct label texts with the line on which each stands first.
    """

    path: Path
    where: str
    places: dict[str, int] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("l"))
    labels: dict[str, int] = field(default_factory=dict)

    def row(self, index: int) -> tuple[str, str]:
        """Path and id of one row, read from the file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.starts[index])
                text = file.read(self.ends[index] - self.starts[index]).decode("utf-8")
            return _path_and_id(next(csv.reader([text], strict=True)), self.places)
        except (OSError, ValueError, csv.Error, IndexError, StopIteration) as error:
            raise DataError(self.where, f"changed while it was in use ({reason(error)})", "start again") from None

    def line(self, index: int) -> int:
        """The line (from 1) on which a row begins, counted anew: for messages."""
        left, count = self.starts[index], 1
        with self.path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(left, 1 << 20))):
                count += chunk.count(b"\n")
                left -= len(chunk)
        return count


def scan(path: Path, where: str) -> Table:
    """Read a CSV file once, check every row, and note where it stands.

    Raises:
        DataError: bad encoding or quoting, no path column, a row with too few or too many fields, an empty path or id, an id twice.
    """
    table, hashes = Table(path, where), array("q")
    codes: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            lines = _Lines(file, where)
            reader = csv.reader(lines, strict=True)
            width = _read_header(table, next(reader, []))
            while True:
                start, line = lines.offset, lines.number + 1
                try:
                    fields = next(reader)
                except StopIteration:
                    break
                if not fields:
                    continue  # an empty line
                if len(fields) != width:
                    few = "few" if len(fields) < width else "many"
                    raise DataError(
                        f"{where}:{line}", f"has {len(fields)} fields, too {few}: the header has {width}", "quote fields with commas"
                    )
                hashes.append(hash(_checked_id(fields, table, line)))
                table.starts.append(start)
                table.ends.append(lines.offset)
                text = fields[table.places["label"]].strip() if "label" in table.places else ""
                table.codes.append(codes.setdefault(text, len(codes)) if text else -1)
                if text and text not in table.labels:
                    table.labels[text] = line
    except OSError as error:
        raise DataError(where, f"cannot be read ({reason(error)})", "give a file that you may read") from None
    except csv.Error as error:
        raise DataError(
            f"{where}:{lines.number}", f"is not valid CSV ({error})", 'fields are separated by commas and quoted by "'
        ) from None
    _refuse_duplicates(table, hashes)
    return table


class _Lines(Iterator[str]):
    """The lines of a binary file as text, with the number and the end offset of the last one given."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where = file, where
        self.offset = self.number = 0

    def __next__(self) -> str:
        raw = self._file.readline(_LONGEST_LINE + 1)
        if not raw:
            raise StopIteration
        self.offset += len(raw)
        self.number += 1
        if len(raw) > _LONGEST_LINE:
            raise DataError(f"{self._where}:{self.number}", f"the line has more than {_LONGEST_LINE} bytes", "give a CSV file")
        try:
            return raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{self._where}:{self.number}", "is not UTF-8 text", "save the file as UTF-8") from None


def _read_header(table: Table, header: list[str]) -> int:
    """Note the places of our columns; returns how many columns there are."""
    names = [name.strip() for name in header]
    if "path" not in names:
        held = clipped(", ".join(names[:20]), 200) or "none"
        raise DataError(table.where, f"has no column 'path' in its first line (columns: {held})", did_you_mean("path", names))
    for name in COLUMNS:
        if names.count(name) > 1:
            raise DataError(table.where, f"has the column {name!r} twice", "keep one")
        if name in names:
            table.places[name] = names.index(name)
    return len(names)


def _path_and_id(fields: list[str], places: dict[str, int]) -> tuple[str, str]:
    path = fields[places["path"]].strip()
    return path, fields[places["id"]].strip() if "id" in places else path


def _checked_id(fields: list[str], table: Table, line: int) -> str:
    path, sample_id = _path_and_id(fields, table.places)
    if not path or not sample_id:
        raise DataError(f"{table.where}:{line}", f"has an empty {'id' if path else 'path'}", "fill it in, or remove the line")
    return sample_id


def _refuse_duplicates(table: Table, hashes: array[int]) -> None:
    """Refuse an id that stands twice; equal hashes are compared as text."""
    values = np.frombuffer(hashes, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    seen: dict[str, int] = {}
    for place in np.flatnonzero(values[order][1:] == values[order][:-1]):
        for index in sorted((int(order[place]), int(order[place + 1]))):
            sample_id = table.row(index)[1]
            if seen.setdefault(sample_id, index) != index:
                first, second = table.line(seen[sample_id]), table.line(index)
                remedy = "ids must differ" if "id" in table.places else "add a column id to use a path twice"
                raise DataError(table.where, f"lines {first} and {second} have the same id {sample_id!r}", remedy)
