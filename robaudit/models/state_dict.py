"""Weights from a state dict or a checkpoint of ``torch.save``, read without the code in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from robaudit.errors import ModelError, did_you_mean
from robaudit.models.formats import Format, LoadedNetwork, Source
from robaudit.models.safety import load_tensors
from robaudit.models.weights import AVERAGED, few, fill, quantised, under

_PLAIN = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "module",
    "weights",
    "params",
)


def load_state_dict_file(source: Source) -> LoadedNetwork:
    """Load a state dict or checkpoint of ``torch.save`` into its architecture, with
    ``weights_only=True``.

    Without an entry in the spec it is the first usual key, plain weights before averaged weights
    (EMA).

    Raises:
        ModelError: there is no state dict, or none under this key.
    """
    tensors, notes = _chosen(load_tensors(source.file), source.spec.entry, source.where)
    read = "state dict of torch.save: only its numbers are read, no code in it runs"
    return fill(source, FORMAT.name, tensors, (read, *notes))


def _recognises(head: bytes, members: Sequence[str]) -> bool:
    # a legacy torch.save or a bare pickle
    pickled = len(head) > 1 and head[0] == 0x80 and head[1] <= 5
    return pickled or "data.pkl" in members


FORMAT = Format("state dict", load_state_dict_file, (".pth",), _recognises, only_weights=True)


def _chosen(
    content: Any, entry: str | None, where: str
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The state dict in a file's contents, or in an entry of a checkpoint; and notes on the entry
    and on the other entries."""
    if not isinstance(content, Mapping):
        raise ModelError(
            where,
            f"holds {type(content).__name__}, not a state dict",
            "save model.state_dict() as safetensors",
        )
    states = {
        str(key): state for key, value in content.items() if (state := _state(value)) is not None
    }
    if entry is not None:
        return _entry(content, states, entry, where)
    if _is_state(content):
        return dict(content), ()
    names = [name for name in (*_PLAIN, *AVERAGED) if name in states] or (
        list(states) if len(states) == 1 else []
    )
    if not names:
        raise _refusal(content, states, where)
    others = [name for name in states if name != names[0]]
    note = f"the weights are those under the key {names[0]!r}"
    if others:
        note += f"; the file also has {', '.join(others)}: choose with model.entry: {others[0]}"
    left_out = sorted(
        {
            str(key)
            for key, value in content.items()
            if str(key) != names[0] and str(key) not in others
        }
    )
    if left_out:
        note += f"; not read: {few(left_out, 6)}"
    return states[names[0]], (note,)


def _entry(
    content: Mapping[Any, Any],
    states: Mapping[str, dict[str, torch.Tensor]],
    entry: str,
    where: str,
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The state dict under a key of the checkpoint, or the tensors under a prefix of its keys.

    Raises:
        ModelError: there is neither.
    """
    if entry in states:
        return states[entry], (f"the weights are those under the key {entry!r}",)
    for state in [dict(content)] if _is_state(content) else states.values():
        if part := under(state, f"{entry}."):
            return part, (f"the weights are those under the prefix '{entry}.'",)
    remedy = did_you_mean(entry, states) if states else "remove model.entry"
    raise ModelError(where, f"has no weights under the key {entry!r}", remedy)


def _refusal(content: Mapping[Any, Any], states: Mapping[str, object], where: str) -> ModelError:
    remedy = "save model.state_dict() as safetensors"
    if states:
        return ModelError(
            where, f"has weights under several keys ({few(states)})", "say which: model.entry"
        )
    inner = next(
        (value for name in (*_PLAIN, *AVERAGED) if isinstance(value := content.get(name), Mapping)),
        content,
    )
    others = [str(key) for key, value in inner.items() if not isinstance(value, torch.Tensor)]
    if packed := [key for key in others if key.rpartition(".")[2].startswith("_packed_params")]:
        return quantised(where, packed[0])
    what = "has tensors under keys that are not text" if inner else "is empty"
    if others:
        what = f"holds pickled Python objects or other values that are no tensors ({few(others)})"
    return ModelError(where, f"{what}, and no state dict", remedy)


def _state(value: Any, depth: int = 3) -> dict[str, torch.Tensor] | None:
    """The value, or the value under a usual key, as a state dict; None if neither is one."""
    if not isinstance(value, Mapping):
        return None
    if _is_state(value):
        return dict(value)
    for key in _PLAIN:
        if depth and isinstance(value.get(key), Mapping):
            return _state(value[key], depth - 1)
    return None


def _is_state(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(
        isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in value.items()
    )
