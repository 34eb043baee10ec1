"""Networks that nobody tuned for, with images: made here from the embedded digits, and the shared
models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from robaudit.datasets import open_dataset
from robaudit.datasets.digits import DigitsSpec
from robaudit.datasets.npz import NpzSpec
from robaudit.models import LogitModel, from_module
from tests.research.benchmarks import networks
from tests.shared import SHARED, card

MADE: dict[str, tuple[Callable[[], nn.Module], float, float]] = {}
"""Of each network made here: how, the size of adversarial steps in training, and the level of the
noise."""
LEVELS = {
    "cifar10_cnn_a_adv": 0.1,
    "cifar10_cnn_a_mix": 0.1,
    "cifar10_resnet20": 0.04,
    "fashion_logistic": 0.25,
    "fashion_shallow_cnn": 0.1,
    "mnist_cnn_a_adv": 0.6,
    "mnist_conv_small_nat": 0.4,
    "mnist_spectral_mlp": 0.4,
}
"""The level of the noise for each shared model."""
SLOW = ("cifar10_resnet20",)
"""Half of the images."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A network with images, their labels, a noise level, and a copy with 2 % noise on its weights
    (None where it is a script)."""

    name: str
    model: LogitModel
    x: Tensor
    labels: Tensor
    classes: int
    level: float
    changed: LogitModel | None = None

    def first(self, images: int) -> Subject:
        """The first images alone."""
        return Subject(
            self.name,
            self.model,
            self.x[:images],
            self.labels[:images],
            self.classes,
            self.level,
            self.changed,
        )


def digits(train: bool) -> tuple[Tensor, Tensor]:
    """The embedded digits, and their labels."""
    data = open_dataset(
        DigitsSpec(kind="digits", split="train" if train else "test"), base_dir=SHARED, trust=False
    )
    samples = [data[i] for i in range(len(data))]
    return torch.stack([one.pixels.float() for one in samples]), torch.tensor(
        [one.label or 0 for one in samples]
    )


def connected(depth: int, activation: type[nn.Module], width: int = 60) -> nn.Sequential:
    """A fully connected network of so many layers."""
    hidden = [
        part
        for i in range(depth - 1)
        for part in (nn.Linear(64 if i == 0 else width, width), activation())
    ]
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))
    if activation is nn.Sigmoid:
        for part in network:
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight, gain=4.0)  # else deep ones do not learn
    return network


def convolutional() -> nn.Sequential:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


MADE |= {
    "4 layers, ReLU": (partial(connected, 4, nn.ReLU), 0.0, 0.2),
    "6 layers, ReLU": (partial(connected, 6, nn.ReLU), 0.0, 0.2),
    "9 layers, ReLU": (partial(connected, 9, nn.ReLU), 0.0, 0.2),
    "6 layers, ReLU, adversarial": (partial(connected, 6, nn.ReLU), 0.1, 0.3),
    "4 layers, sigmoid": (partial(connected, 4, nn.Sigmoid), 0.0, 0.2),
    "5 layers, sigmoid": (partial(connected, 5, nn.Sigmoid), 0.0, 0.2),
    "2 convolutions": (convolutional, 0.0, 0.2),
    "2 convolutions, adversarial": (convolutional, 0.1, 0.3),
}


def names() -> tuple[str, ...]:
    """Those made here, and the shared ones where they are present."""
    return (*MADE, *(LEVELS if SHARED.is_dir() else ()))


def subject(name: str, images: int) -> Subject:
    """A network by name; of the shared ones a quarter of the images."""
    if name in MADE:
        return _made(name, images)
    bench = networks.Bench(torch.device("cpu"))
    number = max(1, images // (8 if name in SLOW else 4))
    one = networks.load(bench, name, number)
    path = str(SHARED / "data" / f"{card(name)['dataset']}.npz")
    data = open_dataset(NpzSpec(kind="npz", path=path, limit=number), base_dir=SHARED, trust=False)
    labels = torch.tensor([data[i].label or 0 for i in range(len(data))])
    return Subject(name, one.model, one.x, labels, one.classes, LEVELS[name])


def _made(name: str, images: int) -> Subject:
    fresh, eps, level = MADE[name]
    (x, y) = digits(train=False)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = trained(fresh(), digits(train=True), eps=eps)
    return Subject(
        name,
        from_module(network),
        x[:images],
        y[:images],
        10,
        level,
        from_module(perturbed(network)),
    )


def trained(
    network: nn.Module, images: tuple[Tensor, Tensor], *, eps: float = 0.0, epochs: int = 30
) -> nn.Module:
    """The network after some epochs of Adam; ``eps``: on images moved so far by the sign of the
    gradient (adversarial training)."""
    x, y = images
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            moved = x[batch]
            if eps:
                moved = moved.clone().requires_grad_()
                (slope,) = torch.autograd.grad(
                    nn.functional.cross_entropy(network(moved), y[batch]), moved
                )
                moved = moved.detach() + eps * slope.sign()
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(moved), y[batch]).backward()
            optimiser.step()
    return network.eval().requires_grad_(False)


def perturbed(network: nn.Module, share: float = 0.02) -> nn.Module:
    """A copy whose weights are multiplied by 1 + share * N(0, 1)."""
    other = copy.deepcopy(network)
    for parameter in other.parameters():
        parameter.mul_(
            1
            + share
            * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
            )
        )
    return other
