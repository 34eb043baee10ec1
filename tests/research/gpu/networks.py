"""The networks that are measured, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torchvision.models import ResNet, VisionTransformer
from torchvision.models.resnet import BasicBlock, Bottleneck

RESNET18 = "ResNet18"


@dataclass(frozen=True, slots=True)
class Subject:
    """A network and the images that it takes.

    Attributes:
        name: of the network.
        build: makes it.
        size: height and width of an image.
        images: of a chunk; a power of two, so that they fill batches.
        batches: sizes of batches that are tried for the fastest pass.
    """

    name: str
    build: Callable[[], nn.Module]
    size: int
    images: int
    batches: tuple[int, ...]

    @property
    def text(self) -> str:
        """Its name and its images."""
        return f"{self.name}, {self.size} px"


def subjects(*, tiny: bool) -> list[Subject]:
    """The networks to measure; tiny: of the same kinds, and quick on a CPU."""
    if tiny:
        batches = (8, 16)
        return [
            Subject(RESNET18, lambda: resnet18(tiny=True), 8, 4, batches),
            Subject("ResNet50", lambda: resnet50(tiny=True), 32, 4, batches),
            Subject("ViT-B/16", lambda: vit(tiny=True), 32, 4, batches),
        ]
    return [
        Subject(RESNET18, resnet18, 32, 64, (256, 1024, 4096)),
        Subject("ResNet50", resnet50, 224, 8, (256, 1024)),
        Subject("ViT-B/16", vit, 224, 8, (256, 1024)),
    ]


def resnet18(*, tiny: bool = False) -> nn.Module:
    """The ResNet18 of CIFAR-10: a first convolution of 3 x 3, no pooling after it, ten classes.

    Source: He et al. 2016, with the changes that are usual for 32 x 32 pixels: 0.56 billion
    multiplications an image.
    """
    layers = [1, 1, 1, 1] if tiny else [2, 2, 2, 2]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = ResNet(BasicBlock, layers, num_classes=10)
        network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
        return _spread(network)


def resnet50(*, tiny: bool = False) -> nn.Module:
    """torchvision's ResNet50 of a thousand classes."""
    layers = [1, 1, 1, 1] if tiny else [3, 4, 6, 3]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _spread(ResNet(Bottleneck, layers))


def vit(*, tiny: bool = False) -> nn.Module:
    """torchvision's ViT-B/16 of a thousand classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if tiny:
            return _spread(VisionTransformer(32, 16, 2, 2, hidden_dim=32, mlp_dim=64))
        return _spread(VisionTransformer(224, 16, 12, 12, hidden_dim=768, mlp_dim=3072))


def _spread(network: nn.Module) -> nn.Module:
    """The network with classes that differ: a fresh ViT has the logits 0."""
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    nn.init.normal_(last.weight, std=0.1)
    return network.eval().requires_grad_(False)
