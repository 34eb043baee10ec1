"""Parquet files with encoded images in a column, read piece by piece."""

from __future__ import annotations

import bisect
import json
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.datasets.base import matching, name_text, reason
from robaudit.datasets.columns import Chosen, Column, Holds, TableDataset, choose_columns, pyarrow_for
from robaudit.errors import DataError
from robaudit.files import expanded
from robaudit.spec.data_files import split_of
from robaudit.spec.model import ParquetSpec, TableOptions

PIECE = 8 << 20
"""Bytes of encoded images that are read together; a piece has at least one image."""

_PIECES, _GROUPS = 2, 3  # of a row group, and row groups: held in memory
_MOST_ROWS = 2**31


class ParquetDataset(TableDataset):
    """Rows of Parquet files, in the order of the files' names; a sample's id is its index, or that of its column.

    The images are the bytes of image files, or ``{bytes, path}`` as the Hub has them. Labels are read when the data set is opened; of
    the images, a few pieces of :data:`PIECE` bytes and a page of the file are in memory, however large the row groups are.

    Args:
        files: what to read.
        options: columns and decoding.
        where: what messages call the data set.
        extra: of robaudit, that installs pyarrow.
    """

    def __init__(self, files: Sequence[Path], options: TableOptions, where: str, extra: str = "parquet") -> None:
        self._files = tuple(files)
        pyarrow_for(where, extra)
        self._groups = list[_Group]()
        self._starts = list[int]()
        columns, content = self._scan(where, options)
        super().__init__(where, options, columns, content.__getitem__)
        self._open_state()

    def __len__(self) -> int:
        return self._starts[-1] + self._groups[-1].rows if self._groups else 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_read", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open_state()

    def _open_state(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._read = OrderedDict[tuple[Path, int], _Reader]()  # the row groups that are being read, the latest last

    def _image(self, index: int) -> tuple[object, Path]:
        group = self._groups[bisect.bisect_right(self._starts, index) - 1]
        if self._process != os.getpid():  # a forked process has its own place in the files
            self._open_state()
        with self._lock:
            key = group.file, group.number
            reader = self._read.pop(key, None) or _Reader(group, self._columns.image.name)
            value = reader.value(index - group.start)
            self._read[key] = reader
            while len(self._read) > _GROUPS:
                self._read.popitem(last=False)
            return value, group.file.parent

    def _scan(self, name: str, options: TableOptions) -> tuple[Chosen, dict[str, Any]]:
        """Note the row groups of all files; returns the columns, and the content of those of labels and ids.

        Args:
            name: what messages call the data set.
            options: which columns.
        """
        import pyarrow as pa

        chosen: Chosen | None = None
        tables, start = [], 0
        for path in self._files:
            where = name if len(self._files) == 1 else name_text(path.name)
            try:
                with _opened(path) as file:
                    found = choose_columns(_columns_of(file.schema_arrow), options, where)
                    chosen = chosen or found
                    if found != chosen:
                        raise DataError(
                            where, f"has other columns or classes than {name_text(self._files[0].name)}", "audit one kind of file"
                        )
                    tables.append(file.read([name for name in chosen.names if name != chosen.image.name]))
                    leaves = _leaves(file, chosen.image.name)
                    for number in range(file.metadata.num_row_groups):
                        about = file.metadata.row_group(number)
                        if not about.num_rows:
                            continue
                        size = sum(about.column(leaf).total_uncompressed_size for leaf in leaves)
                        self._groups.append(_Group(path, number, start, about.num_rows, size))
                        self._starts.append(start)
                        start += about.num_rows
            except (pa.ArrowException, OSError, ValueError, IndexError) as error:
                raise DataError(where, f"is not a Parquet file that can be read ({reason(error)})", "write it again") from None
        if chosen is None:
            raise DataError(name, "has no Parquet files", "give at least one")
        if start > _MOST_ROWS:
            raise DataError(name, f"claims {start:,} rows, more than {_MOST_ROWS:,}", "audit fewer files")
        try:
            content = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(name, f"its files have labels of several types ({reason(error)})", "write them alike") from None
        if content.num_columns and content.num_rows != start:
            raise DataError(name, f"has {start} rows, but {content.num_rows} labels", "write it again")
        return chosen, {name: content[name] for name in content.column_names}


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group: its file, its number there, the index of its first row, its rows, and the bytes of their images."""

    file: Path
    number: int
    start: int
    rows: int
    size: int


class _Reader:
    """The images of one row group, piece by piece from the first on; the last pieces are kept."""

    def __init__(self, group: _Group, column: str) -> None:
        self._group, self._column = group, column
        self._pieces = deque[tuple[int, Any]](maxlen=_PIECES)
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        self._batches = self._read()

    def _read(self) -> Iterator[Any]:
        rows = min(self._group.rows, max(1, PIECE * self._group.rows // max(1, self._group.size)))
        with _opened(self._group.file) as file:
            yield from file.iter_batches(batch_size=rows, row_groups=[self._group.number], columns=[self._column], use_threads=False)

    def value(self, row: int) -> object:
        """The value in this row of the group."""
        for start, piece in self._pieces:
            if start <= row < start + len(piece):
                return piece[row - start].as_py()
        if row < self._next:
            self._begin()
        while self._next <= row:
            start, piece = self._next, next(self._batches).column(0)
            self._pieces.append((start, piece))
            self._next += len(piece)
        return piece[row - start].as_py()


def _opened(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)


def _leaves(file: Any, column: str) -> list[int]:
    """The numbers of the file's columns that a column of its schema consists of."""
    paths = [str(file.schema.column(number).path) for number in range(file.metadata.num_columns)]
    return [number for number, path in enumerate(paths) if path == column or path.startswith(f"{column}.")]


def _columns_of(schema: Any) -> list[Column]:
    """The columns of an Arrow schema; ``datasets`` writes down which are images and classes."""
    import pyarrow as pa

    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        features = {}
    found = []
    for field in schema:
        feature: Any = features.get(field.name) if isinstance(features, dict) else None
        kind = feature.get("_type") if isinstance(feature, dict) else None
        value = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        names = feature.get("names") if isinstance(feature, dict) else None
        if kind == "ClassLabel" and pa.types.is_integer(value) and isinstance(names, list):
            found.append(Column(field.name, Holds.CLASSES, tuple(map(str, names))))
        elif pa.types.is_struct(value):
            holds_bytes = any(inner.name == "bytes" and _is_bytes(inner.type) for inner in value)
            found.append(Column(field.name, Holds.IMAGES if holds_bytes and kind in ("Image", None) else Holds.OTHER))
        elif _is_bytes(value):
            found.append(Column(field.name, Holds.BYTES))
        elif pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_boolean(value):
            found.append(Column(field.name, Holds.NUMBERS))
        else:
            text = pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)
            found.append(Column(field.name, Holds.TEXT if text else Holds.OTHER))
    return found


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def open_parquet(spec: ParquetSpec, *, base_dir: Path) -> ParquetDataset:
    """The files that a spec's path names.

    Raises:
        DataError: there are none, or those of a folder belong to several splits.
    """
    files = matching(spec.path, base_dir, (".parquet", ".pq"))
    splits = dict.fromkeys(split_of(file)[0] for file in files)
    if len(splits) > 1 and (base_dir / expanded(spec.path)).is_dir():
        remedy = "choose one: kind: hf with split, or a pattern such as test-*.parquet (**/*.parquet: all of them)"
        raise DataError(spec.path, f"has files of {len(splits)} splits ({', '.join(splits)})", remedy)
    return ParquetDataset(files, spec, spec.path)
