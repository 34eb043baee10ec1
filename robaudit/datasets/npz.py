"""Images and labels in a NumPy .npz file: mapped, or expanded only as far as needed; never unpickled."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import struct
import tempfile
import threading
import weakref
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.base import Labels, Sample, find, reason
from robaudit.datasets.decode import as_pixels, known_scale
from robaudit.errors import DataError, did_you_mean
from robaudit.spec.model import NpzSpec

IN_MEMORY = 32 << 20
"""Bytes of a compressed array held in memory; a larger one goes to a temporary file."""
CHUNK = 1 << 20
"""Bytes expanded at a time."""

_MOST_VALUES, _MOST_LABELS = 3 * 2**24, 2**25
_DEFLATE_RATIO = 1032  # deflate cannot compress better than this
_MOST_WHOLE = 1 << 30  # bytes of a compressed array that can only be read whole
_LISTED = 20
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)  # of an archive
_BAD_HEADER = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class NpzDataset:
    """Images and labels of a .npz file; a sample's id is its index in the file.

    Uncompressed arrays are mapped into memory; a compressed one is expanded as far as needed, in the file's own type.
    Only the sample asked for becomes float64.
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, spec: NpzSpec, *, base_dir: Path) -> None:
        self.where, self._scale = spec.path, spec.scale
        path = find(spec.path, base_dir, "file")
        self._images = _find_array(path, self.where, spec.images_key, "images_key")
        self._layout = _layout_of(self._images, spec.layout)
        if known_scale(self._images.dtype.name, spec.scale) is None:
            kind = f"array {spec.images_key!r} is of type {self._images.dtype}"
            remedy = "set scale (the value of full intensity)" if self._images.dtype.kind in "iu" else "images are uint8 or floats"
            raise DataError(self.where, kind, remedy)
        self._labels: Labels | None = None
        if spec.labels_key is not None:
            self._labels = _read_labels(_find_array(path, self.where, spec.labels_key, "labels_key"), len(self))
        self._rows: dict[int, Rows] = {}  # by process: each reads its own

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
            DataError: the array is damaged, or there is no room to expand it.
        """
        index, process = range(len(self))[index], os.getpid()
        rows = self._rows.get(process) or self._rows.setdefault(process, Rows(self._images))
        image = np.moveaxis(rows[index], -1, 0) if self._layout == "nhwc" else rows[index]  # (channels, height, width)
        pixels = as_pixels(image, f"{self.where}, sample {index}", self._scale)
        return Sample(self.sample_id(index), pixels, None if self._labels is None else int(self._labels[index]))


@dataclass(frozen=True, slots=True)
class Array:
    """One array of the file, known by its header: nothing of its content is read yet.

    Attributes:
        start: where its numbers begin in the archive's member, after its header.
        offset: where they begin in the file, when they are stored uncompressed (else None).
    """

    path: Path
    where: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    start: int
    offset: int | None


class Rows:
    """The rows of an array, in any order and for several threads.

    A compressed array in Fortran order, whose rows are scattered over all of it, is read whole.
    """

    def __init__(self, array: Array) -> None:
        self._array, self._lock = array, threading.Lock()
        self._expanded = Expanded(array) if array.offset is None else None
        self._whole: NDArray[Any] | None = None

    def __getitem__(self, index: int) -> NDArray[Any]:
        """One row, as stored."""
        if self._expanded is None or self._array.order == "F":
            row: NDArray[Any] = self.whole()[index]
            return row
        shape = self._array.shape[1:]
        size = math.prod(shape) * self._array.dtype.itemsize
        return np.frombuffer(self._expanded.read(index * size, size), self._array.dtype).reshape(shape)

    def whole(self) -> NDArray[Any]:
        """All rows: mapped where they are stored, else read."""
        with self._lock:
            if self._whole is None:
                about = self._array
                if self._expanded is None:
                    self._whole = np.memmap(about.path, about.dtype, "r", about.offset or 0, about.shape, about.order)
                else:
                    content = self._expanded.read(0, math.prod(about.shape) * about.dtype.itemsize)
                    self._whole = np.frombuffer(content, about.dtype).reshape(about.shape, order=about.order)
            return self._whole


class Expanded:
    """The numbers of a compressed array as bytes, each expanded once and only as far as needed.

    The first :data:`IN_MEMORY` bytes are held in memory; once there are more, all of them are in a temporary file without a name.
    """

    def __init__(self, array: Array) -> None:
        self._array, self._lock = array, threading.Lock()
        self._stream: IO[bytes] | None = None
        self._length = 0
        self._files = contextlib.ExitStack()
        weakref.finalize(self, self._files.close)

    def read(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on.

        Raises:
            DataError: the array is damaged, or there is no room to expand it.
        """
        with self._lock:
            try:
                self._expand(self._array.start + start + size)
                self._kept.seek(self._array.start + start)
                return self._kept.read(size)
            except BaseException as error:
                self._files.close()  # the next call begins again: a piece may be lost
                self._stream = None
                if not isinstance(error, (*_DAMAGES, MemoryError)):
                    raise
                name, about = self._array.name, reason(error)
                if isinstance(error, OSError | MemoryError):
                    what, remedy = "cannot be expanded", "set TMPDIR to a folder with more room, or save it uncompressed (numpy.savez)"
                else:
                    what, remedy = "is damaged", "copy or save the file again"
                raise DataError(self._array.where, f"array {name!r} {what} ({about})", remedy) from None

    def _expand(self, length: int) -> None:
        """Expand the member up to this length, its header included."""
        if self._stream is None:
            self._length = 0
            self._kept = self._files.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115  closed with the others
            archive = self._files.enter_context(zipfile.ZipFile(self._array.path))
            self._stream = self._files.enter_context(archive.open(self._array.name))
        if length > max(self._length, IN_MEMORY):  # refused before the disk is full, which others use too
            free = shutil.disk_usage(tempfile.gettempdir()).free
            needed = length if self._length <= IN_MEMORY else length - self._length
            if needed > free:
                raise OSError(errno.ENOSPC, f"{needed} bytes are needed in {tempfile.gettempdir()}, which has {free}")
        self._kept.seek(self._length)
        while self._length < length:
            chunk = self._stream.read(CHUNK)
            if not chunk:
                raise EOFError("it ends too early")
            self._kept.write(chunk)
            self._length += len(chunk)


def _find_array(path: Path, where: str, key: str, option: str) -> Array:
    """Look up an array and check that the file can hold what its header claims.

    Args:
        path: the .npz file.
        where: what messages call it.
        key: the array's name.
        option: the spec key that chose it, for the message.

    Raises:
        DataError: not a zip file, no such array, or a header that is damaged or claims more than there is.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            if key not in members:
                held = ", ".join(sorted(members)[:_LISTED]) + (", ..." if len(members) > _LISTED else "") or "none"
                null = " (null where there are no labels)" if option == "labels_key" else ""
                raise DataError(where, f"has no array {key!r} (it has: {held})", f"set {option}{null}; {did_you_mean(key, members)}")
            return _checked(path, where, archive, archive.getinfo(members[key]))
    except _DAMAGES as error:
        what = "is not a .npz file (a zip archive)" if isinstance(error, zipfile.BadZipFile) else "cannot be read"
        raise DataError(where, f"{what}: {reason(error)}", "it may be truncated; save it again with numpy.savez_compressed") from None


def _checked(path: Path, where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    def refuse(what: str) -> DataError:
        return DataError(where, f"array {info.filename!r} {what}", "save the file again with numpy.savez_compressed")

    stored = info.compress_type == zipfile.ZIP_STORED
    if not (stored or info.compress_type == zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise refuse("is encrypted or compressed by an unusual method")
    if info.header_offset + info.compress_size > path.stat().st_size:
        raise refuse("is truncated")
    try:
        with archive.open(info) as stream:
            shape, fortran, dtype = _read_header(stream)
            start = stream.tell()
    except _BAD_HEADER as error:
        raise refuse(f"has no valid header ({reason(error)})") from None
    except _DAMAGES as error:
        raise refuse(f"is damaged ({reason(error)})") from None
    if dtype.hasobject:
        raise refuse("holds Python objects (pickle), which are never loaded")
    claimed = math.prod(shape) * dtype.itemsize
    most = min(info.file_size - start, info.compress_size - start if stored else info.compress_size * _DEFLATE_RATIO)
    if claimed > most or any(size < 0 for size in shape):
        raise refuse(f"claims shape {shape} of {dtype} ({claimed} bytes), more than the file can hold ({most} bytes)")
    if fortran and not stored and claimed > _MOST_WHOLE:
        raise refuse(f"is compressed and in Fortran order, so all its {claimed} bytes would be read at once")
    offset = _data_offset(path, info) + start if stored else None
    return Array(path, where, info.filename, shape, dtype, "F" if fortran else "C", start, offset)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy format {version} is for records, not for numbers")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if any(isinstance(size, bool) for size in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the member's bytes begin: after its local header, whose two last fields are lengths of a name and of extras."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return info.header_offset + 30 + int(name) + int(extra)


def _layout_of(images: Array, wanted: str | None) -> str:
    """nchw, nhwc or nhw: as wanted, else by which axis has 1 or 3 entries.

    Raises:
        DataError: the shape is not that of a stack of images, does not fit, or fits more than one layout.
    """
    shape, where, name = images.shape, images.where, images.name
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


def _read_labels(labels: Array, count: int) -> Labels:
    """Labels as int64 (n,); a column (n, 1) is understood.

    Raises:
        DataError: another length than the images, not integers, or negative.
    """
    shape, where, name = labels.shape, labels.where, labels.name
    if len(shape) == 2 and shape[0] == count and shape[1] > 1:
        raise DataError(where, f"array {name!r} has shape {shape}", "labels are (n,) class indices, not one column per class")
    if shape not in ((count,), (count, 1)):
        raise DataError(where, f"array {name!r} has shape {shape}", f"there are {count} images: it must be ({count},)")
    if count > _MOST_LABELS:
        raise DataError(where, f"array {name!r} has {count} labels, more than {_MOST_LABELS}", "split the file")
    if labels.dtype.kind not in "iub":
        raise DataError(where, f"labels are of type {labels.dtype}", "they must be integers: class indices from 0")
    values = np.array(Rows(labels).whole()).reshape(count).astype(np.int64)
    if int(values.min()) < 0:
        index = int(values.argmin())
        what = f"the label of sample {index} is {int(values[index])}"
        raise DataError(where, what, "class indices start at 0; labels_key: null for none")
    return values
