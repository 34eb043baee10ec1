"""The shared real models and data, where they are present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODELS = (
    "cifar10_cnn_a_adv",
    "cifar10_cnn_a_mix",
    "cifar10_resnet20",
    "fashion_logistic",
    "fashion_shallow_cnn",
    "mnist_cnn_a_adv",
    "mnist_conv_small_nat",
    "mnist_spectral_mlp",
)

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder ../shared with real models and data is absent"
)


def card(model: str) -> dict[str, Any]:
    """model.json of a shared model."""
    found: dict[str, Any] = json.loads((SHARED / "models" / model / "model.json").read_text())
    return found


def document(
    model: str, *, file: str = "model.torchscript.pt", limit: int = 16, **sections: Any
) -> dict[str, Any]:
    """A spec for a shared model on its own test images, as a YAML document; ``sections`` replace
    whole sections."""
    about = card(model)
    return {
        "model": {
            "path": str(SHARED / "models" / model / file),
            "mean": about["mean"],
            "std": about["std"],
        },
        "dataset": {
            "kind": "npz",
            "path": str(SHARED / "data" / f"{about['dataset']}.npz"),
            "limit": limit,
        },
        "noise": {"sigma": [0.05]},
        "estimators": [{"mc": {"draws": 100}}],
        **sections,
    }


RESIZE = 256
"""Pixels of the shorter side of a photo before the crop to 224."""
PHOTO_NETWORK = {"path": str(SHARED / "models" / "imagenet_lite0_timm")}
"""EfficientNet-Lite0; its folder says mean and std."""


def photos(**more: Any) -> dict[str, Any]:
    """The section ``dataset`` of the photos of 200 ImageNet classes."""
    path = str(SHARED / "data" / "imagenet_photos")
    return {
        "kind": "images",
        "path": path,
        "class_names": "imagenet",
        "resize": RESIZE,
        "crop": 224,
    } | more


FASHION_CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
"""The names of FashionMNIST's classes, by index."""
