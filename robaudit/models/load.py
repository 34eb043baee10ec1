"""How does the spec's model section become a logits function?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.base import LoadedNetwork, Source
from robaudit.models.exported import load_exported
from robaudit.models.guess import guess_format
from robaudit.models.logits import LogitModel
from robaudit.models.onnx_file import load_onnx
from robaudit.models.python_callable import as_module, load_python
from robaudit.models.safetensors_file import load_safetensors, load_state_dict_file
from robaudit.models.state import check_finite, state_sha256
from robaudit.models.torchscript import load_torchscript
from robaudit.spec.model import ModelSpec

LOADERS: dict[str, Callable[[Source], LoadedNetwork]] = {
    "torchscript": load_torchscript,
    "pt2": load_exported,
    "safetensors": load_safetensors,
    "state dict": load_state_dict_file,
    "onnx": load_onnx,
    "python": load_python,
}


def load_model(
    spec: ModelSpec,
    path: Path | None,
    *,
    base_dir: Path,
    device: torch.device,
    dtype: torch.dtype,
    trust: bool,
    clip: bool = False,
) -> LogitModel:
    """Load the model of a spec as a function from pixels to logits.

    Args:
        spec: the model section.
        path: its path, resolved against the spec's folder; None where it has none.
        base_dir: the spec's folder, importable for trusted ``package.module:function`` code.
        device: where the network shall run.
        dtype: torch.float32 or torch.float64, of the network.
        trust: whether the user's own Python code may run.
        clip: clip the pixels to [0, 1] before the network.

    Raises:
        ModelError: the file, the architecture or the options do not make a model.
    """
    source = Source(spec, path, base_dir, device, dtype, trust)
    if spec.format == "python":
        found = "python"
    elif path is not None:
        found = guess_format(path, spec.format)
    elif spec.format is None and not (spec.architecture or "").startswith(("robaudit:", "torchvision:")):
        found = "python"
    else:
        raise ModelError(source.where, "has no weights", "add model.path, the weights file")
    loaded = LOADERS[found](source)
    return LogitModel(loaded, mean=spec.mean, std=spec.std, output=spec.output, device=device, dtype=dtype, clip=clip, name=source.where)


def from_module(
    module: nn.Module | Callable[[torch.Tensor], object],
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    output: str | int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    clip: bool = False,
    name: str = "model",
) -> LogitModel:
    """Wrap a module or callable in memory; a module is copied, so the caller's stays as it is.

    Args:
        module: maps normalised images (n, channels, height, width) to logits.
        mean: per channel, or one number for all.
        std: likewise.
        output: key or index of the logits where it returns a mapping or a sequence.
        dtype: torch.float32 or torch.float64.
        device: where it shall run.
        clip: clip the pixels to [0, 1] first.
        name: how messages name it.

    Raises:
        ModelError: it is neither a module nor a callable, or has NaN weights.
    """
    network = as_module(module)
    if network is None:
        raise ModelError(name, f"is {type(module).__name__}", "give a torch.nn.Module or a callable")
    device = torch.device(device)
    if isinstance(module, nn.Module):
        network = copy.deepcopy(network)
    network = network.eval().to(device=device, dtype=dtype)
    check_finite(network, name)
    loaded = LoadedNetwork(network, "python", state_sha256(network))
    return LogitModel(loaded, mean=mean, std=std, output=output, device=device, dtype=dtype, clip=clip, name=name)
