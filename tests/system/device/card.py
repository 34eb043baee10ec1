"""The pretended card: tensors that say cuda:0 and lie on the CPU, and the modes that keep torch's
rules and count."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import robaudit
from tests.system.device.rules import CUDA, check, launches, name_of, tensors_in, waits

_PACKAGE = str(Path(robaudit.__file__).parent)
_HOST = torch.device("cpu")
# with an index: robaudit's and torch's own use of "meta" has none
_NATIVE = torch.device("meta", 0)
_TOTAL = 8 * 2**30


class Card:
    """What the device was asked to do.

    Attributes:
        syncs: how often the host waited for it: values, sizes and copies in either direction.
        launches: operators that started work.
        syncs_by_line, launches_by_line: the same by line of robaudit ("estimators/mc.py:101";
            "outside" where none is on the stack).
        name: its model.
    """

    def __init__(self, name: str = "Pretended Card") -> None:
        self.name = name
        self.begun = False
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        self.syncs_by_line: Counter[str] = Counter()
        self.launches_by_line: Counter[str] = Counter()

    @property
    def syncs(self) -> int:
        """How often the host waited for the device."""
        return self.syncs_by_line.total()

    @property
    def launches(self) -> int:
        """How many operators started work on it."""
        return self.launches_by_line.total()

    def wait(self, times: int = 1) -> None:
        """Count synchronisations at the line of robaudit that is being executed."""
        if times:
            self.syncs_by_line[_line()] += times

    def launch(self) -> None:
        """Count an operator."""
        self.launches_by_line[_line()] += 1

    def text(self, lines: int = 10) -> str:
        """The lines of robaudit that cause most synchronisations and launches, so many of each."""
        parts = []
        for what, counted in (
            ("synchronisations", self.syncs_by_line),
            ("launches", self.launches_by_line),
        ):
            parts.append(f"{counted.total()} {what}")
            parts += [f"  {number:8}  {line}" for line, number in counted.most_common(lines)]
        return "\n".join(parts)


def _line() -> str:
    """The innermost line of robaudit on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename[len(_PACKAGE) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "outside"


class _OnDevice(Tensor):
    """A tensor of the device. Natively it is on torch's meta device: with a native cuda device,
    backward would start CUDA's threads."""

    host: Tensor
    card: Card

    @staticmethod
    def __new__(cls, host: Tensor, card: Card, requires_grad: bool = False) -> _OnDevice:
        made = Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=_NATIVE,
            requires_grad=requires_grad,
        )
        made.host = host
        made.card = card
        card.begun = True
        found: _OnDevice = made
        return found

    device = property(lambda _: CUDA)
    is_cuda = property(lambda _: True)
    is_meta = property(lambda _: False)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.host!r} on cuda:0"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = _OnDevice(self.host.clone(), self.card, requires_grad=self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copy._is_param = True
        memo[id(self)] = copy
        return copy

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        card = next(
            tensor.card
            for tensor in tensors_in((args, kwargs or {}))
            if isinstance(tensor, _OnDevice)
        )
        return _execute(card, func, args, kwargs or {})


def _on_device(tensor: Tensor) -> bool:
    return isinstance(tensor, _OnDevice)


def _execute(card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU if torch would run it where its tensors are, and wrap what comes
    out."""
    tensors = list(tensors_in((args, kwargs)))
    target = kwargs.get("device")
    ours = [tensor for tensor in tensors if isinstance(tensor, _OnDevice)]
    if not ours and target != _NATIVE:
        return func(*_tensor_first(func, args), **kwargs)
    if torch.Tag.inplace_view in func.tags:
        raise NotImplementedError(
            f"{func.name()} changes the shape of a tensor in place, which the pretended device "
            "cannot"
        )
    if tensors:
        check(func, args, kwargs, _on_device)
    card.wait(waits(func, args, kwargs, _on_device))
    known = {id(tensor.host): tensor for tensor in ours}
    on_host = {key: _changed(value, _to_host) for key, value in kwargs.items()}
    if target is not None:
        on_host["device"] = _HOST
    copied = func(*_changed(args, _to_host), **on_host)
    if launches(func):
        card.launch()
    stays = target is not None and target != _NATIVE
    if stays or (name_of(func) == "aten::copy_" and not _on_device(args[0])):
        return copied
    view = bool(ours) and func.is_view

    def wrapped(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return known[id(one)] if id(one) in known else _OnDevice(one, card)

    with torch.inference_mode(
        torch.is_inference_mode_enabled() and not (view and not ours[0].is_inference())
    ):
        return _changed(copied, wrapped)


def _to_host(one: Any) -> Any:
    return one.host if isinstance(one, _OnDevice) else one


def _changed(found: Any, change: Callable[[Any], Any]) -> Any:
    """Nested lists and tuples with their members changed."""
    if isinstance(found, list | tuple):
        return (
            type(found)([_changed(one, change) for one in found])
            if type(found) in (list, tuple)
            else change(found)
        )
    return change(found)


def _tensor_first(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with a tensor where torch has made a number of one: a constant of a network
    that autograd keeps."""
    if (
        args
        and isinstance(args[0], float | int)
        and isinstance(func._schema.arguments[0].type, torch.TensorType)
    ):
        return torch.tensor(
            args[0], dtype=torch.float64 if isinstance(args[0], float) else None
        ), *args[1:]
    return args


class _Rules(TorchDispatchMode):
    """Every operator of a thread goes through :func:`_execute`."""

    def __init__(self, card: Card) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._card = card

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            torch.is_inference_mode_enabled() and func._can_decompose()
        ):  # there, torch leaves to the mode what it is made of
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return _execute(self._card, func, args, kwargs or {})


class _Generator(torch.Generator):
    """A generator that says where it is; its numbers are those of the CPU's."""

    place: torch.device

    def __new__(cls, device: torch.device | str = "cpu") -> _Generator:
        made = super().__new__(cls)
        made.place = CUDA if torch.device(device).type == "cuda" else torch.device(device)
        return made

    device = property(lambda self: self.place)


class _Names(TorchFunctionMode):
    """What torch decides before an operator is reached: devices by name, generators, and ways to
    the host that are no operators."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.device:
            return func(*args, **kwargs)
        ours = bool(args) and isinstance(args[0], _OnDevice)
        if ours and name in ("numpy", "__array__", "__array_interface__", "__dlpack__"):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        if ours and name == "tolist":
            self._card.wait()
            return args[0].detach().host.tolist()
        if ours and name in ("data_ptr", "get_device"):
            return args[0].host.data_ptr() if name == "data_ptr" else 0
        if ours and func == Tensor.data.__set__:  # type: ignore[attr-defined]
            args[0].host = args[1].host
        if ours and name in ("__getitem__", "__setitem__"):
            args = (args[0], _index(args[1]), *args[2:])
        if name == "cuda":
            name = "to"
            func = Tensor.to
            args = (args[0], CUDA)
        if name == "to":
            args = tuple(torch.device(one) if isinstance(one, str) else one for one in args)
        _check_generator(args, kwargs)
        args = _changed(args, _renamed)
        kwargs = {
            key: _renamed(_place(value) if key == "device" else value)
            for key, value in kwargs.items()
        }
        if func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor):
            return self._from_data(func, args, kwargs)
        return func(*args, **kwargs)

    def _from_data(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """torch makes such a tensor on the CPU and copies it; natively ours would stay without
        numbers."""
        data = args[1] if func is Tensor.new_tensor else args[0]
        target = kwargs.pop("device", None)
        needs_gradient = kwargs.pop("requires_grad", False)
        if isinstance(data, Tensor):
            made = data.detach().clone() if func in (torch.tensor, Tensor.new_tensor) else data
            made = made.to(kwargs.get("dtype") or made.dtype)
        elif func is Tensor.new_tensor:
            target = target or (_NATIVE if isinstance(args[0], _OnDevice) else None)
            made = torch.tensor(data, dtype=kwargs.get("dtype") or args[0].dtype)
        else:
            made = func(*args, **kwargs)
        made = made if target is None else made.to(target)
        return made.requires_grad_() if needs_gradient else made


def _index(index: Any) -> Any:
    """An index with its lists as tensors on the device: natively torch would make them there
    without numbers."""
    if isinstance(index, tuple):
        return tuple(_index(one) for one in index)
    if not isinstance(index, list | range | np.ndarray):
        return index
    return torch.tensor(index, dtype=None if len(index) else torch.int64).to(_NATIVE)


def _place(value: Any) -> Any:
    return (
        torch.device(value)
        if isinstance(value, str)
        else torch.device("cuda", value)
        if isinstance(value, int)
        else value
    )


def _renamed(value: Any) -> Any:
    """The native device where the pretended one is meant."""
    if not isinstance(value, torch.device) or value.type != "cuda":
        return value
    if value.index not in (None, 0):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return _NATIVE


def _check_generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A generator draws on its own device only."""
    generator = kwargs.get("generator")
    if generator is None:
        return
    first = next(tensors_in((args, kwargs)), None)
    place = _place(kwargs.get("device")) or (_HOST if first is None else first.device)
    if place.type != generator.device.type:
        raise RuntimeError(
            f"Expected a '{place.type}' device type for generator but found "
            f"'{generator.device.type}'"
        )


@contextmanager
def _modes(card: Card) -> Iterator[None]:
    """The modes, which torch keeps by thread."""
    with _Rules(card), _Names(card):
        yield


@contextmanager
def pretended(name: str = "Pretended Card") -> Iterator[Card]:
    """A machine with one CUDA device within the block; what it did is in the card."""
    card = Card(name)
    run = threading.Thread.run

    def run_with_card(thread: threading.Thread) -> None:
        with _modes(card):
            run(thread)

    with pytest.MonkeyPatch.context() as patch, _modes(card):
        for function, answer in _answers(card).items():
            patch.setattr(torch.cuda, function, answer)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(threading.Thread, "run", run_with_card)
        yield card


def _answers(card: Card) -> dict[str, Callable[..., Any]]:
    """What torch.cuda says about the card, whose memory always looks free."""
    about = SimpleNamespace(
        name=card.name, total_memory=_TOTAL, major=9, minor=0, multi_processor_count=8
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: card.begun,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_name": lambda *_: card.name,
        "get_device_properties": lambda *_: about,
        "get_device_capability": lambda *_: (9, 0),
        "synchronize": lambda *_: card.wait(),
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (_TOTAL, _TOTAL),
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": lambda *_: None,
    }
