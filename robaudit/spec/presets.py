"""Means and standard deviations of common training sets."""

from __future__ import annotations

from collections.abc import Mapping

NORMALISATIONS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none": ((), ()),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "mnist": ((0.1307,), (0.3081,)),
    "fashionmnist": ((0.2860,), (0.3530,)),
    "half": ((0.5,), (0.5,)),
}
"""Mean and std by name, as torchvision's models and the usual training scripts have them; "none"
leaves pixels in [0, 1], "half" maps them to [-1, 1]."""

LIKELY = ("imagenet", "cifar10", "mnist", "fashionmnist", "half")
"""The presets that users forget most often; CIFAR-10's serves for CIFAR-100, too."""


def hint(name: str) -> str:
    """The text for the spec: ``mean: [0.1307], std: [0.3081] (mnist)``."""
    mean, std = NORMALISATIONS[name]
    if name == "half":  # a single number, which fits any number of channels
        return f"mean: {mean[0]}, std: {std[0]} ({name})"
    return f"mean: {list(mean)}, std: {list(std)} ({name})"
