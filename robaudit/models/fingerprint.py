"""A digest of a network or function in memory: its weights, its code, and the objects that it uses."""

from __future__ import annotations

import functools
import hashlib
import re
import types
from collections.abc import Callable, Iterator, Mapping
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

    The digest of a module covers its weights, its structure (its repr), its plain attributes and the code of its classes. The digest of
    a function covers its code, and the modules, tensors, arrays, numbers and functions that it reaches through its arguments, its
    closure, its globals and its instance. Compiled code is not covered.
    """
    digest, seen = hashlib.sha256(), dict[int, object]()
    for text in _parts(value, seen):
        digest.update(text.encode("utf-8", "backslashreplace") + b"\x1f")
    return digest.hexdigest()


def _parts(value: object, seen: dict[int, object]) -> Iterator[str]:
    if isinstance(value, _WRITTEN):
        yield repr(value)
        return
    if id(value) in seen or len(seen) > _MOST_OBJECTS:
        return
    seen[id(value)] = value  # kept alive, so that no other object gets its id
    if isinstance(value, nn.Module):
        yield from _module(value)
    elif isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        yield f"{plain.dtype} {tuple(plain.shape)} {_sha(plain.reshape(-1).view(torch.uint8).numpy())}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {_sha(value)}" if value.dtype.kind != "O" else "objects"
    elif isinstance(value, list | tuple | set | frozenset | Mapping):
        ordered = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for item in ordered.items() if isinstance(ordered, Mapping) else ordered:
            yield from _parts(item, seen)
    else:
        yield from _callable(value, seen)


def _module(network: nn.Module) -> Iterator[str]:
    yield from (_state(network), _ADDRESS.sub("", repr(network)))
    for kind in dict.fromkeys(type(module) for module in network.modules()):
        yield from _class(kind)
    if isinstance(network, torch.jit.ScriptModule):
        yield str(network.inlined_graph)
        return
    for name, module in network.named_modules():
        plain = {key: value for key, value in vars(module).items() if key[0] != "_" and key != "training" and isinstance(value, _PLAIN)}
        if plain:
            yield f"{name} {sorted(plain.items())}"


def _state(network: nn.Module) -> str:
    """sha256 (hex) over a module's state dict: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _callable(value: Any, seen: dict[int, object]) -> Iterator[str]:
    if isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, value.keywords), seen)
    elif isinstance(value, types.MethodType):
        yield from _parts((value.__func__, value.__self__), seen)
    elif isinstance(value, types.FunctionType):
        yield from _code(value.__code__)
        used = [value.__globals__[name] for name in sorted(_names(value.__code__)) if name in value.__globals__]
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        yield from _parts((value.__defaults__, value.__kwdefaults__, cells, used), seen)
    elif isinstance(value, type):
        yield from _class(value)
    elif isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        yield value.__name__
    else:
        yield from _class(type(value))
        yield from _parts(vars(value) if hasattr(value, "__dict__") else None, seen)


def _class(kind: type) -> Iterator[str]:
    """The names of a class and its bases, and the code of their methods, except torch's and Python's."""
    for base in kind.__mro__:
        yield f"{base.__module__}.{base.__qualname__}"
        members = () if base.__module__.partition(".")[0] in ("builtins", "torch") else vars(base).values()
        for member in members:
            function: Callable[..., Any] | Any = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if isinstance(function, types.FunctionType):
                yield from _code(function.__code__)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield repr(sorted(constant, key=repr)) if isinstance(constant, frozenset) else repr(constant)


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function and its inner functions may use."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _sha(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
