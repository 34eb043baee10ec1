"""Where the trained networks and data for trying are, and how tests load a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models import LogitModel, Source, load_model
from robaudit.spec.model import ModelSpec

SHARED = Path(__file__).resolve().parents[4] / "shared"
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mnist_cnn_a_adv": ("small_cnn", {}),
    "mnist_conv_small_nat": ("small_cnn", {"padding": 0}),
    "cifar10_cnn_a_adv": ("small_cnn", {"in_channels": 3, "image_size": 32}),
    "cifar10_cnn_a_mix": ("small_cnn", {"in_channels": 3, "image_size": 32}),
    "cifar10_resnet20": ("cifar_resnet", {"depth": 20}),
    "fashion_logistic": ("linear", {}),
    "fashion_shallow_cnn": ("shallow_cnn", {}),
    "mnist_spectral_mlp": ("mlp", {"sizes": [784, 100, 100, 10]}),
}
FILES = {"torchscript": "model.torchscript.pt", "pt2": "model.pt2", "safetensors": "model.safetensors"}


class SharedModel:
    """One of the trained networks for trying, with its test images."""

    def __init__(self, name: str) -> None:
        self.folder = SHARED / "models" / name
        if not self.folder.is_dir():
            pytest.skip("the shared folder with trained networks is not beside the repository")
        self.name, self.info = name, json.loads((self.folder / "model.json").read_text())

    def load(self, form: str, dtype: torch.dtype = torch.float32, **changes: Any) -> LogitModel:
        """The network from one of its three files."""
        fields: dict[str, Any] = {"mean": self.info["mean"], "std": self.info["std"]}
        if form == "safetensors":
            architecture, options = ARCHITECTURES[self.name]
            fields |= {"architecture": f"robaudit:{architecture}", "architecture_options": options}
        return load(self.folder / FILES[form], dtype=dtype, **(fields | changes))

    def images(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first test images in [0, 1] and their labels."""
        with np.load(SHARED / "data" / f"{self.info['dataset']}.npz") as data:
            return torch.tensor(data["images"][:count]).float() / 255, torch.tensor(data["labels"][:count])


def load(
    path: Path | None, *, dtype: torch.dtype = torch.float32, trust: bool = False, base_dir: Path | None = None, **fields: Any
) -> LogitModel:
    """Load a file as the CLI would, with the spec's model fields as keywords."""
    spec = ModelSpec.model_validate({"path": str(path) if path else None, **fields})
    folder = base_dir or (path.parent if path else Path.cwd())
    return load_model(Source(spec, folder, dtype=dtype, trust=trust))


def refusal(path: Path | None, **fields: Any) -> str:
    """The one line that a failing load prints."""
    with pytest.raises(ModelError) as caught:
        load(path, **fields)
    return one_line(caught.value)


def one_line(error: ModelError) -> str:
    """The message of an error, which must be one line."""
    text = str(error)
    assert "\n" not in text
    assert len(text) < 700
    return text


def small_net(classes: int = 3, seed: int = 0) -> nn.Sequential:
    """A random network for 1 x 8 x 8 images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes)).eval()


def pixels(count: int = 5, channels: int = 1, side: int = 8) -> torch.Tensor:
    """Some images in [0, 1]."""
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1))
