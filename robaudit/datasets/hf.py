"""Parquet, Arrow, WebDataset tars and JSON lines on disk, read by Hugging Face ``datasets``.

The library's readers are called by name on local files: nothing is downloaded, and no code of a
data set runs. Parquet, tars and JSON lines are converted to Arrow files once, in the library's
cache (``HF_DATASETS_CACHE``); the files of ``save_to_disk`` are mapped where they are. Either way,
one image is read at a time.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from robaudit.datasets.class_names import ClassIndex, label_array, text_labels
from robaudit.datasets.dataset import Labels, boundary, different, find
from robaudit.datasets.image_set import ImageSet, sample_parts
from robaudit.datasets.listing import (
    USUAL_LABELS,
    USUAL_PATHS,
    is_link,
    not_read,
    usual,
    visible_files,
)
from robaudit.errors import DataError, did_you_mean, needs_extra
from robaudit.files import expanded
from robaudit.settings import BY
from robaudit.spec.model import FilesSpec
from robaudit.text import clipped, first_line

_RELATIVE = "paths are relative to the spec file"
_HUB = (
    f"{_RELATIVE}; nothing is downloaded: save a data set of the Hub first, with its save_to_disk"
)
# the library's readers
_FORMS = {
    ".arrow": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tar": "webdataset",
    ".tar.gz": "webdataset",
    ".tgz": "webdataset",
    ".jsonl": "json",
    ".ndjson": "json",
}
_SHARD = re.compile(r"[-_.]?\d+(-of-\d+(-[0-9a-f]+)?)?(?=\.[^/]*$)")
_MOST_LISTED = 10**5  # entries of a folder that are examined to recognise it
# columns of WebDataset tars
_KEY = "__key__"
_TAR = "__url__"


class HfSpec(FilesSpec):
    """Parquet, WebDataset tars, JSON lines, or a folder of save_to_disk, read by Hugging Face
    `datasets`; nothing is downloaded."""

    kind: Literal["hf"] = "hf"
    path: str = Field(description="a file, a folder, or a pattern such as data/test-*.parquet")
    image_column: str | None = Field(
        None, description="encoded images or their paths; default: the only column that can be"
    )
    label_column: str | None = Field(
        "",
        description="class indices or names; empty: the only ClassLabel, else a column called "
        "label, class, cls, ...; null: no labels",
    )
    id_column: str | None = Field(
        None,
        description="ids of the samples; default: keys of a tar, paths of images, else indices",
    )

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:
        """Files of a known format."""
        names = islice(visible_files(place), _MOST_LISTED) if place.is_dir() else [written]
        return {"path": written} if any(map(_form_of, names)) else None

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the labels and ids.

        A sample's id is its value in ``id_column``, else its key in a tar (after the tar's name if
        there are several), its path, or its index.

        Raises:
            DataError: the files are missing or damaged, or a column is.
            RobauditError: datasets is not installed.
        """
        # imports torch, which reading a spec does not need
        from robaudit.datasets.decode import (
            file_pixels,
        )

        (table, files, root, left_out) = self._table(base_dir)
        where = self.path
        kinds = _kinds(table)
        image = _column(
            "image_column", self.image_column, ("image", "bytes", "text"), USUAL_PATHS, kinds, where
        )
        if image is None:
            raise DataError(
                where,
                f"has no column of images or of their paths (columns: {_shown(kinds)})",
                "set image_column",
            )
        label = None
        if self.label_column is not None:
            label = _column(
                "label_column",
                self.label_column,
                ("class", "number", "text"),
                USUAL_LABELS,
                kinds,
                where,
            )
        labels, names = (
            (None, self.class_names)
            if label is None
            else self._labels(table, label, kinds[label], where)
        )
        key = (
            _column("id_column", self.id_column, ("number", "text"), (), kinds, where)
            if self.id_column
            else None
        )
        ids = None
        if key is None and _KEY in kinds and _TAR in kinds:
            tars = [
                f"{tar.rpartition('/')[2]}/" if len(files) > 1 else ""
                for tar in _checked(table, _TAR, where).to_pylist()
            ]
            ids = [
                f"{tar}{name}"
                for tar, name in zip(tars, _checked(table, _KEY, where).to_pylist(), strict=True)
            ]
        elif (key := key or (image if kinds[image] == "text" else None)) is not None:
            ids = [
                "" if value is None else str(value).strip()
                for value in _checked(table, key, where).to_pylist()
            ]
            if "" in ids:
                raise DataError(
                    where,
                    f"the column {key!r} is empty in row {ids.index('')}",
                    "fill it in, or set id_column to another",
                )
        _checked(table, image, where)
        rows = table.select_columns([image])
        if kinds[image] == "image":
            rows = rows.cast_column(image, type(table.features[image])(decode=False))
        decode = partial(file_pixels, folder=files[0].parent, root=root, options=self)
        parts = partial(sample_parts, keys=(image, None))
        known = ids and different(ids, where)
        return ImageSet(
            where,
            rows,
            decode,
            labels=labels,
            ids=known,
            class_names=names,
            parts=parts,
            warnings=left_out,
        )

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another column, with class names for class indices; empty where a value is
        missing.

        Raises:
            DataError: there is no column of this name, or it holds no numbers, classes or texts.
        """
        (table, *_) = self._table(base_dir)
        where = self.path
        fits = ("class", "number", "text")
        name = _column(BY.words, name, fits, (), _kinds(table), where) or name
        classes = getattr(table.features[name], "names", None)
        return [
            "" if value is None else str(value if classes is None else classes[value])
            for value in _checked(table, name, where).to_pylist()
        ]

    def _table(self, base_dir: Path) -> tuple[Any, list[Path], Path, tuple[str, ...]]:
        """The table, its files, the folder that all image files must lie in, and a warning about
        files that are left out."""
        place = base_dir / expanded(self.path)
        where = self.path
        form, files, left_out = _chosen_files(where, base_dir)
        root = boundary(
            self.root,
            base_dir,
            place if place.is_dir() else Path(os.path.commonpath([file.parent for file in files])),
        )
        for file in files if place.is_dir() else ():  # otherwise the spec names the files
            if not Path(os.path.realpath(file)).is_relative_to(root) or not file.is_file():
                raise DataError(
                    where,
                    f"its file {file.name!r} is not a file in its folder",
                    "set root to a folder that all files lie in",
                )
        return _opened(form, files, where).flatten(), files, root, left_out

    def _labels(
        self, table: Any, column: str, kind: str, where: str
    ) -> tuple[Labels, tuple[str, ...] | None]:
        """The labels as class indices, -1 for none, and the class names."""
        values = _checked(table, column, where).to_pylist()
        if kind == "text":
            return text_labels(
                [(text or "").strip() for text in values], where, self.class_names, self.class_ids
            )
        labels = label_array(
            np.array([-1 if value is None else value for value in values]), where, len(values)
        )
        if kind == "number":
            return labels, self.class_names
        own = tuple(map(str, table.features[column].names))
        if int(labels.max(initial=-1)) >= len(own):
            what = (
                f"the column {column!r} has the label {int(labels.max())} (row "
                f"{int(labels.argmax())}), but {len(own)} classes"
            )
            raise DataError(where, what, "repair it")
        return self._by_name(own, where)[labels], self.class_names or own

    def _by_name(self, own: tuple[str, ...], where: str) -> Labels:
        """The user's class index for each class of the data set; the last entry is -1, for no
        label.

        Classes match by index if both have equally many names and share at least half of them, each
        with the same index. Otherwise they match by name, and the user's ``class_names`` must
        contain every name.
        """
        same = np.array([*range(len(own)), -1], dtype=np.int64)
        if self.class_names is None:
            return same
        classes = ClassIndex(self.class_names, self.class_ids)
        numbers = [classes.find(name) for name in own]
        fits = len(own) == len(self.class_names) and all(
            number in (place, None) for place, number in enumerate(numbers)
        )
        if fits and 2 * numbers.count(None) <= len(own):
            return same
        return np.array(
            [*(classes.index(name, where, f"its class {name!r}") for name in own), -1],
            dtype=np.int64,
        )


def _chosen_files(path: str, base_dir: Path) -> tuple[str, list[Path], tuple[str, ...]]:
    """The reader's name, the files in order, and a warning about other data in the folder, which
    are left out.

    Raises:
        DataError: there are no files, or a folder holds several sets of them, such as the splits of
            a data set.
    """
    place = base_dir / expanded(path)
    suffixes = f"known suffixes: {' '.join(_FORMS)}"
    left_out: tuple[str, ...] = ()
    if place.is_dir():
        found = sorted(visible_files(place))
        names = [name for name in found if _form_of(name)]
        form = next(
            (form for form in _FORMS.values() if any(_form_of(name) == form for name in names)),
            None,
        )
        sets = list(
            dict.fromkeys(_SHARD.sub("*", name) for name in names if _form_of(name) == form)
        )
        if len(sets) > 1:
            what = f"holds {len(sets)} sets of files ({', '.join(sets[:5])})"
            raise DataError(path, what, f"name one: path: {path.rstrip('/')}/{sets[0]}")
        files = [place / name for name in names if _form_of(name) == form]
        links = not_read(list(filter(is_link, found)), "linked folder")
        others = not_read(
            [name for name in names if _form_of(name) != form], "file", " of other forms"
        )
        if links or others:
            parts = ", ".join(filter(None, (links, others)))
            left_out = (
                f"{path}: not read: {parts}; copy linked folders, and give one form of files a "
                "folder of its own",
            )
    elif glob.has_magic(path) and not os.path.lexists(place):
        # pathlib takes no absolute patterns
        names = glob.glob(str(place), recursive=True)  # noqa: PTH207
        files = [find(name, base_dir, "file") for name in sorted(names)]
    else:
        files = [find(path, base_dir, "file", _HUB)]
    if not files:
        raise DataError(
            path,
            "has no data files" if place.is_dir() else "matches no file",
            suffixes if place.is_dir() else _RELATIVE,
        )
    form = _form_of(files[0].name)
    if form is None or any(_form_of(file.name) != form for file in files):
        raise DataError(path, "is no file of a known form, or names several", suffixes)
    return form, files, left_out


def _form_of(name: str) -> str | None:
    """The library's reader for a file of this name, if any."""
    own_cache = name.rpartition("/")[2].startswith("cache-")  # beside saved data
    return (
        None
        if own_cache
        else next((form for suffix, form in _FORMS.items() if name.lower().endswith(suffix)), None)
    )


def _opened(form: str, files: Sequence[Path], where: str) -> Any:
    """Read the table in these files, without the library's telemetry, progress bars, log and
    warnings."""
    try:
        import datasets
    except ImportError:
        raise needs_extra(where, "datasets", "hf") from None
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        with _quiet(datasets):
            if form == "arrow":
                return datasets.concatenate_datasets(
                    [datasets.Dataset.from_file(str(file)) for file in files]
                )
            names = [glob.escape(str(file.absolute())) for file in files]
            return datasets.load_dataset(form, data_files={"data": names}, split="data")
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        # sentence; torch advises to unpickle
        first = re.split(r"(?<=\.)\s", first_line(error.__cause__ or error), maxsplit=1)[0]
        what = f"cannot be read by the library datasets ({first})"
        raise DataError(
            where,
            what,
            "repair it, or write it again; its cache, HF_DATASETS_CACHE, needs room, too",
        ) from None


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    level = datasets.logging.get_verbosity()
    bars = not datasets.are_progress_bars_disabled()
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


def _checked(table: Any, name: str, where: str) -> Any:
    """A column of a table, after checking that every value lies within its mapped file, which Arrow
    does not do by default."""
    column = table.data.column(name)
    try:
        column.validate(full=True)
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        raise DataError(
            where, f"is damaged ({first_line(error)})", "save the data set again with save_to_disk"
        ) from None
    return column


def _kinds(table: Any) -> dict[str, str]:
    """The kind of each column: image, class, bytes, text, number, or '' for others."""
    return {name: _kind(feature) for name, feature in table.features.items()}


def _kind(feature: Any) -> str:
    name = type(feature).__name__
    values = str(getattr(feature, "dtype", ""))
    if name != "Value":
        return {"Image": "image", "ClassLabel": "class"}.get(name, "")
    if "binary" in values or "string" in values:  # also large_string, string_view
        return "bytes" if "binary" in values else "text"
    return "number" if values.startswith(("int", "uint", "float", "bool")) else ""


def _column(
    option: str,
    value: str | None,
    fits: Sequence[str],
    names: Sequence[str],
    kinds: Mapping[str, str],
    where: str,
) -> str | None:
    """The column that an option names; else the only column of images, bytes or classes; else a
    column with a usual name; else None.

    Args:
        option: for messages.
        value: the option's value; ``image`` also means ``image.bytes``.
        fits: the kinds that the column may have.
        names: the usual names, also as the last part of a name (``json.label``).
        kinds: the kind of each column.
        where: the table, for messages.

    Raises:
        DataError: there are several, there is no such column, or it has another kind.
    """
    column = None
    if value:
        column = value if value in kinds else f"{value}.bytes"
        if column not in kinds:
            raise DataError(
                where,
                f"has no column {value!r} (columns: {_shown(kinds)})",
                option + f": {did_you_mean(value, kinds)}",
            )
    for wanted in ("image", "bytes", "class") if column is None else ():
        hits = [name for name, kind in kinds.items() if kind == wanted and wanted in fits]
        if len(hits) > 1:
            raise DataError(
                where,
                f"has {len(hits)} columns of kind {wanted}: {_shown(hits)}",
                "choose one: " + option + f": {hits[0]}",
            )
        if hits:
            return hits[0]
    if column is None:
        last = {name.rpartition(".")[2]: name for name in reversed(list(kinds))}
        column = last.get(usual(names, list(last)) or "")
    if column is not None and kinds[column] not in fits:
        raise DataError(
            where,
            f"the column {column!r} is not of kind {' or '.join(fits)}",
            "set " + option + f"; columns: {_shown(kinds)}",
        )
    return column


def _shown(names: Sequence[str] | Mapping[str, str]) -> str:
    return clipped(", ".join(list(names)[:20]), 200) or "none"
