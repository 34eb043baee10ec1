"""The columns of a table of images: find and read the images, labels and ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.datasets.base import Labels, different
from robaudit.datasets.classes import ClassIndex, class_indices
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.data_files import USUAL_LABELS, USUAL_PATHS, usual
from robaudit.text import clipped

if TYPE_CHECKING:
    from robaudit.datasets.hf import HfSpec


class Holds(Enum):
    """The possible use of a column."""

    IMAGES = auto()
    BYTES = auto()
    CLASSES = auto()
    NUMBERS = auto()
    TEXT = auto()
    OTHER = auto()


_CAN_LABEL = (Holds.CLASSES, Holds.NUMBERS, Holds.TEXT)
KEY, TAR = "__key__", "__url__"  # columns of WebDataset tars


def holds(feature: Any) -> Holds:
    """The possible use of a column of this type."""
    kind, values = type(feature).__name__, str(getattr(feature, "dtype", ""))
    if kind != "Value":
        return {"Image": Holds.IMAGES, "ClassLabel": Holds.CLASSES}.get(kind, Holds.OTHER)
    if "binary" in values or "string" in values:  # also large_string, string_view
        return Holds.BYTES if "binary" in values else Holds.TEXT
    return Holds.NUMBERS if values.startswith(("int", "uint", "float", "bool")) else Holds.OTHER


def _shown(known: Mapping[str, Holds]) -> str:
    return clipped(", ".join(list(known)[:20]), 200) or "none"


def _named(option: str, name: str, fit: Iterable[Holds], known: Mapping[str, Holds], where: str) -> str:
    """A column that an option names; ``image`` is understood for ``image.bytes``."""
    if name not in known and f"{name}.bytes" in known:
        name = f"{name}.bytes"
    if name not in known:
        raise DataError(where, f"has no column {name!r} (columns: {_shown(known)})", f"{option}: {did_you_mean(name, known)}")
    if known[name] not in fit:
        raise DataError(where, f"the column {name!r} does not hold what it must", f"correct {option}; columns: {_shown(known)}")
    return name


def _only(option: str, kind: Holds, known: Mapping[str, Holds], where: str) -> str | None:
    able = [name for name, holds in known.items() if holds is kind]
    if len(able) > 1:
        names = " and ".join(map(repr, able[:3]))
        raise DataError(where, f"has {len(able)} columns of {kind.name.lower()}: {names}", f"choose one: {option}: {able[0]}")
    return able[0] if able else None


def image_column(known: Mapping[str, Holds], spec: HfSpec, where: str) -> str:
    """The column of images: the spec's, otherwise the only possible one, otherwise one with a usual name.

    Raises:
        DataError: there is none, or it holds something else.
    """
    if spec.image_column is not None:
        return _named("image_column", spec.image_column, (Holds.IMAGES, Holds.BYTES, Holds.TEXT), known, where)
    paths = [name for name, holds in known.items() if holds is Holds.TEXT]
    found = _only("image_column", Holds.IMAGES, known, where) or _only("image_column", Holds.BYTES, known, where)
    found = found or usual(USUAL_PATHS, paths)
    if found is None:
        raise DataError(where, f"has no column of images or of their paths (columns: {_shown(known)})", "set image_column")
    return found


def label_column(known: Mapping[str, Holds], spec: HfSpec, where: str) -> str | None:
    """The column of labels, if any: the spec's, otherwise the only column of classes, otherwise one with a usual name.

    Raises:
        DataError: there is none, or it holds something else.
    """
    if spec.label_column is None:
        return None
    if spec.label_column:
        return _named("label_column", spec.label_column, _CAN_LABEL, known, where)
    if (found := _only("label_column", Holds.CLASSES, known, where)) is not None:
        return found
    last = {name.rpartition(".")[2]: name for name in reversed(list(known))}  # json.label of a tar
    usually = [last[name] for name in USUAL_LABELS if name in last]
    found = next((name for name in usually if known[name] in _CAN_LABEL), None)
    if found is None and usually:
        what = f"the column {usually[0]!r} does not hold class indices or names"
        raise DataError(where, what, "set label_column to one that does (null: no labels)")
    return found


def id_column(known: Mapping[str, Holds], spec: HfSpec, where: str) -> str | None:
    """The column of the ids, if the spec names one."""
    return None if spec.id_column is None else _named("id_column", spec.id_column, (Holds.NUMBERS, Holds.TEXT), known, where)


def _content(whole: Any, name: str) -> Any:
    """A column in pyarrow."""
    return whole.select_columns([name]).with_format("arrow")[:][name]


def encoded(images: Any, name: str, holds: Holds) -> Any:
    """The images as bytes and paths, not decoded by the library."""
    import datasets

    return images.cast_column(name, datasets.Image(decode=False)) if holds is Holds.IMAGES else images


def read_labels(whole: Any, name: str, holds: Holds, spec: HfSpec, where: str) -> tuple[Labels, tuple[str, ...] | None]:
    """The labels as class indices, -1 for none, and the class names.

    Class indices with names are matched by name if the user's ``class_names`` contain all of these names, and by index if there are as
    many and the common ones have the same index; if the names are the model's, at least half of them must be the same.

    Raises:
        DataError: they are neither class indices nor names.
    """
    array = _content(whole, name)
    if holds is Holds.TEXT:
        texts = [(text or "").strip() for text in array.to_pylist()]
        first = dict[str, int]()
        for row, text in enumerate(texts, 1):
            if text:
                first.setdefault(text, row)
        index, names = class_indices(first, where, spec.class_names, spec.class_ids)
        return np.array([index.get(text, -1) for text in texts], dtype=np.int64), names
    labels = _whole_numbers(array, where, name)
    if holds is not Holds.CLASSES:
        return labels, spec.class_names
    own = tuple(map(str, whole.features[name].names))
    if int(labels.max(initial=-1)) >= len(own):
        row = int(labels.argmax())
        raise DataError(where, f"the column {name!r} has the label {int(labels[row])} (row {row}), but {len(own)} classes", "repair it")
    return _by_name(own, spec, where)[labels], spec.class_names or own


def _by_name(own: tuple[str, ...], spec: HfSpec, where: str) -> Labels:
    """The class index that the user means for each of the data set's own; -1, the last entry, stays -1."""
    same = np.array([*range(len(own)), -1], dtype=np.int64)
    asked = spec.class_names
    if asked is None:
        return same
    classes = ClassIndex(asked, spec.class_ids)
    found = [classes.find(name) for name in own]
    known = [number for number in found if number is not None]
    if len(known) == len(own):
        return np.array([*known, -1], dtype=np.int64)
    fits = len(own) == len(asked) and all(number in (place, None) for place, number in enumerate(found))
    if fits and (not spec.names_of_model or 2 * len(known) >= len(own)):
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


def read_ids(whole: Any, name: str, where: str) -> list[str]:
    """The ids of a column as text.

    Raises:
        DataError: one is missing or empty, or appears twice.
    """
    ids = ["" if value is None else str(value).strip() for value in _content(whole, name).to_pylist()]
    if "" in ids:
        raise DataError(where, f"the column {name!r} is empty in row {ids.index('')}", "fill it in, or set id_column to another")
    return different(ids, where, "ids must differ: set id_column to another")


def read_texts(whole: Any, name: str, where: str) -> list[str]:
    """The values of a column as texts, names of classes for their indices; empty where one is missing.

    Raises:
        DataError: the column is missing, or holds something else.
    """
    known = {column: holds(feature) for column, feature in whole.features.items()}
    name = _named("--by", name, _CAN_LABEL, known, where)
    values = _content(whole, name).to_pylist()
    classes = whole.features[name].names if known[name] is Holds.CLASSES else None
    return ["" if value is None else str(value if classes is None else classes[value]) for value in values]


def read_keys(whole: Any, where: str, *, several: bool) -> list[str]:
    """The keys of the samples of tars, after the names of the tars if there are several."""
    keys = _content(whole, KEY).to_pylist()
    if several:
        keys = [f"{tar.rpartition('/')[2]}/{key}" for tar, key in zip(_content(whole, TAR).to_pylist(), keys, strict=True)]
    return different(keys, where, "ids must differ: set id_column to another")
