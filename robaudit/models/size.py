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
# The most modules, parameters and buffers: so many for each tensor in the file (networks of
# torchvision and timm have up to 4.3), and so many in addition.
_PARTS_PER_TENSOR = 10
_MORE_PARTS = 1_000

# The most numbers in them: so many for each number in the file (networks of torchvision and timm
# have up to 1.2, with unsaved buffers), and so many in addition.
_NUMBERS_PER_NUMBER = 2
_MORE_NUMBERS = 20_000_000

_ALWAYS_ALLOWED = 100_000
"""The largest value of an option that any file may have: a small file may belong to a network for
large images."""


def build_on_trial(
    tensors: Mapping[str, torch.Tensor],
    where: str,
    network: str,
    options: Mapping[str, Any],
    build: Callable[[], T],
) -> T:
    """Build a network on trial, and stop once it is clearly larger than its weights file.

    A small file with hostile options could otherwise fill the memory. The trial is on torch's meta
    device, where weights take no memory; in memory if the builder needs their values.

    Args:
        tensors: the weights, already read.
        where: their file.
        network: its name, for messages.
        options: its options, from the user or the model's configuration.
        build: the builder.

    Raises:
        ModelError: it has clearly more parts or numbers, or an option (the sum of a list) exceeds
            both 100,000 and the count of numbers in the file.
        Exception: from the builder.
    """
    try:
        with _no_larger(tensors, where, network, options), torch.device("meta"):
            return build()
    except ModelError:
        raise
    except Exception:  # noqa: BLE001  the builder reads values, or raises the same error below
        with _no_larger(tensors, where, network, options):
            return build()


@contextmanager
def _no_larger(
    tensors: Mapping[str, torch.Tensor], where: str, network: str, options: Mapping[str, Any]
) -> Iterator[None]:
    """Refuse networks that are built within the block and clearly larger than these tensors."""
    # By storage: tensors may share one, and an expanded tensor holds fewer numbers than its shape
    # says.
    numbers_by_storage = {}
    for tensor in tensors.values():
        storage = tensor.untyped_storage()
        numbers_by_storage[storage.data_ptr()] = storage.nbytes() // tensor.itemsize
    stored = sum(numbers_by_storage.values())
    file = f"holds {count(len(tensors), 'tensor')} with {stored:,} numbers"
    for option, value in options.items():
        if _largest(value) > max(stored, _ALWAYS_ALLOWED):
            raise ModelError(
                where,
                f"{file}, too few for {network} with {clipped(f'{option}: {value}', 80)}",
                _REMEDY,
            )
    most_parts = _PARTS_PER_TENSOR * len(tensors) + _MORE_PARTS
    most_numbers = _NUMBERS_PER_NUMBER * stored + _MORE_NUMBERS
    parts = 0
    numbers = 0

    def registered(_module: object, _name: str, value: object) -> None:
        """Count what a module registers; torch calls this before the next part is built."""
        nonlocal parts, numbers
        parts += 1
        numbers += value.numel() if isinstance(value, torch.Tensor) else 0
        if parts > most_parts or numbers > most_numbers:
            listed = ", ".join(f"{option}: {value}" for option, value in options.items())
            with_options = f" with {clipped(listed, 200)}" if listed else ""
            raise ModelError(where, f"{file}; {network} has many more{with_options}", _REMEDY)

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
    """The largest number in an option; for a list, the sum of its numbers."""
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    # The depth of a network is often the sum over its stages.
    if isinstance(value, list | tuple):
        return sum(map(_largest, value))
    # Python's integers have no limit, and would not add to a float beyond 1e308.
    return min(abs(value), 2**63) if isinstance(value, int | float) else 0
