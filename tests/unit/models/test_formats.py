"""The same trained network gives the same logits from each of its files."""

from __future__ import annotations

import pytest
import torch

from tests.unit.models.conftest import FILES, SharedModel


@pytest.mark.parametrize("name", ["cifar10_resnet20", "fashion_logistic", "fashion_shallow_cnn", "mnist_cnn_a_adv", "mnist_spectral_mlp"])
def test_three_formats_agree(name: str) -> None:
    shared = SharedModel(name)
    images, labels = shared.images(200)
    models = {form: shared.load(form) for form in FILES}
    with torch.inference_mode():
        logits = {form: model(images[:64].to(memory_format=model.memory_format)) for form, model in models.items()}
        accuracy = (models["safetensors"](images).argmax(1) == labels).double().mean().item()
    scale = logits["safetensors"].abs().max()
    for form in ("torchscript", "pt2"):
        assert torch.equal(logits[form].argmax(1), logits["safetensors"].argmax(1))
        assert (logits[form] - logits["safetensors"]).abs().max() <= 1e-5 * scale
    stated = shared.info["accuracy"]
    assert abs(accuracy - stated) <= 4 * (stated * (1 - stated) / len(labels)) ** 0.5
    assert {model.format for model in models.values()} == set(FILES)
    assert len({model.sha256 for model in models.values()}) == len(FILES)


@pytest.mark.parametrize("form", sorted(FILES))
def test_gradients_and_float64(form: str) -> None:
    shared = SharedModel("fashion_shallow_cnn")
    images, _ = shared.images(4)
    single, double = shared.load(form), shared.load(form, dtype=torch.float64)
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
    model = SharedModel("fashion_shallow_cnn").load(form)
    assert model.train() is model
    assert not model.training
    if form != "pt2":  # an exported graph has no mode
        assert not any(module.training for module in model.modules())
    assert model.memory_format is torch.channels_last
    assert any("graph of torch operators" in note for note in model.notes) == (form != "safetensors")


def test_a_batch_beyond_the_exported_limit_is_split() -> None:
    shared = SharedModel("fashion_logistic")
    model = shared.load("pt2")
    assert model.info.most_batch == 4096
    images, _ = shared.images(1)
    with torch.inference_mode():
        logits = model(images.expand(4100, -1, -1, -1))
    assert logits.shape == (4100, 10)
    assert torch.allclose(logits[-1], logits[0], atol=1e-5)
