"""A CIFAR-10 of a few images, in the files that torchvision reads."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torchvision import datasets

NAMES = tuple("abcdefghij")


def write_cifar10(
    root: Path, images: NDArray[np.uint8], labels: list[int], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write the test images (n, 3, 32, 32), and let torchvision expect these files; returns their
    folder."""
    base = root / "cifar-10-batches-py"
    base.mkdir(parents=True)
    contents: dict[str, Any] = {
        "test_batch": {"data": images.reshape(len(images), -1), "labels": labels},
        "batches.meta": {"label_names": list(NAMES)},
    }
    sums = {}
    for name, content in contents.items():
        data = pickle.dumps(content)
        (base / name).write_bytes(data)
        sums[name] = hashlib.md5(data, usedforsecurity=False).hexdigest()
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(
        datasets.CIFAR10,
        "meta",
        {"filename": "batches.meta", "key": "label_names", "md5": sums["batches.meta"]},
    )
    return base
