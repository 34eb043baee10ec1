"""Faster forms of a network: the same function, rearranged or compiled."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from robaudit.forms import Form, FormName, Layout
from robaudit.models.logits import LogitModel
from robaudit.models.torchscript import AsWritten, without_deprecation
from robaudit.spec.model import IN_MEMORY

_MEMORY_FORMATS = {
    Layout.CONTIGUOUS: torch.contiguous_format,
    Layout.CHANNELS_LAST: torch.channels_last,
}


def layout_of(model: LogitModel) -> Layout:
    """The layout of a model."""
    contiguous = model.memory_format is torch.contiguous_format
    return Layout.CONTIGUOUS if contiguous else Layout.CHANNELS_LAST


def layouts_for(model: LogitModel) -> list[Layout]:
    """The layouts that may make a difference, the model's own first: both, if it has
    convolutions."""
    own = layout_of(model)
    if not any(parameter.dim() == 4 for parameter in _tensors(model.network)):
        return [own]
    return [own, *(layout for layout in Layout if layout is not own)]


def other_forms(model: LogitModel) -> list[FormName]:
    """The forms of a network other than as it was loaded, the quick ones first."""
    network = model.network
    names = list[FormName]()
    # optimize_for_inference is for CPUs.
    if model.differentiable and model.device.type == "cpu" and model.dtype is torch.float32:
        names.append(FormName.OPTIMISED)
    # The compiler writes and runs programs: it gets no graph from a stranger's file. TorchScript it
    # cannot compile.
    of_code = model.format in ("safetensors", "python", IN_MEMORY)
    if of_code and not any(isinstance(part, torch.jit.ScriptModule) for part in network.modules()):
        names.append(FormName.COMPILED)
    return names


def in_form(model: LogitModel, form: Form, row: Tensor) -> LogitModel:
    """The same model in another form, for forward passes without gradients.

    Args:
        model: as it was loaded.
        form: of the network.
        row: one input of the network (channels, height, width), normalised.

    Raises:
        Exception: of any kind, where the network cannot take this form: torch documents none.
    """
    if form.name is FormName.AS_LOADED and form.layout is layout_of(model):
        return model
    example = row.to(model.device, model.dtype).expand(form.rows, *row.shape)
    layout = _MEMORY_FORMATS[form.layout]
    with torch.inference_mode(False), torch.no_grad():
        inputs = example.contiguous(memory_format=layout).clone()
        network: nn.Module = copy.deepcopy(model.network)
        network = network.to(memory_format=layout)
        if form.name is FormName.OPTIMISED:
            network = _optimised(network, inputs)
        if form.name is FormName.COMPILED:
            network = _Compiled(network)
    only_rows = form.rows if form.name is FormName.COMPILED else None
    other = model.with_network(network, layout, only_rows)
    # The compiler works in the first pass, and some networks fail only there.
    with torch.inference_mode():
        other(inputs, normalised=True)
        if form.name is FormName.COMPILED:
            # A network that counts its passes would be compiled anew in each.
            with torch._dynamo.config.patch(error_on_recompile=True):
                other(inputs, normalised=True)
    return other


def _optimised(network: nn.Module, inputs: Tensor) -> nn.Module:
    """The network as a frozen TorchScript graph, optimised for inference on this CPU."""
    with without_deprecation(), warnings.catch_warnings():
        if isinstance(network, AsWritten):
            frozen: Any = network.fastest()
        else:
            # A trace follows one branch of code that depends on values, and torch warns of it.
            warnings.simplefilter("error", torch.jit._trace.TracerWarning)
            frozen = torch.jit.freeze(
                torch.jit.trace(network, inputs, check_trace=False, strict=False)
            )
        graph = torch.jit.optimize_for_inference(frozen)
    return _Graph(graph)


class _Graph(nn.Module):
    """Runs a TorchScript graph as it is, without torch's profiling and fusing."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self._graph = [graph]  # in a list: it has no parameters that torch should look for

    def forward(self, images: Tensor) -> Any:
        """The network's own output."""
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return self._graph[0](images)


class _Compiled(nn.Module):
    """Compiles a network in its first pass, for batches of that size."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        # One thread: the compiler's own worker processes would outlive an audit that is killed.
        options: dict[str, Any] = {"freezing": True, "compile_threads": 1}
        self._compiled = [torch.compile(network, dynamic=False, options=options)]

    def forward(self, images: Tensor) -> Any:
        """The network's own output."""
        with _quiet_compiler():
            # A tensor made in inference mode and another one are two types to the compiler, which
            # would work twice: a clone is always the first.
            return self._compiled[0](images.clone())


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    """Without the compiler's remarks on the machine."""
    # For example, importing the first says on the standard error stream that there is no GPU.
    loggers = [
        logging.getLogger(name)
        for name in ("torch.utils.cpp_extension", "torch._dynamo", "torch._inductor")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _tensors(network: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers."""
    yield from network.parameters()
    yield from network.buffers()
