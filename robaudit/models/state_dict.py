"""Weights from a state dict or a checkpoint of ``torch.save``, read without the code in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from robaudit.errors import ModelError, did_you_mean
from robaudit.models.formats import Format, LoadedNetwork, Source
from robaudit.models.safety import load_tensors
from robaudit.models.weights import AVERAGED, few, fill, quantised, under

# Keys of plain weights in checkpoints, in order of precedence: PyTorch's tutorials and Lightning,
# then others.
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
    """Load a state dict or checkpoint of ``torch.save`` into its architecture, weights only.

    Without an entry in the spec, the weights are those under the first usual key, plain weights
    before averaged weights (EMA).

    Raises:
        ModelError: there is no state dict, or none under this key.
    """
    tensors, notes = _chosen(load_tensors(source.file), source.spec.entry, source.where)
    read = "state dict of torch.save: only its numbers are read, no code in it runs"
    return fill(source, FORMAT.name, tensors, (read, *notes))


def _recognises(head: bytes, members: Sequence[str]) -> bool:
    # Before torch 1.6, torch.save wrote pickles without an archive: PROTO, and its version.
    pickled = len(head) > 1 and head[0] == 0x80 and head[1] <= 5
    return pickled or "data.pkl" in members


FORMAT = Format("state dict", load_state_dict_file, (".pth",), _recognises, only_weights=True)


def _chosen(
    content: Any, entry: str | None, where: str
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The state dict in the contents of a file, and lines for the user about where it was.

    Args:
        content: of the file: a state dict or a checkpoint.
        entry: the key or prefix that the spec names, if any.
        where: the file, for messages.

    Raises:
        ModelError: there is no state dict, or none under this entry, or several could be meant.
    """
    if not isinstance(content, Mapping):
        raise ModelError(
            where,
            f"holds {type(content).__name__}, not a state dict",
            "save model.state_dict() as safetensors",
        )
    states = {}
    for key, value in content.items():
        state = _state(value)
        if state is not None:
            states[str(key)] = state
    if entry is not None:
        return _entry(content, states, entry, where)
    if _is_state(content):
        return dict(content), ()
    names = [name for name in (*_PLAIN, *AVERAGED) if name in states]
    # A single state dict may have any key.
    if not names and len(states) == 1:
        names = list(states)
    if not names:
        raise _refusal(content, states, where)
    chosen = names[0]
    others = [name for name in states if name != chosen]
    note = f"the weights are those under the key {chosen!r}"
    if others:
        note += f"; the file also has {', '.join(others)}: choose with model.entry: {others[0]}"
    left_out = sorted({str(key) for key in content} - states.keys())
    if left_out:
        note += f"; not read: {few(left_out, 6)}"
    return states[chosen], (note,)


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
    candidates = [dict(content)] if _is_state(content) else list(states.values())
    for state in candidates:
        part = under(state, f"{entry}.")
        if part:
            return part, (f"the weights are those under the prefix '{entry}.'",)
    remedy = did_you_mean(entry, states) if states else "remove model.entry"
    raise ModelError(where, f"has no weights under the key {entry!r}", remedy)


def _refusal(content: Mapping[Any, Any], states: Mapping[str, object], where: str) -> ModelError:
    """The error for a checkpoint without a state dict, or with several."""
    remedy = "save model.state_dict() as safetensors"
    if states:
        return ModelError(
            where, f"has weights under several keys ({few(states)})", "say which: model.entry"
        )
    # The mapping that was meant as a state dict.
    entries = (content.get(name) for name in (*_PLAIN, *AVERAGED))
    inner = next((value for value in entries if isinstance(value, Mapping)), content)
    others = []
    for key, value in inner.items():
        if not isinstance(value, torch.Tensor):
            others.append(str(key))
    # torch's quantised layers save their weights as an object under this name.
    packed = [key for key in others if key.rpartition(".")[2].startswith("_packed_params")]
    if packed:
        return quantised(where, packed[0])
    what = "has tensors under keys that are not text" if inner else "is empty"
    if others:
        what = f"holds pickled Python objects or other values that are no tensors ({few(others)})"
    return ModelError(where, f"{what}, and no state dict", remedy)


def _state(value: Any, depth: int = 3) -> dict[str, torch.Tensor] | None:
    """A state dict in a value: the value itself, or what it has under a usual key; None if none.

    Args:
        value: of a checkpoint.
        depth: how many levels of keys may follow. Three are enough for checkpoints in checkpoints,
            and a mapping that contains itself ends.
    """
    if not isinstance(value, Mapping):
        return None
    if _is_state(value):
        return dict(value)
    for key in _PLAIN:
        if depth and isinstance(value.get(key), Mapping):
            return _state(value[key], depth - 1)
    return None


def _is_state(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping has tensors only, under texts, and at least one."""
    texts = all(isinstance(key, str) for key in value)
    tensors = all(isinstance(tensor, torch.Tensor) for tensor in value.values())
    return bool(value) and texts and tensors
