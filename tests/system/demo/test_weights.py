"""The demo's weights and specs are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

import robaudit.demo
from robaudit.datasets.digits import DigitsSpec
from robaudit.models.architectures import digits_cnn
from robaudit.spec.model import AuditSpec
from tests.levels import sigma

FOLDER = Path(robaudit.demo.__path__[0])
NAMES = ("digits_cnn", "digits_cnn_noise")


def accuracy(name: str, sigma: float = 0.0, copies: int = 1) -> float:
    """The share of noisy copies of the test images that a network classifies correctly."""
    network = digits_cnn()
    network.load_state_dict(load_file(FOLDER / f"{name}.safetensors"))
    dataset = DigitsSpec(split="test").open(Path(), trust=False)
    samples = [dataset[i] for i in range(len(dataset))]
    images, labels = torch.stack([sample.pixels for sample in samples]).float(), torch.tensor([sample.label for sample in samples])
    generator, right = torch.Generator().manual_seed(0), 0
    with torch.no_grad():
        for _ in range(copies):
            right += int((network.eval()(images + sigma * torch.randn(images.shape, generator=generator)).argmax(1) == labels).sum())
    return right / (copies * len(labels))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_weights_are_as_good_as_they_say(name: str) -> None:
    path = FOLDER / f"{name}.safetensors"
    assert path.stat().st_size < 200_000
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["architecture"] == "robaudit:digits_cnn"
    assert accuracy(name) == pytest.approx(float(metadata["test_accuracy"]), abs=1 / 719)
    assert float(metadata["test_accuracy"]) > 0.97


def test_noise_training_helps_clearly() -> None:
    ordinary, trained = (accuracy(name, 0.25, copies=5) for name in NAMES)
    assert trained - ordinary > 0.03  # 3595 noisy images each: 0.03 is about five standard errors


@pytest.mark.parametrize("name", ["ordinary", "noise_trained"])
def test_shipped_specs(name: str) -> None:
    spec = AuditSpec.model_validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
    assert spec.model.path is not None
    assert (FOLDER / spec.model.path).exists()
    assert spec.dataset == DigitsSpec(kind="digits", split="test", limit=200)
    assert spec.levels == (sigma(0.1), sigma(0.25))
    assert [estimator.name for estimator in spec.estimators] == ["mc"]
