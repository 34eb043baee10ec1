"""Data sets of Hugging Face ``datasets`` on disk: folders of ``save_to_disk``, and of Parquet files as the Hub has them.

Nothing is downloaded, and no code of a data set runs.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

from robaudit.datasets.base import Dataset, find, matching, reason
from robaudit.datasets.columns import Chosen, Column, Holds, TableDataset, choose_columns
from robaudit.datasets.parquet_files import ParquetDataset
from robaudit.errors import DataError, did_you_mean, needs_extra
from robaudit.spec.data_files import split_of
from robaudit.spec.model import HfSpec

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def open_hf(spec: HfSpec, *, base_dir: Path) -> Dataset:
    """Open a data set by its folder.

    Raises:
        DataError: the folder is none of a data set, or does not have the split.
        RobauditError: a library is not installed.
    """
    if _names_the_hub(spec.path, base_dir):
        first = f"datasets.load_dataset({spec.path!r}).save_to_disk({spec.path!r})"
        what = f"no such folder in {str(base_dir)!r}"
        raise DataError(spec.path, what, f"nothing is downloaded; save a data set of the Hub first: {first}")
    folder = find(spec.path, base_dir, "folder")
    if (folder / "dataset_dict.json").is_file():
        splits = {name: folder / name for name in _split_names(folder / "dataset_dict.json", spec.path)}
        name = _chosen(spec, splits)
        return ArrowDataset(splits[name], spec, f"{spec.path}, split {name}")
    if (folder / "state.json").is_file():
        own = _split_of(folder)
        if spec.split not in (None, own):
            raise DataError(spec.path, f"has no split {spec.split!r}", f"it is one split{f', {own}' if own else ''}: leave out split")
        return ArrowDataset(folder, spec, spec.path)
    by_split: dict[str, dict[Path, list[Path]]] = {}
    for file in matching(spec.path, base_dir, (".parquet",)):
        split, place = split_of(file.relative_to(folder))
        by_split.setdefault(split, {}).setdefault(place, []).append(file)
    name = _chosen(spec, by_split)
    if len(by_split[name]) > 1:
        places = sorted(str(place) for place in by_split[name])
        raise DataError(
            spec.path, f"has the split {name} in {len(places)} folders ({', '.join(places[:5])})", f"set path: {spec.path}/{places[0]}"
        )
    return ParquetDataset(next(iter(by_split[name].values())), spec, f"{spec.path}, split {name}" if len(by_split) > 1 else spec.path, "hf")


def _names_the_hub(written: str, base_dir: Path) -> bool:
    """Whether a path that leads nowhere may be the name of a data set of the Hub rather than a misspelt one."""
    if not _HUB_NAME.fullmatch(written) or (base_dir / written).exists():
        return False
    here = [path.name for path in base_dir.iterdir()] if base_dir.is_dir() else []
    return not difflib.get_close_matches(written.split("/", 1)[0], here, n=1)


def _chosen(spec: HfSpec, splits: Any) -> str:
    if spec.split is None and len(splits) == 1:
        return str(next(iter(splits)))
    if spec.split is None:
        raise DataError(spec.path, f"has {len(splits)} splits", f"choose one: split: {' or '.join(splits)}")
    if spec.split not in splits:
        raise DataError(spec.path, f"has no split {spec.split!r}", did_you_mean(spec.split, splits))
    return spec.split


def _split_names(path: Path, where: str) -> list[str]:
    try:
        names = json.loads(path.read_bytes())["splits"]
        if not (names and all(isinstance(name, str) and Path(name).name == name for name in names)):
            raise ValueError("no names of splits")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}/{path.name}", f"cannot be read ({reason(error)})", "save the data set again") from None
    return list(names)


def _split_of(folder: Path) -> str | None:
    try:
        split = json.loads((folder / "state.json").read_bytes())["_split"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return split if isinstance(split, str) else None


class ArrowDataset(TableDataset):
    """A data set of ``save_to_disk``: its Arrow files stay on disk, mapped into memory; one image is read at a time.

    The images are found by their type (Image), the labels by theirs (ClassLabel), unless the options name the columns.
    """

    def __init__(self, folder: Path, spec: HfSpec, where: str) -> None:
        self._folder, whole = folder, _loaded(folder, where)
        columns = choose_columns([_column(name, feature) for name, feature in whole.features.items()], spec, where)
        _validate(whole, columns, where)
        super().__init__(where, spec, columns, lambda name: _content(whole, name))
        self._images = _encoded(whole.select_columns([columns.image.name]), columns.image)

    def __len__(self) -> int:
        return len(self._images)

    def _image(self, index: int) -> tuple[object, Path]:
        return self._images[index][self._columns.image.name], self._folder


def _loaded(folder: Path, where: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise needs_extra(where, "datasets", "hf") from None
    try:
        return datasets.load_from_disk(str(folder), keep_in_memory=False).with_format(None)
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        raise DataError(where, f"cannot be opened ({reason(error)})", "save the data set again with save_to_disk") from None


def _validate(whole: Any, columns: Chosen, where: str) -> None:
    """Check what Arrow itself does not when it maps a file: whether every value lies within it."""
    try:
        for name in columns.names:
            whole.data.column(name).validate(full=True)
    except Exception as error:  # noqa: BLE001  the library raises nearly anything on damaged files
        raise DataError(where, f"is damaged ({reason(error)})", "save the data set again with save_to_disk") from None


def _column(name: str, feature: Any) -> Column:
    import datasets
    import pyarrow as pa

    if isinstance(feature, datasets.Image):
        return Column(name, Holds.IMAGES)
    if isinstance(feature, datasets.ClassLabel):
        return Column(name, Holds.CLASSES, tuple(map(str, feature.names)))
    if isinstance(feature, datasets.Value):
        if pa.types.is_binary(feature.pa_type) or pa.types.is_large_binary(feature.pa_type):
            return Column(name, Holds.BYTES)
        if feature.dtype in ("string", "large_string"):
            return Column(name, Holds.TEXT)
        if feature.dtype.startswith(("int", "uint", "float", "bool")):
            return Column(name, Holds.NUMBERS)
    return Column(name, Holds.OTHER)


def _content(whole: Any, name: str) -> Any:
    """A column as pyarrow has it."""
    return whole.select_columns([name]).with_format("arrow")[:][name]


def _encoded(images: Any, column: Column) -> Any:
    """The images as bytes and paths, not decoded by the library."""
    import datasets

    return images.cast_column(column.name, datasets.Image(decode=False)) if column.holds is Holds.IMAGES else images
