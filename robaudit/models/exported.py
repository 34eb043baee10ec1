"""Networks from .pt2 files: the archive is checked, then torch.export loads it, weights only."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.base import LoadedNetwork, Source, check_finite, file_sha256
from robaudit.models.safety import check_exported

NOTE = "pt2: a graph of torch operators, not only weights; load files only from people you trust"
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
_BATCH_NORMS = ("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "cudnn_batch_norm")


def load_exported(source: Source) -> LoadedNetwork:
    """Load a file of ``torch.export.save``.

    Raises:
        ModelError: the archive holds more than tensors and torch operators, is damaged or of another torch version, was
            exported in training mode, takes several inputs, or has NaN weights.
    """
    check_exported(source.file)
    listener = _Listener()
    try:
        with _weights_only(), listener:
            program = torch.export.load(source.file)
    except Exception as error:
        reason = _line(listener.first or error)
        raise ModelError(
            source.where, f"torch.export {torch.__version__} cannot load it: {reason}", "export it again with this version of torch"
        ) from error
    _refuse_training(program, source.where)
    least, most = _batch_sizes(program, source.where)
    if source.device.type != "cpu":
        program = _moved(program, source.device)
    # Guards are skipped: they are Python code in the file, compiled and run.
    takes_guards = "check_guards" in inspect.signature(program.module).parameters
    if hasattr(program, "_guards_code"):
        program._guards_code = []
    network: nn.Module = program.module(check_guards=False) if takes_guards else program.module()
    network = network.to(device=source.device, dtype=source.dtype)
    check_finite(network, source.where)
    fixed = least if least == most else None
    notes = (NOTE,) if fixed is None else (NOTE, f"pt2: the batch size is fixed at {fixed}, so batches are split and padded (slow)")
    return LoadedNetwork(network, "pt2", file_sha256(source.file), fixed_batch=fixed, least_batch=least, most_batch=most, notes=notes)


def _batch_sizes(program: Any, where: str) -> tuple[int, int | None]:
    """The smallest and the largest batch a graph accepts; None where there is no largest."""
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise ModelError(where, f"the exported network takes {len(names)} inputs", "export it with the images as its only input")
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name == names[0]:
            size: Any = (*getattr(node.meta.get("val"), "shape", ()), None)[0]
            if isinstance(size, int):
                return size, size
            limits = program.range_constraints.get(size.node.expr) if isinstance(size, torch.SymInt) else None
            if limits is not None:
                return max(_whole(limits.lower) or 1, 1), _whole(limits.upper)
    return 1, None


def _whole(limit: Any) -> int | None:
    """A limit of a size as a number; None where it is infinite."""
    return int(limit) if isinstance(limit, int) or getattr(limit, "is_Integer", False) else None


def _refuse_training(program: Any, where: str) -> None:
    """Batch statistics and active dropout are part of an exported graph; eval() cannot switch them off."""
    for node in program.graph.nodes:
        schema: Any = getattr(node.target, "_schema", None)
        name = schema.name.removeprefix("aten::") if schema is not None else ""
        if name in _DROPOUTS or name in _BATCH_NORMS:
            values = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
            if values.get("train") or values.get("training"):
                raise ModelError(
                    where,
                    f"was exported in training mode ({name} is active)",
                    "call model.eval() before torch.export.export, and export again",
                )


def _moved(program: Any, device: torch.device) -> Any:
    from torch.export import passes

    return passes.move_to_device_pass(program, device) if hasattr(passes, "move_to_device_pass") else program


@contextmanager
def _weights_only() -> Iterator[None]:
    """A second safeguard besides the check of the archive: torch.load cannot fall back from weights_only."""
    force, unsafe = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (force, unsafe)}
    os.environ[force] = "1"
    try:
        yield
    finally:
        os.environ.pop(force)
        os.environ.update({name: value for name, value in before.items() if value is not None})


class _Listener(logging.Handler):
    """Keep torch's log lines about the layouts it tries off stderr, and remember the first error in them."""

    def __init__(self) -> None:
        super().__init__()
        self.first: BaseException | None = None
        self.loggers = [logging.getLogger(name) for name in ("torch.export", "torch._export")]

    def emit(self, record: logging.LogRecord) -> None:
        if self.first is None and record.exc_info:
            self.first = record.exc_info[1]

    def __enter__(self) -> None:
        self.before = [(logger.handlers, logger.propagate) for logger in self.loggers]
        for logger in self.loggers:
            logger.handlers, logger.propagate = [self], False

    def __exit__(self, *_: object) -> None:
        for logger, (handlers, propagate) in zip(self.loggers, self.before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate


def _line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
