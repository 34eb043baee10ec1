"""The user's own code runs only when it is trusted, and its mistakes are one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from robaudit.models.architectures import digits_cnn
from tests.golden import Golden
from tests.unit.models.conftest import load, pixels, refusal, small_net

CODE = """
import torch
from torch import nn

def build(classes=3, path=None):
    import sidecar
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, classes)).double()
    net.seen = str(path)
    return net

def function(scale=1.0):
    return lambda images: images.flatten(1)[:, :4] * scale
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "my_network", raising=False)  # of another test
    (tmp_path / "my_network.py").write_text(CODE)
    (tmp_path / "sidecar.py").write_text("")
    return tmp_path


def test_modules_and_functions(folder: Path) -> None:
    before = list(sys.path)
    model = load(
        None, architecture="my_network:build", format="python", base_dir=folder, trust=True
    )
    assert model.format == "python"
    assert model(pixels()).shape == (5, 3)
    assert sys.path == before
    assert "the network comes from your Python code, my_network:build" in model.notes
    options = {"scale": 2.0}
    model = load(
        None,
        architecture="my_network:function",
        architecture_options=options,
        base_dir=folder,
        trust=True,
    )
    assert torch.equal(model(pixels()), pixels().flatten(1)[:, :4] * 2)
    (folder / "weights.bin").write_bytes(b"1234")
    model = load(
        folder / "weights.bin", architecture="my_network:build", format="python", trust=True
    )
    assert model.network.seen == str(folder / "weights.bin")
    assert model.sha256 == "03ac674216f3e15c761ee1a5e255f067953623c8b388b4459e13f978d7c846f4"


@pytest.mark.parametrize("path", [None, "net.safetensors"])
def test_code_needs_trust(path: str | None, folder: Path, golden: Golden) -> None:
    save_file(small_net().state_dict(), folder / "net.safetensors")
    said = refusal(
        folder / path if path else None, architecture="my_network:build", base_dir=folder
    )
    golden(said)
    assert "my_network" not in sys.modules


def test_weights_into_a_trusted_architecture(folder: Path) -> None:
    save_file({"1.weight": torch.ones(3, 64), "1.bias": torch.zeros(3)}, folder / "net.safetensors")
    model = load(folder / "net.safetensors", architecture="my_network:build", trust=True)
    assert model.format == "safetensors"
    assert torch.allclose(model(pixels())[:, 0], pixels().flatten(1).sum(1))


def test_another_folder_with_a_module_of_the_same_name(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "my_network.py").write_text(
        "def build():\n    return lambda images: images.flatten(1)[:, :2]\n"
    )
    assert load(None, architecture="my_network:build", base_dir=folder, trust=True)(
        pixels()
    ).shape == (5, 3)
    assert load(None, architecture="my_network:build", base_dir=other, trust=True)(
        pixels()
    ).shape == (5, 2)


def test_a_path_that_is_not_there(folder: Path, golden: Golden) -> None:
    golden(
        refusal(
            folder / "weights.bin", architecture="my_network:build", format="python", trust=True
        )
    )
    save_file(small_net().state_dict(), folder / "net.safetensors")
    said = refusal(folder / "net.safetensors", architecture="my_network:function", trust=True)
    golden(said)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("torchvision:resnet18", {"classes": 10}),
        ("robaudit:cifar_resnet", {"depth": 21}),
    ],
)
def test_known_architectures_and_their_options(
    tmp_path: Path, architecture: str, options: dict[str, object], golden: Golden
) -> None:
    save_file(small_net().state_dict(), tmp_path / "net.safetensors")
    golden(
        refusal(
            tmp_path / "net.safetensors", architecture=architecture, architecture_options=options
        )
    )


def test_building_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    digits = digits_cnn().eval()
    save_file(digits.state_dict(), tmp_path / "digits.safetensors")
    state = torch.random.get_rng_state()
    model = load(tmp_path / "digits.safetensors", architecture="robaudit:digits_cnn")
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.allclose(model(pixels()), digits(pixels()), atol=1e-6)
