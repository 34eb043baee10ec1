"""Load the model of a spec, or wrap a module in memory, as a function from pixels to logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit.datasets.dataset import existing_path
from robaudit.errors import ModelError
from robaudit.models import (
    exported,
    onnx_file,
    python_callable,
    safetensors_file,
    state_dict,
    torchscript,
)
from robaudit.models.architectures import FAMILIES
from robaudit.models.fingerprint import fingerprint
from robaudit.models.formats import Format, LoadedNetwork, Source
from robaudit.models.logits import LogitModel, ReversedChannels
from robaudit.models.model_files import weights_file
from robaudit.models.python_callable import as_module
from robaudit.models.safety import ZIP, members
from robaudit.spec.model import IN_MEMORY

FORMATS = (
    exported.FORMAT,
    torchscript.FORMAT,
    safetensors_file.FORMAT,
    state_dict.FORMAT,
    onnx_file.FORMAT,
    python_callable.FORMAT,
)
"""The formats, in the order of trial.

A new format is a module with a ``FORMAT``, and its name in `ModelSpec.format`. TorchScript comes
before state dicts: the archives of both have a ``data.pkl``.
"""


def guess_format(path: Path, declared: str | None) -> Format:
    """The format of a file, by its content or, failing that, its suffix.

    Raises:
        ModelError: the file is missing, empty, of an unknown format, or not of the declared one.
    """
    named = next((candidate for candidate in FORMATS if candidate.name == declared), None)
    if named is not None and not named.suffixes:
        return named
    # A spec cannot declare a state dict: without a declaration, its content tells.
    declarable = [form for form in FORMATS if form.suffixes and form is not state_dict.FORMAT]
    known = ", ".join(form.name for form in declarable)
    where = str(path)
    existing_path(where, Path(), "file", refuse=ModelError)
    try:
        with path.open("rb") as stream:
            head = stream.read(32)
    except OSError as error:
        raise ModelError(where, f"cannot be read: {error.strerror}") from error
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(where, "is a Git LFS pointer, not the weights", "run git lfs pull")
    zipped = head.startswith(ZIP)
    names = [_below_folder(name) for name in members(path)] if zipped else []
    actual = next((candidate for candidate in FORMATS if candidate.recognises(head, names)), None)
    if zipped and actual is None:
        raise ModelError(
            where,
            "is a zip archive, but not one that torch wrote",
            f"give a file of one of {known}",
        )
    # For a file of torch.save that is declared as another format, the state dict's loader loads
    # plain tensors, and explains anything else better than a wrong declaration would.
    if named is not None and actual not in (None, named, state_dict.FORMAT):
        raise ModelError(
            where,
            f"is a {actual.name} file, but model.format says {declared}",
            f"write format: {actual.name}, or remove it",
        )
    form = actual or named
    if form is None:
        file_name = path.name.lower()
        by_suffix = (candidate for candidate in FORMATS if file_name.endswith(candidate.suffixes))
        form = next(by_suffix, None)
    if form is None:
        raise ModelError(
            where,
            "neither its suffix nor its content says its format",
            f"write model.format: one of {known}",
        )
    return form


def _below_folder(name: str) -> str:
    """A member's name without the folder into which torch puts all members of an archive."""
    _, slash, rest = name.partition("/")
    return rest if slash else name


def needs_architecture(path: Path) -> bool:
    """Whether a file, or the file in a folder, is only weights.

    Raises:
        ModelError: the file is missing, or of an unknown format.
    """
    return guess_format(weights_file(path), None).only_weights


def load_model(source: Source) -> LogitModel:
    """Load the model of a spec as a function from pixels to logits.

    Raises:
        ModelError: the file, the architecture or the options do not make a model.
    """
    spec = source.spec
    own_code = python_callable.FORMAT
    if spec.format == IN_MEMORY:
        what = "the network was an object in the memory of a Python program, and is not kept"
        raise ModelError(
            "model",
            what,
            "pass it again: robaudit.audit(net, dataset, ..., out=RUN) checks that it is the same",
        )
    of_a_library = (spec.architecture or "").startswith(FAMILIES)
    if source.path is not None:
        form = guess_format(source.path, spec.format)
    elif spec.format in (None, own_code.name) and not of_a_library:
        # The user's own function returns the whole network, with its weights.
        form = own_code
    else:
        raise ModelError(source.where, "has no weights", "add model.path, the weights file")
    loaded = form.load(source)
    mean = spec.mean
    std = spec.std
    if spec.channels == "bgr":
        # Mean and std are applied before the reversal, so in the order of the images.
        loaded = replace(loaded, network=ReversedChannels(loaded.network))
        mean = mean[::-1]
        std = std[::-1]
    return LogitModel(
        loaded,
        mean=mean,
        std=std,
        output=spec.output,
        device=source.device,
        dtype=source.dtype,
        name=source.where,
    )


def from_module(
    module: nn.Module | Callable[[torch.Tensor], object],
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    output: str | int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    name: str = "model",
) -> LogitModel:
    """Wrap a module or callable in memory.

    The caller's module does not change. It shares its weights unless they need a cast.

    Args:
        module: maps normalised images (n, channels, height, width) to logits.
        mean: per channel, or one number for all.
        std: the same.
        output: key or index of the logits if it returns a mapping or a sequence.
        dtype: torch.float32 or torch.float64.
        device: where it runs.
        name: in messages.

    Raises:
        ModelError: it is neither a module nor a callable, cannot be copied, or has NaN weights.
    """
    module = _unwrapped(module)
    network = as_module(module)
    if network is None:
        problem = f"is {type(module).__name__}"
        if isinstance(module, type):
            problem = f"is the class {module.__name__}"
        raise ModelError(name, problem, "give a torch.nn.Module (an instance) or a callable")
    device = torch.device(device)
    if isinstance(module, nn.Module):
        network = _copy_sharing_weights(module, name)
    loaded = LoadedNetwork(network.eval(), IN_MEMORY, fingerprint(module))
    return LogitModel(
        loaded, mean=mean, std=std, output=output, device=device, dtype=dtype, name=name
    )


def _unwrapped(module: Any) -> Any:
    """The network inside wrappers that cannot be copied: torch.compile's and data parallel ones."""
    while isinstance(module, nn.Module):
        compiled = getattr(module, "_orig_mod", None)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        elif isinstance(compiled, nn.Module):
            module = compiled
        else:
            break
    return module


def _copy_sharing_weights(module: nn.Module, where: str) -> nn.Module:
    """A copy with its own modes, flags, buffers and hooks.

    Its parameters share the original's memory (except in TorchScript).

    Raises:
        ModelError: it has no values (a meta or lazy module), or cannot be copied.
    """
    # deepcopy's memo: by the id of an object, what the copy has in its place.
    replacements: dict[int, object] = {}
    for parameter in module.parameters():
        if parameter.is_meta or isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ModelError(
                where,
                "its weights have no values yet",
                "load them, or call the network once, before the audit",
            )
        values = parameter.detach()
        # Autograd cannot save a tensor of inference mode for the gradient of the pixels.
        if values.is_inference():
            values = values.clone()
        replacements[id(parameter)] = nn.Parameter(values, requires_grad=False)
    # Tensors that a hook or forward computed, such as the weight of a weight norm: deepcopy takes
    # no tensor with a gradient's history.
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                replacements[id(value)] = value.detach()
    memo = {} if isinstance(module, torch.jit.ScriptModule) else replacements
    try:
        with torch.no_grad():
            return copy.deepcopy(module, memo)
    except Exception as error:
        what = f"cannot be copied ({type(error).__name__}: {error})"[:300]
        raise ModelError(
            where, what, "pass a function instead: lambda x: net(x), with net in eval mode"
        ) from error
