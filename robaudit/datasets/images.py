"""A folder of images as a data set: with one folder for each class, with a metadata file, or with a list of labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from robaudit.datasets.base import Dataset, Labels, Sample, find, name_text, reason
from robaudit.datasets.classes import ClassIndex
from robaudit.datasets.decode import read_image
from robaudit.datasets.imagenet import WORDS, Classes, are_synsets, image_labels, labels_file, synset_classes
from robaudit.datasets.manifest import ManifestDataset
from robaudit.errors import DataError
from robaudit.spec.data_files import METADATA, METADATA_PATH, SPLITS, SUFFIXES, USUAL_LABELS, columns_of, preferred, usual
from robaudit.spec.model import ImageOptions, ImagesSpec, ManifestSpec
from robaudit.text import count


def open_images(spec: ImagesSpec, *, base_dir: Path) -> Dataset:
    """Open a folder of images, by what lies in it.

    A metadata file with the columns ``file_name`` and ``label`` gives the labels, as in the library ``datasets``; otherwise class
    folders do; otherwise a list of labels beside the images.

    Raises:
        DataError: there are no images, or nothing that gives their labels.
    """
    root = find(spec.path, base_dir, "folder")
    if spec.labels is not None:
        listed = find(spec.labels, base_dir, "file")
        return (
            _by_metadata(spec, listed)
            if listed.suffix.lower() in (".csv", ".jsonl") and _is_metadata(listed)
            else _by_list(spec, root, listed)
        )
    folders, loose = _visible(root, spec.path)
    metadata = next((root / name for name in METADATA if (root / name).is_file() and _is_metadata(root / name)), None)
    if metadata is not None and (not folders or _labels(metadata, spec)):
        return _by_metadata(spec, metadata)
    if folders:
        return _by_folders(spec, root, folders)
    if loose and (listed_beside := labels_file(root)) is not None:
        return _by_list(spec, root, listed_beside)
    if loose:
        remedy = "put them into one folder per class, or name a file with their labels: labels: FILE"
        raise DataError(spec.path, f"holds {count(len(loose), 'image')} but no class folders", remedy)
    holds_nothing = "holds no class folders" if any(root.iterdir()) else "is an empty folder"
    raise DataError(spec.path, holds_nothing, "give a folder with one folder per class")


class ImagesDataset:
    """Image files of a folder, ordered by path; a sample's id is its path relative to the folder, with slashes.

    Args:
        where: what messages call the folder.
        root: the folder.
        names: of the files, relative to it.
        labels: of the files.
        class_names: by index.
        options: of decoding.
    """

    def __init__(
        self, where: str, root: Path, names: list[str], labels: Labels, class_names: tuple[str, ...] | None, options: ImageOptions
    ) -> None:
        self.where, self._root, self._names, self._options = where, root, names, options
        self._labels = labels
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
            SampleError: it cannot be decoded.
        """
        sample_id = self.sample_id(index)
        pixels = read_image(self._root / self._names[index], f"{self.where}/{sample_id}", self._options)
        return Sample(sample_id, pixels, int(self._labels[index]))


def _by_folders(spec: ImagesSpec, root: Path, folders: Sequence[str]) -> Dataset:
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
    classes = _classes(spec, root, [name_text(one) for one in present])
    labels = np.array([classes.index[name_text(one)] for one in of_files], dtype=np.int64)
    return ImagesDataset(spec.path, root, names, labels, classes.names, spec)


def _classes(spec: ImagesSpec, root: Path, present: Sequence[str]) -> Classes:
    """The class index of every folder: by ``class_names``, else by the order of the names; that of synsets by all of ImageNet's."""
    asked = spec.class_names
    by_name = ClassIndex(asked or present, spec.class_ids if asked else None)
    index = {name: number for name in present if (number := by_name.find(name)) is not None}
    unknown = next((name for name in present if name not in index), None)
    if are_synsets(present) and (asked is None or unknown is not None) and (found := synset_classes(root, present, asked)) is not None:
        return found
    if unknown is not None:
        remedy = f"put {WORDS[0]} or {WORDS[1]} beside the folder, which name ImageNet's synsets" if are_synsets(present) else ""
        raise DataError(f"{spec.path}/{unknown}", "the folder is not in class_names", remedy or by_name.remedy(unknown))
    return Classes(index, asked or tuple(present))


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


def _by_list(spec: ImagesSpec, root: Path, listed: Path) -> Dataset:
    """Images of one folder whose labels are in a list."""
    names = sorted(_visible(root, spec.path)[1])
    if not names:
        raise DataError(spec.path, "has no images", f"known suffixes: {' '.join(sorted(SUFFIXES))}")
    labels = image_labels(listed, [name_text(name) for name in names], spec.path)
    texts = list(dict.fromkeys(labels.values()))
    if not are_synsets(texts):
        index = {text: int(text) for text in texts if text.isdecimal()}
        if len(index) < len(texts):
            raise DataError(str(listed), "mixes class indices and names", "use one kind in the whole file")
        return ImagesDataset(spec.path, root, names, np.array([index[label] for label in labels.values()]), spec.class_names, spec)
    classes = _classes(spec, root, sorted(texts))
    found = np.array([classes.index[label] for label in labels.values()], dtype=np.int64)
    return ImagesDataset(spec.path, root, names, found, classes.names, spec)


def _by_metadata(spec: ImagesSpec, path: Path) -> Dataset:
    """Images that a metadata file lists."""
    shared = {name: getattr(spec, name) for name in spec.model_fields_set - {"kind", "path", "classes", "labels"}}
    columns = columns_of(path)
    label = {} if "label" in columns else {"label_column": None}
    if label and (other := usual(USUAL_LABELS, columns)) is not None:
        remedy = f"use kind: manifest with path_column: {METADATA_PATH} and label_column: {other} (for class folders: classes: top)"
        raise DataError(f"{spec.path}/{path.name}", f"has no column 'label', but {other!r}", remedy)
    manifest = ManifestSpec(kind="manifest", path=str(path), path_column=METADATA_PATH, **label, **shared)
    return ManifestDataset(manifest, base_dir=path.parent, where=f"{spec.path}/{path.name}")


def _is_metadata(path: Path) -> bool:
    return METADATA_PATH in columns_of(path)


def _labels(metadata: Path, spec: ImagesSpec) -> bool:
    """Whether a metadata file beside class folders gives the labels; by another usual name only where ``classes`` is not said."""
    columns = columns_of(metadata)
    return "label" in columns or ("classes" not in spec.model_fields_set and usual(USUAL_LABELS, columns) is not None)


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
