"""Networks from files of plain tensors: the architecture by name, the weights by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.architectures import build_architecture
from robaudit.models.base import LoadedNetwork, Source, check_finite, file_sha256
from robaudit.models.safety import load_tensors
from robaudit.text import clipped

_NESTED = ("state_dict", "model_state_dict", "model")


def fit_state(network: nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Load a state dict into a network, every key and every shape checked.

    Raises:
        ModelError: keys are missing or unexpected, or shapes differ; the first few are named.
    """
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]  # old files lack this counter
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
    """Why a tensor is not plain real numbers in memory; empty where it is."""
    if tensor.layout is not torch.strided:
        return f"sparse ({tensor.layout})"
    if tensor.is_meta:
        return "without data (a meta tensor)"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype})"
    return "complex" if tensor.is_complex() else ""


def _hint(wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], differing: list[str]) -> str:
    """Suggest num_classes when only the last layer's number of rows differs."""
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


def load_safetensors(source: Source) -> LoadedNetwork:
    """Load a .safetensors file into its architecture.

    Raises:
        ModelError: no architecture is given, the file is damaged, or the weights do not fit or are not finite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _needs_architecture(source, "safetensors holds weights only")
    try:
        tensors = load_file(source.file)
    except (RuntimeError, MemoryError) as error:  # torch's part: mapping the file
        raise ModelError(source.where, f"cannot be mapped into memory ({error})", "give a smaller file, or more memory") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelError(
            source.where, f"is not a complete safetensors file ({error})", "the file is truncated or damaged; save it again"
        ) from error
    return _fill(source, tensors, ())


def load_state_dict_file(source: Source) -> LoadedNetwork:
    """Load a state dict saved with ``torch.save`` into its architecture, with ``weights_only=True``.

    Raises:
        ModelError: it holds more than tensors, no architecture is given, or the weights do not fit or are not finite.
    """
    found = load_tensors(source.file, source.where)
    tensors = _tensors_of(found)
    if tensors is None:
        raise ModelError(source.where, f"holds {type(found).__name__}, not a state dict", "save model.state_dict() as safetensors")
    _needs_architecture(source, "is a state dict: weights only")
    return _fill(source, tensors, ("state dict of torch.save, read with weights_only; safetensors is the plainer format",))


def _fill(source: Source, tensors: dict[str, torch.Tensor], notes: tuple[str, ...]) -> LoadedNetwork:
    network = build_architecture(source)
    if tensors and all(key.startswith("module.") for key in tensors) and "module" not in dict(network.named_children()):
        tensors = {key.removeprefix("module."): tensor for key, tensor in tensors.items()}
        notes = (*notes, "the prefix 'module.' (DataParallel) was removed from every key")
    fit_state(network, tensors, source.where)
    network = network.to(device=source.device, dtype=source.dtype)
    check_finite(network, source.where)
    return LoadedNetwork(network, "safetensors", file_sha256(source.file), notes=notes)


def _needs_architecture(source: Source, what: str) -> None:
    if source.spec.architecture is None:
        raise ModelError(source.where, what, "add architecture: torchvision:NAME, robaudit:NAME or package.module:function")


def _tensors_of(found: Any) -> dict[str, torch.Tensor] | None:
    if not isinstance(found, Mapping):
        return None
    for key in _NESTED:
        if isinstance(found.get(key), Mapping):
            found = found[key]
    if found and all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in found.items()):
        return dict(found)
    return None
