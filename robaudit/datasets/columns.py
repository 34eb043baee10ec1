"""Columns of a table: which one holds the images, their labels and ids, and what the labels mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from robaudit.datasets.base import Labels, Sample, reason
from robaudit.datasets.classes import ClassIndex, class_indices
from robaudit.datasets.decode import decode_image, read_image
from robaudit.errors import DataError, SampleError, did_you_mean, needs_extra
from robaudit.spec.data_files import USUAL_LABELS
from robaudit.spec.model import ImageOptions, TableOptions
from robaudit.text import clipped


class Holds(Enum):
    """What a column can be used for."""

    IMAGES = auto()
    BYTES = auto()
    """Perhaps encoded images."""
    CLASSES = auto()
    """Class indices with names."""
    NUMBERS = auto()
    TEXT = auto()
    OTHER = auto()


_CAN_LABEL = (Holds.CLASSES, Holds.NUMBERS, Holds.TEXT)


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, what it holds, and the names of its classes by index."""

    name: str
    holds: Holds
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The columns that a data set is read from."""

    image: Column
    label: Column | None
    id: Column | None

    @property
    def names(self) -> list[str]:
        """Those of all of them, each once."""
        return list(dict.fromkeys(column.name for column in (self.image, self.label, self.id) if column is not None))


def choose_columns(columns: Sequence[Column], options: TableOptions, where: str) -> Chosen:
    """The columns that the options name, or that are the only candidates.

    Raises:
        DataError: there is no such column, it cannot be what it should, or there are several.
    """
    known = {column.name: column for column in columns}

    def named(option: str, name: str, fit: Sequence[Holds], what: str) -> Column:
        if name not in known:
            raise DataError(where, f"has no column {name!r} (columns: {_listed(known)})", f"{option}: {did_you_mean(name, known)}")
        if known[name].holds not in fit:
            raise DataError(where, f"the column {name!r} does not hold {what}", f"correct {option}; columns: {_listed(known)}")
        return known[name]

    def only(option: str, kinds: Sequence[Holds], what: str) -> Column | None:
        for kind in kinds:
            able = [column for column in columns if column.holds is kind]
            if len(able) > 1:
                names = " and ".join(repr(column.name) for column in able[:3])
                raise DataError(where, f"has {len(able)} columns of {what}: {names}", f"choose one: {option}: {able[0].name}")
            if able:
                return able[0]
        return None

    encoded = (Holds.IMAGES, Holds.BYTES)
    if options.image_column is not None:
        image: Column | None = named("image_column", options.image_column, encoded, "encoded images")
    else:
        image = only("image_column", encoded, "images")
    if image is None:
        what = f"has no column of encoded images (columns: {_listed(known)})"
        raise DataError(where, what, "images are the bytes of image files; paths belong in a CSV file (kind manifest)")
    if options.label_column is None:
        label: Column | None = None
    elif options.label_column:
        label = named("label_column", options.label_column, _CAN_LABEL, "class indices or names")
    else:
        usual = [known[name] for name in USUAL_LABELS if name in known]
        able = (column for column in usual if column.holds in _CAN_LABEL)
        label = only("label_column", (Holds.CLASSES,), "classes") or next(able, None)
        if label is None and usual:
            what = f"the column {usual[0].name!r} does not hold class indices or names"
            raise DataError(where, what, "set label_column to one that does (null: no labels)")
    sample_id = None if options.id_column is None else named("id_column", options.id_column, (Holds.NUMBERS, Holds.TEXT), "text or numbers")
    return Chosen(image, label, sample_id)


def _listed(names: Mapping[str, Column]) -> str:
    return clipped(", ".join(list(names)[:20]), 200) or "none"


def read_labels(array: Any, column: Column, where: str, options: TableOptions) -> tuple[Labels, tuple[str, ...] | None]:
    """The labels of a pyarrow column as class indices, -1 for none (in the smallest type that holds them), and the class names.

    Class indices with names are taken by name where the user's ``class_names`` have all of these names, and by index where they are as
    many and those that are the same have the same index; if the names are the model's, at least half of them must be the same.

    Raises:
        DataError: they are neither class indices nor names.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if column.holds is Holds.TEXT:
        encoded = array.cast(pa.string()).dictionary_encode().combine_chunks()
        texts = encoded.dictionary.to_pylist()
        stripped = [text.strip() for text in texts]
        codes = _whole_numbers(encoded.indices, where, column.name)
        first = dict[str, int]()
        for code, text in enumerate(stripped):
            if text:
                first.setdefault(text, int((codes == code).argmax()) + 1)
        index, names = class_indices(first, where, options.class_names, options.class_ids)
        by_code = np.array([*(index.get(text, -1) for text in stripped), -1], dtype=np.int64)
        return _small(by_code[codes]), names
    labels = _whole_numbers(array, where, column.name)
    if column.class_names is None:
        return _small(labels), options.class_names
    if int(labels.max(initial=-1)) >= len(column.class_names):
        row = int(labels.argmax())
        what = f"the column {column.name!r} has the label {int(labels[row])} (row {row}), but {len(column.class_names)} classes"
        raise DataError(where, what, "repair it")
    return _small(_by_name(column.class_names, options, where)[labels]), options.class_names or column.class_names


def _by_name(own: tuple[str, ...], options: TableOptions, where: str) -> Labels:
    """The class index that the user means for each of the data set's own; -1, the last entry, stays -1."""
    same = np.array([*range(len(own)), -1], dtype=np.int64)
    asked = options.class_names
    if asked is None:
        return same
    classes = ClassIndex(asked, options.class_ids)
    found = [classes.find(name) for name in own]
    known = [number for number in found if number is not None]
    if len(known) == len(own):
        return np.array([*known, -1], dtype=np.int64)
    fits = len(own) == len(asked) and all(number in (place, None) for place, number in enumerate(found))
    if fits and (not options.names_of_model or 2 * len(known) >= len(own)):
        return same
    missing = own[found.index(None)]
    raise DataError(where, f"its class {missing!r} is not in class_names", classes.remedy(missing))


def _whole_numbers(array: Any, where: str, name: str) -> Labels:
    """Integers as int64, with -1 for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if pa.types.is_floating(array.type):
            array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)  # pandas' integers with gaps
        values: Labels = pc.fill_null(array.cast(pa.int64()), -1).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    except pa.ArrowException:
        raise DataError(where, f"the column {name!r} has values that are not class indices", "class indices are 0, 1, 2, ...") from None
    if len(values) and int(values.min()) < -1:
        index = int(values.argmin())
        what = f"the column {name!r} has the label {int(values[index])} (row {index})"
        raise DataError(where, what, "class indices start at 0; -1 and null are no label")
    return values


def _small(labels: Labels) -> Any:
    return labels.astype(np.min_scalar_type(-1 - int(labels.max(initial=0))))


def read_ids(array: Any, column: Column, where: str) -> Any:
    """The ids of a pyarrow column as an array of text.

    Raises:
        DataError: one is missing or empty, or appears twice.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    ids = pc.utf8_trim_whitespace(array.cast(pa.large_string())).combine_chunks()
    empty = pc.index(pc.equal(pc.fill_null(ids, ""), ""), True).as_py()
    if empty >= 0:
        raise DataError(where, f"the column {column.name!r} has no id in row {empty}", "fill it in, or leave out id_column")
    if pc.count_distinct(ids).as_py() != len(ids):
        counts = pc.value_counts(ids)
        twice = counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()]
        raise DataError(where, f"the id {twice.as_py()!r} of the column {column.name!r} appears twice", "ids must differ")
    return ids


def image_of(value: object, where: str, folder: Path, options: ImageOptions) -> Tensor:
    """Decode a value of an image column: the bytes of a file, or ``{bytes, path}`` as the Hub has it.

    Args:
        value: the value.
        where: the sample, for messages.
        folder: where relative paths begin.
        options: of the data set.

    Raises:
        SampleError: there is none, or it cannot be decoded; a path on the network is not followed.
    """
    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, None)
    if isinstance(content, bytes):
        return decode_image(content, where, options)
    if not isinstance(path, str) or not path:
        raise SampleError(where, "has no image", "leave out this row")
    if "://" in path:
        raise SampleError(where, f"its image is at {path!r}", "nothing is downloaded: store the images in the data set")
    return read_image(folder / path, where, options)


class TableDataset:
    """A data set that is read from a table: labels and ids are read when it is opened, an image when it is asked for.

    A sample's id is its index, or that of its column. Subclasses say where the images are.

    Args:
        where: what messages call it.
        options: columns and decoding.
        columns: those that are read.
        content: a column as pyarrow has it, by its name; asked for those of labels and ids.
    """

    def __init__(self, where: str, options: TableOptions, columns: Chosen, content: Callable[[str], Any]) -> None:
        self.where, self._options, self._columns = where, options, columns
        self.class_names: tuple[str, ...] | None = options.class_names
        self._labels = self._ids = None
        if columns.label is not None:
            self._labels, self.class_names = read_labels(content(columns.label.name), columns.label, where, options)
        if columns.id is not None:
            self._ids = read_ids(content(columns.id.name), columns.id, where)

    def __len__(self) -> int:
        raise NotImplementedError

    def _image(self, index: int) -> tuple[object, Path]:
        """A value of the image column, and the folder that paths in it are relative to; may raise nearly anything on damaged files."""
        raise NotImplementedError

    def sample_id(self, index: int) -> str:
        """The index as text, or the id of the row."""
        index = range(len(self))[index]
        return str(index) if self._ids is None else str(self._ids[index].as_py())

    def labels(self) -> Labels | None:
        """The labels of all rows, or None without such a column."""
        return None if self._labels is None else self._labels.astype("int64")

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one row.

        Raises:
            SampleError: it cannot be read or decoded.
        """
        index = range(len(self))[index]
        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        try:
            value, folder = self._image(index)
        except Exception as error:  # noqa: BLE001  the libraries raise nearly anything on damaged files
            raise SampleError(where, f"cannot be read ({reason(error)})", "repair the data set, or leave out this sample") from None
        label = -1 if self._labels is None else int(self._labels[index])
        return Sample(sample_id, image_of(value, where, folder, self._options), None if label < 0 else label)


def pyarrow_for(where: str, extra: str) -> Any:
    """The library pyarrow.

    Raises:
        RobauditError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise needs_extra(where, "pyarrow", extra) from None
    return pyarrow
