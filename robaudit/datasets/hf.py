"""Parquet, Arrow, WebDataset tars and JSON lines on disk, read by Hugging Face ``datasets``.

Its own readers are called by name on files that lie here: nothing is downloaded, and no code that comes with a data set runs. Parquet,
tars and JSON lines are converted to Arrow files once, in the library's cache (``HF_DATASETS_CACHE``); the files of ``save_to_disk`` are
mapped where they are. From either, one image is read at a time.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from robaudit.datasets.base import Labels, Sample, boundary, different, find, reason
from robaudit.datasets.classes import ClassIndex, class_indices
from robaudit.errors import DataError, SampleError, did_you_mean, needs_extra
from robaudit.files import expanded
from robaudit.spec.data_files import FORMS, USUAL_LABELS, USUAL_PATHS, form_of, split_of, usual
from robaudit.spec.model import FilesSpec
from robaudit.text import clipped

if TYPE_CHECKING:
    from torch import Tensor

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_KEY, _TAR = "__key__", "__url__"  # columns of WebDataset tars


class _Holds(Enum):
    """What a column can be used for."""

    IMAGES = auto()
    BYTES = auto()
    CLASSES = auto()
    NUMBERS = auto()
    TEXT = auto()
    OTHER = auto()


_CAN_LABEL = (_Holds.CLASSES, _Holds.NUMBERS, _Holds.TEXT)


class HfSpec(FilesSpec):
    """Parquet, WebDataset tars, JSON lines, or a folder of save_to_disk, read by Hugging Face `datasets`; nothing is downloaded."""

    kind: Literal["hf"] = "hf"
    path: str = Field(description="a file, a folder, or a pattern such as data/test-*.parquet")
    split: str | None = Field(None, description="for example test; not needed where there is only one")
    image_column: str | None = Field(None, description="encoded images or their paths; default: the only column that can be")
    label_column: str | None = Field(
        "", description="class indices or names; empty: the only ClassLabel, else a column called label, class, cls, ...; null: no labels"
    )
    id_column: str | None = Field(None, description="ids of the samples; default: keys of a tar, paths of images, else indices")

    def open(self, base_dir: Path, *, trust: bool) -> HfDataset:
        """Read the labels and ids.

        Raises:
            DataError: the files are missing or damaged, or a column is.
            RobauditError: datasets is not installed.
        """
        return HfDataset(self, base_dir)


class HfDataset:
    """A table with a column of encoded images, or of their paths; labels and ids are read when it is opened.

    A sample's id is that of ``id_column``; else its key in a tar, after the tar's name where there are several; else its path; else its
    index.
    """

    def __init__(self, spec: HfSpec, base_dir: Path) -> None:
        _library(spec.path)
        form, files, split = _chosen_files(spec, base_dir)
        self.where = spec.path if split is None else f"{spec.path}, split {split}"
        self._spec, self._folder = spec, files[0].parent
        place = base_dir / expanded(spec.path)
        self._root = boundary(spec.root, base_dir, place if place.is_dir() else Path(os.path.commonpath([file.parent for file in files])))
        if place.is_dir():  # else the spec names the files themselves
            for file in files:
                _refuse_elsewhere(file, self._root, self.where)
        whole = _opened(form, files, self.where).flatten()
        known = {name: _holds(feature) for name, feature in whole.features.items()}
        self._image_column = _image_column(known, spec, self.where)
        label, key = _label_column(known, spec, self.where), _id_column(known, spec, self.where)
        used = [name for name in (self._image_column, label, key) if name is not None]
        if form == "arrow":
            _validate(whole, used, self.where)
        self.class_names: tuple[str, ...] | None = spec.class_names
        self._labels: Labels | None = None
        if label is not None:
            self._labels, self.class_names = _read_labels(whole, label, known[label], spec, self.where)
        if key is not None:
            self._ids: list[str] | None = _read_ids(whole, key, self.where)
        elif _KEY in known and _TAR in known:
            self._ids = _read_keys(whole, self.where, several=len(files) > 1)
        elif known[self._image_column] is _Holds.TEXT:
            self._ids = _read_ids(whole, self._image_column, self.where)
        else:
            self._ids = None
        self._images = _encoded(whole.select_columns([self._image_column]), self._image_column, known[self._image_column])

    def __len__(self) -> int:
        return len(self._images)

    def sample_id(self, index: int) -> str:
        """The id of the row, or its index as text."""
        index = range(len(self))[index]
        return str(index) if self._ids is None else self._ids[index]

    def labels(self) -> Labels | None:
        """The labels of all rows (-1: none), or None without such a column."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Decode the image of one row.

        Raises:
            SampleError: it cannot be read or decoded, or lies elsewhere.
        """
        index = range(len(self))[index]
        sample_id = self.sample_id(index)
        where = f"{self.where}, sample {sample_id}"
        try:
            value = self._images[index][self._image_column]
        except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
            raise SampleError(where, f"cannot be read ({reason(error)})", "repair the data set, or leave out this sample") from None
        label = -1 if self._labels is None else int(self._labels[index])
        return Sample(sample_id, self._decoded(value, where), None if label < 0 else label)

    def _decoded(self, value: object, where: str) -> Tensor:
        """The pixels of the bytes of a file, of its path, or of ``{bytes, path}``."""
        from robaudit.datasets.decode import decode_image, read_image  # and with it torch: a spec is read without

        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, value)
        if isinstance(content, bytes):
            return decode_image(content, where, self._spec)
        if not isinstance(path, str) or not path:
            raise SampleError(where, "has no image", "leave out this row")
        if "://" in path:
            raise SampleError(where, f"its image is at {path!r}", "nothing is downloaded: store the images in the data set")
        return read_image(self._folder / path, where, self._spec, self._root)


def _library(where: str) -> Any:
    """The library, told not to report to its makers which of its readers are used."""
    try:
        import datasets
    except ImportError:
        raise needs_extra(where, "datasets", "hf") from None
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


def _chosen_files(spec: HfSpec, base_dir: Path) -> tuple[str, list[Path], str | None]:
    """The reader's name, the files of the split, and the split's name where there are several.

    Raises:
        DataError: there are no files, or no such split.
    """
    place = base_dir / expanded(spec.path)
    if _names_the_hub(spec.path, base_dir):
        first = f"datasets.load_dataset({spec.path!r}).save_to_disk({spec.path!r})"
        what = f"no such folder in {str(base_dir)!r}"
        raise DataError(spec.path, what, f"nothing is downloaded; save a data set of the Hub first: {first}")
    if (place / "dataset_dict.json").is_file():
        names = _listed(place / "dataset_dict.json", lambda document: document["splits"], spec.path)
        split = _split(spec, names)
        return "arrow", _saved_files(place / split, spec.path), split
    if (place / "state.json").is_file():
        own = _listed(place / "state.json", lambda document: [document.get("_split") or ""], spec.path)[0]
        if spec.split not in (None, own):
            raise DataError(spec.path, f"has no split {spec.split!r}", f"it is one split{f', {own}' if own else ''}: leave out split")
        return "arrow", _saved_files(place, spec.path), None
    files = _matching(spec.path, base_dir)
    form = form_of(files[0].name)
    if form is None or any(form_of(file.name) != form for file in files):
        raise DataError(spec.path, "is no file of a known form, or names several", f"known suffixes: {' '.join(FORMS)}")
    if not place.is_dir():
        if spec.split is not None:
            raise DataError(spec.path, f"has no split {spec.split!r}", "splits are parts of a folder: leave out split")
        return form, files, None
    by_split: dict[str, dict[Path, list[Path]]] = {}
    for file in files:
        split, folder = split_of(file.relative_to(place))
        by_split.setdefault(split, {}).setdefault(folder, []).append(file)
    split = _split(spec, by_split)
    if len(by_split[split]) > 1:
        places = sorted(str(folder) for folder in by_split[split])
        what = f"has the split {split} in {len(places)} folders ({', '.join(places[:5])})"
        raise DataError(spec.path, what, f"set path: {spec.path}/{places[0]}")
    return form, next(iter(by_split[split].values())), split if len(by_split) > 1 else None


def _names_the_hub(written: str, base_dir: Path) -> bool:
    """Whether a path that leads nowhere may be the name of a data set of the Hub rather than a misspelt one."""
    if not _HUB_NAME.fullmatch(written) or form_of(written) or (base_dir / written).exists():
        return False
    here = [path.name for path in base_dir.iterdir()] if base_dir.is_dir() else []
    return not difflib.get_close_matches(written.split("/", 1)[0], here, n=1)


def _split(spec: HfSpec, splits: Iterable[str]) -> str:
    names = list(splits)
    if spec.split is None and len(names) == 1:
        return names[0]
    if spec.split is None:
        raise DataError(spec.path, f"has {len(names)} splits", f"choose one: split: {' or '.join(names)}")
    if spec.split not in names:
        raise DataError(spec.path, f"has no split {spec.split!r}", did_you_mean(spec.split, names))
    return spec.split


def _listed(path: Path, get: Any, where: str) -> list[str]:
    """Names in a JSON file that ``save_to_disk`` has written; they may not lead elsewhere."""
    try:
        names = get(json.loads(find(path.name, path.parent, "file").read_bytes()))
        if not (names and all(isinstance(name, str) and PurePath(name).name == name for name in names)):
            raise ValueError("no plain names")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, DataError) as error:
        raise DataError(f"{where}/{path.name}", f"cannot be read ({reason(error)})", "save the data set again") from None
    return list(names)


def _saved_files(folder: Path, where: str) -> list[Path]:
    """The Arrow files of a folder of ``save_to_disk``, in order."""
    names = _listed(folder / "state.json", lambda document: [one["filename"] for one in document["_data_files"]], where)
    return [folder / name for name in names]


def _matching(written: str, base_dir: Path) -> list[Path]:
    """The file, the files of a pattern, or all of a folder that have the form of the first, in order.

    Raises:
        DataError: there are none.
    """
    path = base_dir / expanded(written)
    if any(c in written for c in "*?[") and not os.path.lexists(path):
        names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
        if not names:
            raise DataError(written, "matches no file", "paths are relative to the spec file")
        return [find(name, base_dir, "file") for name in names]
    if not path.is_dir():
        return [find(written, base_dir, "file")]
    visible = [file for file in path.rglob("*") if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    for form in dict.fromkeys(FORMS.values()):
        if files := sorted(file for file in visible if form_of(file.name) == form):
            return files
    raise DataError(written, "has no data files", f"known suffixes: {' '.join(FORMS)}")


def _refuse_elsewhere(file: Path, root: Path, where: str) -> None:
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(root):
        raise DataError(where, f"its file {file.name!r} lies in another folder", "set root to a folder that all files lie in")
    if not real.is_file():
        raise DataError(where, f"its file {file.name!r} is missing, or not a regular file", "write the data set again")


def _opened(form: str, files: list[Path], where: str) -> Any:
    datasets = _library(where)
    try:
        with _quiet(datasets):
            if form == "arrow":
                return datasets.concatenate_datasets([datasets.Dataset.from_file(str(file)) for file in files])
            names = [glob.escape(str(file.absolute())) for file in files]
            return datasets.load_dataset(form, data_files={"data": names}, split="data")
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        first = re.split(r"(?<=\.)\s", reason(error.__cause__ or error), maxsplit=1)[0]  # sentence; torch advises to unpickle
        what = f"cannot be read by the library datasets ({first})"
        raise DataError(where, what, "repair it, or write it again; its cache, HF_DATASETS_CACHE, needs room, too") from None


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """No progress bars, log or warnings of the library: an error says it in one line."""
    level, bars = datasets.logging.get_verbosity(), not datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL + 1)
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _validate(whole: Any, columns: list[str], where: str) -> None:
    """Check what Arrow itself does not when it maps a file: whether every value lies within it."""
    try:
        for name in columns:
            whole.data.column(name).validate(full=True)
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        raise DataError(where, f"is damaged ({reason(error)})", "save the data set again with save_to_disk") from None


def _holds(feature: Any) -> _Holds:
    import datasets
    import pyarrow as pa

    if isinstance(feature, datasets.Image):
        return _Holds.IMAGES
    if isinstance(feature, datasets.ClassLabel):
        return _Holds.CLASSES
    if isinstance(feature, datasets.Value):
        kind = feature.pa_type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
            return _Holds.BYTES
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return _Holds.TEXT
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return _Holds.NUMBERS
    return _Holds.OTHER


def _shown(known: Mapping[str, _Holds]) -> str:
    return clipped(", ".join(list(known)[:20]), 200) or "none"


def _named(option: str, name: str, fit: Iterable[_Holds], known: Mapping[str, _Holds], where: str) -> str:
    """A column that an option names; ``image`` is understood for ``image.bytes``."""
    if name not in known and f"{name}.bytes" in known:
        name = f"{name}.bytes"
    if name not in known:
        raise DataError(where, f"has no column {name!r} (columns: {_shown(known)})", f"{option}: {did_you_mean(name, known)}")
    if known[name] not in fit:
        raise DataError(where, f"the column {name!r} does not hold what it must", f"correct {option}; columns: {_shown(known)}")
    return name


def _only(option: str, kind: _Holds, known: Mapping[str, _Holds], where: str) -> str | None:
    able = [name for name, holds in known.items() if holds is kind]
    if len(able) > 1:
        names = " and ".join(map(repr, able[:3]))
        raise DataError(where, f"has {len(able)} columns of {kind.name.lower()}: {names}", f"choose one: {option}: {able[0]}")
    return able[0] if able else None


def _image_column(known: Mapping[str, _Holds], spec: HfSpec, where: str) -> str:
    if spec.image_column is not None:
        return _named("image_column", spec.image_column, (_Holds.IMAGES, _Holds.BYTES, _Holds.TEXT), known, where)
    paths = [name for name, holds in known.items() if holds is _Holds.TEXT]
    found = _only("image_column", _Holds.IMAGES, known, where) or _only("image_column", _Holds.BYTES, known, where)
    found = found or usual(USUAL_PATHS, paths)
    if found is None:
        raise DataError(where, f"has no column of images or of their paths (columns: {_shown(known)})", "set image_column")
    return found


def _label_column(known: Mapping[str, _Holds], spec: HfSpec, where: str) -> str | None:
    if spec.label_column is None:
        return None
    if spec.label_column:
        return _named("label_column", spec.label_column, _CAN_LABEL, known, where)
    if (found := _only("label_column", _Holds.CLASSES, known, where)) is not None:
        return found
    last = {name.rpartition(".")[2]: name for name in reversed(list(known))}  # json.label of a tar
    usually = [last[name] for name in USUAL_LABELS if name in last]
    found = next((name for name in usually if known[name] in _CAN_LABEL), None)
    if found is None and usually:
        what = f"the column {usually[0]!r} does not hold class indices or names"
        raise DataError(where, what, "set label_column to one that does (null: no labels)")
    return found


def _id_column(known: Mapping[str, _Holds], spec: HfSpec, where: str) -> str | None:
    return None if spec.id_column is None else _named("id_column", spec.id_column, (_Holds.NUMBERS, _Holds.TEXT), known, where)


def _content(whole: Any, name: str) -> Any:
    """A column as pyarrow has it."""
    return whole.select_columns([name]).with_format("arrow")[:][name]


def _encoded(images: Any, name: str, holds: _Holds) -> Any:
    """The images as bytes and paths, not decoded by the library."""
    import datasets

    return images.cast_column(name, datasets.Image(decode=False)) if holds is _Holds.IMAGES else images


def _read_labels(whole: Any, name: str, holds: _Holds, spec: HfSpec, where: str) -> tuple[Labels, tuple[str, ...] | None]:
    """The labels as class indices, -1 for none, and the class names.

    Class indices with names are taken by name where the user's ``class_names`` have all of these names, and by index where they are as
    many and those that are the same have the same index; if the names are the model's, at least half of them must be the same.

    Raises:
        DataError: they are neither class indices nor names.
    """
    array = _content(whole, name)
    if holds is _Holds.TEXT:
        texts = [(text or "").strip() for text in array.to_pylist()]
        first = dict[str, int]()
        for row, text in enumerate(texts, 1):
            if text:
                first.setdefault(text, row)
        index, names = class_indices(first, where, spec.class_names, spec.class_ids)
        return np.array([index.get(text, -1) for text in texts], dtype=np.int64), names
    labels = _whole_numbers(array, where, name)
    if holds is not _Holds.CLASSES:
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


def _read_ids(whole: Any, name: str, where: str) -> list[str]:
    """The ids of a column as text.

    Raises:
        DataError: one is missing or empty, or appears twice.
    """
    ids = ["" if value is None else str(value).strip() for value in _content(whole, name).to_pylist()]
    if "" in ids:
        raise DataError(where, f"the column {name!r} is empty in row {ids.index('')}", "fill it in, or set id_column to another")
    return different(ids, where, "ids must differ: set id_column to another")


def _read_keys(whole: Any, where: str, *, several: bool) -> list[str]:
    """The keys of the samples of tars, after the names of the tars where there are several."""
    keys = _content(whole, _KEY).to_pylist()
    if several:
        keys = [f"{tar.rpartition('/')[2]}/{key}" for tar, key in zip(_content(whole, _TAR).to_pylist(), keys, strict=True)]
    return different(keys, where, "ids must differ: set id_column to another")
