"""The networks and images that are measured, and the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor

from robaudit.datasets import open_dataset
from robaudit.datasets.npz import NpzSpec
from robaudit.engine import registry
from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.models import LogitModel, Source, load_model
from robaudit.models.architectures import ARCHITECTURES
from robaudit.spec.model import ModelSpec
from tests import levels
from tests.levels import gaussian_process
from tests.shared import SHARED, card, document
from tests.unit.engine.tools import OneValue


@dataclass(frozen=True, slots=True)
class Bench:
    """What every part is told.

    Attributes:
        device: where the networks run.
        quick: few repeats and small cases, to see that all works.
        out: the folder of the report and the picture, or None: print only.
        say: hears one line for each step.
    """

    device: torch.device
    quick: bool = False
    out: Path | None = None
    say: Callable[[str], None] = print


@dataclass(frozen=True, slots=True)
class Network:
    """A loaded model with its first test images (n, channels, height, width) on the device."""

    name: str
    model: LogitModel
    x: Tensor
    classes: int

    def engine(self, seed: int = 0) -> Engine:
        """The engine of an audit with this seed."""
        noise = gaussian_process(seed, self.model.device, self.model.dtype)
        return Engine(self.model, noise, self.classes)

    def batch(self, sigma: float, engine: Engine | None = None) -> ImageBatch:
        """All images as one chunk."""
        chosen = engine or self.engine()
        return ImageBatch.from_images(chosen, self.x, levels.sigma(sigma))


def estimator(name: str, **options: Any) -> OneValue:
    """A registered estimator without parts."""
    return cast(OneValue, registry.load(name).model_validate(options))


def script(name: str) -> Path:
    """The TorchScript file of a shared model."""
    return SHARED / "models" / name / "model.torchscript.pt"


def load(bench: Bench, name: str, images: int) -> Network:
    """A shared model as an audit loads it, with its first test images."""
    given = document(name, limit=images)
    model = load_model(Source(ModelSpec(**given["model"]), device=bench.device))
    samples = open_dataset(NpzSpec(**given["dataset"]), base_dir=SHARED, trust=False)
    x = (
        torch.stack([samples[i].pixels for i in range(len(samples))])
        .to(model.dtype)
        .to(bench.device)
    )
    return Network(name, model, x, int(card(name)["num_classes"]))


def research_resnet20(bench: Bench) -> Callable[[Tensor], Tensor]:
    """The same weights as a plain module in a script: pixels to logits, nothing else."""
    about = card("cifar10_resnet20")
    module = ARCHITECTURES["cifar_resnet"]()
    module.load_state_dict(load_file(SHARED / "models" / "cifar10_resnet20" / "model.safetensors"))
    module = module.eval().requires_grad_(False).to(bench.device)
    mean, std = (
        torch.tensor(about[key], device=bench.device).view(1, -1, 1, 1) for key in ("mean", "std")
    )

    def logits(x: Tensor) -> Tensor:
        out: Tensor = module((x - mean) / std)
        return out

    return logits
