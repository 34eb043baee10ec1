"""Results that are the same, as far as the machine and the network promise it."""

from __future__ import annotations

from functools import cache

import torch
from safetensors.torch import load_file
from torch import nn

from robaudit.auditing.batches import check_rows
from robaudit.engine.passes import Engine
from robaudit.models import from_module
from robaudit.models.architectures import digits_cnn
from robaudit.runs.info import RowBits
from tests.specs import WEIGHTS


@cache
def why_not() -> str:
    """Why tests that compare bits would fail on this machine; empty where they hold.

    The check that every run makes of its own network is made of the embedded one and of a fully
    connected one.
    """
    embedded = digits_cnn()
    embedded.load_state_dict(load_file(WEIGHTS))
    images = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for network in (
        embedded,
        nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)),
    ):
        found, _ = check_rows(Engine(from_module(network), {}, 10), images, gradients=True)
        if found.kind is not RowBits.BITWISE:
            return (
                "logits depend on the size of the batch here (by up to "
                f"{found.largest_difference:.1g} of their spread)"
            )
    return ""
