"""The pickles inside TorchScript files, read without torch: are they what ``torch.jit.save`` writes?

torch takes the types, sizes and strides of tensors from the pickle and believes them, so that a
crafted one would make it read or write other memory. Here a small machine follows the pickle with
inert values. It knows the instructions, functions and types that ``torch.jit.save`` writes, with the
meaning that torch gives them, and refuses all others.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_ITEM_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
_QUANTISED = re.compile(r"QU?Int\d+(?:x\d)?Storage|_rebuild_qtensor")
_REBUILD = "torch._utils._rebuild_tensor_v2"
_EMPTY = "collections.OrderedDict"
_LISTS = tuple(f"torch.jit._pickle.build_{kind}list" for kind in ("int", "double", "bool", "tensor"))
_TAG = "torch.jit._pickle.restore_type_tag"
_FUNCTIONS = (_REBUILD, _EMPTY, *_LISTS, _TAG)
_OWN_CLASS = re.compile(r"__torch__(?:\.\w+)+", re.ASCII)
_CLASSES = "torch.classes"

Sizes = Callable[[str], int]
"""The bytes of a record by its name."""


class UnsupportedError(Exception):
    """A pickle holds something sound that cannot be audited; its arguments are what and remedy."""


class ForgedError(Exception):
    """A pickle claims more data than there is, or is not as torch writes it."""


@dataclass(frozen=True, slots=True)
class _Global:
    """A class or function by name; nothing is imported."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    """A storage and its number of elements."""

    elements: int


@dataclass(frozen=True, slots=True)
class _Object:
    """A tensor, a module or another object.

    Attributes:
        state_missing: its state is the next instruction's.
    """

    state_missing: bool = False


def check_pickle(content: bytes, size_of: Sizes) -> None:
    """Follow a pickle of a TorchScript file.

    Args:
        content: the pickle.
        size_of: the bytes of the record with the elements of a storage.

    Raises:
        UnsupportedError: it holds quantised weights, or an object of a library.
        ForgedError: a storage or tensor is larger than its record, or torch does not write such a pickle.
        ValueError: it is not a pickle.
    """
    machine = _Machine(size_of)
    for instruction, argument, _ in pickletools.genops(content):
        machine.step(instruction.name, argument)


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, size_of: Sizes) -> None:
        self._size_of = size_of
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carry out an instruction."""
        if name in ("PROTO", "STOP"):
            return
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name](argument))
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name in _TUPLES:
            self._stack.append(tuple(self._last(_TUPLES[name])))
        elif name == "TUPLE":
            self._stack.append(tuple(self._since_mark()))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._top()
        elif name in ("BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise ForgedError("refers to a value that is not there")
            self._stack.append(self._memo[argument])
        elif name in _ACTIONS:
            _ACTIONS[name](self)
        elif name == "GLOBAL":
            self._stack.append(_named(argument))
        else:
            raise ForgedError(f"has the instruction {name}, which torch.jit.save does not write")

    def append(self) -> None:
        """Append a value to a list."""
        (value,) = self._last(1)
        self._container(list).append(value)

    def extend(self) -> None:
        """Append the values since the mark to a list."""
        values = self._since_mark()
        self._container(list).extend(values)

    def set_items(self) -> None:
        """Put the keys and values since the mark into a dictionary."""
        values = self._since_mark()
        self._container(dict)
        if len(values) % 2 or not all(_is_key(key) for key in values[::2]):
            raise ForgedError("a dictionary has keys that torch.jit.save does not write")

    def set_item(self) -> None:
        """Put a key and its value into a dictionary."""
        key, _ = self._last(2)
        self._container(dict)
        if not _is_key(key):
            raise ForgedError("a dictionary has a key that torch.jit.save does not write")

    def make(self) -> None:
        """Make an object of a class of the file; its state follows."""
        kind, arguments = self._last(2)
        if not _is_own(kind) or arguments != ():
            raise ForgedError("makes an object in a way that torch.jit.save does not write")
        self._stack.append(_Object(state_missing=True))

    def set_state(self) -> None:
        """Give an object its state."""
        made, _ = self._last(2)
        if made != _Object(state_missing=True):
            raise ForgedError("gives a state to what is no new object")
        self._stack.append(_Object())

    def call(self) -> None:
        """Call a function, or make a named tuple or a member of an enumeration."""
        function, arguments = self._last(2)
        if _is_own(function):
            self._stack.append(_Object())
            return
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise ForgedError("calls what is no function")
        self._stack.append(_called(function.name, arguments))

    def load_storage(self) -> None:
        """A storage: ("storage", type, record, device, elements)."""
        (pid,) = self._last(1)
        if not isinstance(pid, tuple) or len(pid) != 5 or not isinstance(pid[1], _Global):
            raise ForgedError("a storage has no type")
        _, kind, record, _, elements = pid
        prefix, _, suffix = kind.name.removeprefix("torch.").rpartition("Storage")
        item_bytes = _ITEM_BYTES.get(prefix)
        if item_bytes is None or suffix or not isinstance(record, str) or not _is_size(elements):
            raise ForgedError(f"a storage is of type {kind.name[:60]!r}")
        needed = elements * item_bytes
        stored = self._size_of(record)
        if needed > stored:
            raise ForgedError(f"claims {needed} bytes of {record[:60]!r}, which has {stored}")
        self._stack.append(_Storage(elements))

    def _top(self) -> Any:
        if not self._stack:
            raise ForgedError("ends within a value")
        return self._stack[-1]

    def _last(self, number: int) -> list[Any]:
        if len(self._stack) < number:
            raise ForgedError("ends within a value")
        values = self._stack[-number:]
        del self._stack[-number:]
        return values

    def _since_mark(self) -> list[Any]:
        if not self._marks or self._marks[-1] > len(self._stack):
            raise ForgedError("ends within a value")
        begin = self._marks.pop()
        values = self._stack[begin:]
        del self._stack[begin:]
        return values

    def _container(self, kind: type) -> Any:
        top = self._top()
        if type(top) is not kind:
            raise ForgedError(f"fills what is no {kind.__name__}")
        return top


_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"), lambda value: value),
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ACTIONS: dict[str, Callable[[_Machine], None]] = {
    "APPEND": _Machine.append,
    "APPENDS": _Machine.extend,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "NEWOBJ": _Machine.make,
    "BUILD": _Machine.set_state,
    "REDUCE": _Machine.call,
    "BINPERSID": _Machine.load_storage,
}


def _named(argument: str) -> _Global:
    """The class or function of an instruction GLOBAL, whose argument is "module name"."""
    name = ".".join(argument.split(" "))
    last = name.rpartition(".")[2]
    if f"{_CLASSES}.quantized." in name or _QUANTISED.fullmatch(last):
        what = f"is quantised (it holds {last}), and cannot be audited"
        raise UnsupportedError(what, "export the network before quantisation, in float32")
    if _CLASSES in name:  # torch would make an object of a compiled library's class
        what = f"holds an object of {name[:80]}, a class of a library"
        raise UnsupportedError(what, "export it with tensors only")
    storage = name.startswith("torch.") and name.count(".") == 1 and last.endswith("Storage")
    if not storage and name not in _FUNCTIONS and not _OWN_CLASS.fullmatch(name):
        raise ForgedError(f"names {name[:80]!r}, which torch.jit.save does not write")
    return _Global(name)


def _called(name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of one of torch's functions."""
    if name == _REBUILD:
        _check_extent(arguments)
        return _Object()
    if name == _EMPTY and arguments == ():
        return {}
    if name in _LISTS and len(arguments) == 1 and isinstance(arguments[0], list):
        return arguments[0]
    if name == _TAG and len(arguments) == 2 and type(arguments[0]) in (list, dict) and isinstance(arguments[1], str):
        return arguments[0]
    raise ForgedError(f"calls {name[:80]!r} as torch.jit.save does not")


def _check_extent(arguments: tuple[Any, ...]) -> None:
    """Refuse a tensor (storage, offset, shape, strides, ...) that reaches beyond its storage."""
    if len(arguments) < 4 or not isinstance(arguments[0], _Storage):
        raise ForgedError("a tensor has no storage")
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or len(shape) != len(strides):
        raise ForgedError("a tensor has no shape")
    if not all(map(_is_size, (offset, *shape, *strides))):
        raise ForgedError(f"a tensor has the shape {shape} and strides {strides}"[:200])
    if 0 in shape:
        return
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if last >= storage.elements:
        what = f"a tensor of shape {shape} reaches beyond its {storage.elements} stored elements"
        raise ForgedError(what[:200])


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_key(value: object) -> bool:
    return isinstance(value, str | int | float | _Object)


def _is_own(value: object) -> bool:
    """Whether this is a class that the file defines."""
    return isinstance(value, _Global) and _OWN_CLASS.fullmatch(value.name) is not None
