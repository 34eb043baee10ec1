"""A folder with one subfolder of images per class, as a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import numpy as np

from robaudit.datasets.base import Dataset, Labels, Sample, find, name_text, reason
from robaudit.datasets.decode import read_image
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.model import ImagesSpec
from robaudit.text import count

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp", ".gif"))


def open_images(spec: ImagesSpec, *, base_dir: Path) -> Dataset:
    return ImagesDataset(spec, base_dir=base_dir)


class ImagesDataset:
    """Image files in class folders, ordered by path; a sample's id is its path relative to the folder, with slashes.

    Only names are read at first. Folders inside class folders are searched too; hidden files and other suffixes are ignored.
    """

    def __init__(self, spec: ImagesSpec, *, base_dir: Path) -> None:
        self.where, self._spec = spec.path, spec
        self._root = find(spec.path, base_dir, "folder")
        folders = _class_folders(self._root, self.where)
        self.class_names: tuple[str, ...] | None = spec.class_names or tuple(map(name_text, folders))
        index = {name: number for number, name in enumerate(self.class_names)}
        for folder in folders:
            if name_text(folder) not in index:
                raise DataError(f"{self.where}/{folder}", "the folder is not in class_names", did_you_mean(name_text(folder), index))
        files = [(name, index[name_text(folder)]) for folder in folders for name in _images_below(self._root, folder, self.where)]
        if not files:
            raise DataError(
                self.where, f"has no images in its {count(len(folders), 'class folder')}", f"known suffixes: {' '.join(sorted(SUFFIXES))}"
            )
        self._names = [name for name, _ in files]
        self._labels = np.array([label for _, label in files], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def sample_id(self, index: int) -> str:
        """The path relative to the folder; bytes that are not UTF-8 are written as escapes."""
        return name_text(self._names[index])

    def labels(self) -> Labels | None:
        """The class of every image, by its folder."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Decode one image.

        Raises:
            SampleError: it cannot be decoded.
        """
        sample_id = self.sample_id(index)
        pixels = read_image(self._root / self._names[index], f"{self.where}/{sample_id}", self._spec)
        return Sample(sample_id, pixels, int(self._labels[index]))


def _class_folders(root: Path, where: str) -> list[str]:
    """The names of the class folders, sorted."""
    try:
        with os.scandir(root) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(where, f"cannot be listed ({reason(error)})", "give a folder that you may read") from None
    folders = sorted(entry.name for entry in visible if entry.is_dir())
    if folders:
        return folders
    loose = sum(_is_image(entry.name) for entry in visible)
    if loose:
        raise DataError(
            where, f"holds {count(loose, 'image')} but no class folders", "put them into one folder per class, or use kind manifest"
        )
    raise DataError(where, "holds no class folders" if visible else "is an empty folder", "give a folder with one folder per class")


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
