"""Load weights into the network that ``architecture`` names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.architectures import build_architecture
from robaudit.models.base import LoadedNetwork, Source, file_sha256
from robaudit.models.transformers_model import TRANSFORMERS, build_transformers, config_of
from robaudit.text import clipped

_PREFIXES = ("module", "_orig_mod", "model", "net", "backbone", "network", "ema_model", "timm_model")
_OLD_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$")


def fill(source: Source, form: str, tensors: Mapping[str, torch.Tensor], notes: Sequence[str] = ()) -> LoadedNetwork:
    """The network of a source's architecture with these weights.

    Args:
        source: names the architecture.
        form: the format of the file.
        tensors: the weights.
        notes: lines for the user.

    Raises:
        ModelError: no architecture is given, or the weights do not fit or are not finite.
    """
    if source.spec.architecture is None:
        remedy = "add architecture: torchvision:NAME, timm:NAME, robaudit:NAME or package.module:function"
        raise ModelError(source.where, "holds weights only", remedy)
    _refuse_odd(tensors, source.where)
    sha256 = file_sha256(source.file)
    if source.spec.architecture.startswith(TRANSFORMERS):
        network: nn.Module = build_transformers(source, tensors)
        sha256 = hashlib.sha256(f"{sha256}\n{file_sha256(config_of(source))}".encode()).hexdigest()
    else:
        network = build_architecture(source, tensors)
        fitted, more = _stripped(tensors, network.state_dict().keys())
        notes = (*notes, *more)
        _check_state(network, fitted, source.where)
        network.load_state_dict(fitted)
    return LoadedNetwork(network, form, sha256, notes=tuple(notes))


def _stripped(tensors: Mapping[str, torch.Tensor], wanted: Iterable[str]) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The tensors without prefixes that all keys share and the architecture lacks, and notes on the changes.

    The counter of averaged weights (``n_averaged``) is removed, too; tensors of torchvision's first densenets are renamed.
    """
    known, notes = set(wanted), list[str]()
    state = {key: value for key, value in tensors.items() if key != "n_averaged" or key in known}
    removed: list[str] = []
    while state and not known & state.keys():
        heads = {key.partition(".")[0] for key in state}
        if len(heads) != 1 or not heads <= set(_PREFIXES):
            break
        prefix = f"{heads.pop()}."
        removed.append(prefix)
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    if removed and not known & state.keys():
        return dict(tensors), ()  # removal does not help: the message names the keys as in the file
    if removed:
        notes.append(f"the prefix {''.join(removed)!r} was removed from every key")
    renamed = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    if renamed.keys() != state.keys() and len(known & renamed.keys()) > len(known & state.keys()):
        notes.append("the layers had the names of torchvision's first densenets and were renamed")
        state = renamed
    return state, tuple(notes)


def _check_state(network: nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Compare a state dict with a network: every key and every shape.

    Raises:
        ModelError: keys are missing or unexpected, or shapes differ; the first few are named.
    """
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]  # old files lack this counter
    unexpected = [key for key in tensors if key not in wanted]
    complaints = []
    if missing:
        complaints.append(f"{len(missing)} of {len(wanted)} tensors are missing ({few(missing)})")
    if unexpected:
        complaints.append(f"{len(unexpected)} are not the architecture's ({few(unexpected)})")
    if complaints:
        raise ModelError(where, ", ".join(complaints), "check architecture and architecture_options")
    differing = [key for key in wanted if key in tensors and wanted[key].shape != tensors[key].shape]
    if differing:
        classes = _other_classes(wanted, tensors, differing)
        remedy = "check architecture and architecture_options"
        if classes is not None:
            key = "model.architecture_options"
            remedy = f"the last layer has {classes} rows: write {key}: {{num_classes: {classes}}}, or add --set {key}.num_classes={classes}"
        shown = [f"{key} is {_shape(tensors[key])}, the architecture has {_shape(wanted[key])}" for key in differing]
        raise ModelError(where, f"{len(differing)} of {len(wanted)} tensors have another shape: {few(shown)}", remedy)


def _refuse_odd(tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Refuse quantised weights, and tensors that are not plain real numbers in memory."""
    for key, value in tensors.items():
        if _in_few_bits(key, value):
            what = f"holds quantised weights ({key} is {str(value.dtype).removeprefix('torch.')}), which cannot be audited"
            raise ModelError(where, what, "give the weights before quantisation, in float32, float16 or bfloat16")
        if value.layout is not torch.strided or value.is_meta or value.is_quantized or value.is_complex():
            what = f"the tensor {key} is not a plain array of real numbers ({value.layout}, {value.dtype}, {value.device})"
            raise ModelError(where, what, "save it as plain dense numbers, as state_dict() does")


def _in_few_bits(key: str, tensor: torch.Tensor) -> bool:
    """Whether a weight is an integer or an 8-bit number, which is wrong without its scale."""
    weight = key.rpartition(".")[2] in ("weight", "bias")
    return (weight and not tensor.is_floating_point() and not tensor.is_complex()) or (tensor.is_floating_point() and tensor.itemsize == 1)


def _other_classes(wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], differing: list[str]) -> int | None:
    """The number of rows in the weights' last layer, if nothing else differs."""
    last = [key for key in wanted if wanted[key].is_floating_point()][-2:]
    key = differing[-1]
    if set(differing) <= set(last) and tensors[key].dim() and tensors[key].shape[1:] == wanted[key].shape[1:]:
        return tensors[key].shape[0]
    return None


def few(names: Iterable[str], most: int = 3) -> str:
    """The first few names of a list, as text."""
    names = [clipped(name, 120) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"
