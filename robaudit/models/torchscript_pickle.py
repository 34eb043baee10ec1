"""Check the pickles inside TorchScript files without torch: they must be as torch writes them.

torch takes the types, sizes and strides of tensors from the pickle and believes them, so that a
crafted one would make it read or write other memory. Here a small machine follows the pickle with
inert values. It knows the instructions, functions and types that ``torch.jit.save`` writes, with
the meaning that torch gives them, and refuses all others.
"""

from __future__ import annotations

import ast
import pickletools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robaudit.models.torchscript_source import ClassCode

# The bytes of an element, by the type of a storage: FloatStorage and so on.
_ITEM_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
_QUANTISED = re.compile(r"QU?Int\d+(?:x\d)?Storage|_rebuild_qtensor")

# The functions that pickles of torch.jit.save call: a tensor from its storage, the hooks of a
# tensor, typed lists, and the type of a list or dictionary.
_REBUILD = "torch._utils._rebuild_tensor_v2"
_EMPTY = "collections.OrderedDict"
_LISTS = (
    "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.build_tensorlist",
)
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
class _Tensor:
    """A tensor that fits its record."""


@dataclass(slots=True, eq=False)
class _Object:
    """An object of a class of the file.

    Attributes:
        kind: the class, by its qualified name.
        state: its attributes; of a named tuple, its fields in order. None: its state is the next
            instruction's.
    """

    kind: str
    state: Any = None


Classes = Mapping[str, ClassCode]
"""The classes of a file, by qualified name."""


def read_pickle(content: bytes, size_of: Sizes, classes: Classes | None) -> Any:
    """Follow a pickle of a TorchScript file to its value.

    Args:
        content: the pickle.
        size_of: the bytes of the record with the elements of a storage.
        classes: of the file; None: of a trusted file, whose source is not read.

    Raises:
        UnsupportedError: it holds quantised weights, or an object of a library.
        ForgedError: a storage or tensor is larger than its record, or torch does not write such a
            pickle.
        ValueError: it is not a pickle.
    """
    machine = _Machine(size_of, classes)
    # genops decodes the instructions and executes none.
    for instruction, argument, _ in pickletools.genops(content):
        machine.step(instruction.name, argument)
    return machine.value()


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, size_of: Sizes, classes: Classes | None) -> None:
        self._size_of = size_of
        self._classes = classes
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carry out an instruction."""
        if name in ("PROTO", "STOP"):
            return
        # Only what torch's pickler writes: its unpickler knows more.
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

    def value(self) -> Any:
        """The one value that is left at the end."""
        if len(self._stack) != 1 or self._marks:
            raise ForgedError("leaves more or less than one value")
        return self._stack[0]

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
        if len(values) % 2:
            raise ForgedError("a dictionary has a key without a value")
        self._put(values)

    def set_item(self) -> None:
        """Put a key and its value into a dictionary."""
        self._put(self._last(2))

    def _put(self, values: list[Any]) -> None:
        """Put keys and values, in turn, into the dictionary at the top."""
        dictionary = self._container(dict)
        keys = values[::2]
        for key, value in zip(keys, values[1::2], strict=True):
            if type(key) not in (str, int, float, bool):
                raise ForgedError("a dictionary has a key that torch.jit.save does not write")
            dictionary[key] = value

    def make(self) -> None:
        """Make an object of a class of the file; the next instructions give its state."""
        kind, arguments = self._last(2)
        if not _is_own(kind) or arguments != ():
            raise ForgedError("makes an object in a way that torch.jit.save does not write")
        self._stack.append(_Object(kind.name))

    def set_state(self) -> None:
        """Give an object its state."""
        target, state = self._last(2)
        if not isinstance(target, _Object) or target.state is not None:
            raise ForgedError("gives a state to what is no new object")
        if type(state) is dict:
            # A copy: torch takes the values here, and later instructions may change the dictionary.
            target.state = dict(state)
        elif self._classes is None:
            target.state = (state,)  # of a class with __setstate__, in a trusted file
        else:
            raise ForgedError("an object has a state that torch.jit.save does not write")
        self._stack.append(target)

    def call(self) -> None:
        """Call a function, or make a named tuple or a member of an enumeration."""
        function, arguments = self._last(2)
        if _is_own(function):
            self._stack.append(self._own(function.name, arguments))
            return
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise ForgedError("calls what is no function")
        self._stack.append(_called(function.name, arguments))

    def _own(self, name: str, arguments: Any) -> _Object:
        """A named tuple, or a member of an enumeration."""
        if self._classes is not None:
            code = self._classes.get(name)
            kind = "" if code is None else code.kind
            # For a value that is no member, torch would make nothing, and use it.
            is_member = kind == "Enum" and _is_member(arguments, self._classes[name].members)
            is_tuple = kind == "NamedTuple" and isinstance(arguments, tuple)
            if not is_member and not is_tuple:
                raise ForgedError(f"makes a value of {name[:80]!r} that it does not have")
        return _Object(name, arguments)

    def load_storage(self) -> None:
        """Take the persistent id of a storage: ("storage", type, record, device, elements)."""
        (persistent_id,) = self._last(1)
        if not isinstance(persistent_id, tuple) or len(persistent_id) != 5:
            raise ForgedError("a storage has no type")
        _, kind, record, _, elements = persistent_id
        if not isinstance(kind, _Global):
            raise ForgedError("a storage has no type")
        item_name, _, suffix = kind.name.removeprefix("torch.").rpartition("Storage")
        item_bytes = _ITEM_BYTES.get(item_name)
        is_sound = isinstance(record, str) and _is_size(elements) and not suffix
        if item_bytes is None or not is_sound:
            raise ForgedError(f"a storage is of type {kind.name[:60]!r}")
        # torch would take the claimed number of elements, and read memory behind the record.
        needed = elements * item_bytes
        stored = self._size_of(record)
        if needed > stored:
            raise ForgedError(f"claims {needed} bytes of {record[:60]!r}, which has {stored}")
        self._stack.append(_Storage(elements))

    def _top(self) -> Any:
        """The last value, which stays on the stack."""
        self._need(1)
        return self._stack[-1]

    def _need(self, number: int) -> None:
        """Refuse to reach below the last mark, or below the stack."""
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) - number < floor:
            raise ForgedError("ends within a value")

    def _last(self, number: int) -> list[Any]:
        """Take the last values from the stack."""
        self._need(number)
        values = self._stack[-number:]
        del self._stack[-number:]
        return values

    def _since_mark(self) -> list[Any]:
        """Take the values since the last mark from the stack."""
        if not self._marks or self._marks[-1] > len(self._stack):
            raise ForgedError("ends within a value")
        begin = self._marks.pop()
        values = self._stack[begin:]
        del self._stack[begin:]
        return values

    def _container(self, kind: type) -> Any:
        """The list or dictionary at the top, for filling."""
        top = self._top()
        # For an object, the same instruction would call its methods.
        if type(top) is not kind:
            raise ForgedError(f"fills what is no {kind.__name__}")
        return top


_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"), lambda value: value
    ),
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
    # torch would make an object of a compiled library's class, and run its code.
    if _CLASSES in name:
        what = f"holds an object of {name[:80]}, a class of a library"
        raise UnsupportedError(what, "export it with tensors only")
    is_storage = name.startswith("torch.") and name.count(".") == 1 and last.endswith("Storage")
    if not is_storage and name not in _FUNCTIONS and not _OWN_CLASS.fullmatch(name):
        raise ForgedError(f"names {name[:80]!r}, which torch.jit.save does not write")
    return _Global(name)


def _called(name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of one of torch's functions."""
    if name == _REBUILD:
        _check_extent(arguments)
        return _Tensor()
    if name == _EMPTY and arguments == ():
        return {}
    if name in _LISTS and len(arguments) == 1 and isinstance(arguments[0], list):
        return arguments[0]
    # The type of the elements is not used: attributes are compared with the source's types.
    if name == _TAG and len(arguments) == 2:
        container, element_type = arguments
        if type(container) in (list, dict) and isinstance(element_type, str):
            return container
    raise ForgedError(f"calls {name[:80]!r} as torch.jit.save does not")


def _check_extent(arguments: tuple[Any, ...]) -> None:
    """Refuse a tensor (storage, offset, shape, strides, ...) that reaches beyond its storage."""
    if len(arguments) < 4 or not isinstance(arguments[0], _Storage):
        raise ForgedError("a tensor has no storage")
    storage, offset, shape, strides = arguments[:4]
    are_tuples = isinstance(shape, tuple) and isinstance(strides, tuple)
    if not are_tuples or len(shape) != len(strides):
        raise ForgedError("a tensor has no shape")
    # A negative offset or stride would reach memory before the storage.
    if not all(map(_is_size, (offset, *shape, *strides))):
        raise ForgedError(f"a tensor has the shape {shape} and strides {strides}"[:200])
    if 0 in shape:
        return
    # The index of the last element. Python's integers do not overflow, as torch's do.
    axes = zip(shape, strides, strict=True)
    last = offset + sum((size - 1) * stride for size, stride in axes)
    if last >= storage.elements:
        what = f"a tensor of shape {shape} reaches beyond its {storage.elements} stored elements"
        raise ForgedError(what[:200])


def _is_size(value: object) -> bool:
    """Whether a value is a whole number from 0; a bool is none."""
    return type(value) is int and value >= 0


def _is_member(value: object, members: Sequence[object]) -> bool:
    """Whether a value is among the members, by value and type: 1 is not 1.0 or True."""
    return any(type(member) is type(value) and member == value for member in members)


def _is_own(value: object) -> bool:
    """Whether this is a class that the file defines."""
    return isinstance(value, _Global) and _OWN_CLASS.fullmatch(value.name) is not None


def check_types(value: Any, name: str, classes: Classes) -> None:
    """Refuse values of another type than the file's source declares.

    torch does not compare them, and its compiled code relies on the declared types.

    Args:
        value: of a pickle.
        name: of the pickle.
        classes: of the file.

    Raises:
        ForgedError: an attribute has another type, or is missing.
    """
    if name == "constants.pkl":
        if not isinstance(value, tuple) or not all(isinstance(part, _Tensor) for part in value):
            raise ForgedError("has constants that are no tensors")
    elif name == "data.pkl":
        if not isinstance(value, _Object) or not isinstance(value.state, dict):
            raise ForgedError("is no module")
        _check_objects(value, classes)


def _check_objects(root: _Object, classes: Classes) -> None:
    """Compare the attributes of an object, and of all objects in them, with their declarations."""
    seen = set[int]()  # ids of objects, which may refer to each other in a circle
    waiting: list[tuple[Any, ast.expr | None]] = [(root, None)]
    while waiting:
        value, declared = waiting.pop()
        if declared is not None:
            waiting += _parts(value, declared)
        if isinstance(value, _Object) and id(value) not in seen:
            seen.add(id(value))
            waiting += _fields(value, classes)


def _fields(value: _Object, classes: Classes) -> list[tuple[Any, ast.expr | None]]:
    """The attributes of an object with their declared types."""
    code = classes.get(value.kind)
    if code is None:
        raise ForgedError(
            f"has an object of {value.kind[:80]!r}, a class that the file does not have"
        )
    if code.kind == "Enum":
        return []
    if code.kind == "NamedTuple":
        if not isinstance(value.state, tuple) or len(value.state) != len(code.attributes):
            raise ForgedError(f"an object of {value.kind[:80]!r} has other fields than its class")
        return list(zip(value.state, code.attributes.values(), strict=True))
    if not isinstance(value.state, dict) or value.state.keys() != code.attributes.keys():
        raise ForgedError(f"an object of {value.kind[:80]!r} has other attributes than its class")
    return [(value.state[name], declared) for name, declared in code.attributes.items()]


def _parts(value: Any, declared: ast.expr) -> list[tuple[Any, ast.expr | None]]:
    """The values inside a value, with their types; none for a plain value of the declared type.

    Raises:
        ForgedError: the value is of another type than the declared one.
    """
    written = ast.unparse(declared)
    if isinstance(declared, ast.Subscript):
        container = ast.unparse(declared.value)
        inner = declared.slice
        kinds = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        if container == "Optional":
            return [] if value is None else [(value, kinds[0])]
        if container == "List" and type(value) is list:
            return [(part, kinds[0]) for part in value]
        if container == "Tuple" and type(value) is tuple and len(value) == len(kinds):
            return list(zip(value, kinds, strict=True))
        if container == "Dict" and type(value) is dict:
            parts: list[tuple[Any, ast.expr | None]] = []
            for pair in value.items():
                parts += zip(pair, kinds, strict=True)
            return parts
    elif isinstance(value, _Object):
        if value.kind == written:
            return []
    elif type(value) is _PLAIN_TYPES.get(written):
        return []
    raise ForgedError(f"an attribute of type {written[:80]!r} has a value of another type")


_PLAIN_TYPES = {
    "Tensor": _Tensor,
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "NoneType": type(None),
}
