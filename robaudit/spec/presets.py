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
"""Mean and std by name; "none": pixels stay in [0, 1]."""

LIKELY = ("imagenet", "cifar10", "mnist", "fashionmnist", "half")
"""The presets that users forget most often; CIFAR-10's serves for CIFAR-100, too."""


def hint(name: str) -> str:
    """The text for the spec: ``mean: [0.1307], std: [0.3081] (mnist)``."""
    mean, std = (values[0] if name == "half" else list(values) for values in NORMALISATIONS[name])
    return f"mean: {mean}, std: {std} ({name})"
