"""Pixels to logits: normalisation, clipping, outputs, shapes, batches, memory format."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from robaudit.errors import ModelError
from robaudit.models import LoadedNetwork, LogitModel, from_module
from tests.golden import Golden
from tests.unit.models.conftest import load, one_line, pixels, small_net
from tests.unit.models.test_model_files import script


class Function(nn.Module):
    """A function of the flat pixels, as a module."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> Any:
        return self.function(images.flatten(1))


def fails(model: LogitModel, images: torch.Tensor) -> str:
    with pytest.raises(ModelError) as caught:
        model(images)
    return one_line(caught.value)


def test_normalises_after_clipping() -> None:
    images = pixels(2, 3) * 3 - 1
    mean = (0.1, 0.2, 0.3)
    std = (0.5, 0.6, 0.7)
    model = from_module(lambda x: x.flatten(1), mean=mean, std=std).clipping(True)
    channels = [(images[:, i].clamp(0, 1) - mean[i]) / std[i] for i in range(3)]
    assert torch.allclose(model(images), torch.stack(channels, 1).flatten(1))
    assert torch.allclose(
        from_module(lambda x: x.flatten(1), mean=[0.5])(images), images.flatten(1) - 0.5
    )
    assert torch.allclose(
        from_module(lambda x: x.flatten(1), std=[0.5])(images), images.flatten(1) * 2
    )


def test_a_network_of_blue_green_red(tmp_path: Path) -> None:
    """Mean and std are in the order of the network, images are not."""
    net = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten())
    mean = (0.1, 0.2, 0.3)
    std = (0.5, 0.6, 0.7)
    path = script(tmp_path, net)
    images = pixels(4, 3)
    model = load(path, mean=mean, std=std, channels="bgr")
    usual = load(path, mean=mean, std=std)
    assert torch.equal(model(images), usual(images.flip(1)))
    assert not torch.allclose(model(images), usual(images))


def test_a_network_that_works_in_place_leaves_the_images_alone() -> None:
    images = pixels()
    before = images.clone()
    from_module(lambda x: x.sub_(0.5).flatten(1))(images)
    assert torch.equal(images, before)


def test_mean_must_fit_the_channels() -> None:
    assert "have 3 values, but the images have 1 channel" in fails(
        from_module(small_net(), mean=(0.1, 0.2, 0.3)), pixels()
    )
    assert "(n, channels, height, width)" in fails(from_module(small_net()), pixels()[0])


@pytest.mark.parametrize("squeeze", [False, True])
def test_one_logit_becomes_two_classes(squeeze: bool) -> None:
    net = small_net(1)
    model = from_module(lambda x: net(x).squeeze(1) if squeeze else net(x))
    logits = model(pixels())
    assert logits.shape == (5, 2)
    assert torch.equal(logits[:, 0], torch.zeros(5))
    assert torch.equal(logits[:, 1:], net(pixels()))


Pair = namedtuple("Pair", ["logits", "features"])


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda z: {"a": z + 1, "logits": z}, "logits"),
        (lambda z: {"a": z + 1, "logits": z}, 1),
        (lambda z: (z + 1, z), 1),
        (lambda z: Pair(z, z + 1), "logits"),
        (lambda z: z, "logits"),
        (lambda z: z, None),
    ],
)
def test_picks_the_output(wrap: Callable[[torch.Tensor], Any], output: str | int | None) -> None:
    model = from_module(Function(lambda x: wrap(x[:, :4])), output=output)
    assert torch.equal(model(pixels()), pixels().flatten(1)[:, :4])


@pytest.mark.parametrize(
    ("returned", "output", "said"),
    [
        (
            lambda x: {"logits": x, "aux": x},
            None,
            "a mapping with the keys logits, aux; say which are the logits: output=KEY",
        ),
        (lambda x: (x, x), None, "a tuple of 2; say which are the logits: output=INDEX, from 0"),
        (lambda x: {"logits": x}, "logit", "did you mean 'logits'?"),
        (lambda x: (x, x), 2, "give an index from 0 to 1"),
        (lambda x: (x, x), "logits", "has no 'logits'"),
        (lambda x: x, 1, "remove output"),
        (lambda x: {"logits": [x]}, "logits", "is list, not a tensor"),
        (lambda x: x.numpy(), None, "returns ndarray, not a tensor"),
        (lambda x: x.argmax(1), None, "returns int64, not logits"),
        (lambda x: x.view(-1, 1, 8, 8), None, "segmentation"),
        (lambda x: x.view(-1, 32, 2), None, "returns shape 5 x 32 x 2 for 5 images"),
        (lambda x: x.sum(), None, "returns shape a single number"),
    ],
)
def test_refuses_what_are_no_logits(
    returned: Callable[[torch.Tensor], Any], output: str | int | None, said: str
) -> None:
    assert said in fails(from_module(Function(returned), output=output), pixels())


@pytest.mark.parametrize("ones", [1, 2])
def test_trailing_axes_of_one_value(ones: int) -> None:
    """As a last convolution or pooling gives them."""
    model = from_module(Function(lambda x: x.reshape(*x.shape, *[1] * ones)))
    assert torch.equal(model(pixels()), pixels().flatten(1))


def test_masked_classes_never_win() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :3], torch.full((len(x), 1), -torch.inf)], 1)

    logits = from_module(Function(masked))(pixels())
    assert torch.equal(logits[:, :3], pixels().flatten(1)[:, :3])
    assert logits.isfinite().all()
    assert (logits[:, 3] < -1e29).all()
    nothing = from_module(Function(lambda x: x[:, :3] - torch.inf))(pixels())
    assert not nothing.isfinite().any(), "with every class masked, none wins"


class WithMask(nn.Module):
    """A network that holds a mask."""

    mask: torch.Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([0.0, value]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :2] + self.mask


def test_a_mask_may_be_a_buffer(golden: Golden) -> None:
    assert (from_module(WithMask(-torch.inf))(pixels()).argmax(1) == 0).all()
    for value in (torch.inf, torch.nan):
        with pytest.raises(ModelError) as caught:
            from_module(WithMask(value))
        golden(caught.value)


class Script(nn.Module):
    """Flattens, and does something that only works for one image, on one device or in one
    precision."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.layer = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "one image":
            x = x.view(1, 64)
        elif self.way == "half":
            x = x.flatten(1).half()
        elif self.way == "device":
            x = x.flatten(1).to(torch.device("cuda:7"))
        elif self.way == "two images":
            x = x.view(2, 64)
        elif x.shape[2] == 8:
            raise ValueError("the teapot is short")
        logits: torch.Tensor = self.layer(x)
        return logits


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (
            "one image",
            "takes one image of 1 x 8 x 8, but not 5 at once (RuntimeError: shape '[1, 64]' is "
            "invalid for input of size 320",
        ),
        ("half", "save it in float32, without .half() in forward"),
        ("device", "its graph names a device: save it from the CPU"),
        ("two images", "no reshape may fix their number"),
    ],
)
@pytest.mark.parametrize("scripted", [False, True])
def test_what_is_wrong_with_a_network(way: str, said: str, scripted: bool, tmp_path: Path) -> None:
    network = Script(way).eval()
    model = load(script(tmp_path, network)) if scripted else from_module(network)
    line = fails(model, pixels())
    assert said.replace("" if scripted else "RuntimeError: ", "") in line
    assert "channels: 1 for grey" not in line
    assert "Traceback" not in line


def test_no_remedy_for_an_unknown_cause(tmp_path: Path) -> None:
    assert fails(from_module(Script("other").eval()), pixels()) == (
        "model: on images of 1 x 8 x 8 the network raised ValueError: the teapot is short"
    )
    line = fails(load(script(tmp_path, Script("other").eval())), pixels())
    assert line.endswith("ValueError: the teapot is short"), (
        "the code that TorchScript lists around it names no cause"
    )


def test_words_of_the_networks_own_code_are_no_cause() -> None:
    line = fails(from_module(Function(lambda x: vars(x)["sizes"])), pixels())
    assert line.endswith("the network raised KeyError: 'sizes'")


def test_images_of_another_size_or_channels() -> None:
    assert "does not take images of 1 x 9 x 9" in fails(from_module(small_net()), pixels(side=9))
    assert "does not take images of 3 x 8 x 8" in fails(
        from_module(small_net()), pixels(channels=3)
    )


def test_a_network_that_raises_later() -> None:
    """It is the user's code that failed, not robaudit, however many images it took before."""

    def few(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 5:
            raise ValueError("at most 5\nimages at once")
        return x.flatten(1)

    model = from_module(Function(few))
    model(pixels())
    assert fails(model, pixels().repeat(2, 1, 1, 1)) == (
        "model: the network took images of 1 x 8 x 8, but then raised ValueError (at most 5 "
        "images at once); "
        "it must take batches of any size, however often it is called"
    )


class Exhausted(nn.Module):
    """Never finds the memory that it needs."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.error = error

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 "
            "bytes"
        ),
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
    ],
    ids=lambda error: str(error)[-30:],
)
def test_out_of_memory_passes_through(error: Exception) -> None:
    model = from_module(Exhausted(error))
    with pytest.raises(type(error)) as raised:
        model(pixels(channels=3))
    assert str(raised.value) == str(error)
    assert model.memory_format is torch.channels_last, "it says nothing of the memory format"


class Views(nn.Module):
    """Works only on contiguous activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.linear = nn.Linear(144, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(self.conv(images).view(len(images), -1))
        return logits


def test_falls_back_to_the_contiguous_format() -> None:
    net = Views().eval()
    model = from_module(net)
    images = pixels(2, 3)
    assert model.memory_format is torch.channels_last
    with torch.inference_mode():
        first = model(images)
    assert model.memory_format is torch.contiguous_format
    assert torch.allclose(first, net(images))
    later = images.to(memory_format=torch.channels_last).requires_grad_()
    model(later).sum().backward()
    assert later.grad is not None


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 23), least=st.integers(1, 6), room=st.integers(0, 6))
def test_batches_are_split_and_padded(count: int, least: int, room: int) -> None:
    seen: list[int] = []
    net = small_net()

    def forward(images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        logits: torch.Tensor = net(images)
        return logits

    wrapped = from_module(forward).network
    model = LogitModel(
        LoadedNetwork(wrapped, "python", "", least_batch=least, most_batch=least + room)
    )
    images = pixels(count)
    assert torch.allclose(model(images), net(images), atol=1e-6)
    assert all(least <= size <= least + room for size in seen)


def test_from_module_leaves_the_callers_module_alone() -> None:
    net = small_net().train()
    model = from_module(net, dtype=torch.float64)
    assert net.training
    assert all(
        parameter.requires_grad and parameter.dtype is torch.float32
        for parameter in net.parameters()
    )
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.sha256 != from_module(small_net(seed=1), dtype=torch.float64).sha256
    assert model.sha256 == from_module(small_net(), dtype=torch.float64).sha256
