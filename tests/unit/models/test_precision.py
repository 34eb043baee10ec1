"""bfloat16 and TF32: what they change, what they leave alone, and who refuses them; frozen
TorchScript."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.models import LogitModel, from_module
from robaudit.models.logits import for_noisy_passes, rounded_products
from robaudit.models.torchscript import AsWritten
from tests.golden import Golden
from tests.unit.models.conftest import load, pixels


class Normed(nn.Module):
    """A convolution with a batch norm that does something."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 64, 10)
        with torch.no_grad():
            for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean):
                assert tensor is not None
                tensor.normal_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.conv(x)).relu().flatten(1))
        return out


def scripted(folder: Path, module: nn.Module, shape: tuple[int, ...] = (2, 3, 8, 8)) -> LogitModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has deprecated it; people still have such files
        torch.jit.save(torch.jit.trace(module.eval(), torch.rand(shape)), folder / "m.pt")
    return load(folder / "m.pt", mean=[0.4], std=[0.3])


def test_frozen_torchscript_gives_the_same_logits_and_gradients_still_flow(tmp_path: Path) -> None:
    module = Normed().eval()
    model = scripted(tmp_path, module)
    images = torch.rand(4, 3, 8, 8)
    network = model.network
    assert isinstance(network, AsWritten)
    with torch.inference_mode():
        frozen = model(images)
    graph: Any = network.fastest().inlined_graph
    assert not list(graph.findAllNodes("aten::batch_norm"))
    with torch.no_grad():
        plain = model(images)
        assert torch.allclose(plain, module((images - 0.4) / 0.3), atol=1e-5)
    assert torch.allclose(frozen, plain, atol=1e-4)
    assert not torch.equal(frozen, plain)
    points = images.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(points)[:, 0].sum(), points)
    reference = images.clone().requires_grad_(True)
    (wanted,) = torch.autograd.grad(module((reference - 0.4) / 0.3)[:, 0].sum(), reference)
    assert torch.allclose(gradient, wanted, atol=1e-4)


@pytest.mark.parametrize("form", ["module", "torchscript", "callable"])
def test_bfloat16_is_near_and_leaves_the_model_alone(form: str, tmp_path: Path) -> None:
    module = Normed().eval()
    model = (
        scripted(tmp_path, module)
        if form == "torchscript"
        else from_module(module, mean=[0.4], std=[0.3])
    )
    if form == "callable":
        model = from_module(lambda x: x.flatten(1)[:, :10].sin() * 2, mean=[0.4], std=[0.3])
    images = torch.rand(16, 3, 8, 8)
    with torch.inference_mode():
        exact = model(images)
        lower = for_noisy_passes(model, "bf16")(images)
        again = model(images)
    assert lower.dtype is torch.float32
    assert torch.equal(exact, again)
    error = (lower - exact).abs().max() / exact.abs().max()
    assert 0 < error < 2**-5


class Stubborn(nn.Module):
    """Holds a float32 constant that no cast reaches."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ torch.ones(x[0].numel(), 3)


class Uncopyable(nn.Module):
    """Cannot be copied."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def __deepcopy__(self, memo: object) -> Uncopyable:
        raise TypeError("no copies")


def test_networks_that_cannot_be_cast_say_so(golden: Golden) -> None:
    lower = for_noisy_passes(from_module(Stubborn()), "bf16")
    with pytest.raises(ModelError) as caught:
        lower(pixels())
    golden(caught.value)
    model = from_module(lambda x: x.flatten(1))
    model.network = Uncopyable()
    with pytest.raises(ModelError) as caught:
        for_noisy_passes(model, "bf16")
    golden(caught.value)


def settings() -> list[Any]:
    """Where torch has a precision: for everything, matmul and cuDNN, its convolutions and its
    recurrent networks."""
    cudnn: Any = torch.backends.cudnn
    return [torch.backends, torch.backends.cuda.matmul, cudnn, cudnn.conv, cudnn.rnn]


@pytest.fixture
def _put_back() -> Iterator[None]:
    flags: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [one.fp32_precision for one in settings()]
    switches = [flag.allow_tf32 for flag in flags]
    yield
    for flag, value in zip(flags, switches, strict=True):
        flag.allow_tf32 = value
    for one, precision in zip(settings(), before, strict=True):
        one.fp32_precision = precision
    assert [flag.allow_tf32 for flag in flags] == switches
    assert [one.fp32_precision for one in settings()] == before


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
@pytest.mark.parametrize("place", range(5))
@pytest.mark.usefixtures("_put_back")
def test_what_the_caller_has_set_is_overruled_and_put_back(place: int, precision: str) -> None:
    settings()[place].fp32_precision = precision
    before = [one.fp32_precision for one in settings()]
    for allowed in (True, False):
        with rounded_products(allowed):
            _, matmul, _, conv, rnn = (one.fp32_precision == "tf32" for one in settings())
            assert (matmul, conv, rnn) == (allowed, allowed, allowed)
            assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (
                allowed,
                allowed,
            )
        assert [one.fp32_precision for one in settings()] == before
    with pytest.raises(ZeroDivisionError), rounded_products(True):
        raise ZeroDivisionError
    assert [one.fp32_precision for one in settings()] == before
