"""How does a file of plain tensors become a network: the architecture by name, the weights by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from robaudit.errors import ModelError
from robaudit.models.archive import load_tensors
from robaudit.models.base import LoadedNetwork, Source, check_finite, file_sha256
from robaudit.models.resolve import build_architecture
from robaudit.models.state import fit_state

_NESTED = ("state_dict", "model_state_dict", "model")


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
            source.where, f"is not a whole safetensors file ({error})", "the file is truncated or damaged; save it again"
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
