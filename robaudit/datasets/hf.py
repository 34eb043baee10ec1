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
from robaudit.datasets.dataset import Labels, boundary, different, existing_path
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
# The library's readers by suffix. In a folder of several forms, the first that it has is read.
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
# The number of a file among those of one set: -00001, -00001-of-00004, and the Hub's
# -00001-of-00004-1a2b3c4d.
_SHARD = re.compile(r"[-_.]?\d+(-of-\d+(-[0-9a-f]+)?)?(?=\.[^/]*$)")
_MOST_EXAMINED = 10**5  # entries of a folder, to recognise it: a folder of images may have millions
# Columns that the library adds to WebDataset tars.
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
        names = islice(visible_files(place), _MOST_EXAMINED) if place.is_dir() else [written]
        return {"path": written} if any(map(_form_of, names)) else None

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the labels and ids.

        A sample's id is its value in ``id_column``, else its key in a tar (after the tar's name if
        there are several), its path, or its index.

        Raises:
            DataError: the files are missing or damaged, or a column is.
            RobauditError: datasets is not installed.
        """
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.decode import file_pixels, is_turned

        table, files, root, left_out = self._table(base_dir)
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
        labels, class_names = self._labels(table, kinds)
        ids = self._ids(table, kinds, image, several_files=len(files) > 1)
        _checked(table, image, where)
        # A row of this table reads its image alone.
        rows = table.select_columns([image])
        # Images stay encoded: they are decoded here as image files are, with the same limits.
        if kinds[image] == "image":
            rows = rows.cast_column(image, type(table.features[image])(decode=False))
        decode = partial(file_pixels, folder=files[0].parent, root=root, options=self)
        parts = partial(sample_parts, keys=(image, None))
        if ids is not None:
            different(ids, where)
        return ImageSet(
            where,
            rows,
            decode,
            labels=labels,
            ids=ids,
            class_names=class_names,
            parts=parts,
            turned=partial(is_turned, folder=files[0].parent, root=root),
            warnings=left_out,
        )

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another column, with class names for class indices; empty where a value is
        missing.

        Raises:
            DataError: there is no column of this name, or it holds no numbers, classes or texts.
        """
        table, *_ = self._table(base_dir)
        where = self.path
        fits = ("class", "number", "text")
        name = _column(BY.words, name, fits, (), _kinds(table), where) or name
        classes = getattr(table.features[name], "names", None)
        texts = []
        for value in _checked(table, name, where).to_pylist():
            if value is None:
                texts.append("")
            else:
                texts.append(str(value if classes is None else classes[value]))
        return texts

    def _table(self, base_dir: Path) -> tuple[Any, list[Path], Path, tuple[str, ...]]:
        """Open the table.

        Returns:
            The table, its files, the folder that must contain all image files, and a warning about
            files that are left out.
        """
        place = base_dir / expanded(self.path)
        where = self.path
        form, files, left_out = _chosen_files(where, base_dir)
        if place.is_dir():
            own_folder = place
        else:
            own_folder = Path(os.path.commonpath([file.parent for file in files]))
        root = boundary(self.root, base_dir, own_folder)
        # A link in the folder may lead to any file. Without a folder, the spec names the files.
        for file in files if place.is_dir() else ():
            if not Path(os.path.realpath(file)).is_relative_to(root) or not file.is_file():
                raise DataError(
                    where,
                    f"its file {file.name!r} is not a file in its folder",
                    "set root to a folder that all files lie in",
                )
        # Fields of structures become columns: json.breed, image.bytes.
        return _opened(form, files, where).flatten(), files, root, left_out

    def _ids(
        self, table: Any, kinds: Mapping[str, str], image: str, *, several_files: bool
    ) -> list[str] | None:
        """The ids of the samples; None: their indices.

        Raises:
            DataError: the column of ids is missing, damaged or has gaps.
        """
        where = self.path
        column = None
        if self.id_column:
            column = _column("id_column", self.id_column, ("number", "text"), (), kinds, where)
        if column is None and _KEY in kinds and _TAR in kinds:
            tars = _checked(table, _TAR, where).to_pylist()
            keys = _checked(table, _KEY, where).to_pylist()
            if not several_files:
                return [str(key) for key in keys]
            # Every tar may have a key 0001.
            tar_names = [tar.rpartition("/")[2] for tar in tars]
            return [f"{tar}/{key}" for tar, key in zip(tar_names, keys, strict=True)]
        if column is None and kinds[image] == "text":
            column = image
        if column is None:
            return None
        values = _checked(table, column, where).to_pylist()
        ids = ["" if value is None else str(value).strip() for value in values]
        if "" in ids:
            raise DataError(
                where,
                f"the column {column!r} is empty in row {ids.index('')}",
                "fill it in, or set id_column to another",
            )
        return ids

    def _labels(
        self, table: Any, kinds: Mapping[str, str]
    ) -> tuple[Labels | None, tuple[str, ...] | None]:
        """The labels as class indices (n,), -1 for none, and the class names; None without labels.

        Raises:
            DataError: the column of labels is missing, damaged or not one of labels.
        """
        where = self.path
        column = None
        if self.label_column is not None:
            fits = ("class", "number", "text")
            column = _column("label_column", self.label_column, fits, USUAL_LABELS, kinds, where)
        if column is None:
            return None, self.class_names
        values = _checked(table, column, where).to_pylist()
        if kinds[column] == "text":
            texts = [(text or "").strip() for text in values]
            return text_labels(texts, where, self.class_names, self.class_ids)
        numbers = np.array([-1 if value is None else value for value in values])
        labels = label_array(numbers, where, len(values))
        if kinds[column] == "number":
            return labels, self.class_names
        own_names = tuple(map(str, table.features[column].names))
        if int(labels.max(initial=-1)) >= len(own_names):
            what = (
                f"the column {column!r} has the label {int(labels.max())} (row "
                f"{int(labels.argmax())}), but {len(own_names)} classes"
            )
            raise DataError(where, what, "repair it")
        # The label -1 takes the last entry, which is -1.
        return self._indices_by_class(own_names)[labels], self.class_names or own_names

    def _indices_by_class(self, own_names: tuple[str, ...]) -> Labels:
        """The user's class index for each class of the data set, and -1 at the end, for no label.

        Classes match by index if both have equally many names and share at least half of them, each
        with the same index. Otherwise they match by name, and the user's ``class_names`` must
        contain every name.
        """
        same = np.array([*range(len(own_names)), -1], dtype=np.int64)
        if self.class_names is None:
            return same
        classes = ClassIndex(self.class_names, self.class_ids)
        found = [classes.find(name) for name in own_names]
        # None: a class that the user calls otherwise. Half of the names must agree; two unrelated
        # lists of the same length would fit, too.
        in_place = all(index in (place, None) for place, index in enumerate(found))
        mostly_known = 2 * found.count(None) <= len(own_names)
        if len(own_names) == len(self.class_names) and in_place and mostly_known:
            return same
        indices = [classes.index(name, self.path, f"its class {name!r}") for name in own_names]
        return np.array([*indices, -1], dtype=np.int64)


def _folder_files(path: str, place: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The data files of a folder, all of one form and one set, and a warning about other files.

    Raises:
        DataError: the folder holds several sets of files, such as the splits of a data set.
    """
    all_names = sorted(visible_files(place))
    form_of = {name: _form_of(name) for name in all_names}
    form = next((form for form in _FORMS.values() if form in form_of.values()), None)
    data_names = [name for name in all_names if form_of[name] is not None]
    names = [name for name in data_names if form_of[name] == form]
    other_names = [name for name in data_names if form_of[name] != form]
    # train-00000.parquet and train-00001.parquet are one set.
    sets = list(dict.fromkeys(_SHARD.sub("*", name) for name in names))
    if len(sets) > 1:
        what = f"holds {len(sets)} sets of files ({', '.join(sets[:5])})"
        raise DataError(path, what, f"name one: path: {path.rstrip('/')}/{sets[0]}")
    links = not_read(list(filter(is_link, all_names)), "linked folder")
    others = not_read(other_names, "file", " of other forms")
    warning: tuple[str, ...] = ()
    if links or others:
        parts = ", ".join(filter(None, (links, others)))
        warning = (
            f"{path}: not read: {parts}; copy linked folders, and give one form of files a "
            "folder of its own",
        )
    return [place / name for name in names], warning


def _chosen_files(path: str, base_dir: Path) -> tuple[str, list[Path], tuple[str, ...]]:
    """The reader's name, the files in order, and a warning about other files in the folder.

    Raises:
        DataError: there are no files, or a folder holds several sets of them, such as the splits of
            a data set.
    """
    place = base_dir / expanded(path)
    suffixes = f"known suffixes: {' '.join(_FORMS)}"
    left_out: tuple[str, ...] = ()
    if place.is_dir():
        files, left_out = _folder_files(path, place)
    # A file may have brackets in its name.
    elif glob.has_magic(path) and not os.path.lexists(place):
        # pathlib takes no absolute patterns.
        names = glob.glob(str(place), recursive=True)  # noqa: PTH207
        files = [existing_path(name, base_dir, "file") for name in sorted(names)]
    else:
        files = [existing_path(path, base_dir, "file", _HUB)]
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
    # The library's own caches lie beside saved data.
    if name.rpartition("/")[2].startswith("cache-"):
        return None
    fitting = (form for suffix, form in _FORMS.items() if name.lower().endswith(suffix))
    return next(fitting, None)


def _opened(form: str, files: Sequence[Path], where: str) -> Any:
    """Read the table in these files, silently.

    Args:
        form: the library's reader.
        files: the table's files, in order.
        where: the data set, for messages.
    """
    try:
        import datasets
    except ImportError:
        raise needs_extra(where, "datasets", "hf") from None
    # The library otherwise tells the Hub of each load_dataset.
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        with _quiet(datasets):
            if form == "arrow":
                # Mapped where they are; load_dataset would copy them to the cache.
                tables = [datasets.Dataset.from_file(str(file)) for file in files]
                return datasets.concatenate_datasets(tables)
            # The library takes names for patterns.
            names = [glob.escape(str(file.absolute())) for file in files]
            return datasets.load_dataset(form, data_files={"data": names}, split="data")
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        # The first sentence only: torch's next one advises to unpickle the file.
        reason = first_line(error.__cause__ or error)
        sentence = re.split(r"(?<=\.)\s", reason, maxsplit=1)[0]
        what = f"cannot be read by the library datasets ({sentence})"
        raise DataError(
            where,
            what,
            "repair it, or write it again; its cache, HF_DATASETS_CACHE, needs room, too",
        ) from None


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Turn off the library's progress bars, log and warnings."""
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
    """A column of a table, after checking that every value lies within its mapped file.

    Arrow does not check this by default: offsets of a hostile file could lead outside its memory.

    Raises:
        DataError: the column is damaged.
    """
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
    """The kind of a column, from its type in the library."""
    name = type(feature).__name__
    dtype = str(getattr(feature, "dtype", ""))
    if name != "Value":
        return {"Image": "image", "ClassLabel": "class"}.get(name, "")
    # Arrow also has large_binary, binary_view, large_string and string_view.
    if "binary" in dtype:
        return "bytes"
    if "string" in dtype:
        return "text"
    return "number" if dtype.startswith(("int", "uint", "float", "bool")) else ""


def _column(
    option: str,
    value: str | None,
    fits: Sequence[str],
    names: Sequence[str],
    kinds: Mapping[str, str],
    where: str,
) -> str | None:
    """The column for a use, or None if there is none.

    It is the column that the option names. Without the option, it is the only column of images,
    bytes or classes (in this order), else a column with a usual name.

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
    column: str | None
    if value:
        # An image without the library's type is a structure of bytes and path.
        column = value if value in kinds else f"{value}.bytes"
        if column not in kinds:
            raise DataError(
                where,
                f"has no column {value!r} (columns: {_shown(kinds)})",
                option + f": {did_you_mean(value, kinds)}",
            )
    else:
        column = _only_column(option, fits, kinds, where)
        if column is not None:
            return column
        # The first of several columns with the same last part stays.
        by_last_part = {name.rpartition(".")[2]: name for name in reversed(list(kinds))}
        column = by_last_part.get(usual(names, list(by_last_part)) or "")
    if column is not None and kinds[column] not in fits:
        raise DataError(
            where,
            f"the column {column!r} is not of kind {' or '.join(fits)}",
            "set " + option + f"; columns: {_shown(kinds)}",
        )
    return column


def _only_column(
    option: str, fits: Sequence[str], kinds: Mapping[str, str], where: str
) -> str | None:
    """The only column of images; else of bytes; else of classes; None if there is none.

    Raises:
        DataError: there are several of one kind.
    """
    for wanted in ("image", "bytes", "class"):
        if wanted not in fits:
            continue
        columns = [name for name, kind in kinds.items() if kind == wanted]
        if len(columns) > 1:
            raise DataError(
                where,
                f"has {len(columns)} columns of kind {wanted}: {_shown(columns)}",
                "choose one: " + option + f": {columns[0]}",
            )
        if columns:
            return columns[0]
    return None


def _shown(names: Sequence[str] | Mapping[str, str]) -> str:
    """Names of columns for a message; a file of a stranger may have any number."""
    return clipped(", ".join(list(names)[:20]), 200) or "none"
