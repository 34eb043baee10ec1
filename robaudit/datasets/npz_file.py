"""What arrays does a .npz file hold, and how are some rows of one read without the rest (and without pickle)?"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.files import reason
from robaudit.errors import DataError, did_you_mean

_DEFLATE_RATIO = 1032  # deflate cannot compress better than this
_CHUNK = 1 << 20
_MOST_WHOLE = 1 << 30  # bytes of a compressed array that can only be read whole
_LISTED = 20
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)
"""What reading a damaged archive may raise."""


@dataclass(frozen=True, slots=True)
class Member:
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
    fortran: bool
    start: int
    offset: int | None

    def rows(self, count: int) -> NDArray[Any]:
        """The first ``count`` rows; uncompressed ones are mapped, not read. Fortran order is always read or mapped whole."""
        order: Any = "F" if self.fortran else "C"
        if self.offset is not None:
            return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape, order=order)[:count]
        shape = self.shape if self.fortran else (count, *self.shape[1:])
        try:
            values = np.empty(math.prod(shape) * self.dtype.itemsize, dtype=np.uint8)
            with zipfile.ZipFile(self.path) as archive, archive.open(self.name) as stream:
                _read_header(stream)
                at = 0
                while at < len(values):
                    chunk = stream.read(min(_CHUNK, len(values) - at))
                    if not chunk:
                        raise EOFError("it ends too early")
                    values[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
                    at += len(chunk)
        except MemoryError:
            raise DataError(self.where, f"array {self.name!r} does not fit into memory", "split the file") from None
        except DAMAGES as error:
            raise DataError(self.where, f"array {self.name!r} is damaged ({reason(error)})", "copy or save the file again") from None
        return values.view(self.dtype).reshape(shape, order=order)[:count]


def member(path: Path, where: str, key: str, option: str) -> Member:
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
                raise DataError(where, f"has no array {key!r} (it has: {held})", f"set {option}; {did_you_mean(key, members)}")
            return _checked(path, where, archive, archive.getinfo(members[key]))
    except DAMAGES as error:
        what = "is not a .npz file (a zip archive)" if isinstance(error, zipfile.BadZipFile) else "cannot be read"
        raise DataError(where, f"{what}: {reason(error)}", "it may be truncated; save it again with numpy.savez_compressed") from None


def _checked(path: Path, where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    def refuse(what: str) -> DataError:
        return DataError(where, f"array {info.filename!r} {what}", "save the file again with numpy.savez_compressed")

    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise refuse("is encrypted or compressed by an unusual method")
    on_disk = path.stat().st_size
    if info.header_offset + info.compress_size > on_disk:
        raise refuse("is truncated")
    try:
        with archive.open(info) as stream:
            shape, fortran, dtype = _read_header(stream)
            start = stream.tell()
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise refuse(f"has no valid header ({reason(error)})") from None
    except DAMAGES as error:
        raise refuse(f"is damaged ({reason(error)})") from None
    if dtype.hasobject:
        raise refuse("holds Python objects (pickle), which are never loaded")
    claimed, most = math.prod(shape) * dtype.itemsize, info.file_size - start
    if info.compress_type == zipfile.ZIP_DEFLATED:
        most = min(most, info.compress_size * _DEFLATE_RATIO)
    else:
        most = min(most, info.compress_size - start)
    if claimed > most or any(size < 0 for size in shape):
        raise refuse(f"claims shape {shape} of {dtype} ({claimed} bytes), more than the file can hold ({most} bytes)")
    stored = info.compress_type == zipfile.ZIP_STORED
    if fortran and not stored and claimed > _MOST_WHOLE:
        raise refuse(f"is compressed and in Fortran order, so all its {claimed} bytes would be read at once")
    return Member(path, where, info.filename, shape, dtype, fortran, start, _data_offset(path, info) + start if stored else None)


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
