"""How are single rows of an array in a .npz file read, in any order and by several threads?"""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
import tempfile
import threading
import weakref
import zipfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robaudit.datasets.files import reason
from robaudit.datasets.npz_file import DAMAGES, Member
from robaudit.errors import DataError

_CHUNK = 1 << 20
_IN_MEMORY = 32 << 20  # bytes of a compressed array; what is more goes to a file


class Rows:
    """The rows of an array: mapped where it is stored as it is, expanded as far as they are asked for where it is compressed.

    A compressed array in Fortran order, whose rows are scattered over all of it, is read whole.
    """

    def __init__(self, member: Member) -> None:
        self._member, self._lock = member, threading.Lock()
        self._whole: NDArray[Any] | None = None
        self._expanded = Expanded(member) if member.offset is None and not member.fortran else None

    def __getitem__(self, index: int) -> NDArray[Any]:
        """One row, as stored.

        Raises:
            DataError: the array is damaged, or there is no room to expand it.
        """
        if self._expanded is not None:
            size = math.prod(self._member.shape[1:]) * self._member.dtype.itemsize
            content = self._expanded.read(self._member.start + index * size, size)
            return np.frombuffer(content, dtype=self._member.dtype).reshape(self._member.shape[1:])
        with self._lock:
            if self._whole is None:
                self._whole = self._member.rows(self._member.shape[0])
        row: NDArray[Any] = self._whole[index]
        return row


class Expanded:
    """The bytes of a compressed array, each expanded once and only up to those that are asked for.

    The first 32 MB are held in memory; as soon as there are more, all of them are in a temporary file without a name.
    """

    def __init__(self, member: Member) -> None:
        self._member, self._lock = member, threading.Lock()
        self._stream: IO[bytes] | None = None
        self._length = 0
        self._files = contextlib.ExitStack()
        weakref.finalize(self, self._files.close)

    def read(self, start: int, size: int) -> bytes:
        """Bytes from ``start`` on; the header of the array counts."""
        with self._lock:
            try:
                stream = self._stream or self._begin()
                if start + size > max(self._length, _IN_MEMORY):
                    self._refuse_what_does_not_fit(start + size)
                self._kept.seek(self._length)
                while self._length < start + size:
                    chunk = stream.read(_CHUNK)
                    if not chunk:
                        raise EOFError("it ends too early")
                    self._kept.write(chunk)
                    self._length += len(chunk)
                self._kept.seek(start)
                return self._kept.read(size)
            except BaseException as error:
                self._files.close()  # the next one begins anew: a piece may be lost
                self._stream = None
                if isinstance(error, OSError):
                    what = f"array {self._member.name!r} cannot be expanded ({reason(error)})"
                    remedy = "set TMPDIR to a folder with more room, or save it uncompressed (numpy.savez)"
                    raise DataError(self._member.where, what, remedy) from None
                if isinstance(error, DAMAGES):
                    what = f"array {self._member.name!r} is damaged ({reason(error)})"
                    raise DataError(self._member.where, what, "copy or save the file again") from None
                raise

    def _begin(self) -> IO[bytes]:
        self._length = 0
        self._kept = self._files.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115  closed with the others
        archive = self._files.enter_context(zipfile.ZipFile(self._member.path))
        self._stream = stream = self._files.enter_context(archive.open(self._member.name))
        return stream

    def _refuse_what_does_not_fit(self, length: int) -> None:
        """Before the disk is full, which others use too."""
        free = shutil.disk_usage(tempfile.gettempdir()).free
        needed = length if self._length <= _IN_MEMORY else length - self._length
        if needed > free:
            raise OSError(errno.ENOSPC, f"{needed} bytes are needed in {tempfile.gettempdir()}, which has {free}")
