"""A digest of a network or function in memory: its weights, its code, and the objects that it
uses."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST_OBJECTS = 10_000
_PLAIN = (bool, int, float, str)
_WRITTEN = (*_PLAIN, complex, bytes, type(None), torch.dtype, torch.device)


def fingerprint(value: object) -> str:
    """sha256 (hex) of a module or a callable, as far as Python shows it.

    The digest of a module covers its weights, its structure (its repr), its plain attributes and
    the code of its classes. The digest of a function covers its code, and the modules, tensors,
    arrays, numbers and functions that it reaches through its arguments, its closure, its globals
    and its instance. Compiled code is not covered.
    """
    digest = hashlib.sha256()
    seen = dict[int, object]()
    for text in _parts(value, seen):
        digest.update(text.encode("utf-8", "backslashreplace") + b"\x1f")
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, object]) -> Iterator[str]:
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
        yield from _parts(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), seen
        )
    elif isinstance(value, np.ndarray):
        content = (
            ""
            if value.dtype.kind == "O"
            else hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        )
        yield f"{value.dtype} {value.shape} {content}"
    elif isinstance(value, list | tuple | set | frozenset | Mapping):
        ordered = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for item in ordered.items() if isinstance(ordered, Mapping) else ordered:
            yield from _parts(item, seen)
    elif isinstance(value, functools.partial | types.MethodType):
        inner = (
            (value.func, value.args, value.keywords)
            if isinstance(value, functools.partial)
            else (value.__func__, value.__self__)
        )
        yield from _parts(inner, seen)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, type):
        yield from _class(value)
    elif isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        yield value.__name__
    else:
        yield from _class(type(value))
        yield from _parts(vars(value) if hasattr(value, "__dict__") else None, seen)


def _module(network: nn.Module) -> Iterator[str]:
    for name, tensor in network.state_dict().items():
        yield name
        yield from _parts(tensor, {})
    yield _ADDRESS.sub("", repr(network))
    for kind in dict.fromkeys(type(module) for module in network.modules()):
        yield from _class(kind)
    if isinstance(network, torch.jit.ScriptModule):
        yield str(network.inlined_graph)
        return
    for module in network.modules():
        yield str(
            {
                key: value
                for key, value in vars(module).items()
                if key[0] != "_" and key != "training" and isinstance(value, _PLAIN)
            }
        )


def _function(function: types.FunctionType, seen: dict[int, object]) -> Iterator[str]:
    yield from _code(function.__code__)
    used = [
        function.__globals__[name]
        for name in sorted(_names(function.__code__))
        if name in function.__globals__
    ]
    yield from _parts((function.__defaults__, function.__kwdefaults__, used), seen)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield from _parts(cell.cell_contents, seen)


def _class(kind: type) -> Iterator[str]:
    """The names of a class and its bases, and the code of their methods, except torch's and
    Python's."""
    for base in kind.__mro__:
        yield f"{base.__module__}.{base.__qualname__}"
        members = (
            ()
            if base.__module__.partition(".")[0] in ("builtins", "torch")
            else vars(base).values()
        )
        for member in members:
            function = getattr(member, "__func__", member)  # of a static method or a class method
            if isinstance(function, types.FunctionType):
                yield from _code(function.__code__)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield (
                repr(sorted(constant, key=repr))
                if isinstance(constant, frozenset)
                else repr(constant)
            )


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function and its inner functions may use."""
    inner = (
        _names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)
    )
    return set(code.co_names).union(*inner)
