"""Limit the size of a network while it is built, judged by the weights it will hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.nn.modules import module as modules

from robaudit.errors import ModelError
from robaudit.text import clipped, count

T = TypeVar("T")
_REMEDY = "check the architecture's options; weights and architecture must be of the same model"
_PARTS = 10, 1_000
"""Modules, parameters and buffers: so many for each tensor in the file (torchvision's and timm's networks have up to 4.3), and more."""
_NUMBERS = 2, 20_000_000
"""Numbers in them: so many for each number in the file (torchvision's and timm's: up to 1.2, with what is not saved), and more."""
_OPTION = 100_000
"""Options up to this are always allowed: a small file may belong to large images."""


def build_within(
    tensors: Mapping[str, torch.Tensor],
    where: str,
    network: str,
    options: Mapping[str, Any],
    build: Callable[[], T],
    *,
    meta: bool,
) -> T:
    """Build a network, and stop as soon as it has clearly more parts or numbers than the file of its weights.

    Args:
        tensors: the weights, already read.
        where: their file.
        network: its name, for messages.
        options: what the user, or the model's configuration, says about it.
        build: builds it.
        meta: on torch's meta device, where weights take no memory; in memory if the builder needs their values.

    Raises:
        ModelError: it is larger, or an option (the sum of a list) exceeds the number of numbers in the file and 100,000.
        Exception: what the builder raises.
    """
    if meta:
        try:
            with _no_larger(tensors, where, network, options), torch.device("meta"):
                return build()
        except ModelError:
            raise
        except Exception:  # noqa: S110, BLE001  it reads values, or raises the same below
            pass
    with _no_larger(tensors, where, network, options):
        return build()


@contextmanager
def _no_larger(tensors: Mapping[str, torch.Tensor], where: str, network: str, options: Mapping[str, Any]) -> Iterator[None]:
    storages = {
        storage.data_ptr(): storage.nbytes() // tensor.itemsize for tensor in tensors.values() for storage in [tensor.untyped_storage()]
    }
    held = sum(storages.values())  # an expanded tensor holds fewer than its shape says
    file = f"holds {count(len(tensors), 'tensor')} with {held:,} numbers"
    for option, value in options.items():
        if _largest(value) > max(held, _OPTION):
            raise ModelError(where, f"{file}, too few for {network} with {clipped(f'{option}: {value}', 80)}", _REMEDY)
    parts = numbers = 0

    def registered(_module: object, _name: str, value: object) -> None:
        nonlocal parts, numbers
        parts += 1
        numbers += value.numel() if isinstance(value, torch.Tensor) else 0
        if parts > _PARTS[0] * len(tensors) + _PARTS[1] or numbers > _NUMBERS[0] * held + _NUMBERS[1]:
            shown = clipped(", ".join(f"{option}: {value}" for option, value in options.items()), 200)
            raise ModelError(where, f"{file}; {network} has many more{shown and f' with {shown}'}", _REMEDY)

    hooks = [
        modules.register_module_parameter_registration_hook(registered),
        modules.register_module_buffer_registration_hook(registered),
        modules.register_module_module_registration_hook(registered),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _largest(value: object) -> float:
    """The largest number in an option; of a list, the sum: the depth of a network is often the sum over its stages."""
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, list | tuple):
        return sum(map(_largest, value))
    return min(abs(value), 2**63) if isinstance(value, int | float) else 0
