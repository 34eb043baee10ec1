"""Checks of model archives before torch reads them: nothing in a file executes, and every member is what it claims to be.

- :func:`open_archive`: zipfile and torch see the same members.
- :func:`check_contents`: torch checks no checksums, so a flipped bit would silently give other weights; and its TorchScript reader takes
  the size of a storage from the pickle, so a false one would read memory behind the record (or crash). The pickles are read with every
  class and function replaced by something inert.
- :func:`load_tensors`: tensors and plain containers only.
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import pickletools
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch

from robaudit.errors import ModelError

_MOST_EXPANSION, _FREE_BYTES = 50, 2**26
_ENCRYPTED, ZIP = 1, b"PK\3\4"
_LAST, _ENDS, _RECORD = 22, 42, 56  # bytes of the end of a directory, of this and its zip64 locator, and of the zip64 record
_LARGEST_PICKLE = 2**26


@contextlib.contextmanager
def open_archive(source: Path | bytes, where: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive that zipfile and torch's reader understand in the same way.

    Raises:
        ModelError: it is not a zip, is truncated or encrypted, names a member twice, starts with something else, or expands absurdly;
            or, while it is open, a member cannot be expanded.
    """
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            members = archive.infolist()
            names = {member.filename.lower() for member in members}
            renamed = any(member.filename != member.orig_filename for member in members)  # cut at a NUL, or given a second name
            if len(names) != len(members) or renamed or archive.comment or min((m.header_offset for m in members), default=1) != 0:
                raise zipfile.BadZipFile("readers would disagree on its members")
            if not _one_directory(source, size):
                raise zipfile.BadZipFile("readers would disagree on its directory")
            if any(member.flag_bits & _ENCRYPTED for member in members):
                raise zipfile.BadZipFile("it is encrypted")
            expanded = sum(member.file_size for member in members)
            if expanded > _MOST_EXPANSION * size + _FREE_BYTES:
                raise ModelError(where, f"claims to expand to {expanded} bytes", "save it again with torch")
            for member in members:
                member.CRC = member.CRC or None  # type: ignore[assignment]  # unchecked: torch writes 0 where checksums are switched off
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ModelError(
            where, f"is not a complete torch zip archive ({error})", "the file is truncated or damaged; copy or save it again"
        ) from error


def _one_directory(source: Path | bytes, size: int) -> bool:
    """Whether the end of an archive names the directory that lies before it.

    Python reads the zip64 record just before its locator (until the fix of CVE-2025-8291), torch the one that the locator points to.
    """
    if isinstance(source, bytes):
        end = source[-_ENDS:]
    else:
        with source.open("rb") as file:
            file.seek(max(0, size - _ENDS))
            end = file.read(_ENDS)
    locator, last = end[:-_LAST], end[-_LAST:]
    return last[:4] == b"PK\5\6" and (locator[:4] != b"PK\6\7" or int.from_bytes(locator[8:16], "little") == size - _ENDS - _RECORD)


def load_tensors(source: Path | bytes, where: str) -> Any:
    """``torch.load(weights_only=True)``: tensors and plain containers, never an object that runs code.

    Raises:
        ModelError: it holds anything else, or is damaged.
    """
    stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with stream:
        if stream.read(len(ZIP)) == ZIP:
            with open_archive(source, where) as archive:
                check_contents(archive, where)
        try:
            return _torch_load(stream)
        except Exception as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(r"Unsupported (?:class|global)[: ]+([\w.]+)", str(error))
            if found and (inert := _with_stand_ins(stream)) is not None:
                return inert
            if "Unsupported operand" in str(error):
                raise ModelError(
                    where,
                    "is pickled with a protocol that torch.load(weights_only=True) does not read",
                    "save the state_dict() as safetensors, or with torch.save and its default protocol",
                ) from error
            if found or (isinstance(error, pickle.UnpicklingError) and "Unsupported" in str(error)):
                what = f"holds a pickled Python object ({found[1]})" if found else "holds pickled Python objects"
                raise ModelError(
                    where,
                    f"{what}, which would run code when loaded",
                    "export it with torch.jit.script or torch.export.save, save its state_dict() as safetensors, "
                    "or load it with your own function: format: python and --trust",
                ) from error
            raise ModelError(
                where, f"torch cannot read it: {_reason(error)}", "the file is truncated, damaged or not a plain state dict; save it again"
            ) from error


def _torch_load(stream: BinaryIO) -> Any:
    stream.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # odd tensors are reported when they are fitted
        return torch.load(stream, map_location="cpu", weights_only=True)


def _with_stand_ins(stream: BinaryIO) -> dict[Any, Any] | None:
    """A checkpoint that holds more than tensors (settings, state of the training), with `Unread` in place of every other object.

    torch's restricted reader builds the stand-ins, so no function and no class that the file names is imported, let alone called.

    Returns:
        The checkpoint; None where it is not a mapping with tensors somewhere below, or names a module that torch always refuses (os, sys).
    """
    try:
        stream.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(stream)
        with torch.serialization.safe_globals([(Unread, name) for name in names]):
            found = _torch_load(stream)
    except Exception:  # noqa: BLE001  then the first reading says what is wrong
        return None
    return found if isinstance(found, dict) and _holds_tensors(found) else None


def _holds_tensors(found: Mapping[Any, Any], depth: int = 3) -> bool:
    values = found.values()
    return any(
        isinstance(value, torch.Tensor) or (depth and isinstance(value, Mapping) and _holds_tensors(value, depth - 1)) for value in values
    )


def _reason(error: Exception) -> str:
    """The informative line of torch's long message."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:200]


def check_contents(archive: zipfile.ZipFile, where: str) -> None:
    """Read every member once.

    Raises:
        ModelError: a pickle claims more of a tensor than its record holds.
        zipfile.BadZipFile: a member is not as its checksum or its size says.
    """
    if damaged := archive.testzip():
        raise zipfile.BadZipFile(f"{damaged} is damaged")
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    for name in sizes:
        if name.endswith(("/data.pkl", "/constants.pkl")):  # those that are read
            _check_pickle(archive, name, sizes, where)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, never more than the directory says: ``ZipFile.read`` would expand it all before it looks."""
    with archive.open(name) as stream:
        return stream.read(archive.getinfo(name).file_size)


def _check_pickle(archive: zipfile.ZipFile, name: str, sizes: Mapping[str, int], where: str) -> None:
    """Refuse storages larger than their records, and tensors that reach beyond their storages."""
    if sizes[name] > _LARGEST_PICKLE:
        raise ModelError(where, f"{name} has {sizes[name]} bytes", "tensors belong in separate records: save it again with torch")
    folder = name.removesuffix(".pkl")
    try:
        content = read_member(archive, name)
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):  # reads the arguments, so no size exceeds the file
            if opcode.name in _MEMO_WRITES and int(argument or 0) > count:  # the reader's memory would grow with it
                raise _FalseClaimError(f"writes memo slot {argument} after {count} steps")
        _Reader(content, folder, sizes).load()
    except _FalseClaimError as error:
        raise ModelError(where, f"{name}: {error}", "the file is damaged, or crafted to read other memory") from error
    except Exception as error:
        raise ModelError(where, f"{name} is not a torch pickle ({error})", "the file is damaged; save it again") from error


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

    def __new__(cls, *_: object, **__: object) -> Self:
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


class Unread(_Inert):
    """What stands in a checkpoint for an object that is not read: it holds nothing, and nothing of it has run."""


class _Rebuild(_Inert):
    """Stands for torch's functions that make a tensor of (storage, offset, shape, strides, ...)."""

    def __new__(cls, *arguments: Any, **_: object) -> Self:
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
    """Python's pickle reader, with everything it would import replaced by something inert."""

    def __init__(self, content: bytes, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(content))
        self._folder, self._sizes = folder, sizes

    def find_class(self, module: str, name: str) -> Any:
        """Return an inert stand-in; nothing is imported."""
        if "torch.classes" in f"{module}.{name}":  # TorchScript would make an object of a library's own class
            raise _FalseClaimError(f"holds an object of {name}")
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
