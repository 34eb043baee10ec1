"""A digest of a network or function in memory, over its weights, code, and the objects it uses."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in a repr, and another one in each process
_MOST_OBJECTS = 10_000  # a function may reach all of a program through its globals
_PLAIN = (bool, int, float, str)
_WRITTEN = (*_PLAIN, complex, bytes, type(None), torch.dtype, torch.device)  # as their repr
_CONTAINERS = (list, tuple, set, frozenset, Mapping, functools.partial, types.MethodType)


def fingerprint(value: object) -> str:
    """sha256 (hex) of a module or a callable, as far as Python shows it.

    The digest of a module covers its weights, its structure (its repr), its plain attributes and
    the code of its classes. The digest of a function covers its code, and the modules, tensors,
    arrays, numbers and functions that it reaches through its arguments, its closure, its globals
    and its instance. Compiled code is not covered.
    """
    digest = hashlib.sha256()
    seen = dict[int, object]()
    # A separator after each text: ("ab", "c") and ("a", "bc") differ.
    for text in _parts(value, seen):
        digest.update(text.encode("utf-8", "backslashreplace") + b"\x1f")
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, object]) -> Iterator[str]:
    """Texts that describe a value and the objects inside it.

    Args:
        value: any object.
        seen: the objects that have been described, by id; grows.
    """
    if isinstance(value, _WRITTEN):
        yield repr(value)
        return
    if id(value) in seen or len(seen) > _MOST_OBJECTS:
        return
    seen[id(value)] = value  # kept alive, so that no other object gets its id
    if isinstance(value, nn.Module):
        yield from _module(value)
    elif isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}"
        # As bytes: NumPy has no bfloat16.
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        yield from _parts(content.numpy(), seen)
    elif isinstance(value, np.ndarray):
        sha256 = ""
        if value.dtype.kind != "O":  # an array of objects has addresses for bytes
            sha256 = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        yield f"{value.dtype} {value.shape} {sha256}"
    elif isinstance(value, _CONTAINERS):
        for item in _contents(value):
            yield from _parts(item, seen)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, type):
        yield from _class(value)
    elif isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        yield value.__name__
    else:
        yield from _class(type(value))
        yield from _parts(vars(value) if hasattr(value, "__dict__") else None, seen)


def _contents(container: Any) -> Iterable[Any]:
    """The objects inside a container, a partial or a method; of a mapping, its pairs."""
    if isinstance(container, functools.partial):
        return [(container.func, container.args, container.keywords)]
    if isinstance(container, types.MethodType):
        return [(container.__func__, container.__self__)]
    if isinstance(container, Mapping):
        return container.items()
    # The order of a set differs between processes.
    if isinstance(container, set | frozenset):
        return sorted(container, key=repr)
    return container  # type: ignore[no-any-return]


def _module(network: nn.Module) -> Iterator[str]:
    """The weights, structure, code and plain attributes of a module."""
    for name, tensor in network.state_dict().items():
        yield name
        yield from _parts(tensor, {})
    yield _ADDRESS.sub("", repr(network))
    for kind in dict.fromkeys(type(module) for module in network.modules()):
        yield from _class(kind)
    # The class of a scripted module is torch's own; its code is the graph.
    if isinstance(network, torch.jit.ScriptModule):
        yield str(network.inlined_graph)
        return
    for module in network.modules():
        plain = {}
        for key, value in vars(module).items():
            # The mode is left out: an audit sets it.
            is_own = not key.startswith("_") and key != "training"
            if is_own and isinstance(value, _PLAIN):
                plain[key] = value
        yield str(plain)


def _function(function: types.FunctionType, seen: dict[int, object]) -> Iterator[str]:
    """The code of a function, and all values that it can reach."""
    yield from _code(function.__code__)
    names = sorted(_names(function.__code__))
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from _parts((function.__defaults__, function.__kwdefaults__, used), seen)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield from _parts(cell.cell_contents, seen)


def _class(kind: type) -> Iterator[str]:
    """The names of a class and its bases, and the code of their methods.

    The code of torch and Python is left out: another version is no other network.
    """
    for base in kind.__mro__:
        yield f"{base.__module__}.{base.__qualname__}"
        if base.__module__.partition(".")[0] in ("builtins", "torch"):
            continue
        for member in vars(base).values():
            function = getattr(member, "__func__", member)  # of a static method or a class method
            if isinstance(function, types.FunctionType):
                yield from _code(function.__code__)


def _code(code: types.CodeType) -> Iterator[str]:
    """The instructions, names and constants of a function and its inner functions."""
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(constant, key=repr))
        else:
            yield repr(constant)


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function and its inner functions may use."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))
