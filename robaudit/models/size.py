"""Limit the size of a network while it is built, by the size of its weights file."""

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
"""The limit on modules, parameters and buffers: per tensor in the file (torchvision and timm: up to
4.3), and in addition."""
_NUMBERS = 2, 20_000_000
"""The limit on their numbers: per number in the file (torchvision and timm: up to 1.2, with unsaved
buffers), and in addition."""
_OPTION = 100_000
"""Option values up to this are always allowed: a small file may belong to a network for large
images."""


def rehearsed(
    tensors: Mapping[str, torch.Tensor],
    where: str,
    network: str,
    options: Mapping[str, Any],
    build: Callable[[], T],
) -> T:
    """Build a network on trial, and stop as soon as it has clearly more parts or numbers than its
    weights file.

    The trial is on torch's meta device, where weights take no memory; in memory if the builder
    needs their values.

    Args:
        tensors: the weights, already read.
        where: their file.
        network: its name, for messages.
        options: its options, from the user or the model's configuration.
        build: the builder.

    Raises:
        ModelError: it is larger, or an option (the sum of a list) exceeds both 100,000 and the
            count of numbers in the file.
        Exception: from the builder.
    """
    try:
        with _no_larger(tensors, where, network, options), torch.device("meta"):
            return build()
    except ModelError:
        raise
    except Exception:  # noqa: BLE001  the builder reads values, or raises the same below
        with _no_larger(tensors, where, network, options):
            return build()


@contextmanager
def _no_larger(
    tensors: Mapping[str, torch.Tensor], where: str, network: str, options: Mapping[str, Any]
) -> Iterator[None]:
    storages = {
        storage.data_ptr(): storage.nbytes() // tensor.itemsize
        for tensor in tensors.values()
        for storage in [tensor.untyped_storage()]
    }
    stored = sum(storages.values())  # an expanded tensor holds fewer than its shape says
    file = f"holds {count(len(tensors), 'tensor')} with {stored:,} numbers"
    for option, value in options.items():
        if _largest(value) > max(stored, _OPTION):
            raise ModelError(
                where,
                f"{file}, too few for {network} with {clipped(f'{option}: {value}', 80)}",
                _REMEDY,
            )
    parts = numbers = 0

    def registered(_module: object, _name: str, value: object) -> None:
        nonlocal parts, numbers
        parts += 1
        numbers += value.numel() if isinstance(value, torch.Tensor) else 0
        if (
            parts > _PARTS[0] * len(tensors) + _PARTS[1]
            or numbers > _NUMBERS[0] * stored + _NUMBERS[1]
        ):
            shown = clipped(
                ", ".join(f"{option}: {value}" for option, value in options.items()), 200
            )
            raise ModelError(
                where, f"{file}; {network} has many more{shown and f' with {shown}'}", _REMEDY
            )

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
    """The largest number in an option; for a list, the sum: the depth of a network is often the sum
    over its stages."""
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, list | tuple):
        return sum(map(_largest, value))
    return min(abs(value), 2**63) if isinstance(value, int | float) else 0
