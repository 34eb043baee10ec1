"""Images and labels in a NumPy .npz file, read by NumPy; never unpickled."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from robaudit.datasets.base import Labels, Sample, find, reason
from robaudit.datasets.decode import as_pixels, known_scale
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.model import NpzSpec

_MOST_VALUES = 3 * 2**24
_LISTED = 20
_OF_MEMORY = 0.5  # the share of the free memory that the arrays may take


class NpzDataset:
    """Images and labels of a .npz file; a sample's id is its index in the file.

    The arrays are in memory, in the file's own type. Only the sample asked for becomes float64.
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, spec: NpzSpec, *, base_dir: Path) -> None:
        self.where, self._scale = spec.path, spec.scale
        path = find(spec.path, base_dir, "file")
        self._images = _array(path, self.where, spec.images_key, "images_key")
        self._layout = _layout_of(self._images, self.where, spec)
        if known_scale(self._images.dtype.name, spec.scale) is None:
            remedy = "set scale (the value of full intensity)" if self._images.dtype.kind in "iu" else "images are uint8 or floats"
            raise DataError(self.where, f"array {spec.images_key!r} is of type {self._images.dtype}", remedy)
        self._labels: Labels | None = None
        if spec.labels_key is not None:
            labels = _array(path, self.where, spec.labels_key, "labels_key")
            self._labels = _labels_of(labels, self.where, spec.labels_key, len(self))

    def __len__(self) -> int:
        return len(self._images)

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
        """
        index = range(len(self))[index]
        image = np.moveaxis(self._images[index], -1, 0) if self._layout == "nhwc" else self._images[index]  # (channels, height, width)
        pixels = as_pixels(image, f"{self.where}, sample {index}", self._scale)
        return Sample(str(index), pixels, None if self._labels is None else int(self._labels[index]))


def _array(path: Path, where: str, key: str, option: str) -> NDArray[Any]:
    """One array of the file; its size is looked up in the archive's directory first, which zipfile keeps to.

    Raises:
        DataError: not a .npz file, no such array, damaged, of Python objects, or too large for the memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            if key not in members:
                held = ", ".join(sorted(members)[:_LISTED]) + (", ..." if len(members) > _LISTED else "") or "none"
                null = " (null where there are no labels)" if option == "labels_key" else ""
                raise DataError(where, f"has no array {key!r} (it has: {held})", f"set {option}{null}; {did_you_mean(key, members)}")
            size, free = archive.getinfo(members[key]).file_size, psutil.virtual_memory().available
            if size > _OF_MEMORY * free:
                what = f"array {key!r} takes {size:,} bytes, and {free:,} are free in memory"
                raise DataError(where, what, "split the file, or save the images as files")
            with archive.open(members[key]) as stream:
                found: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except DataError:
        raise
    except zipfile.BadZipFile as error:
        what = f"is not a .npz file (a zip archive), or is damaged: {reason(error)}"
        raise DataError(where, what, "it may be truncated; save it again with numpy.savez_compressed") from None
    except Exception as error:  # noqa: BLE001  damaged archives and headers raise nearly anything
        what = f"array {key!r} cannot be read ({reason(error)})"
        raise DataError(where, what, "it may be damaged; save it again as numbers with numpy.savez_compressed") from None
    return found


def _layout_of(images: NDArray[Any], where: str, spec: NpzSpec) -> str:
    """nchw, nhwc or nhw: as wanted, else by which axis has 1 or 3 entries.

    Raises:
        DataError: the shape is not that of a stack of images, does not fit, or fits more than one layout.
    """
    shape, name, wanted = images.shape, spec.images_key, spec.layout
    if len(shape) not in (3, 4):
        raise DataError(where, f"array {name!r} has shape {shape}", "images are (n, c, h, w), (n, h, w, c) or (n, h, w)")
    if 0 in shape:
        raise DataError(where, f"array {name!r} has shape {shape}: it holds no images", "give at least one image")
    if math.prod(shape[1:]) > _MOST_VALUES:
        raise DataError(where, f"an image of array {name!r} has shape {shape[1:]}", f"at most {_MOST_VALUES} values per image")
    if wanted is not None:
        if len(wanted) != len(shape):
            raise DataError(where, f"layout {wanted} does not fit shape {shape}", f"it needs {len(wanted)} dimensions")
        return wanted
    if len(shape) == 3:
        return "nhw"
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first == last:
        raise DataError(where, f"cannot tell the layout of shape {shape}", "set layout: nchw or nhwc")
    return "nchw" if first else "nhwc"


def _labels_of(labels: NDArray[Any], where: str, name: str, count: int) -> Labels:
    """Labels as int64 (n,); a column (n, 1) is understood.

    Raises:
        DataError: another length than the images, not integers, or negative.
    """
    shape = labels.shape
    if len(shape) == 2 and shape[0] == count and shape[1] > 1:
        raise DataError(where, f"array {name!r} has shape {shape}", "labels are (n,) class indices, not one column per class")
    if shape not in ((count,), (count, 1)):
        raise DataError(where, f"array {name!r} has shape {shape}", f"there are {count} images: it must be ({count},)")
    if labels.dtype.kind not in "iub":
        raise DataError(where, f"labels are of type {labels.dtype}", "they must be integers: class indices from 0")
    values = labels.reshape(count).astype(np.int64)
    if int(values.min()) < 0:
        index = int(values.argmin())
        what = f"the label of sample {index} is {int(values[index])}"
        raise DataError(where, what, "class indices start at 0; labels_key: null for none")
    return values
