"""Small networks trained here: fully connected ones, and adversarially trained ones, which the shared models do not cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

_BATCH, _ASCENT, _RATE = 128, 5, 2e-3


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is made.

    Attributes:
        data: name of the data set, without _train or _test.
        build: its layers.
        epochs: over all 60,000 training images.
        eps: of the l_inf ball of adversarial training; 0: ordinary training.
    """

    data: str
    build: Callable[[], nn.Module]
    epochs: int = 2
    eps: float = 0.0


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Fully connected layers of these widths."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def tiny() -> nn.Module:
    """Two convolutions and two dense layers."""
    first, second = nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.Conv2d(8, 16, 4, stride=2, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


RECIPES = {
    "mnist_dense": Recipe("mnist", lambda: dense(784, 256, 256, 256, 256, 10), epochs=10),
    "mnist_deep": Recipe("mnist", lambda: dense(784, *[64] * 8, 10), epochs=4),
    "fashion_dense": Recipe("fashion_mnist", lambda: dense(784, 256, 256, 256, 256, 10), epochs=10),
    "fashion_sigmoid": Recipe("fashion_mnist", lambda: dense(784, 128, 128, 10, activation=nn.Sigmoid), epochs=4),
    "fashion_dense_adv": Recipe("fashion_mnist", lambda: dense(784, 256, 256, 256, 256, 10), eps=0.05),
    "mnist_tiny_adv": Recipe("mnist", tiny, eps=0.3),
}


def made(name: str, shared: Path, cache: Path) -> nn.Module:
    """A network by name, from its file in ``cache``, or trained first."""
    recipe, path = RECIPES[name], cache / f"{name}.safetensors"
    torch.manual_seed(0)
    network = recipe.build()
    if path.exists():
        network.load_state_dict(load_file(path))
    else:
        data = np.load(shared / "data" / f"{recipe.data}_train.npz")
        _train(network, torch.from_numpy(data["images"]), torch.from_numpy(data["labels"]), recipe)
        cache.mkdir(parents=True, exist_ok=True)
        save_file(network.state_dict(), path)
    return network.eval().requires_grad_(False)


def _train(network: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    total = recipe.epochs * -(-len(images) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_RATE, total_steps=total)
    step = 0
    for _ in range(recipe.epochs):
        for part in torch.randperm(len(images)).split(_BATCH):
            x, y = images[part].float() / 255, labels[part]
            eps = recipe.eps * min(1.0, 2 * step / total)  # grows at first: from scratch, large balls teach nothing
            x = _attacked(network, x, y, eps) if eps else x
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
            schedule.step()
            step += 1


def _attacked(network: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Projected gradient ascent in the l_inf ball, from a random start (Madry et al. 2018)."""
    found = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
    for _ in range(_ASCENT):
        found.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(network(found), y), found)
        found = torch.minimum(torch.maximum(found.detach() + 2.5 * eps / _ASCENT * slope.sign(), x - eps), x + eps).clamp(0, 1)
    return found
