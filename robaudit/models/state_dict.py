"""Networks from files of plain tensors: the architecture by name, the weights by key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError, did_you_mean
from robaudit.models.architectures import build_architecture
from robaudit.models.base import Format, LoadedNetwork, Source, check_finite, file_sha256
from robaudit.models.files import INDEX, adapter, quantised, read_object
from robaudit.models.safety import Unread, load_tensors
from robaudit.models.transformers_model import TRANSFORMERS, build_transformers, config_of
from robaudit.text import clipped

_PLAIN = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params")
_AVERAGED = ("state_dict_ema", "model_ema", "ema", "ema_state_dict", "ema_model", "model_ema_state_dict")
_PREFIXES = ("module", "_orig_mod", "model", "net", "backbone", "network", "ema_model", "timm_model")
_COUNTERS = ("num_batches_tracked", "n_averaged")
_LORA = re.compile(r"(^|\.)lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.|$)")
_QUANTISED = {
    "bitsandbytes": re.compile(r"\.(SCB|weight_format|absmax|nested_absmax|quant_map|nested_quant_map|quant_state\.\w+)$"),
    "GPTQ or AWQ": re.compile(r"\.(qweight|qzeros|g_idx)$"),
    "torch.ao": re.compile(r"(^|\.)(_packed_params(\._packed_params)?|zero_point)$"),
}
_OLD_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$")


def check_state(network: nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Compare a state dict with a network, which may be on the meta device: every key and every shape.

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
        raise ModelError(where, ", ".join(complaints), _beside(wanted, tensors) or "check architecture and architecture_options")
    differing = [key for key in wanted if key in tensors and wanted[key].shape != tensors[key].shape]
    if differing:
        classes = _other_classes(wanted, tensors, differing)
        remedy = "check architecture and architecture_options"
        if classes is not None:
            remedy = f"the last layer has {classes} rows: write architecture_options: {{num_classes: {classes}}}"
        shown = [f"{key} is {_shape(tensors[key])}, the architecture has {_shape(wanted[key])}" for key in differing]
        raise ModelError(where, f"{len(differing)} of {len(wanted)} tensors have another shape: {_few(shown)}", remedy)


def _beside(wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> str:
    """The remedy if the network is complete below one prefix, next to other tensors (the loss of a LightningModule)."""
    for prefix in (f"{name}." for name in _PREFIXES):
        inside = {key.removeprefix(prefix) for key in tensors if key.startswith(prefix)}
        if inside and inside >= wanted.keys():
            beside = [key for key in tensors if not key.startswith(prefix)]
            return f"the network is below {prefix!r}, beside {_few(beside)}: save the state_dict() of the network alone"
    return ""


def _refuse_odd(tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Refuse adapters and quantised weights by name, and tensors that are not plain real numbers in memory."""
    for key, value in tensors.items():
        if _LORA.search(key):
            raise adapter(where)
        for how, pattern in _QUANTISED.items():
            if pattern.search(key):
                raise quantised(where, how)
        if _in_few_bits(key, value):
            raise quantised(where, f"{key} is {str(value.dtype).removeprefix('torch.')}")
        if kind := _odd(value):
            raise ModelError(where, f"the tensor {key} is {kind}", "save it as plain dense numbers, as state_dict() does")


def _in_few_bits(key: str, tensor: torch.Tensor) -> bool:
    """Whether a weight is an integer or an 8-bit number, which is wrong without its scale."""
    weight = key.rpartition(".")[2] in ("weight", "bias")
    return (weight and not tensor.is_floating_point() and not tensor.is_complex()) or (tensor.is_floating_point() and tensor.itemsize == 1)


def _odd(tensor: torch.Tensor) -> str:
    """Why a tensor is not plain real numbers in memory, or ''."""
    if tensor.layout is not torch.strided:
        return f"sparse ({tensor.layout})"
    if tensor.is_meta:
        return "without data (a meta tensor)"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype})"
    return "complex" if tensor.is_complex() else ""


def _other_classes(wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], differing: list[str]) -> int | None:
    """The rows of the weights' last layer, if their number is all that differs."""
    last = [key for key in wanted if wanted[key].is_floating_point()][-2:]
    key = differing[-1]
    if set(differing) <= set(last) and tensors[key].dim() and tensors[key].shape[1:] == wanted[key].shape[1:]:
        return tensors[key].shape[0]
    return None


def other_classes(source: Source, found: Mapping[str, torch.Tensor]) -> int | None:
    """The number of classes of weights that fit their architecture except for the last layer; None if they fit, or differ in more.

    Args:
        source: the file, and the name of its architecture.
        found: the weights, with the keys of the file.

    Raises:
        ModelError: there is no such architecture.
    """
    wanted = build_architecture(source, found, meta=True).state_dict()
    tensors, _ = _stripped(found, wanted.keys())
    if any(key not in tensors for key in wanted if not key.endswith("num_batches_tracked")):
        return None
    differing = [key for key in wanted if key in tensors and wanted[key].shape != tensors[key].shape]
    return _other_classes(wanted, tensors, differing) if differing else None


def _few(names: Iterable[str], most: int = 3) -> str:
    names = [clipped(name, 120) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"


def load_safetensors(source: Source) -> LoadedNetwork:
    """Load a .safetensors file, or all those that an index lists, into its architecture.

    Raises:
        ModelError: no architecture is given, the file is damaged, or the weights do not fit or are not finite.
    """
    _needs_architecture(source, "safetensors holds weights only")
    files = _listed(source.file) if source.file.name.endswith(INDEX) else [source.file]
    tensors, format_ = dict[str, torch.Tensor](), "safetensors"
    for path in files:
        if path == source.file or path.suffix == ".safetensors":
            tensors |= read_safetensors(path, str(path))
        else:
            format_ = "state dict"
            tensors |= weights_of(load_tensors(path, str(path)), None, str(path))[0]
    if source.spec.entry is not None:
        raise ModelError(source.where, "has no entries: safetensors holds the weights themselves", "remove model.entry")
    return _fill(source, files, tensors, format_, ())


def read_safetensors(path: Path, where: str) -> dict[str, torch.Tensor]:
    """The tensors of one .safetensors file.

    Raises:
        ModelError: it is damaged, or too large to map.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (RuntimeError, MemoryError) as error:  # torch's part: mapping the file
        raise ModelError(where, f"cannot be mapped into memory ({error})", "give a smaller file, or more memory") from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(
            where, f"is not a complete safetensors file ({error})", "the file is truncated or damaged; save it again"
        ) from error


def _listed(index: Path) -> list[Path]:
    """The files listed in an index of sharded weights, which must lie in its folder."""
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) and Path(name).name == name for name in names.values()):
        raise ModelError(str(index), "does not list files beside it under weight_map", "restore the model's own file")
    files = [index.parent / name for name in sorted(set(names.values()))]
    for path in files:
        if not path.is_file():
            raise ModelError(str(path), "there is no such file", f"{index.name} lists it: copy or download it, too")
    return files


def load_state_dict_file(source: Source) -> LoadedNetwork:
    """Load a state dict or checkpoint saved with ``torch.save`` into its architecture, with ``weights_only=True``.

    Raises:
        ModelError: it holds more than tensors, no architecture is given, or the weights do not fit or are not finite.
    """
    tensors, notes = weights_of(load_tensors(source.file, source.where), source.spec.entry, source.where)
    _needs_architecture(source, "is a state dict: weights only")
    notes = ("state dict of torch.save: only its numbers are read, no code in it runs", *notes)
    return _fill(source, [source.file], tensors, "state dict", notes)


def _recognises_safetensors(head: bytes, _: Sequence[str]) -> bool:
    return len(head) > 8 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= 10**8


def _recognises_state_dict(head: bytes, members: Sequence[str]) -> bool:
    pickled = len(head) > 1 and head[0] == 0x80 and head[1] <= 5  # a legacy torch.save or a bare pickle
    return pickled or "data.pkl" in members


SAFETENSORS = Format("safetensors", load_safetensors, (".safetensors",), _recognises_safetensors)
STATE_DICT = Format("state dict", load_state_dict_file, (".pth",), _recognises_state_dict)


def _fill(source: Source, files: list[Path], tensors: Mapping[str, torch.Tensor], format_: str, notes: tuple[str, ...]) -> LoadedNetwork:
    _refuse_odd(tensors, source.where)
    if (source.spec.architecture or "").startswith(TRANSFORMERS):
        network: nn.Module = build_transformers(source, tensors)
        files = [*files, config_of(source)]
    else:
        network = build_architecture(source, tensors, meta=True)
        fitted, more = _stripped(tensors, network.state_dict().keys())
        notes = (*notes, *more)
        check_state(network, fitted, source.where)
        if any(tensor.is_meta for tensor in network.state_dict().values()):
            network = build_architecture(source, tensors)
        network.load_state_dict(fitted)
    network = network.to(device=source.device, dtype=source.dtype)
    check_finite(network, source.where)
    return LoadedNetwork(network, format_, _digest(files), notes=notes)


def _digest(files: list[Path]) -> str:
    """sha256 (hex) of a file, or of the digests of several."""
    digests = [file_sha256(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _stripped(tensors: Mapping[str, torch.Tensor], wanted: Iterable[str]) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The tensors without prefixes that all keys share and that the architecture does not have, and a note of what was removed.

    The counter of averaged weights (``n_averaged``) is left out, too; torchvision's first densenets had other names.
    """
    known, notes = set(wanted), list[str]()
    found = {key: value for key, value in tensors.items() if key != "n_averaged" or key in known}
    removed: list[str] = []
    while found and not known & found.keys():
        heads = {key.partition(".")[0] for key in found}
        if len(heads) != 1 or not heads <= set(_PREFIXES):
            break
        prefix = f"{heads.pop()}."
        removed.append(prefix)
        found = {key.removeprefix(prefix): value for key, value in found.items()}
    if removed and not known & found.keys():
        return dict(tensors), ()  # no help: the message names the keys as in the file
    if removed:
        notes.append(f"the prefix {''.join(removed)!r} was removed from every key")
    renamed = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in found.items()}
    if renamed.keys() != found.keys() and len(known & renamed.keys()) > len(known & found.keys()):
        notes.append("the layers had the names of torchvision's first densenets and were renamed")
        found = renamed
    return found, tuple(notes)


def _needs_architecture(source: Source, what: str) -> None:
    if source.spec.architecture is None:
        remedy = "add architecture: torchvision:NAME, timm:NAME, robaudit:NAME or package.module:function"
        raise ModelError(source.where, what, remedy)


def weights_of(found: Any, entry: str | None, where: str) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The state dict in a file's contents, or in an entry of a checkpoint; and notes: which entry was used, and what else there is.

    Args:
        found: the contents.
        entry: the key of the weights; None: one of the usual keys, of plain weights before averaged ones (EMA).
        where: the file's name in messages.

    Raises:
        ModelError: there is no state dict, or none under this key.
    """
    if not isinstance(found, Mapping):
        raise ModelError(where, f"holds {type(found).__name__}, not a state dict", "save model.state_dict() as safetensors")
    states = {str(key): state for key, value in found.items() if (state := _state(value)) is not None}
    if entry is not None:
        if entry not in states:
            raise ModelError(
                where, f"has no weights under the key {entry!r}", did_you_mean(entry, states) if states else "remove model.entry"
            )
        return states[entry], (f"the weights are those under the key {entry!r}",)
    if _is_state(found):
        return dict(found), ()
    names = [name for name in (*_PLAIN, *_AVERAGED) if name in states] or (list(states) if len(states) == 1 else [])
    if not names:
        raise _refusal(found, states, where)
    others = [name for name in states if name != names[0]]
    note = f"the weights are those under the key {names[0]!r}"
    if others:
        note += f"; the file also has {', '.join(others)}: choose with model.entry: {others[0]}"
    left_out = sorted({str(key) for key, value in found.items() if str(key) != names[0] and str(key) not in others})
    if left_out:
        note += f"; not read: {_few(left_out, 6)}"
    return states[names[0]], (note,)


def _refusal(found: Mapping[Any, Any], states: Mapping[str, object], where: str) -> ModelError:
    remedy = "save model.state_dict() as safetensors"
    if states:
        return ModelError(where, f"has weights under several keys ({_few(states)})", "say which: model.entry")
    inner = next((value for name in (*_PLAIN, *_AVERAGED) if isinstance(value := found.get(name), Mapping)), found)
    unread = [str(key) for key, value in inner.items() if isinstance(value, Unread)]
    if unread:
        what = f"holds pickled Python objects that are not read ({_few(unread)}), and no state dict of tensors alone"
        return ModelError(where, what, remedy + ', once and where you trust the file: torch.save({"state_dict": ...}, ...)')
    beside = [str(key) for key, value in inner.items() if not isinstance(value, torch.Tensor)]
    if len(beside) < len(inner):
        what = f"mixes tensors with what is none ({_few(beside)})" if beside else "has tensors under keys that are not text"
        return ModelError(where, what, remedy)
    return ModelError(where, f"holds {type(found).__name__}, not a state dict", remedy)


def _state(value: Any, depth: int = 3) -> dict[str, torch.Tensor] | None:
    """The value as a state dict, or the one under one of its usual keys; None if there is neither."""
    if not isinstance(value, Mapping):
        return None
    if _is_state(value):
        return dict(value)
    for key in _PLAIN:
        if depth and isinstance(value.get(key), Mapping):
            return _state(value[key], depth - 1)
    return None


def _is_state(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in value.items())
