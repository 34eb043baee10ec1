"""What is measured: networks under noise, and methods at equal cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robaudit.numerics.annealing import gradients_of
from tests.benchmarks.qnorm.results import ORDERS, Case, Method, by_estimator, by_publication

_MNIST: dict[str, Any] = {
    "noise": {"kind": "uniform", "eps": 0.3},
    "published": (100, 20, (0.6, 0.6, 0.4, 0.2)),
    "path": {},
    "longer": {"temperatures": 600, "steps": 8},
    "copies": 2000,
}
_CIFAR: dict[str, Any] = {
    "noise": {"kind": "uniform", "eps": 8 / 255},
    "published": (50, 10, (0.6, 0.6, 0.4, 0.09)),
    "path": {"temperatures": 30, "steps": 2},
    "longer": {"temperatures": 200, "steps": 6},
    "copies": 500,
}
_SPATIAL: dict[str, Any] = {
    "noise": {"kind": "spatial", "size": 1.0},
    "published": None,
    "path": {},
    "longer": {"temperatures": 320, "steps": 6},
    "copies": 4000,
}
CASES = (
    Case("mnist_conv_small_nat", "MNIST ConvSmall, box .3", long_images=100, **_MNIST),
    Case("cifar10_cnn_a_adv", "CIFAR-10 CNN-A, trained against attacks, box 8/255", long_images=100, **_CIFAR),
    Case("mnist_cnn_a_adv", "MNIST CNN-A, trained against attacks, box .3", long_images=100, **_MNIST),
    Case("cifar10_resnet20", "CIFAR-10 ResNet20, box 8/255", long_images=50, **_CIFAR),
    Case("cifar10_resnet20", "CIFAR-10 ResNet20, spatial size 1", long_images=16, **_SPATIAL),
)

OURS, PUBLISHED, COPIES, ATTACK = "qnorm_path", "published sampler", "qnorm_mc", "adversarial_loss"

PICTURED, PICTURED_IMAGES, PICTURED_ORDERS = CASES[0], 20, (1.0, 100.0, 1000.0)
SHAPES = ((15, 1), (30, 1), (30, 2), (60, 2), (80, 3), (120, 4), (195, 5), (325, 6))
"""Temperatures and steps of `qnorm_path` for about 125, 250, ... 16,000 gradients."""
PUBLISHED_SHAPES = ((25, 5), (36, 7), (50, 10), (71, 14), (100, 20), (141, 28), (200, 40), (282, 57))
"""Likewise m and L."""


def methods(case: Case) -> dict[str, Method]:
    """What is compared at equal cost, by name."""
    found = {OURS: by_estimator("qnorm_path", **case.path)}
    if case.published is not None:
        found[PUBLISHED] = by_publication(*case.published)
    found[COPIES] = by_estimator("qnorm_mc", samples=case.copies)
    found[ATTACK] = by_estimator("adversarial_loss", steps=50, restarts=10)
    return found


def longer(case: Case) -> Method:
    """`qnorm_path` at about 20 times the cost."""
    return by_estimator("qnorm_path", **case.longer)


@dataclass(frozen=True, slots=True)
class Budget:
    """What the methods do with about as many gradients: a point of the curves."""

    temperatures: int
    steps: int
    m: int
    leapfrogs: int

    def methods(self) -> Mapping[str, Method]:
        """By name."""
        assert PICTURED.published is not None
        lengths = [length for q, length in zip(ORDERS, PICTURED.published[2], strict=True) if q in PICTURED_ORDERS]
        ours = by_estimator("qnorm_path", temperatures=self.temperatures, steps=self.steps)
        return {
            OURS: ours,
            PUBLISHED: by_publication(self.m, self.leapfrogs, lengths, PICTURED_ORDERS),
            COPIES: by_estimator("qnorm_mc", samples=gradients_of(self.temperatures, self.steps, 4)),
        }


BUDGETS = [Budget(*ours, *published) for ours, published in zip(SHAPES, PUBLISHED_SHAPES, strict=True)]
