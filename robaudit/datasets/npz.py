"""Images and labels in a NumPy .npz file, read by NumPy; never unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from numpy.typing import NDArray
from pydantic import Field

from robaudit.datasets.class_names import label_array, text_labels
from robaudit.datasets.dataset import existing_path
from robaudit.datasets.image_set import ImageSet
from robaudit.errors import DataError, did_you_mean
from robaudit.settings import BY
from robaudit.spec.fields import Positive
from robaudit.spec.model import BaseDatasetSpec
from robaudit.text import first_line

_MOST_VALUES = 3 * 2**24  # of an image: three channels of the largest image that decode.py takes
_MOST_LISTED = 20  # names of arrays in a message
_OF_MEMORY = 0.5  # the share of the free memory that an array may take; the audit needs the rest


class NpzSpec(BaseDatasetSpec):
    """Arrays in a NumPy .npz file."""

    names_from_model = True

    kind: Literal["npz"] = "npz"
    path: str
    images_key: str = "images"
    labels_key: str | None = Field("labels", description="null: no labels")
    layout: Literal["nchw", "nhwc", "nhw"] | None = Field(
        None, description="default: guessed from the shape"
    )
    scale: Positive | None = Field(
        None, description="divisor of the pixels; default: 255 for uint8, 1 for float"
    )

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:
        """A .npz file."""
        return {"path": written} if place.suffix.lower() == ".npz" and not place.is_dir() else None

    def open(self, base_dir: Path, *, trust: bool) -> ImageSet:
        """Read the arrays into memory, in the file's own type; ids are indices in the file.

        Labels may be text, as in a CSV file.

        Raises:
            DataError: the file or an array is missing, damaged, or has no images or labels.
        """
        # Imports torch, which reading a spec does not need.
        from robaudit.datasets.decode import as_pixels

        path = existing_path(self.path, base_dir, "file")
        labels = None
        class_names = self.class_names
        images = _array(path, self.path, self.images_key, "images_key")
        layout = _layout_of(images, self)
        decode = partial(as_pixels, scale=self.scale, channels_last=layout == "nhwc")
        if self.labels_key is not None:
            array = _array(path, self.path, self.labels_key, "labels_key")
            one_an_image = array.shape in ((len(images),), (len(images), 1))
            if array.dtype.kind in "SU" and one_an_image:  # bytes or text
                texts = [text.strip() for text in _texts(array.ravel())]
                labels, class_names = text_labels(
                    texts, self.path, self.class_names, self.class_ids
                )
            else:
                labels = label_array(array, self.path, len(images))
        return ImageSet(self.path, images, decode, labels=labels, class_names=class_names)

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another array, one for each image.

        Raises:
            DataError: there is no array of this name, or it has another shape.
        """
        values = _array(existing_path(self.path, base_dir, "file"), self.path, name, BY.words)
        if values.ndim != 1:
            raise DataError(
                self.path,
                f"array {name!r} has shape {values.shape}",
                "it needs one value for each image",
            )
        return _texts(values)


def _texts(values: NDArray[Any]) -> list[str]:
    """The values of an array of one dimension as text."""
    if values.dtype.kind == "S":
        return [value.decode(errors="backslashreplace") for value in values.tolist()]
    return [str(value) for value in values.tolist()]


def _array(path: Path, where: str, key: str, option: str) -> NDArray[Any]:
    """One array of the file.

    Args:
        path: the file.
        where: its path as written in the spec, for messages.
        key: the name of the array.
        option: the option that names the array, for messages.

    Raises:
        DataError: not a .npz file, no such array, damaged, of Python objects, or too large for the
            memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            members = {name.removesuffix(".npy"): name for name in names}
            if key not in members:
                raise _no_array(where, key, option, list(members))
            # A small file may unpack to more than the memory. The size in the archive's directory
            # can be trusted: zipfile reads no more than it states.
            size = archive.getinfo(members[key]).file_size
            free = psutil.virtual_memory().available
            if size > _OF_MEMORY * free:
                what = f"array {key!r} takes {size:,} bytes, and {free:,} are free in memory"
                raise DataError(where, what, "split the file, or save the images as files")
            # An array of Python objects is a pickle, which runs code as it is read.
            with archive.open(members[key]) as stream:
                array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except DataError:
        raise
    except zipfile.BadZipFile as error:
        what = f"is not a .npz file (a zip archive), or is damaged: {first_line(error)}"
        raise DataError(
            where, what, "it may be truncated; save it again with numpy.savez_compressed"
        ) from None
    except Exception as error:  # noqa: BLE001  damaged archives and headers raise nearly anything
        what = f"array {key!r} cannot be read ({first_line(error)})"
        remedy = "it may be damaged; save it again with numpy.savez_compressed, as numbers"
        if option == "labels_key":
            remedy += " or text (.astype(str))"
        raise DataError(where, what, remedy) from None
    return array


def _no_array(where: str, key: str, option: str, names: Sequence[str]) -> DataError:
    """The error for a missing array: lists the arrays of the file."""
    listed = ", ".join(sorted(names)[:_MOST_LISTED]) or "none"
    if len(names) > _MOST_LISTED:
        listed += ", ..."
    remedy = "set " + option
    if option == "labels_key":
        remedy += " (null where there are no labels)"
    hint = did_you_mean(key, names)  # empty if the file has no arrays
    if hint:
        remedy += "; " + hint
    return DataError(where, f"has no array {key!r} (it has: {listed})", remedy)


def _layout_of(images: NDArray[Any], spec: NpzSpec) -> Literal["nchw", "nhwc", "nhw"]:
    """The layout of the spec; without one, the axis of size 1 or 3 is the channels.

    Raises:
        DataError: the shape is not a stack of images, does not fit the layout, or fits more than
            one.
    """
    from robaudit.datasets.decode import layout_of

    shape = images.shape
    where = spec.path
    array = f"array {spec.images_key!r}"
    if len(shape) not in (3, 4):
        raise DataError(
            where,
            f"{array} has shape {shape}",
            "images are (n, c, h, w), (n, h, w, c) or (n, h, w)",
        )
    if math.prod(shape[1:]) > _MOST_VALUES:
        raise DataError(
            where,
            f"an image of {array} has shape {shape[1:]}",
            f"at most {_MOST_VALUES} values per image",
        )
    if spec.layout is not None and len(spec.layout) != len(shape):
        raise DataError(
            where,
            f"layout {spec.layout} does not fit shape {shape}",
            f"it needs {len(spec.layout)} dimensions",
        )
    layout = spec.layout or ("nhw" if len(shape) == 3 else layout_of(shape[1:]))
    if layout is None:
        raise DataError(
            where, f"cannot tell the layout of shape {shape}", "set layout: nchw or nhwc"
        )
    return layout
