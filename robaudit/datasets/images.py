"""A folder with a subfolder of images for each class, or of images without labels, as a data set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robaudit.datasets.base import Labels, boundary, find, name_text
from robaudit.datasets.classes import ClassIndex
from robaudit.datasets.image_set import ImageSet
from robaudit.datasets.listing import METADATA, visible_files, visible_folders
from robaudit.errors import DataError
from robaudit.spec.model import FilesSpec
from robaudit.text import count

_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp", ".gif"))
_SPLITS = frozenset(("test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "train", "training"))
_SYNSET = re.compile(r"n\d{8}")


class ImagesSpec(FilesSpec):
    """A folder with a subfolder of images for each class."""

    kind: Literal["images"] = "images"

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:
        """Any folder."""
        return {"path": written.rstrip("/")} if place.is_dir() else None

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """List the images, ordered by path; ids are paths relative to the folder, with slashes.

        Raises:
            DataError: there are no images, or their folders are not classes.
        """
        from robaudit.datasets.decode import file_pixels  # imports torch, which reading a spec does not need

        folder = find(self.path, base_dir, "folder")
        folders = visible_folders(folder)
        names = [name for subfolder in folders or ("",) for name in sorted(filter(_is_image, visible_files(folder, subfolder)))]
        labels, class_names = np.full(len(names), -1, dtype=np.int64), self.class_names
        if not names:
            what = f"has no images in its {count(len(folders), 'class folder')}" if folders else "holds no images"
            raise DataError(self.path, what, f"known suffixes: {' '.join(sorted(_SUFFIXES))}")
        if folders:
            labels, class_names = _folder_labels(self, folders, names)
        elif (folder / METADATA).is_file():
            remedy = f"use kind: csv with path: {self.path.rstrip('/')}/{METADATA}"
            raise DataError(self.path, f"holds {count(len(names), 'image')} but no class folders", remedy)
        decode = partial(file_pixels, folder=folder, root=boundary(self.root, base_dir, folder), options=self)
        return ImageSet(self.path, names, decode, labels=labels, ids=[name_text(name) for name in names], class_names=class_names)


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in _SUFFIXES  # noqa: PTH122  a million names: no Path for each


def _folder_labels(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> tuple[Labels, tuple[str, ...]]:
    """Labels and class names of images in class folders, which may have folders inside."""
    _refuse_groups(spec, folders, names)
    index, class_names = _classes(spec, [name_text(name) for name in folders])  # an empty class folder is a class, too
    return np.array([index[name_text(name.split("/", 1)[0])] for name in names], dtype=np.int64), class_names


def _classes(spec: ImagesSpec, present: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class index of every folder, and the class names: by ``class_names``, else by the order of the folders' names.

    Folders that are synsets (``n01440764``), as many as class names, have class indices in their own order.
    """
    class_names = spec.class_names
    classes = ClassIndex(class_names or present, spec.class_ids if class_names else None)
    index = {name: number for name in present if (number := classes.find(name)) is not None}
    unknown = next((name for name in present if name not in index), None)
    if unknown is None or class_names is None:
        return index, class_names or tuple(present)
    synsets = all(map(_SYNSET.fullmatch, present))
    if synsets and len(class_names) == len(present):
        return {name: number for number, name in enumerate(sorted(present))}, class_names
    remedy = "set class_ids to a file that begins each line with a synset, in the order of class_names"
    raise DataError(f"{spec.path}/{unknown}", "the folder is not in class_names", remedy if synsets else classes.remedy(unknown))


def _refuse_groups(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> None:
    """Refuse folders that are splits, or hold no image but folders of images."""
    deep, splits = all(name.count("/") > 1 for name in names), len(folders) > 1 and all(name.lower() in _SPLITS for name in folders)
    if spec.class_names is None and (deep or splits):
        what = f"has folders that {'hold only folders' if deep else 'are splits, not classes'} ({', '.join(folders[:5])})"
        raise DataError(spec.path, what, f"name one: path: {spec.path.rstrip('/')}/{folders[-1]}; or write class_names if they are classes")
