"""Parquet, Arrow, WebDataset tars and JSON lines on disk, read by Hugging Face ``datasets``.

The library's readers are called by name on local files: nothing is downloaded, and no code of a data set runs. Parquet,
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
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from robaudit.datasets.arrays import ArrayDataset
from robaudit.datasets.base import boundary, find, reason
from robaudit.datasets.hf_columns import (
    KEY,
    TAR,
    Holds,
    encoded,
    holds,
    id_column,
    image_column,
    label_column,
    read_ids,
    read_keys,
    read_labels,
    read_texts,
)
from robaudit.errors import DataError, SampleError, did_you_mean, needs_extra
from robaudit.files import expanded
from robaudit.spec.data_files import FORMS, form_of, split_of
from robaudit.spec.model import FilesSpec

if TYPE_CHECKING:
    from torch import Tensor

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


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

    def column(self, name: str, base_dir: Path) -> list[str]:
        """A further column.

        Raises:
            DataError: there is no column of this name, or it holds no numbers, classes or texts.
        """
        data = HfDataset(self, base_dir)
        return read_texts(data.whole, name, data.where)


class HfDataset(ArrayDataset):
    """A table with a column of encoded images, or of their paths; labels and ids are read when it is opened.

    A sample's id is in ``id_column``; otherwise it is its key in a tar (after the tar's name if there are several), its path, or its
    index.
    """

    def __init__(self, spec: HfSpec, base_dir: Path) -> None:
        _library(spec.path)
        form, files, split = _chosen_files(spec, base_dir)
        where = spec.path if split is None else f"{spec.path}, split {split}"
        self._spec, self._folder = spec, files[0].parent
        place = base_dir / expanded(spec.path)
        self._root = boundary(spec.root, base_dir, place if place.is_dir() else Path(os.path.commonpath([file.parent for file in files])))
        if place.is_dir():  # otherwise the spec names the files
            for file in files:
                _refuse_elsewhere(file, self._root, where)
        whole = _opened(form, files, where).flatten()
        known = {name: holds(feature) for name, feature in whole.features.items()}
        self.whole = whole
        self._image_column = image_column(known, spec, where)
        label, key = label_column(known, spec, where), id_column(known, spec, where)
        used = [name for name in (self._image_column, label, key) if name is not None]
        if form == "arrow":
            _validate(whole, used, where)
        class_names, labels = spec.class_names, None
        if label is not None:
            labels, class_names = read_labels(whole, label, known[label], spec, where)
        if key is not None:
            ids: list[str] | None = read_ids(whole, key, where)
        elif KEY in known and TAR in known:
            ids = read_keys(whole, where, several=len(files) > 1)
        elif known[self._image_column] is Holds.TEXT:
            ids = read_ids(whole, self._image_column, where)
        else:
            ids = None
        rows = encoded(whole.select_columns([self._image_column]), self._image_column, known[self._image_column])
        super().__init__(where, rows, labels, ids=ids, class_names=class_names)

    def _pixels(self, index: int, where: str) -> Tensor:
        """The pixels of the bytes of a file, of its path, or of ``{bytes, path}``."""
        from robaudit.datasets.decode import decode_image, read_image  # imports torch, which reading a spec does not need

        try:
            value = self._images[index][self._image_column]
        except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
            raise SampleError(where, f"cannot be read ({reason(error)})", "repair the data set, or leave out this sample") from None
        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, value)
        if isinstance(content, bytes):
            return decode_image(content, where, self._spec)
        if not isinstance(path, str) or not path:
            raise SampleError(where, "has no image", "leave out this row")
        if "://" in path:
            raise SampleError(where, f"its image is at {path!r}", "nothing is downloaded: store the images in the data set")
        return read_image(self._folder / path, where, self._spec, self._root)


def _library(where: str) -> Any:
    """The library, without telemetry."""
    try:
        import datasets
    except ImportError:
        raise needs_extra(where, "datasets", "hf") from None
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


def _chosen_files(spec: HfSpec, base_dir: Path) -> tuple[str, list[Path], str | None]:
    """The reader's name, the files of the split, and the split's name if there are several.

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
    """Whether a missing path may be the name of a data set on the Hub rather than a misspelt path."""
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
    """Names in a JSON file of ``save_to_disk``; they may not lead outside the folder."""
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
    """The file, the files of a pattern, or all files of a folder in the format of the first, in order.

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
    """Check that every value is within a mapped file, which Arrow does not."""
    try:
        for name in columns:
            whole.data.column(name).validate(full=True)
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        raise DataError(where, f"is damaged ({reason(error)})", "save the data set again with save_to_disk") from None
