"""Which other files hold weights of an ONNX model, and what is the digest of all of them?

An ONNX file is a protobuf message: fields with a number, some of which are messages themselves. Only those in which tensors can be
are looked into; the numbers are those of onnx.proto.
"""

from __future__ import annotations

import hashlib
import mmap
import stat
from collections.abc import Iterator
from pathlib import Path

from robaudit.errors import ModelError
from robaudit.models.base import file_sha256

INSIDE: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
}
"""The fields of each message, by number, that are (or contain) messages with tensors."""

_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1
_DEEPEST, _MOST_FIELDS = 100, 10**7
_FLATBUFFER = b"ORTM"  # onnxruntime's format, which has all weights inside


def weights_sha256(path: Path, where: str) -> str:
    """sha256 (hex) of the file, or, where other files hold weights, of the text of lines with the sha256 of all of them.

    The first line is the sha256 of the ONNX file; then there is one line for each other file, sorted by name: its sha256, two spaces
    and its name as written in the ONNX file. Every line ends with ``\\n``.

    Raises:
        ModelError: the file is not an ONNX model, or another file is missing or not regular.
    """
    names = external_files(path, where)
    if not names:
        return file_sha256(path)
    lines = [f"{file_sha256(path)}\n"]
    for name in names:
        try:
            if not stat.S_ISREG((path.parent / name).stat().st_mode):
                raise ModelError(where, f"has weights in {name!r}, which is not a regular file", "export it again")
            lines.append(f"{file_sha256(path.parent / name)}  {name}\n")
        except (OSError, ValueError) as error:
            raise ModelError(where, f"has weights in {name!r}, which cannot be read ({error})", "put it next to the .onnx file") from error
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def external_files(path: Path, where: str) -> list[str]:
    """The names of the files besides ``path`` that hold weights, as written in it, sorted.

    Raises:
        ModelError: the file is not an ONNX model.
    """
    with path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if content[4:8] == _FLATBUFFER:
        return []
    try:
        return sorted(set(_locations(content, "ModelProto", 0, iter(range(_MOST_FIELDS)))))
    except (ValueError, IndexError) as error:
        raise ModelError(where, f"is not an ONNX model ({error})", "export it again") from error


def _locations(message: memoryview, kind: str, depth: int, budget: Iterator[int]) -> Iterator[str]:
    """The files of the tensors in a message; each field takes one from the budget."""
    if depth > _DEEPEST:
        raise ValueError("too deeply nested")
    if kind == "TensorProto":
        yield from _location(message, budget)
        return
    for number, value in _fields(message, budget):
        if number in INSIDE[kind] and isinstance(value, memoryview):
            yield from _locations(value, INSIDE[kind][number], depth + 1, budget)


def _location(tensor: memoryview, budget: Iterator[int]) -> Iterator[str]:
    """The file of a tensor, if it has one."""
    fields = [field for field in _fields(tensor, budget) if field[0] in (_EXTERNAL_DATA, _DATA_LOCATION)]
    if (_DATA_LOCATION, _EXTERNAL) in fields:
        for entry in (value for number, value in fields if number == _EXTERNAL_DATA and isinstance(value, memoryview)):
            texts = {number: bytes(text) for number, text in _fields(entry, budget) if isinstance(text, memoryview)}
            if texts.get(1) == b"location":
                yield texts.get(2, b"").decode()


def _fields(message: memoryview, budget: Iterator[int]) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of the fields of a message; fixed-size numbers are left out."""
    at = 0
    while at < len(message):
        if next(budget, None) is None:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
            case 1:
                at += 8
            case 2:
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise ValueError("it is truncated")
                yield key >> 3, message[at : at + size]
                at += size
            case 5:
                at += 4
            case other:
                raise ValueError(f"a field of type {other}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and the place after it."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
