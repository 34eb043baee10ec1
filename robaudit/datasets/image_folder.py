"""A folder of images as a data set: with a subfolder for each class, or without labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robaudit.datasets.class_names import ClassIndex
from robaudit.datasets.dataset import Labels, boundary, existing_path, name_text
from robaudit.datasets.image_set import ImageSet
from robaudit.datasets.listing import METADATA, is_link, not_read, visible_files, visible_folders
from robaudit.errors import DataError
from robaudit.spec.model import FilesSpec
from robaudit.text import count

# Suffixes of the formats that decode.py accepts.
_SUFFIXES = frozenset(
    (
        ".png",
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".jp2",
        ".j2k",
        ".bmp",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
        ".tif",
        ".tiff",
        ".webp",
        ".gif",
    )
)
# Files that usually lie beside images and are none: leaving them out needs no warning. ".db" is
# the Thumbs.db of Windows.
_TEXTS = frozenset(
    (
        ".txt",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".xml",
        ".yaml",
        ".yml",
        ".md",
        ".html",
        ".log",
        ".ini",
        ".db",
        "",
    )
)
# Names of folders that are splits of a data set, and would be taken for classes.
_SPLITS = frozenset(
    (
        "test",
        "testing",
        "validation",
        "valid",
        "val",
        "dev",
        "eval",
        "evaluation",
        "train",
        "training",
    )
)
_SYNSET = re.compile(r"n\d{8}")  # WordNet's ids, by which ImageNet names its class folders


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
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.decode import file_pixels, is_turned

        folder = existing_path(self.path, base_dir, "folder")
        folders = _in_order(visible_folders(folder))
        # Without class folders, all files are in one group without a name.
        files_by_folder = {
            subfolder: sorted(visible_files(folder, subfolder)) for subfolder in folders or ("",)
        }
        images_by_folder = {
            subfolder: list(filter(is_image, files)) for subfolder, files in files_by_folder.items()
        }
        names = list(chain.from_iterable(images_by_folder.values()))
        labels = np.full(len(names), -1, dtype=np.int64)
        class_names = self.class_names
        if not names:
            problem = "holds no images"
            if folders:
                problem = f"has no images in its {count(len(folders), 'class folder')}"
            others = _of_other_formats(chain.from_iterable(files_by_folder.values()))
            remedy = f"known suffixes: {' '.join(sorted(_SUFFIXES))}"
            if others:
                problem += f", but {_listed_formats(others)}"
                remedy = f"save them as JPEG or PNG; {remedy}"
            raise DataError(self.path, problem, remedy)
        beside: list[str] = []
        if folders:
            labels, class_names = _folder_labels(self, images_by_folder, names)
            files = [entry.name for entry in os.scandir(folder) if entry.is_file()]
            beside = sorted(filter(is_image, files))
        elif (folder / METADATA).is_file():
            # The labels are in this file; without it, the audit would have none.
            remedy = f"use kind: csv with path: {self.path.rstrip('/')}/{METADATA}"
            raise DataError(
                self.path, f"holds {count(len(names), 'image')} but no class folders", remedy
            )
        root = boundary(self.root, base_dir, folder)
        return ImageSet(
            self.path,
            names,
            partial(file_pixels, folder=folder, root=root, options=self),
            labels=labels,
            ids=[name_text(name) for name in names],
            class_names=class_names,
            turned=partial(is_turned, folder=folder, root=root),
            notes=tuple(_order_notes(self, folders)),
            warnings=tuple(_left_out(self.path, files_by_folder, images_by_folder, beside)),
        )


def is_image(name: str) -> bool:
    """Whether a file has the suffix of an image format that is read."""
    return _suffix(name) in _SUFFIXES


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122  a million names: no Path for each


def _in_order(folders: Sequence[str]) -> list[str]:
    """Class folders in the order of their names, or of their numbers if all names are numbers."""
    if all(map(str.isdecimal, folders)):
        # The name decides between 1 and 01.
        return sorted(folders, key=lambda name: (int(name), name))
    return list(folders)


def _order_notes(spec: ImagesSpec, folders: Sequence[str]) -> Iterator[str]:
    """A note on class folders that are sorted as numbers, if sorting them as text differs."""
    as_text = sorted(folders)
    if spec.class_names is None and as_text != list(folders):
        first_numbers = ", ".join(folders[:3])
        first_texts = ", ".join(as_text[:3])
        yield (
            f"{spec.path}: the class folders are sorted as numbers ({first_numbers}, ...), "
            f"not as text ({first_texts}, ...) as in torchvision's ImageFolder; class_names sets "
            "another order"
        )


def _of_other_formats(files: Iterable[str]) -> list[str]:
    """The files that may be images, but are not of a known format."""
    expected = _SUFFIXES | _TEXTS
    return [name for name in files if not is_link(name) and _suffix(name) not in expected]


def _listed_formats(files: Sequence[str]) -> str:
    """The number of files of other formats, and their suffixes; empty without any."""
    return not_read(files, "file", " of other formats", sorted(set(map(_suffix, files))))


def _left_out(
    where: str,
    files_by_folder: Mapping[str, Sequence[str]],
    images_by_folder: Mapping[str, Sequence[str]],
    beside: Sequence[str],
) -> Iterator[str]:
    """The warning about files and folders that are not read, if there are any.

    Args:
        where: the data set.
        files_by_folder, images_by_folder: all visible files and the images, by class folder.
        beside: images beside class folders.
    """
    all_files = list(chain.from_iterable(files_by_folder.values()))
    links = list(filter(is_link, all_files))
    others = _of_other_formats(all_files)
    empty = [folder for folder, images in images_by_folder.items() if not images]
    parts = (
        not_read(links, "linked folder"),
        _listed_formats(others),
        not_read(beside, "image", " outside the class folders"),
        not_read(empty, "class folder", " without images"),
    )
    if any(parts):
        remedy = "copy linked folders, and save images as PNG or JPEG in class folders"
        yield f"{where}: not read: {', '.join(filter(None, parts))}; {remedy}"


def _folder_labels(
    spec: ImagesSpec, images: Mapping[str, Sequence[str]], names: Sequence[str]
) -> tuple[Labels, tuple[str, ...]]:
    """Labels and class names of images in class folders, which may have folders inside.

    Args:
        spec: the data set.
        images: the images by class folder.
        names: all images, whose labels are returned in this order.

    Raises:
        DataError: the folders are not classes, or one without images would shift the labels of
            those after it.
    """
    folders = list(images)
    _refuse_groups(spec, folders, names)
    empty = next((folder for folder in folders if not images[folder]), None)
    if empty is not None and spec.class_names is None:
        what = "this folder has no images, and would count as a class"
        remedy = "remove it; if it is a class, write class_names in the order of the logits"
        raise DataError(f"{spec.path}/{name_text(empty)}", what, remedy)
    index, class_names = _classes(spec, [name_text(name) for name in folders])
    class_folders = (name.split("/", 1)[0] for name in names)
    labels = np.array([index[name_text(folder)] for folder in class_folders], dtype=np.int64)
    return labels, class_names


def _classes(spec: ImagesSpec, present: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The class index of every folder, and the class names.

    Indices are the places of the folders' names in ``class_names``. Without class names, the
    folders are the classes, in order. Folders that are synsets (``n01440764``), as many as class
    names, have class indices in their own order.
    """
    class_names = spec.class_names
    classes = ClassIndex(class_names or present, spec.class_ids if class_names else None)
    found = {name: classes.find(name) for name in present}
    index = {name: number for name, number in found.items() if number is not None}
    unknown = next((name for name in present if name not in index), None)
    if unknown is None or class_names is None:
        return index, class_names or tuple(present)
    # ImageNet's classes are in the order of their synsets.
    synsets = all(map(_SYNSET.fullmatch, present))
    if synsets and len(class_names) == len(present):
        return {name: number for number, name in enumerate(sorted(present))}, class_names
    remedy = (
        "set class_ids to a file that begins each line with a synset, in the order of class_names"
    )
    raise DataError(
        f"{spec.path}/{unknown}",
        "the folder is not in class_names",
        remedy if synsets else classes.remedy(unknown),
    )


def _refuse_groups(spec: ImagesSpec, folders: Sequence[str], names: Sequence[str]) -> None:
    """Refuse folders that are splits, or hold only folders of images."""
    deep = all(name.count("/") > 1 for name in names)
    splits = len(folders) > 1 and all(name.lower() in _SPLITS for name in folders)
    if spec.class_names is None and (deep or splits):
        kind = "hold only folders" if deep else "are splits, not classes"
        # The last folder is an example: of train and val, the one to audit.
        remedy = (
            f"name one: path: {spec.path.rstrip('/')}/{folders[-1]}; or write class_names if "
            "they are classes"
        )
        raise DataError(spec.path, f"has folders that {kind} ({', '.join(folders[:5])})", remedy)
