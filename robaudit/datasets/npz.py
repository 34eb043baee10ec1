"""How does a NumPy .npz file become a data set?"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.base import Labels, Sample
from robaudit.datasets.files import find
from robaudit.datasets.npz_file import Member, member
from robaudit.datasets.npz_rows import Rows
from robaudit.datasets.pixels import as_pixels, known_scale
from robaudit.errors import DataError
from robaudit.spec.model import NpzSpec

_MOST_VALUES, _MOST_LABELS = 3 * 2**24, 2**25


class NpzDataset:
    """Images and labels of a .npz file; a sample's id is its index in the file.

    Uncompressed arrays are mapped into memory; a compressed one is expanded as far as it was asked for, in the file's own type,
    into a temporary file where it is large. Only the sample asked for becomes float64.
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, spec: NpzSpec, *, base_dir: Path) -> None:
        self.where, self._scale = spec.path, spec.scale
        path = find(spec.path, base_dir, "file")
        self._images = member(path, self.where, spec.images_key, "images_key")
        self._layout = layout_of(self._images, spec.layout)
        if known_scale(self._images.dtype.name, spec.scale) is None:
            kind = f"array {spec.images_key!r} is of type {self._images.dtype}"
            remedy = "set scale (the value of full intensity)" if self._images.dtype.kind in "iu" else "images are uint8 or floats"
            raise DataError(self.where, kind, remedy)
        self._labels = None if spec.labels_key is None else read_labels(member(path, self.where, spec.labels_key, "labels_key"), len(self))
        self._rows: dict[int, Rows] = {}  # by process: each reads for itself

    def __len__(self) -> int:
        return self._images.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": {}}

    def sample_id(self, index: int) -> str:
        """The index in the file as text."""
        return str(range(len(self))[index])

    def labels(self) -> Labels | None:
        """All labels, or None where the file has none."""
        return self._labels

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: its pixels are NaN or infinite.
            DataError: the array is damaged.
        """
        index = range(len(self))[index]
        image = self._row(index)
        image = np.moveaxis(image, -1, 0) if self._layout == "nhwc" else image  # (channels, height, width)
        pixels = as_pixels(image, f"{self.where}, sample {index}", self._scale)
        return Sample(self.sample_id(index), pixels, None if self._labels is None else int(self._labels[index]))

    def _row(self, index: int) -> NDArray[Any]:
        """One image as stored."""
        process = os.getpid()
        rows = self._rows.get(process) or self._rows.setdefault(process, Rows(self._images))
        return rows[index]


def layout_of(images: Member, wanted: str | None) -> str:
    """nchw, nhwc or nhw: as wanted, else by which axis has 1 or 3 entries.

    Raises:
        DataError: the shape is no stack of images, does not fit, or fits more than one layout.
    """
    shape = images.shape
    if len(shape) not in (3, 4):
        raise DataError(images.where, f"array {images.name!r} has shape {shape}", "images are (n, c, h, w), (n, h, w, c) or (n, h, w)")
    if 0 in shape:
        raise DataError(images.where, f"array {images.name!r} has shape {shape}: it holds no images", "give at least one image")
    if math.prod(shape[1:]) > _MOST_VALUES:
        raise DataError(images.where, f"an image of array {images.name!r} has shape {shape[1:]}", f"at most {_MOST_VALUES} values an image")
    if wanted is not None:
        if len(wanted) != len(shape):
            raise DataError(images.where, f"layout {wanted} does not fit shape {shape}", f"it needs {len(wanted)} dimensions")
        return wanted
    if len(shape) == 3:
        return "nhw"
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first == last:
        raise DataError(images.where, f"cannot tell the layout of shape {shape}", "set layout: nchw or nhwc")
    return "nchw" if first else "nhwc"


def read_labels(labels: Member, count: int) -> Labels:
    """Labels as int64 (n,); a column (n, 1) is understood.

    Raises:
        DataError: another length than the images, not integers, or negative.
    """
    shape = labels.shape
    if len(shape) == 2 and shape[0] == count and shape[1] > 1:
        raise DataError(
            labels.where, f"array {labels.name!r} has shape {shape}", "labels are (n,) class indices, not one column for each class"
        )
    if shape not in ((count,), (count, 1)):
        raise DataError(labels.where, f"array {labels.name!r} has shape {shape}", f"there are {count} images: it must be ({count},)")
    if count > _MOST_LABELS:
        raise DataError(labels.where, f"array {labels.name!r} has {count} labels, more than {_MOST_LABELS}", "split the file")
    if labels.dtype.kind not in "iub":
        raise DataError(labels.where, f"labels are of type {labels.dtype}", "they must be integers: class indices from 0")
    values = np.array(labels.rows(count)).reshape(count).astype(np.int64)
    if int(values.min()) < 0:
        index = int(values.argmin())
        raise DataError(
            labels.where, f"the label of sample {index} is {int(values[index])}", "class indices start at 0; labels_key: null for none"
        )
    return values
