"""A CSV file of image paths and labels as a data set."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import Field

from robaudit.datasets.class_names import text_labels
from robaudit.datasets.dataset import boundary, different, existing_path
from robaudit.datasets.image_set import ImageSet
from robaudit.datasets.listing import METADATA, USUAL_LABELS, USUAL_PATHS, usual
from robaudit.errors import DataError, did_you_mean
from robaudit.settings import BY
from robaudit.spec.model import FilesSpec
from robaudit.text import first_line

_LONGEST_LINE = 2**20  # characters; a longer line is read in pieces, which are not rows


class CsvSpec(FilesSpec):
    """A CSV file with columns path, label and optionally id; paths are relative to the file."""

    kind: Literal["csv"] = "csv"
    path_column: str | None = Field(
        None, description="default: the first of path, file_name, filename, file, ... that there is"
    )
    label_column: str | None = Field(
        "",
        description="empty: the first of label, labels, class, ... that there is; null: no labels",
    )
    id_column: str = Field("id", description="where there is no such column, ids are the paths")

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:
        """A .csv or .tsv file, or a folder with ``metadata.csv``."""
        if (place / METADATA).is_file():
            return {"path": f"{written.rstrip('/')}/{METADATA}"}
        is_table = place.suffix.lower() in (".csv", ".tsv") and not place.is_dir()
        return {"path": written} if is_table else None

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the rows; other columns are ignored, and an empty label means no label.

        Until the columns are known, no message quotes the file: it may be any file.

        Raises:
            DataError: the file is not a table of images, or its ids or labels are invalid.
        """
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.decode import file_pixels, is_turned

        path = existing_path(self.path, base_dir, "file")
        columns = self._table(path)
        labels = None
        class_names = self.class_names
        if "label" in columns:
            labels, class_names = text_labels(
                columns["label"], self.path, self.class_names, self.class_ids
            )
        root = boundary(self.root, base_dir, path.parent)
        decode = partial(file_pixels, folder=path.parent, root=root, options=self)
        ids = different(columns.get("id", columns["path"]), self.path)
        return ImageSet(
            self.path,
            columns["path"],
            decode,
            labels=labels,
            ids=ids,
            class_names=class_names,
            turned=partial(is_turned, folder=path.parent, root=root),
        )

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another column.

        Raises:
            DataError: there is no column of this name.
        """
        return self._table(existing_path(self.path, base_dir, "file"), name)["other"]

    def _table(self, path: Path, other: str | None = None) -> dict[str, list[str]]:
        """The values of the columns by use, as `_read` has them."""
        try:
            # utf-8-sig removes the mark with which Excel begins UTF-8 files.
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _read(self, file, other)
        except UnicodeDecodeError:
            raise DataError(self.path, "is not UTF-8 text", "save the file as UTF-8") from None
        except OSError as error:
            raise DataError(
                self.path, f"cannot be read ({first_line(error)})", "give a file that you may read"
            ) from None


def _read(spec: CsvSpec, file: TextIO, other: str | None) -> dict[str, list[str]]:
    """The values of the columns by use: path, label, id, other.

    Args:
        spec: names the columns.
        file: the table, at its beginning.
        other: the name of a further column; None: none.

    Raises:
        DataError: a column is missing, or a row is not one of this table.
    """
    lines: Iterator[str] = iter(partial(file.readline, _LONGEST_LINE), "")
    delimiter, header = _header(next(lines, ""))
    columns = _columns(spec, header, other)
    values: dict[str, list[str]] = {use: [] for use in columns}
    # Strict: a quote that is never closed would make one field of the rest of the file.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in filter(None, reader):  # blank lines have no fields
            where = f"{spec.path}:{reader.line_num + 1}"  # the header is line 1
            if len(fields) != len(header):
                what = f"has {len(fields)} fields, but the header has {len(header)}"
                raise DataError(where, what, f"quote fields with {delimiter!r}")
            for use, column in columns.items():
                text = fields[column] if use == "other" else fields[column].strip()
                if not text and use in ("path", "id"):
                    raise DataError(
                        where, f"has an empty {header[column]}", "fill it in, or remove the line"
                    )
                # A label repeats in many rows; interned, its text is in memory once.
                values[use].append(sys.intern(text) if use == "label" else text)
    except csv.Error as error:
        raise DataError(
            f"{spec.path}:{reader.line_num + 1}",
            f"is not valid CSV ({error})",
            'fields are quoted by "',
        ) from None
    return values


def _header(line: str) -> tuple[str, list[str]]:
    """The delimiter and the column names in the first line; no names if the line is not CSV."""
    delimiter = max((",", ";", "\t"), key=line.count)
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        # Without names, the message is that the file lacks the column of paths.
        return delimiter, []
    return delimiter, [name.strip() for name in names]


def _columns(spec: CsvSpec, header: Sequence[str], other: str | None) -> dict[str, int]:
    """The indices of the columns by use.

    Labels and ids may be missing unless the spec names their columns.
    """
    path = spec.path_column or usual(USUAL_PATHS, header) or "path"
    label = usual(USUAL_LABELS, header) if spec.label_column == "" else spec.label_column
    uses = {"path": path, "label": label, "id": spec.id_column, "other": other}
    if path not in header:
        remedy = (
            "it must name the columns, separated by commas, semicolons or tabs; set "
            "path_column to the column of image paths"
        )
        raise DataError(spec.path, f"has no column {path!r} in its first line", remedy)
    for use, name in uses.items():
        if name is None:
            continue
        # "id" is the default, which no table needs to have.
        if name not in header and (use, name) != ("id", "id"):
            option = BY.words if use == "other" else f"{use}_column"
            raise DataError(
                spec.path, f"has no column {name!r}", option + f": {did_you_mean(name, header)}"
            )
        if header.count(name) > 1:
            raise DataError(spec.path, f"has the column {name!r} twice", "keep one")
    return {use: header.index(name) for use, name in uses.items() if name in header}
