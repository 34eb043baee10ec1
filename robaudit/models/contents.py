"""Does an archive of torch hold what its directory and its pickles claim, before torch's own readers believe them?

Torch checks no checksums, so a flipped bit would give other weights without a word; and its TorchScript reader takes the size of
a storage from the pickle, so a false one would read memory behind the record (or crash). The pickles are read here with every
class and function replaced by something inert: nothing of theirs can run.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from robaudit.errors import ModelError

_CHUNK, _LARGEST_PICKLE = 2**20, 2**26
_ITEM_BYTES = {
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    "ComplexDoubleStorage": 16,
}  # all others: 1


def check_contents(archive: zipfile.ZipFile, where: str) -> None:
    """Read every member once.

    Raises:
        ModelError: a member is not as its checksum says, or a pickle claims more of a tensor than its record holds.
    """
    for member in archive.infolist():
        crc = 0
        for chunk in _chunks(archive, member):
            crc = zlib.crc32(chunk, crc)
        if member.CRC not in (crc, 0):  # torch writes 0 where checksums are switched off
            raise ModelError(where, f"{member.filename} is damaged: its checksum does not match", "copy or save the file again")
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    for name in sizes:
        if name.endswith(("/data.pkl", "/constants.pkl")):  # those that are read
            _check_pickle(archive, name, sizes, where)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, never more than the directory says: ``ZipFile.read`` would expand it all before it looks."""
    return b"".join(_chunks(archive, archive.getinfo(name)))


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """A member in pieces; zipfile's own check, which takes 0 for a checksum, is left out."""
    with archive.open(member) as stream:
        stream._expected_crc = None  # type: ignore[attr-defined]
        left = member.file_size
        while left > 0:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                raise zipfile.BadZipFile(f"{member.filename} ends too early")
            left -= len(chunk)
            yield chunk


def _check_pickle(archive: zipfile.ZipFile, name: str, sizes: Mapping[str, int], where: str) -> None:
    """Refuse storages larger than their records, and tensors that reach beyond their storages."""
    if sizes[name] > _LARGEST_PICKLE:
        raise ModelError(where, f"{name} has {sizes[name]} bytes", "tensors belong into records of their own: save it again with torch")
    folder = name.removesuffix(".pkl")
    try:
        _Reader(read_member(archive, name), folder, sizes).load()
    except _FalseClaimError as error:
        raise ModelError(where, f"{name}: {error}", "the file is damaged, or made to read other memory") from error
    except Exception as error:
        raise ModelError(where, f"{name} is no pickle of torch ({error})", "the file is damaged; save it again") from error


class _FalseClaimError(Exception):
    """A pickle claims more than there is."""


@dataclass(frozen=True, slots=True, eq=False)
class _Inert:
    """Stands for any class, function or object of a pickle; can be called and filled, and does nothing.

    Attributes:
        name: of a class or function.
        count: elements of a storage; None for all else.
    """

    name: str = ""
    count: int | None = None

    def __new__(cls, *_: object) -> _Inert:
        return object.__new__(_Inert)

    def __call__(self, *arguments: Any) -> _Inert:
        if self.name.startswith("_rebuild") and len(arguments) >= 4 and isinstance(arguments[0], _Inert):
            _check_extent(*arguments[:4])
        return _Inert()

    def __setstate__(self, _: object) -> None:
        pass

    def __setitem__(self, _: object, __: object) -> None:
        pass

    def append(self, _: object) -> None:
        pass

    extend = add = append


def _check_extent(storage: _Inert, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if storage.count is None or not math.prod(shape):
        return
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or last >= storage.count:
        raise _FalseClaimError(f"a tensor of shape {shape} reaches beyond its {storage.count} stored elements")


class _Reader(pickle._Unpickler):
    """Python's own pickle reader in Python: memory grows with the file only, and what it finds is inert."""

    def __init__(self, content: bytes, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(content))
        self._folder, self._sizes = folder, sizes

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is imported."""
        return _Inert(name)

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", type, record, device, elements)."""
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], _Inert)):
            return _Inert()
        record, count = f"{self._folder}/{pid[2]}", int(pid[4])
        needed, held = count * _ITEM_BYTES.get(pid[1].name, 1), self._sizes.get(record, 0)
        if not 0 <= needed <= held:
            raise _FalseClaimError(f"claims {needed} bytes of {record}, which has {held}")
        return _Inert("", count)
