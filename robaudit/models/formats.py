"""Model formats, the input and output of their loaders, and checks of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.model_files import model_path, weights_file
from robaudit.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class LoadedNetwork:
    """A loader's result: the bare network in eval mode, and its description.

    Attributes:
        network: maps normalised images (n, channels, height, width) to its raw output.
        format: torchscript, pt2, safetensors, onnx or python.
        sha256: hex digest of the weights file (of all files if an ONNX model has several), or of
            the state dict if there is no file.
        differentiable: whether gradients with respect to the input exist (not for onnx).
        least_batch: the smallest batch it accepts.
        most_batch: the largest batch it accepts; None where there is no limit.
        output: key of the logits in what it returns, where the format says so.
        notes: lines for the user ("torchscript: a graph of torch operators ...").
    """

    network: nn.Module
    format: str
    sha256: str
    differentiable: bool = True
    least_batch: int = 1
    most_batch: int | None = None
    output: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The description of a model that is to be loaded.

    Attributes:
        spec: the model section of the spec.
        base_dir: the folder of the spec file: paths are relative to it, and it is importable for
            trusted code.
        device: where to put the network.
        dtype: torch.float32 or torch.float64.
        trust: whether the user's Python code may run.
    """

    spec: ModelSpec
    base_dir: Path = field(default_factory=Path.cwd)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    trust: bool = False

    @property
    def path(self) -> Path | None:
        """The weights file; for format python any path, or None.

        Raises:
            ModelError: it is a folder without a weights file.
        """
        path = model_path(self.spec, self.base_dir)
        return path if path is None or self.spec.format == "python" else weights_file(path)

    @property
    def where(self) -> str:
        """The name of the model in messages: its path, otherwise its architecture."""
        return str(self.path) if self.path is not None else (self.spec.architecture or "model")

    @property
    def file(self) -> Path:
        """The weights file of a format that needs one."""
        if self.path is None:
            raise ValueError("this format needs a path")
        return self.path


@dataclass(frozen=True, slots=True)
class Format:
    """A format of networks.

    Attributes:
        name: in specs and messages.
        load: its loader.
        suffixes: of its files; empty for a format without files (Python code).
        recognises: whether a file has this format, by its first 32 bytes and, for a zip archive,
            its members' names below its folder.
        only_weights: whether it needs an architecture.
    """

    name: str
    load: Callable[[Source], LoadedNetwork]
    suffixes: tuple[str, ...] = ()
    recognises: Callable[[bytes, Sequence[str]], bool] = lambda _head, _members: False
    only_weights: bool = False


def batch_note(format_: str, size: int) -> str:
    """A line for the user about a network with a fixed batch size."""
    return f"{format_}: the batch size is fixed at {size}, so batches are split and padded (slow)"


def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_finite(network: nn.Module, where: str) -> None:
    """Refuse NaN and infinite weights, by name.

    Minus infinity is allowed in buffers: it masks classes, or attention.

    Raises:
        ModelError: a parameter or buffer has such a value.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            _refuse_odd_numbers(name, parameter, where)
        for name, buffer in network.named_buffers():
            _refuse_odd_numbers(name, buffer, where, masks=True)


def _refuse_odd_numbers(
    name: str,
    tensor: torch.Tensor,
    where: str,
    *,
    masks: bool = False,
) -> None:
    if not tensor.is_floating_point() or torch.isfinite(tensor).all():
        return
    if masks and not (torch.isnan(tensor) | torch.isposinf(tensor)).any():
        return
    kind = "NaN" if torch.isnan(tensor).any() else "infinite values"
    # Wrappers such as AsWritten have the user's network as their attribute `network`.
    what = f"the tensor {name.removeprefix('network.')} has {kind}"
    raise ModelError(where, what, "train again, or take an earlier checkpoint")
