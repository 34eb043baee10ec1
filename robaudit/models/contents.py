"""Check that an archive of torch holds what its directory and its pickles claim, before torch's own readers believe them.

Torch checks no checksums, so a flipped bit would silently give other weights; and its TorchScript reader takes the size of
a storage from the pickle, so a false one would read memory behind the record (or crash). The pickles are read here with every
class and function replaced by something inert: nothing of theirs can run.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from robaudit.errors import ModelError

_CHUNK, _LARGEST_PICKLE = 2**20, 2**26


def check_contents(archive: zipfile.ZipFile, where: str) -> None:
    """Read every member once.

    Raises:
        ModelError: a pickle claims more of a tensor than its record holds.
        zipfile.BadZipFile: a member is not as its checksum or its size says.
    """
    for member in archive.infolist():
        for _ in _chunks(archive, member):
            pass
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    for name in sizes:
        if name.endswith(("/data.pkl", "/constants.pkl")):  # those that are read
            _check_pickle(archive, name, sizes, where)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, never more than the directory says: ``ZipFile.read`` would expand it all before it looks."""
    return b"".join(_chunks(archive, archive.getinfo(name)))


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """A member in pieces; zipfile checks its checksum."""
    about = copy.copy(member)
    if not about.CRC:
        about.CRC = None  # type: ignore[assignment]  # unchecked: torch writes 0 where checksums are switched off
    left = member.file_size
    with archive.open(about) as stream:
        while left > 0:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                raise zipfile.BadZipFile(f"{member.filename} ends too early")
            left -= len(chunk)
            yield chunk


def _check_pickle(archive: zipfile.ZipFile, name: str, sizes: Mapping[str, int], where: str) -> None:
    """Refuse storages larger than their records, and tensors that reach beyond their storages."""
    if sizes[name] > _LARGEST_PICKLE:
        raise ModelError(where, f"{name} has {sizes[name]} bytes", "tensors belong in separate records: save it again with torch")
    folder = name.removesuffix(".pkl")
    try:
        content = read_member(archive, name)
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):  # reads the arguments: no size is larger than the file
            if opcode.name in _MEMO_WRITES and argument > count:  # the reader's memory would grow with it
                raise _FalseClaimError(f"writes memo place {argument} after {count} steps")
        _Reader(content, folder, sizes).load()
    except _FalseClaimError as error:
        raise ModelError(where, f"{name}: {error}", "the file is damaged, or made to read other memory") from error
    except Exception as error:
        raise ModelError(where, f"{name} is not a pickle of torch ({error})", "the file is damaged; save it again") from error


class _FalseClaimError(Exception):
    """A pickle claims more than there is."""


class _Inert:
    """Stands for any class, function or object of a pickle: can be called and filled, and does nothing.

    Attributes:
        item_bytes: of one element, for a type of storage.
        count: elements, for a storage.
    """

    item_bytes = 1
    count: int | None = None

    def __new__(cls, *_: object, **__: object) -> _Inert:
        return object.__new__(cls)

    def __call__(self, *_: object, **__: object) -> _Inert:
        return _Inert()

    def __setstate__(self, _: object) -> None:
        pass

    def __setitem__(self, _: object, __: object) -> None:
        pass

    def append(self, _: object) -> None:
        pass

    extend = add = append


class _Rebuild(_Inert):
    """Stands for torch's functions that make a tensor of (storage, offset, shape, strides, ...)."""

    def __new__(cls, *arguments: Any, **_: object) -> _Inert:
        if len(arguments) >= 4 and isinstance(arguments[0], _Inert):
            _check_extent(*arguments[:4])
        return object.__new__(cls)


def _storage_types() -> dict[str, type[_Inert]]:
    sizes = {"ComplexDouble": 16} | dict.fromkeys(("Double", "Long", "ComplexFloat"), 8)
    sizes |= dict.fromkeys(("Float", "Int", "QInt32"), 4) | dict.fromkeys(("Half", "BFloat16", "Short"), 2)  # all others: 1
    return {f"{name}Storage": type(name, (_Inert,), {"item_bytes": size}) for name, size in sizes.items()}


_STORAGE_TYPES = _storage_types()
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT")


def _check_extent(storage: _Inert, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if storage.count is None or not math.prod(shape):
        return
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or last >= storage.count:
        raise _FalseClaimError(f"a tensor of shape {shape} reaches beyond its {storage.count} stored elements")


class _Reader(pickle.Unpickler):
    """Python's pickle reader, in which everything found is inert."""

    def __init__(self, content: bytes, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(content))
        self._folder, self._sizes = folder, sizes

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is imported."""
        return _Rebuild if name.startswith("_rebuild") else _STORAGE_TYPES.get(name, _Inert)

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", type, record, device, elements)."""
        found = _Inert()
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], type) and issubclass(pid[1], _Inert):
            record, found.count = f"{self._folder}/{pid[2]}", int(pid[4])
            needed, held = found.count * pid[1].item_bytes, self._sizes.get(record, 0)
            if not 0 <= needed <= held:
                raise _FalseClaimError(f"claims {needed} bytes of {record}, which has {held}")
        return found
