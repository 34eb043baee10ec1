"""Networks from the user's Python code, under ``--trust`` and through a named function only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.fingerprint import fingerprint
from robaudit.models.formats import Format, LoadedNetwork, Source, file_sha256
from robaudit.python_code import describe, user_function
from robaudit.settings import TRUST


class CallableNetwork(nn.Module):
    """A plain function as a network."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> Any:
        """Call the function."""
        return self.function(images)


def as_module(value: object) -> nn.Module | None:
    """The value as a module: itself, or a wrapped callable; None if it is neither."""
    if isinstance(value, nn.Module):
        return value
    # A class is callable, too, but its call would make a network and run none.
    if callable(value) and not isinstance(value, type):
        return CallableNetwork(value)
    return None


def load_python(source: Source) -> LoadedNetwork:
    """Load a network from the architecture's function, which returns a module or callable.

    Raises:
        ModelError: the function is not trusted, is missing, raises, or returns something else.
    """
    if source.path is not None and not source.path.exists():
        raise ModelError(
            str(source.path), "there is no such file", "paths are relative to the spec file"
        )
    value = call_target(source, with_path=True)
    network = as_module(value)
    if network is None:
        raise ModelError(
            source.where,
            f"{source.spec.architecture} returned {type(value).__name__}",
            "return a torch.nn.Module or a callable",
        )
    # The path may be a folder, or the spec may have none.
    if source.path is not None and source.path.is_file():
        sha256 = file_sha256(source.path)
    else:
        sha256 = fingerprint(value)
    return LoadedNetwork(
        network.eval(),
        "python",
        sha256,
        notes=(f"the network comes from your Python code, {source.spec.architecture}",),
    )


FORMAT = Format("python", load_python)


def call_target(source: Source, *, with_path: bool = False) -> object:
    """Import ``package.module:function`` and call it with the architecture's options.

    The spec's folder is importable only during the import and the call.

    Args:
        source: names the function and its options.
        with_path: pass the spec's path, if there is one, as ``path``.

    Raises:
        ModelError: the function is not trusted, is missing, or raises.
    """
    target = source.spec.architecture or ""
    module_name, colon, function_name = target.partition(":")
    if not (module_name and colon and function_name):
        raise ModelError(
            f"architecture {target or '(none)'}",
            "names no network",
            "write torchvision:NAME, timm:NAME, robaudit:NAME or package.module:function",
        )
    if not source.trust:
        raise ModelError(
            f"architecture {target}",
            "is Python code and would run on this machine",
            "pass " + TRUST + " if you trust it, or convert the model to TorchScript, .pt2 or "
            "safetensors with a torchvision: architecture",
        )
    options: dict[str, Any] = dict(source.spec.architecture_options)
    with user_function(
        target, source.base_dir, partial(ModelError, f"architecture {target}")
    ) as function:
        if with_path and source.path is not None:
            options.setdefault("path", source.path)
        try:
            result: object = function(**options)
        except Exception as error:
            raise ModelError(
                f"architecture {target}", f"raised {describe(error)}", "see architecture_options"
            ) from error
    return result
