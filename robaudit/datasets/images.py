"""A folder with one folder of images for each class, or of images without labels, as a data set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from robaudit.datasets.base import Labels, boundary, find, name_text, reason
from robaudit.datasets.classes import ClassIndex
from robaudit.datasets.image_set import ImageSet
from robaudit.errors import DataError
from robaudit.spec.data_files import METADATA, METADATA_PATH, SPLITS, SUFFIXES, preferred, visible_files
from robaudit.spec.model import FilesSpec
from robaudit.text import count

_SYNSET = re.compile(r"n\d{8}")


class ImagesSpec(FilesSpec):
    """A folder with one folder of images for each class."""

    kind: Literal["images"] = "images"
    classes: Literal["top", "leaf", "path"] = Field(
        "top", description="the class of an image: the folder right below path (top), the folder it lies in (leaf), or all folders (path)"
    )

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """List the images, ordered by path; an id is the path relative to the folder, with slashes.

        Raises:
            DataError: there are no images, or their folders are not classes.
        """
        from robaudit.datasets.decode import file_pixels  # imports torch, which reading a spec does not need

        folder = find(self.path, base_dir, "folder")
        try:
            with os.scandir(folder) as entries:
                folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        except OSError as error:
            raise DataError(self.path, f"cannot be listed ({reason(error)})", "give a folder that you may read") from None
        names = [name for one in folders or ("",) for name in sorted(filter(_is_image, visible_files(folder, one)))]
        labels, class_names = np.full(len(names), -1, dtype=np.int64), self.class_names
        if not names:
            what = f"has no images in its {count(len(folders), 'class folder')}" if folders else "holds no images"
            raise DataError(self.path, what, f"known suffixes: {' '.join(sorted(SUFFIXES))}")
        if folders:
            labels, class_names = _labels_of(self, folders, names)
        elif (folder / METADATA).is_file():
            remedy = f"use kind: csv with path: {self.path.rstrip('/')}/{METADATA} and path_column: {METADATA_PATH}"
            raise DataError(self.path, f"holds {count(len(names), 'image')} but no class folders", remedy)
        decode = partial(file_pixels, folder=folder, root=boundary(self.root, base_dir, folder), options=self)
        return ImageSet(self.path, names, decode, labels=labels, ids=[name_text(name) for name in names], class_names=class_names)


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122  a million names: no Path for each


def _labels_of(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> tuple[Labels, tuple[str, ...]]:
    """Labels and class names of images in class folders, which may be nested."""
    if spec.classes == "top":
        _refuse_groups(spec, folders, names)
        of_files, present = [name.split("/", 1)[0] for name in names], list(folders)  # an empty class folder is a class, too
    else:
        parents = [name.rpartition("/")[0] for name in names]
        of_files = [parent.rpartition("/")[2] for parent in parents] if spec.classes == "leaf" else parents
        present = sorted(set(of_files))
    index, class_names = _classes(spec, [name_text(one) for one in present])
    return np.array([index[name_text(one)] for one in of_files], dtype=np.int64), class_names


def _classes(spec: ImagesSpec, present: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class index of every folder, and the class names: by ``class_names``, else by the order of the folders' names.

    All synsets of a data set (``n01440764``) have class indices in their own order, for any class names.
    """
    asked = spec.class_names
    classes = ClassIndex(asked or present, spec.class_ids if asked else None)
    index = {name: number for name in present if (number := classes.find(name)) is not None}
    unknown = next((name for name in present if name not in index), None)
    if unknown is None or asked is None:
        return index, asked or tuple(present)
    synsets = all(map(_SYNSET.fullmatch, present))
    if synsets and len(asked) == len(present):
        return {name: number for number, name in enumerate(sorted(present))}, asked
    remedy = "set class_ids to a file that begins each line with a synset, in the order of class_names"
    raise DataError(f"{spec.path}/{unknown}", "the folder is not in class_names", remedy if synsets else classes.remedy(unknown))


def _refuse_groups(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> None:
    """Refuse folders that contain class folders: splits, or a single folder around all others."""
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
