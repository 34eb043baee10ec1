"""Forms of a network: the same function, for batches of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.forms import Form, FormName, Layout
from robaudit.models import LogitModel, from_module
from robaudit.models.network_forms import in_form, layouts_for, other_forms
from robaudit.spec.model import IN_MEMORY

IMAGES = torch.rand(19, 3, 8, 8, generator=torch.Generator().manual_seed(2))
MEAN = (0.4, 0.5, 0.6)
STD = (0.2, 0.3, 0.25)


def convolutional() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 5),
    ).eval()


class InPlace(nn.Module):
    """Writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.network = convolutional()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.mul_(2.0))  # type: ignore[no-any-return]


class Masked(nn.Module):
    """Its last class is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.network = convolutional()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.network(x).clone()
        logits[:, -1] = -torch.inf
        return {"logits": logits}


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "convolutional": convolutional,
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).eval(),
    "one logit": lambda: nn.Sequential(convolutional(), nn.Linear(5, 1)).eval(),
    "in place": InPlace,
    "masked": Masked,
}


def model_of(name: str) -> LogitModel:
    return from_module(NETWORKS[name](), mean=MEAN, std=STD)


def agree(model: LogitModel, other: LogitModel) -> None:
    with torch.inference_mode():
        for size in (19, 16, 8, 3, 1):
            expected = model(IMAGES[:size])
            found = other(IMAGES[:size])
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
            inputs = other.inputs(IMAGES[:size])
            assert torch.allclose(other(inputs, normalised=True), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("name", NETWORKS)
def test_optimised_networks_give_the_same_logits(name: str, layout: Layout) -> None:
    model = model_of(name)
    before = model(IMAGES)
    other = in_form(model, Form(FormName.OPTIMISED, layout, 8), IMAGES[0])
    agree(model, other)
    assert torch.equal(model(IMAGES), before), "the model itself does not change"


@pytest.mark.parametrize("name", ["convolutional", "linear"])
def test_layouts(name: str) -> None:
    """Both where there are convolutions; the model keeps its own."""
    model = model_of(name)
    own = model.memory_format
    layouts = layouts_for(model)
    assert len(layouts) == (2 if name == "convolutional" else 1)
    for layout in layouts:
        agree(model, in_form(model, Form(FormName.AS_LOADED, layout, 8), IMAGES[0]))
    assert model.memory_format is own


def compiled(monkeypatch: pytest.MonkeyPatch) -> tuple[LogitModel, LogitModel, list[int]]:
    """A model, the same one as if it were compiled for eight images, and the sizes of its passes;
    the compiler itself takes seconds."""
    sizes = list[int]()

    def compiler(network: nn.Module, **_: Any) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            sizes.append(len(x))
            return network(x)  # type: ignore[no-any-return]

        return run

    monkeypatch.setattr(torch, "compile", compiler)
    model = model_of("convolutional")
    return (
        model,
        in_form(model, Form(FormName.COMPILED, layouts_for(model)[0], 8), IMAGES[0]),
        sizes,
    )


def test_a_compiled_network_sees_one_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other, sizes = compiled(monkeypatch)
    agree(model, other)
    assert set(sizes) == {8}


@pytest.mark.slow
def test_the_compiler_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """And it prints nothing."""
    for name in ("convolutional", "masked"):
        model = model_of(name)
        form = Form(FormName.COMPILED, layouts_for(model)[0], 8)
        agree(model, in_form(model, form, IMAGES[0]))
    assert capfd.readouterr() == ("", "")


def test_what_may_be_compiled() -> None:
    """Python code alone: never the graph of a stranger's file."""
    model = model_of("convolutional")
    for form, names in (
        (IN_MEMORY, [FormName.OPTIMISED, FormName.COMPILED]),
        ("safetensors", [FormName.OPTIMISED, FormName.COMPILED]),
        ("pt2", [FormName.OPTIMISED]),
        ("torchscript", [FormName.OPTIMISED]),
    ):
        model.format = form
        assert other_forms(model) == names
    model.differentiable = False  # ONNX
    model.format = "onnx"
    assert other_forms(model) == []


def test_hooks_of_one_form_are_not_those_of_another() -> None:
    """Passes are counted once."""
    model = model_of("convolutional")
    other = in_form(model, Form(FormName.OPTIMISED, Layout.CONTIGUOUS, 8), IMAGES[0])
    calls = list[str]()
    for name, one in (("model", model), ("other", other)):
        one.register_forward_hook(lambda *_, name=name: calls.append(name))
    other(IMAGES)
    model(IMAGES)
    model.clipping(True)(IMAGES)
    assert calls == ["other", "model", "model"]
