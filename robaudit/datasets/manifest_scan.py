"""Where in a CSV file does each row stand? One pass over it that keeps numbers, not rows."""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from robaudit.datasets.files import reason
from robaudit.datasets.manifest_table import Table, path_and_id
from robaudit.errors import DataError, did_you_mean
from robaudit.text import clipped

COLUMNS = ("path", "label", "id")
_LONGEST_LINE = 2**20


def scan(path: Path, where: str) -> Table:
    """Read a CSV file once, check every row, and note where it stands.

    Raises:
        DataError: bad encoding or quoting, no path column, a row with too few or too many fields, an empty path or id, an id twice.
    """
    table, hashes = Table(path, where), array("q")
    codes: dict[str, int] = {}
    try:
        with os.fdopen(table.descriptor, "rb", closefd=False) as file:
            lines = _Lines(file, where)
            reader = csv.reader(iter(lines), strict=True)
            width = _read_header(table, next(reader, []))
            while True:
                start, line = lines.offset, lines.number + 1
                try:
                    row = next(reader)
                except StopIteration:
                    break
                if not row:
                    continue  # an empty line
                if len(row) != width:
                    few = "few" if len(row) < width else "many"
                    raise DataError(
                        f"{where}:{line}", f"has {len(row)} fields, too {few}: the header has {width}", "quote fields with commas"
                    )
                hashes.append(hash(_checked_id(row, table, line)))
                table.starts.append(start)
                table.end, table.longest = lines.offset, max(table.longest, lines.offset - start)
                text = row[table.places["label"]].strip() if "label" in table.places else ""
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


def _checked_id(fields: list[str], table: Table, line: int) -> str:
    path, sample_id = path_and_id(fields, table.places)
    if not path or not sample_id:
        raise DataError(f"{table.where}:{line}", f"has an empty {'id' if path else 'path'}", "fill it in, or remove the line")
    return sample_id


def _refuse_duplicates(table: Table, hashes: array[int]) -> None:
    """Refuse an id that stands twice: its hash does too, and rows with such hashes are read again and compared as text."""
    values = np.frombuffer(hashes, dtype=np.int64)
    values.sort()  # in place
    twice = values[1:][values[1:] == values[:-1]]
    if not len(twice):
        return
    seen: dict[str, int] = {}
    for index in range(len(table)):
        sample_id = table.row(index)[1]
        place = int(np.searchsorted(twice, hash(sample_id)))
        if place < len(twice) and int(twice[place]) == hash(sample_id) and seen.setdefault(sample_id, index) != index:
            first, second = table.line(seen[sample_id]), table.line(index)
            remedy = "ids must differ" if "id" in table.places else "add a column id to use a path twice"
            raise DataError(table.where, f"lines {first} and {second} have the same id {sample_id!r}", remedy)
