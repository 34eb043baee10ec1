"""A CSV file of image paths and labels as a data set."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import Field

from robaudit.datasets.base import boundary, different, find, reason
from robaudit.datasets.classes import text_labels
from robaudit.datasets.image_set import ImageSet
from robaudit.datasets.listing import METADATA, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.model import FilesSpec

_LONGEST_LINE = 2**20  # characters; a longer line is read in pieces, which are not rows


class CsvSpec(FilesSpec):
    """A CSV file with columns path, label and optionally id; paths are relative to the file."""

    kind: Literal["csv"] = "csv"
    path_column: str = "path"
    label_column: str | None = Field("label", description="null: no labels")
    id_column: str = Field("id", description="where there is no such column, ids are the paths")

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:
        """A .csv or .tsv file, or a folder with ``metadata.csv``; the keys name columns that differ from the defaults."""
        if (place / METADATA).is_file():
            written, place = f"{written.rstrip('/')}/{METADATA}", place / METADATA
        elif place.suffix.lower() not in (".csv", ".tsv") or place.is_dir():
            return None
        try:
            with place.open("rb") as file:
                columns = _header(file.readline(_LONGEST_LINE).decode("utf-8-sig"))[1]
        except (OSError, ValueError):
            columns = []
        near = {"path_column": usual(USUAL_PATHS, columns), "label_column": usual(USUAL_LABELS, columns)}
        return {"path": written, **{key: name for key, name in near.items() if name and key.removesuffix("_column") not in columns}}

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the rows; other columns are ignored, and an empty label means no label.

        Until the columns are known, no message quotes the file: it may be any file.

        Raises:
            DataError: the file is not a table of images, or its ids or labels are invalid.
        """
        from robaudit.datasets.decode import file_pixels  # imports torch, which reading a spec does not need

        path = find(self.path, base_dir, "file")
        columns, labels, names = self._table(path), None, self.class_names
        if "label" in columns:
            labels, names = text_labels(columns["label"], self.path, self.class_names, self.class_ids)
        decode = partial(file_pixels, folder=path.parent, root=boundary(self.root, base_dir, path.parent), options=self)
        ids = different(columns.get("id", columns["path"]), self.path)
        return ImageSet(self.path, columns["path"], decode, labels=labels, ids=ids, class_names=names)

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another column.

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
    """The values of the columns by use: path, label, id, other."""
    lines: Iterator[str] = iter(partial(file.readline, _LONGEST_LINE), "")
    head = next(lines, "")
    delimiter, header = _header(head)
    places = _places(spec, header, other)
    values: dict[str, list[str]] = {use: [] for use in places}
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in filter(None, reader):
            where = f"{spec.path}:{reader.line_num + 1}"
            if len(fields) != len(header):
                what = f"has {len(fields)} fields, but the header has {len(header)}"
                raise DataError(where, what, f"quote fields with {delimiter!r}")
            for use, place in places.items():
                text = fields[place] if use == "other" else fields[place].strip()
                if not text and use in ("path", "id"):
                    raise DataError(where, f"has an empty {header[place]}", "fill it in, or remove the line")
                values[use].append(sys.intern(text) if use == "label" else text)
    except csv.Error as error:
        raise DataError(f"{spec.path}:{reader.line_num + 1}", f"is not valid CSV ({error})", 'fields are quoted by "') from None
    return values


def _header(line: str) -> tuple[str, list[str]]:
    """The delimiter and the column names in the first line of a CSV file; no names if it is not CSV."""
    delimiter = max((",", ";", "\t"), key=line.count)
    try:
        return delimiter, [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return delimiter, []


def _places(spec: CsvSpec, header: Sequence[str], other: str | None) -> dict[str, int]:
    """The indices of the columns by use; columns of labels and ids may be missing under their default names."""
    uses = {"path": spec.path_column, "label": spec.label_column, "id": spec.id_column, "other": other}
    if spec.path_column not in header:
        near = usual(USUAL_PATHS, header)  # only usual names are quoted from the file
        remedy = "it must name the columns, separated by commas, semicolons or tabs; set path_column to the column of image paths"
        raise DataError(spec.path, f"has no column {spec.path_column!r} in its first line", f"set path_column: {near}" if near else remedy)
    if spec.label_column == "label" and "label" not in header and (near := usual(USUAL_LABELS, header)) is not None:
        raise DataError(spec.path, f"has no column 'label', but {near!r}", f"set label_column: {near} (null: no labels)")
    for use, name in uses.items():
        if name is not None and name not in header and name != use:
            option = "--by" if use == "other" else f"{use}_column"
            raise DataError(spec.path, f"has no column {name!r}", f"{option}: {did_you_mean(name, header)}")
        if name is not None and header.count(name) > 1:
            raise DataError(spec.path, f"has the column {name!r} twice", "keep one")
    return {use: header.index(name) for use, name in uses.items() if name in header}
