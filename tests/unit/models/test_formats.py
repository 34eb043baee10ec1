"""The same trained network gives the same logits from each of its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robaudit.models import LogitModel
from tests.shared import SHARED, card, needs_shared
from tests.unit.models import conftest

pytestmark = needs_shared
FILES = {
    "torchscript": "model.torchscript.pt",
    "pt2": "model.pt2",
    "safetensors": "model.safetensors",
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "cifar10_resnet20": ("cifar_resnet", {"depth": 20}),
    "fashion_logistic": ("linear", {}),
    "fashion_shallow_cnn": ("shallow_cnn", {}),
    "mnist_cnn_a_adv": ("small_cnn", {}),
    "mnist_spectral_mlp": ("mlp", {"sizes": [784, 100, 100, 10]}),
}


def load(name: str, form: str, dtype: torch.dtype = torch.float32) -> LogitModel:
    """A trained network from one of its three files."""
    fields: dict[str, Any] = {"mean": card(name)["mean"], "std": card(name)["std"]}
    if form == "safetensors":
        architecture, options = ARCHITECTURES[name]
        fields |= {"architecture": f"robaudit:{architecture}", "architecture_options": options}
    return conftest.load(SHARED / "models" / name / FILES[form], dtype=dtype, **fields)


def images_of(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Its first test images in [0, 1], and their labels."""
    with np.load(SHARED / "data" / f"{card(name)['dataset']}.npz") as data:
        return torch.tensor(data["images"][:count]).float() / 255, torch.tensor(
            data["labels"][:count]
        )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_three_formats_agree(name: str) -> None:
    images, labels = images_of(name, 200)
    models = {form: load(name, form) for form in FILES}
    with torch.inference_mode():
        logits = {
            form: model(images[:64].to(memory_format=model.memory_format))
            for form, model in models.items()
        }
        accuracy = (models["safetensors"](images).argmax(1) == labels).double().mean().item()
    scale = logits["safetensors"].abs().max()
    for form in ("torchscript", "pt2"):
        assert torch.equal(logits[form].argmax(1), logits["safetensors"].argmax(1))
        assert (logits[form] - logits["safetensors"]).abs().max() <= 1e-5 * scale
    stated = card(name)["accuracy"]
    assert abs(accuracy - stated) <= 4 * (stated * (1 - stated) / len(labels)) ** 0.5
    assert {model.format for model in models.values()} == set(FILES)
    assert len({model.sha256 for model in models.values()}) == len(FILES)


@pytest.mark.parametrize("form", sorted(FILES))
def test_gradients_and_float64(form: str) -> None:
    images, _ = images_of("fashion_shallow_cnn", 4)
    single, double = (
        load("fashion_shallow_cnn", form, dtype) for dtype in (torch.float32, torch.float64)
    )
    assert single.differentiable
    gradients = []
    for model in (single, double):
        pixels = images.to(model.dtype).requires_grad_()
        logits = model(pixels)
        assert logits.dtype is model.dtype
        gradients.append(torch.autograd.grad(logits[:, 0].sum(), pixels)[0].double())
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-3 * gradients[1].abs().max()
    assert not any(parameter.requires_grad for parameter in double.parameters())


@pytest.mark.parametrize("form", sorted(FILES))
def test_stays_in_eval_mode_and_tells_what_it_is(form: str) -> None:
    model = load("fashion_shallow_cnn", form)
    assert model.train() is model
    assert not model.training
    if form != "pt2":  # an exported graph has no mode
        assert not any(module.training for module in model.modules())
    assert model.memory_format is torch.channels_last
    assert any("graph of torch operators" in note for note in model.notes) == (
        form != "safetensors"
    )


def test_a_batch_beyond_the_exported_limit_is_split() -> None:
    model = load("fashion_logistic", "pt2")
    assert model.info.most_batch == 4096
    images, _ = images_of("fashion_logistic", 1)
    with torch.inference_mode():
        logits = model(images.expand(4100, -1, -1, -1))
    assert logits.shape == (4100, 10)
    assert torch.allclose(logits[-1], logits[0], atol=1e-5)
