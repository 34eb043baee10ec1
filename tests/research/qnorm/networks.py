"""Networks whose norms are known: their first layer is linear, and few dimensions of the noise
reach the second."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import torch
from torch import nn

from tests.research.coverage.subjects import digits
from tests.research.qnorm.truth import Problem, row_space

WIDTHS = {"wide MLP": (48, 32), "narrow MLP": (16,)}
NAMES = (*WIDTHS, "CNN behind a linear layer")
SIGMA = 0.3


@cache
def network(name: str) -> nn.Sequential:
    """A network of this name: Flatten, Linear, the rest; trained on the digits."""
    torch.manual_seed(0)
    x, labels = digits(train=True)
    pixels = x[0].numel()
    if name in WIDTHS:
        parts = _perceptron(pixels, WIDTHS[name])
    else:
        parts = [
            nn.Linear(pixels, 36),
            nn.Unflatten(1, (1, 6, 6)),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 10),
        ]
    made = nn.Sequential(nn.Flatten(), *parts)
    optimizer = torch.optim.Adam(made.parameters(), 3e-3)
    for _ in range(30):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(made(x[rows]), labels[rows]).backward()
            optimizer.step()
    return made.requires_grad_(False).eval()


def _perceptron(pixels: int, widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    parts: list[nn.Module] = []
    inputs = pixels
    for width in widths:
        parts += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return [*parts, nn.Linear(inputs, 10)]


def under_gaussian(name: str, images: int, sigma: float = SIGMA) -> Problem:
    """The first images of the digits for a network, in the row space of its first layer."""
    x, labels = digits(train=False)
    # a copy: layers become float64 in place
    _, first, *rest = copy.deepcopy(network(name))
    assert isinstance(first, nn.Linear)
    return row_space(first, nn.Sequential(*rest), x[:images], labels[:images], sigma)
