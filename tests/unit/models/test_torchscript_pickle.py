"""Pickles of TorchScript are followed with the meaning that torch gives them, and all others are
refused."""

from __future__ import annotations

import pytest

from robaudit.models.torchscript_pickle import ForgedError, UnsupportedError, read_pickle
from robaudit.models.torchscript_source import ClassCode
from tests.golden import Golden

RECORD = 48
"""Bytes of the record behind every storage: twelve numbers in float32."""


def name(module: str, of: str) -> bytes:
    return f"c{module}\n{of}\n".encode()


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def number(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little", signed=True)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(kind: bytes = name("torch", "FloatStorage"), elements: int = 12) -> bytes:
    return b"(" + text("storage") + kind + text("0") + text("cpu") + number(elements) + b"tQ"


def tensor(
    of: bytes, offset: int = 0, shape: bytes = numbers(3, 4), strides: bytes = numbers(4, 1)
) -> bytes:
    arguments = (
        of + number(offset) + shape + strides + b"\x89" + name("collections", "OrderedDict") + b")R"
    )
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + arguments + b"tR"


def check(content: bytes) -> None:
    read_pickle(b"\x80\x02" + content + b".", lambda _: RECORD, CLASSES)


CLASSES = {
    "__torch__.net.Net": ClassCode("Module"),
    "__torch__.net.Pool": ClassCode("Enum", members=["avg", "max"]),
    "__torch__.net.Pair": ClassCode("NamedTuple"),
}
MODULE = name("__torch__.net", "Net")
SOUND = {
    "a tensor": tensor(storage()),
    "the end of a record": tensor(storage(), 11, numbers(1), numbers(1)),
    "nothing of a record": tensor(storage(), 0, numbers(0, 4), numbers(4, 1)),
    "sixteen bits": tensor(storage(name("torch", "HalfStorage"), 24), 0, numbers(24), numbers(1)),
    "a module": MODULE + b")\x81}(" + text("weight") + tensor(storage()) + b"ub",
    "a list of numbers": name("torch.jit._pickle", "build_intlist")
    + b"]("
    + number(1)
    + number(2)
    + b"e\x85R",
    "a list with its type": name("torch.jit._pickle", "restore_type_tag")
    + b"]"
    + text("List[str]")
    + b"\x86R",
    "a member of an enumeration": name("__torch__.net", "Pool") + text("avg") + b"R",
    "a named tuple": name("__torch__.net", "Pair") + number(1) + number(2) + b"\x86R",
    "a value twice": text("x") + b"q\x01h\x01\x86",
}


@pytest.mark.parametrize("content", SOUND.values(), ids=SOUND)
def test_what_torch_writes(content: bytes) -> None:
    check(content)


FORGED = {
    "beyond the record": tensor(storage(elements=13)),
    "beyond the storage": tensor(storage(), 1),
    "before the storage": tensor(storage(), -1),
    "backwards": tensor(storage(), 11, numbers(12), numbers(-1)),
    "a type without a size": tensor(storage(name("torch", "BComplex32Storage"))),
    "another type without a size": tensor(storage(name("torch", "Bits16Storage"))),
    "a number as a type": tensor(storage(number(6))),
    "a tensor of a tensor": tensor(tensor(storage())),
    "sparse": name("torch._utils", "_rebuild_sparse_tensor") + b")R",
    "meta": name("torch._utils", "_rebuild_meta_tensor_no_storage") + b")R",
    "another type of tensor": name("torch._tensor", "_rebuild_from_type_v2") + b")R",
    "Python": name("os", "system") + text("true") + b"\x85R",
    "a number as a function": number(0) + b")R",
    "a number that gets a state": number(0) + b"}b",
    "a function that gets a state": name("torch._utils", "_rebuild_tensor_v2") + b"}b",
    "a tag on a tensor": name("torch.jit._pickle", "restore_type_tag")
    + tensor(storage())
    + text("int")
    + b"\x86R",
    "no member of an enumeration": name("__torch__.net", "Pool") + text("x") + b"R",
    "a module that is called": MODULE + b")R",
    "what lies below a mark": number(1) + b"(\x85t",
    "more than one value": number(1) + number(2),
    "a mark at the end": number(1) + b"(",
    "a name with a space": b"ctorch._utils _rebuild_tensor_v2\nx\n",
    "an instruction": b"\x8c\x01x",
    "the end": b"\x85",
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_what_torch_does_not_write(content: bytes, golden: Golden) -> None:
    with pytest.raises(ForgedError) as caught:
        check(content)
    golden(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        name("torch", "QInt8Storage"),
        name("torch._utils", "_rebuild_qtensor"),
        name("__torch__.torch.classes.quantized", "LinearPackedParamsBase"),
        name("__torch__.torch.classes.rnn", "Cell"),
    ],
)
def test_what_cannot_be_audited(content: bytes, golden: Golden) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check(content)
    golden("; ".join(caught.value.args[0]))
