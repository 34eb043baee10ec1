"""Do these weights fit this network, and are they numbers?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.text import clipped


def fit_state(network: nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Load a state dict into a network, every key and every shape checked.

    Raises:
        ModelError: keys are missing or unexpected, or shapes differ; the first few are named.
    """
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]  # old files have no such counter
    unexpected = [key for key in tensors if key not in wanted]
    complaints = []
    if missing:
        complaints.append(f"{len(missing)} of {len(wanted)} tensors are missing ({_few(missing)})")
    if unexpected:
        complaints.append(f"{len(unexpected)} are not the architecture's ({_few(unexpected)})")
    if complaints:
        raise ModelError(where, ", ".join(complaints), "check architecture and architecture_options")
    differing = [key for key in wanted if key in tensors and wanted[key].shape != tensors[key].shape]
    if differing:
        shown = [f"{key} is {_shape(tensors[key])}, the architecture has {_shape(wanted[key])}" for key in differing]
        raise ModelError(
            where, f"{len(differing)} of {len(wanted)} tensors have another shape: {_few(shown)}", _hint(wanted, tensors, differing)
        )
    for key in wanted:
        if key in tensors and (kind := _odd(tensors[key])):
            raise ModelError(where, f"the tensor {key} is {kind}", "save it as plain dense numbers, like those of state_dict()")
    network.load_state_dict(dict(tensors))


def _odd(tensor: torch.Tensor) -> str:
    """What keeps a tensor from being plain real numbers in memory; empty where nothing does."""
    if tensor.layout is not torch.strided:
        return f"sparse ({tensor.layout})"
    if tensor.is_meta:
        return "without data (a meta tensor)"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype})"
    return "complex" if tensor.is_complex() else ""


def _hint(wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], differing: list[str]) -> str:
    """Say num_classes when only the last layer's number of rows differs."""
    last = [key for key in wanted if wanted[key].is_floating_point()][-2:]
    key = differing[-1]
    if set(differing) <= set(last) and tensors[key].dim() and tensors[key].shape[1:] == wanted[key].shape[1:]:
        return f"the last layer has {tensors[key].shape[0]} rows: write architecture_options: {{num_classes: {tensors[key].shape[0]}}}"
    return "check architecture and architecture_options"


def _few(names: Iterable[str], most: int = 3) -> str:
    names = [clipped(name, 120) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"
