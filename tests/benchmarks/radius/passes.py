"""A network that counts its passes, and the images that are attacked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from robaudit.datasets import open_dataset
from robaudit.datasets.npz import NpzSpec
from robaudit.models import LogitModel
from tests.benchmarks.networks import Bench, card, load

_READ = 600


@dataclass(frozen=True, slots=True)
class Attacked:
    """A network with test images that it classifies correctly.

    Attributes:
        model: pixels to logits.
        x: the images (n, channels, height, width).
        y: their classes (n,).
    """

    model: LogitModel
    x: Tensor
    y: Tensor


@cache
def attacked(bench: Bench, name: str, images: int) -> Attacked:
    """The first test images of which the network is right."""
    assert bench.shared is not None
    network = load(bench, name, _READ)
    data = bench.shared / "data" / f"{card(bench, name)['dataset']}.npz"
    samples = open_dataset(NpzSpec(kind="npz", path=str(data), limit=_READ), base_dir=data.parent, trust=False)
    labels = torch.tensor([samples[i].label for i in range(len(samples))])
    right = (classes(network.model, network.x) == labels).nonzero()[:images, 0]
    assert len(right) == images
    return Attacked(network.model, network.x[right], labels[right])


def classes(model: LogitModel, x: Tensor) -> Tensor:
    """What a plain forward pass says."""
    with torch.inference_mode():
        return torch.cat([model(part).argmax(1) for part in x.split(100)]).clone()


class Counted(nn.Module):
    """The same network, which counts rows: one of a forward pass, and one of every backward pass through it.

    Attributes:
        forwards, gradients: rows so far.
    """

    def __init__(self, model: LogitModel) -> None:
        super().__init__()
        self.model = model
        self.forwards = self.gradients = 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        self.forwards += len(x)
        logits: Tensor = self.model(x)
        return _Watched.apply(logits, self) if logits.requires_grad else logits


class _Watched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, counter: Counted) -> Tensor:
        """Nothing."""
        ctx.counter = counter
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        """Count."""
        ctx.counter.gradients += len(gradient[0])
        return gradient[0], None
