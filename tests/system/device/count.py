"""Count what an estimator asks of a CUDA device, without one.

``python -m tests.system.device.count ESTIMATOR [--images N]`` prints how often the host waits for
the device and how many operators start work, with the lines of robaudit that cause most. The clean
pass is not counted. A synchronisation is a value, a size or a mask that the host reads, or a copy
from or to the host: what ``torch.cuda.set_sync_debug_mode`` warns of.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator
from tests.system.device.card import Card, pretended
from tests.unit.engine.tools import fitting, installed_estimators, network_for, values, work_on

IMAGES = 16
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """What an estimator asked of the device for a chunk of images.

    Attributes:
        card: the counts.
        images: how many.
        passes: calls of the network.
        gradient_passes: those that were differentiated.
    """

    card: Card
    images: int
    passes: int
    gradient_passes: int


def chunk(name: str, images: int, device: str, **options: Any) -> tuple[Estimator, ImageBatch]:
    """An estimator, and random images of ten classes for it on a device."""
    estimator = installed_estimators()[name].model_validate(options)
    network = network_for(estimator, CLASSES)
    return estimator, fitting(estimator, work_on(network, images=images, device=device))


def measure(name: str, images: int = IMAGES, **options: Any) -> Measured:
    """One chunk of random images of ten classes through an estimator.

    Args:
        name: of the estimator.
        images: how many.
        options: of the estimator; the others have their defaults.
    """
    passes = Counter[bool]()

    def passed(_: nn.Module, arguments: tuple[Tensor, ...], __: object) -> None:
        passes[torch.is_grad_enabled() and arguments[0].requires_grad] += 1

    with pretended() as card:
        estimator, batch = chunk(name, images, "cuda", **options)
        batch.engine.model.register_forward_hook(passed)
        card.reset()
        values(estimator, batch)
    return Measured(card, images, passes.total(), passes[True])


def main() -> None:
    """Print what an estimator costs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.device.count",
        description="Synchronisations and launches of an estimator.",
    )
    parser.add_argument("estimator")
    parser.add_argument(
        "--images", type=int, default=IMAGES, help=f"in the chunk; default {IMAGES}"
    )
    asked = parser.parse_args()
    found = measure(asked.estimator, asked.images)
    about = (
        f"images: {found.images}, passes: {found.passes}, differentiated: {found.gradient_passes}"
    )
    sys.stdout.write(f"{about}\n{found.card.text(15)}\n")


if __name__ == "__main__":
    main()
