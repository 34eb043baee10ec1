"""Which network does an architecture's name mean: ``robaudit:NAME``, ``torchvision:NAME`` or ``package.module:function``?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError, did_you_mean
from robaudit.models.architectures import ARCHITECTURES
from robaudit.models.base import Source
from robaudit.models.python_callable import call_target


def build_architecture(source: Source) -> nn.Module:
    """The network that ``architecture`` names, with fresh weights and in eval mode.

    The global random state is left as it was.

    Raises:
        ModelError: the name is unknown, the options do not fit, or the code is not trusted.
    """
    name, options = source.spec.architecture or "", source.spec.architecture_options
    family, colon, short = name.partition(":")
    network: object
    with torch.random.fork_rng(devices=[]):
        if family == "robaudit" and colon:
            network = _build(name, short, ARCHITECTURES, options)
        elif family == "torchvision" and colon:
            network = _torchvision(name, short, options)
        else:
            network = call_target(source)
    if not isinstance(network, nn.Module):
        raise ModelError(name, f"returned {_article(type(network).__name__)}", "it must return a torch.nn.Module to load weights into")
    return network.eval()


def _torchvision(name: str, short: str, options: dict[str, Any]) -> nn.Module:
    from torchvision import models

    known = {model: models.get_model_builder(model) for model in models.list_models()}
    defaults: dict[str, Any] = {"weights": None}
    if short in ("googlenet", "inception_v3"):
        defaults["init_weights"] = False  # slow, warns, and the weights are loaded over it
    return _build(name, short, known, defaults | options)


def _build(name: str, short: str, known: dict[str, Callable[..., nn.Module]], options: dict[str, Any]) -> nn.Module:
    if short not in known:
        raise ModelError(f"architecture {name}", "there is no such network", did_you_mean(short, known))
    for option in ("weights", "weights_backbone"):
        if options.get(option) is not None:
            raise ModelError(f"architecture {name}", f"{option} would be downloaded", "leave it out: the weights come from model.path")
    builder = known[short]
    parameters = inspect.signature(builder).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                raise ModelError(f"architecture {name}", f"it takes no option {option!r}", did_you_mean(option, parameters))
    try:
        return builder(**options)
    except Exception as error:
        raise ModelError(f"architecture {name}", f"its options do not fit: {error}", "see architecture_options") from error


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
