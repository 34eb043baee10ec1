"""Load weights into the network that ``architecture`` names."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.architectures import build_architecture
from robaudit.models.formats import LoadedNetwork, Source, file_sha256
from robaudit.models.transformers_model import TRANSFORMERS, build_transformers, config_of
from robaudit.text import clipped, count

AVERAGED = (
    "state_dict_ema",
    "model_ema",
    "ema",
    "ema_state_dict",
    "ema_model",
    "model_ema_state_dict",
)
"""The usual keys of averaged weights."""
# torchvision's first densenets had layers such as denselayer1.norm.1, which are denselayer1.norm1
# today. torchvision's own loader renames them in the same way.
_OLD_DENSENET = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$"
)


Tensors = Mapping[str, torch.Tensor]
"""Tensors by their keys in a state dict."""


def fill(source: Source, form: str, tensors: Tensors, notes: Sequence[str] = ()) -> LoadedNetwork:
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
        remedy = (
            "add architecture: torchvision:NAME, timm:NAME, robaudit:NAME or "
            "package.module:function"
        )
        raise ModelError(source.where, "holds weights only", remedy)
    _refuse_odd(tensors, source.where)
    sha256 = file_sha256(source.file)
    if source.spec.architecture.startswith(TRANSFORMERS):
        network: nn.Module = build_transformers(source, tensors)
        # The same weights with another configuration are another network.
        sha256 = hashlib.sha256(f"{sha256}\n{file_sha256(config_of(source))}".encode()).hexdigest()
    else:
        network = build_architecture(source, tensors)
        fitted, notes_on_keys = _fitted(tensors, network.state_dict(), source.where)
        notes = (*notes, *notes_on_keys)
        _check_state(network, fitted, source.where)
        network.load_state_dict(fitted)
    return LoadedNetwork(network, form, sha256, notes=tuple(notes))


def _fitted(
    tensors: Tensors, wanted: Tensors, where: str
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The tensors for an architecture, without the prefix of their keys, and notes for the user.

    If no prefix has all of the architecture's tensors, these are the ones under the nearest prefix,
    for the message about them.

    Raises:
        ModelError: several prefixes have all of them, with different values, or other layers of the
            same sequence have weights.
    """
    renamed = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in tensors.items()}
    for state in (tensors, renamed):
        prefixes = _complete(state, wanted)
        if not prefixes:
            continue
        prefix, others = _chosen(state, wanted, prefixes, where)
        # Below the prefix may be a copy of the network, such as its averaged weights.
        copies = tuple(other for other in prefixes if other != prefix and other.startswith(prefix))
        own = [key for key in state if key.startswith(prefix) and not key.startswith(copies)]
        aside = sorted(state.keys() - own)
        _refuse_layers_of_sequence(prefix, aside, where)
        notes = _notes(prefix, aside, others)
        if state is renamed:
            notes.append(
                "the layers had the names of torchvision's first densenets and were renamed"
            )
        return {key.removeprefix(prefix): state[key] for key in own}, tuple(notes)
    return under(tensors, _nearest(tensors, wanted)), ()


def under(tensors: Tensors, prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose keys begin with a prefix, by their keys without it."""
    keys = [key for key in tensors if key.startswith(prefix)]
    return {key.removeprefix(prefix): tensors[key] for key in keys}


def _required(wanted: Iterable[str]) -> list[str]:
    """The tensors that a file must have; old files lack the counters of batch norms."""
    return [key for key in wanted if not key.endswith("num_batches_tracked")]


def _complete(state: Tensors, wanted: Tensors) -> list[str]:
    """The prefixes with all of the architecture's tensors; those with the right shapes, if any."""
    required = _required(wanted)
    if not required:
        return []
    # A complete prefix has the first tensor, too. The dots match whole parts of names.
    first = required[0]
    candidates = [key.removesuffix(first) for key in state if f".{key}".endswith(f".{first}")]
    complete = [prefix for prefix in candidates if all(prefix + key in state for key in required)]
    shapes = {key: wanted[key].shape for key in required}
    fitting = []
    for prefix in complete:
        if all(state[prefix + key].shape == shape for key, shape in shapes.items()):
            fitting.append(prefix)
    return fitting or complete


def _chosen(
    state: Tensors,
    wanted: Iterable[str],
    prefixes: Sequence[str],
    where: str,
) -> tuple[str, list[str]]:
    """The prefix of the network's own weights, and the prefixes that have other values.

    It is an outermost prefix, and one of plain weights rather than averaged ones.

    Raises:
        ModelError: several could be meant.
    """
    # "ema." is inside the empty prefix, and the weights without a prefix are the network's own.
    by_length = sorted(prefixes, key=len)
    outer = []
    for index, prefix in enumerate(by_length):
        if not prefix.startswith(tuple(by_length[:index])):
            outer.append(prefix)
    averaged = set(AVERAGED)
    plain = [prefix for prefix in outer if averaged.isdisjoint(prefix.split("."))] or outer
    chosen = min(plain, key=len)
    required = _required(wanted)
    # Equal weights under two prefixes, as of a module that is referred to twice, are no choice.
    others = []
    for prefix in sorted(set(outer) - {chosen}):
        if not all(torch.equal(state[prefix + key], state[chosen + key]) for key in required):
            others.append(prefix)
    if set(others) & set(plain):
        names = few(prefix.removesuffix(".") for prefix in plain)
        remedy = f"say which: model.entry: {chosen.removesuffix('.')}"
        what = f"has the architecture's weights under several prefixes ({names})"
        raise ModelError(where, what, remedy)
    return chosen, others


def _refuse_layers_of_sequence(prefix: str, aside: Iterable[str], where: str) -> None:
    """Refuse to leave out a layer with weights of the nn.Sequential that the network is part of.

    A normalisation layer before the network has no ``weight``: it is left out, and mean and std are
    the spec's. Any other layer changes the prediction.
    """
    *outside, position = prefix.removesuffix(".").split(".")
    parent = "".join(f"{part}." for part in outside)
    # Members of an nn.Sequential have numbers for names.
    if not position.isdecimal():
        return
    for key in aside:
        sibling, _, name = key.removeprefix(parent).partition(".")
        is_layer = key.startswith(parent) and sibling.isdecimal()
        if is_layer and name.rpartition(".")[2] == "weight":
            what = f"has the architecture's tensors under {prefix!r}, and another layer"
            what += f" of the same sequence has weights ({key})"
            remedy = "give an architecture with all its layers: package.module:function"
            raise ModelError(where, what, remedy)


def _notes(prefix: str, aside: Sequence[str], others: Sequence[str]) -> list[str]:
    """Lines for the user about the prefix, and about the tensors outside it."""
    if not aside:
        return [f"the prefix {prefix!r} was removed from every key"] if prefix else []
    place = f"under the prefix {prefix!r}" if prefix else "without a prefix"
    note = f"the weights are those {place}"
    note += f"; left aside: {count(len(aside), 'tensor')} ({few(aside)})"
    if others:
        names = [other.removesuffix(".") for other in others]
        note += f"; {few(names)} has other weights of the same names: "
        note += f"choose with model.entry: {names[0]}"
    return [note]


def _nearest(state: Iterable[str], wanted: Iterable[str]) -> str:
    """The prefix with most of the architecture's tensors; '' if no prefix has half of them."""
    known = set(wanted)
    # No end of a key with more parts than this is a tensor of the architecture.
    depth = max((name.count(".") for name in known), default=0)
    fitting = Counter[str]()  # the number of tensors by prefix
    for key in state:
        parts = key.rsplit(".", depth + 1)
        ends = (".".join(parts[index:]) for index in range(len(parts)))
        fitting.update(key.removesuffix(end) for end in ends if end in known)
    prefix, most = max(fitting.items(), key=lambda item: item[1], default=("", 0))
    return prefix if 2 * most >= len(known) else ""


def _check_state(network: nn.Module, tensors: Tensors, where: str) -> None:
    """Compare a state dict with a network: every key and every shape.

    Raises:
        ModelError: keys are missing or unexpected, or shapes differ; the first few are named.
    """
    wanted = network.state_dict()
    missing = [key for key in _required(wanted) if key not in tensors]
    unexpected = [key for key in tensors if key not in wanted]
    complaints = []
    if missing:
        complaints.append(f"{len(missing)} of {len(wanted)} tensors are missing ({few(missing)})")
    if unexpected:
        complaints.append(f"{len(unexpected)} are not the architecture's ({few(unexpected)})")
    if complaints:
        remedy = "check architecture and architecture_options"
        if not missing:
            remedy += "; if they take no part in the prediction, save the weights without them"
        raise ModelError(where, ", ".join(complaints), remedy)
    differing = [
        key for key in wanted if key in tensors and wanted[key].shape != tensors[key].shape
    ]
    if differing:
        classes = _other_classes(wanted, tensors, differing)
        remedy = "check architecture and architecture_options"
        if classes is not None:
            option = "model.architecture_options"
            remedy = (
                f"the last layer has {classes} rows: write {option}: {{num_classes: "
                f"{classes}}}, or add --set {option}.num_classes={classes}"
            )
        shapes = [
            f"{key} is {_shape(tensors[key])}, the architecture has {_shape(wanted[key])}"
            for key in differing
        ]
        raise ModelError(
            where,
            f"{len(differing)} of {len(wanted)} tensors have another shape: {few(shapes)}",
            remedy,
        )


def _refuse_odd(tensors: Tensors, where: str) -> None:
    """Refuse quantised weights, and tensors that are not plain real numbers in memory.

    Quantised numbers are wrong without their scales, and would load without an error.
    """
    for key, value in tensors.items():
        if value.is_quantized or _in_few_bits(key, value):
            raise quantised(where, f"{key} is {str(value.dtype).removeprefix('torch.')}")
        if value.layout is not torch.strided or value.is_meta or value.is_complex():
            what = (
                f"the tensor {key} is not a plain array of real numbers ({value.layout}, "
                f"{value.dtype}, {value.device})"
            )
            raise ModelError(where, what, "save it as plain dense numbers, as state_dict() does")


def quantised(where: str, which: str) -> ModelError:
    """The error about quantised weights; ``which`` names one of them."""
    what = f"holds quantised weights ({which}), which cannot be audited"
    remedy = "give the weights before quantisation, in float32, float16 or bfloat16"
    return ModelError(where, what, remedy)


def _in_few_bits(key: str, tensor: torch.Tensor) -> bool:
    """Whether a weight is an integer or an 8-bit number, which is wrong without its scale."""
    if tensor.is_floating_point():
        return tensor.itemsize == 1
    # Other tensors may be integers: counters of batch norms, indices of windows.
    return key.rpartition(".")[2] in ("weight", "bias") and not tensor.is_complex()


def _other_classes(wanted: Tensors, tensors: Tensors, differing: Sequence[str]) -> int | None:
    """The number of rows in the weights' last layer, if nothing else differs."""
    # The last two tensors are the weight and the bias of the last layer.
    last_layer = [key for key in wanted if wanted[key].is_floating_point()][-2:]
    key = differing[-1]
    if not set(differing) <= set(last_layer):
        return None
    shape = tensors[key].shape
    if len(shape) and shape[1:] == wanted[key].shape[1:]:
        return shape[0]
    return None


def few(names: Iterable[str], most: int = 3) -> str:
    """The first few names of a list, as text."""
    names = [clipped(name, 120) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"
