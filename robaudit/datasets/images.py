"""A folder with one folder of images for each class, or of images without labels, as a data set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from robaudit.datasets.base import Dataset, Labels, Sample, boundary, find, name_text, reason
from robaudit.datasets.classes import ClassIndex
from robaudit.datasets.decode import read_image
from robaudit.errors import DataError
from robaudit.spec.data_files import METADATA, METADATA_PATH, SPLITS, SUFFIXES, preferred
from robaudit.spec.model import ImageOptions, ImagesSpec
from robaudit.text import count

_SYNSET = re.compile(r"n\d{8}")


def open_images(spec: ImagesSpec, *, base_dir: Path) -> Dataset:
    """Open a folder of class folders, or of images without labels.

    Raises:
        DataError: there are no images.
    """
    root = find(spec.path, base_dir, "folder")
    folders, loose = _visible(root, spec.path)
    if folders:
        return _by_folders(spec, root, folders, boundary(spec.root, base_dir, root))
    if loose and (root / METADATA).is_file():
        remedy = f"use kind: csv with path: {spec.path.rstrip('/')}/{METADATA} and path_column: {METADATA_PATH}"
        raise DataError(spec.path, f"holds {count(len(loose), 'image')} but no class folders", remedy)
    if loose:
        unlabelled = np.full(len(loose), -1, dtype=np.int64)
        return ImagesDataset(spec.path, root, sorted(loose), unlabelled, spec.class_names, spec, boundary(spec.root, base_dir, root))
    holds_nothing = "holds no class folders" if any(root.iterdir()) else "is an empty folder"
    raise DataError(spec.path, holds_nothing, "give a folder with one folder per class")


class ImagesDataset:
    """Image files of a folder, ordered by path; a sample's id is its path relative to the folder, with slashes.

    Args:
        where: what messages call the folder.
        root: the folder.
        names: of the files, relative to it.
        labels: of the files; -1: none.
        class_names: by index, where they are known.
        options: of decoding.
        within: the folder that the files must lie in.
    """

    def __init__(
        self,
        where: str,
        root: Path,
        names: list[str],
        labels: Labels,
        class_names: tuple[str, ...] | None,
        options: ImageOptions,
        within: Path,
    ) -> None:
        self.where, self._root, self._names, self._options = where, root, names, options
        self._labels, self._within = labels, within
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self._names)

    def sample_id(self, index: int) -> str:
        """The path relative to the folder; bytes that are not UTF-8 are written as escapes."""
        return name_text(self._names[index])

    def labels(self) -> Labels | None:
        """The class of every image."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Decode one image.

        Raises:
            SampleError: it cannot be decoded, or lies elsewhere.
        """
        sample_id = self.sample_id(index)
        pixels = read_image(self._root / self._names[index], f"{self.where}/{sample_id}", self._options, self._within)
        label = int(self._labels[index])
        return Sample(sample_id, pixels, label if label >= 0 else None)


def _by_folders(spec: ImagesSpec, root: Path, folders: Sequence[str], within: Path) -> Dataset:
    """Images whose class is the name of a folder, or of several."""
    names = [name for folder in folders for name in _images_below(root, folder, spec.path)]
    if not names:
        suffixes = f"known suffixes: {' '.join(sorted(SUFFIXES))}"
        raise DataError(spec.path, f"has no images in its {count(len(folders), 'class folder')}", suffixes)
    if spec.classes == "top":
        _refuse_groups(spec, folders, names)
        of_files, present = [name.split("/", 1)[0] for name in names], list(folders)  # a class folder without images is a class
    else:
        parents = [name.rpartition("/")[0] for name in names]
        of_files = [parent.rpartition("/")[2] for parent in parents] if spec.classes == "leaf" else parents
        present = sorted(set(of_files))
    index, class_names = _classes(spec, [name_text(one) for one in present])
    labels = np.array([index[name_text(one)] for one in of_files], dtype=np.int64)
    return ImagesDataset(spec.path, root, names, labels, class_names, spec, within)


def _classes(spec: ImagesSpec, present: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class index of every folder, and the class names: by ``class_names``, else by the order of the folders' names.

    All synsets of a data set (``n01440764``) have class indices in their own order, whatever the classes are called.
    """
    asked = spec.class_names
    classes = ClassIndex(asked or present, spec.class_ids if asked else None)
    index = {name: number for name in present if (number := classes.find(name)) is not None}
    if (unknown := next((name for name in present if name not in index), None)) is None:
        return index, asked or tuple(present)
    synsets = all(map(_SYNSET.fullmatch, present))
    if asked is not None and synsets and len(asked) == len(present):
        return {name: number for number, name in enumerate(sorted(present))}, asked
    remedy = (
        "set class_ids to a file that begins each line with a synset, in the order of class_names" if synsets else classes.remedy(unknown)
    )
    raise DataError(f"{spec.path}/{unknown}", "the folder is not in class_names", remedy)


def _refuse_groups(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> None:
    """Refuse folders that are no classes but hold them: splits, or a single folder around all others."""
    if "classes" in spec.model_fields_set or spec.class_names is not None:
        return
    places = [name.split("/") for name in names]
    deep = min(map(len, places)) > 2
    splits = [folder for folder in folders if folder.lower() in SPLITS]
    if len(splits) == len(folders) and (deep or len(splits) > 1):
        what = f"holds the {'splits' if len(splits) > 1 else 'split'} {', '.join(splits)}, which are no classes"
        raise DataError(spec.path, what, f"choose one: path: {spec.path.rstrip('/')}/{preferred(splits)}")
    below = len({tuple(parts[:2]) for parts in places}) if deep else 0
    if len(folders) == 1 and below > 1:
        what = f"has a single class folder {folders[0]!r}, whose images lie in {below} folders"
        raise DataError(spec.path, what, f"set path: {spec.path.rstrip('/')}/{folders[0]}, or classes: top if it is one class")


def _visible(root: Path, where: str) -> tuple[list[str], list[str]]:
    """The names of the folders, sorted, and of the images in a folder."""
    try:
        with os.scandir(root) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(where, f"cannot be listed ({reason(error)})", "give a folder that you may read") from None
    return sorted(entry.name for entry in visible if entry.is_dir()), [entry.name for entry in visible if _is_image(entry.name)]


def _images_below(root: Path, folder: str, where: str) -> list[str]:
    """Relative posix paths of the images in one class folder, sorted."""

    def refuse(error: OSError) -> NoReturn:  # os.walk would pass over it, and a class would be missing unnoticed
        raise DataError(f"{where}/{folder}", f"cannot be listed ({reason(error)})", "give folders that you may read") from None

    found = []
    for place, folders, names in os.walk(root / folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(place).relative_to(root).as_posix()
        found += [f"{inside}/{name}" for name in names if _is_image(name)]
    return sorted(found)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122  a million names: no Path for each
