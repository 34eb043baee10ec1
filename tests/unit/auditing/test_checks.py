"""The input check on real networks: each likely mistake warns in one line, and right settings stay
silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from robaudit.auditing.checks import InputCheck, check_input
from robaudit.datasets import open_dataset
from robaudit.errors import ModelError
from robaudit.models import Source, from_module, load_model
from robaudit.spec.model import AuditSpec
from tests.conftest import RunCli
from tests.golden import Golden
from tests.shared import MODELS, SHARED, card, document, needs_shared
from tests.specs import digits, save_npz, write

pytestmark = needs_shared
CHECKED = 256


def spec(model: str, **dataset: Any) -> AuditSpec:
    """A shared model with its right settings on its first test images; ``dataset`` changes that
    section."""
    raw = document(model, limit=CHECKED)
    if (
        model == "cifar10_resnet20"
    ):  # the weights: TorchScript takes seconds to prepare its first gradient
        path = str(SHARED / "models" / model / "model.safetensors")
        raw["model"] |= {
            "path": path,
            "architecture": "robaudit:cifar_resnet",
            "architecture_options": {"depth": 20},
        }
    raw["dataset"] |= dataset
    return AuditSpec.model_validate(raw)


def check(asked: AuditSpec, *around: nn.Module, **model: Any) -> InputCheck:
    """The check of a spec; ``model`` changes that section; modules ``around`` (before, after) go
    around the network."""
    options = asked.model.model_copy(update=model)
    loaded = load_model(Source(options))
    if around:
        before, after = around
        whole = nn.Sequential(before, loaded.network, after)
        loaded = from_module(whole, mean=options.mean, std=options.std)
    dataset = open_dataset(asked.dataset, base_dir=Path(), trust=False)
    return check_input(loaded, dataset, gradients=True, skip_bad=False)


def only_warning(found: InputCheck) -> str:
    (line,) = found.warnings
    assert "\n" not in line
    return line


class Modest(nn.Module):
    """Finds memory for so many images at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.most:
            raise MemoryError
        return x


def test_smaller_passes_where_memory_fails(golden: Golden) -> None:
    plain = check(spec("fashion_logistic"))
    assert check(spec("fashion_logistic"), Modest(5), nn.Identity()) == plain
    with pytest.raises(ModelError) as caught:
        check(spec("fashion_logistic"), Modest(0), nn.Identity())
    golden(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_right_settings_are_silent(model: str) -> None:
    found = check(spec(model))
    assert found.warnings == ()
    assert (found.classes, len(found.seen), found.labelled) == (10, CHECKED, CHECKED)
    accuracy = card(model)["accuracy"]
    assert (
        abs(found.correct / CHECKED - accuracy) < 4 * (accuracy * (1 - accuracy) / CHECKED) ** 0.5
    )


@pytest.mark.parametrize("model", ["cifar10_cnn_a_adv", "fashion_logistic", "mnist_spectral_mlp"])
def test_mean_and_std_left_out(model: str) -> None:
    line = only_warning(check(spec(model), mean=(), std=()))
    assert "clean accuracy is " in line
    assert "% with mean: " in line


@pytest.mark.parametrize(
    ("model", "mean", "std", "says"),
    [
        (
            "cifar10_resnet20",
            (0.5,),
            (0.5,),
            "mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] (imagenet)",
        ),
        ("cifar10_cnn_a_mix", (0.5,), (0.5,), "% with mean: ["),
        ("fashion_shallow_cnn", (0.1307,), (0.3081,), "mean: 0.5, std: 0.5"),
        ("mnist_spectral_mlp", (0.5,), (0.5,), "mean: [0.1307], std: [0.3081] (mnist)"),
        (
            "mnist_conv_small_nat",
            (0.5,),
            (0.5,),
            "no mean and std (is the normalisation inside the model?)",
        ),  # as good as its own
    ],
)
def test_another_mean_and_std(
    model: str, mean: tuple[float, ...], std: tuple[float, ...], says: str
) -> None:
    """Also where it costs a few percent only."""
    line = only_warning(check(spec(model), mean=mean, std=std))
    assert "clean accuracy is " in line
    assert says in line


def test_normalised_twice() -> None:
    """The normalisation is inside the file, and the spec names it again."""
    asked = spec("fashion_shallow_cnn")

    class Normalise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - asked.model.mean[0]) / asked.model.std[0]

    line = only_warning(check(asked, Normalise(), nn.Identity()))
    assert "with no mean and std (is the normalisation inside the model?)" in line


def test_channels_swapped(tmp_path: Path) -> None:
    with np.load(SHARED / "data" / "cifar10_test.npz") as data:
        save_npz(
            tmp_path / "bgr.npz",
            images=data["images"][:CHECKED, ::-1],
            labels=data["labels"][:CHECKED],
        )
    line = only_warning(check(spec("cifar10_cnn_a_mix", path=str(tmp_path / "bgr.npz"))))
    assert line.endswith("with model.channels: bgr (red and blue swapped)")


def test_inverted_pixels(tmp_path: Path) -> None:
    with np.load(SHARED / "data" / "mnist_test.npz") as data:
        save_npz(
            tmp_path / "inverted.npz",
            images=255 - data["images"][:CHECKED],
            labels=data["labels"][:CHECKED],
        )
    line = only_warning(check(spec("mnist_spectral_mlp", path=str(tmp_path / "inverted.npz"))))
    assert line.endswith("with inverted pixels (1 - x)")


def test_shuffled_labels(tmp_path: Path) -> None:
    with np.load(SHARED / "data" / "mnist_test.npz") as data:
        shuffled = np.random.default_rng(0).permutation(data["labels"][:CHECKED])
        save_npz(tmp_path / "shuffled.npz", images=data["images"][:CHECKED], labels=shuffled)
    line = only_warning(check(spec("mnist_cnn_a_adv", path=str(tmp_path / "shuffled.npz"))))
    assert "no better than chance; check labels, head, mean and std" in line


def test_outputs_that_look_like_probabilities() -> None:
    line = only_warning(check(spec("fashion_shallow_cnn"), nn.Identity(), nn.Softmax(1)))
    assert "the outputs look like probabilities, not logits" in line
    assert "name the logits in output" in line


class Quantise(nn.Module):
    """Rounds pixels to 8 bits: a step function, flat between its steps."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 255).round() / 255


def test_vanishing_gradients() -> None:
    line = only_warning(check(spec("mnist_cnn_a_adv"), Quantise(), nn.Identity()))
    assert (
        "gradients vanish on 8 of 8 images; what is computed from gradients is 1 or 0 there, and "
        "attacks find nothing" in line
    )


def test_saturated_probabilities_have_no_gradient_either() -> None:
    class Saturate(nn.Module):
        def forward(self, logits: Tensor) -> Tensor:
            return (1000 * logits).softmax(1)

    first, second = check(spec("mnist_cnn_a_adv"), nn.Identity(), Saturate()).warnings
    assert "look like probabilities" in first
    assert "gradients vanish on " in second


class Several(nn.Module):
    """Takes no batch of one."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            raise RuntimeError("expected more than one row")
        return x


def test_a_network_that_takes_no_single_image_is_refused(golden: Golden) -> None:
    with pytest.raises(ModelError) as caught:
        check(spec("fashion_logistic"), Several(), nn.Identity())
    golden(caught.value)


def test_no_gradients_at_all(golden: Golden) -> None:
    class Detach(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach()

    with pytest.raises(ModelError) as caught:
        check(spec("mnist_cnn_a_adv"), Detach(), nn.Identity())
    golden(caught.value)


def test_warning_is_printed_and_kept(tmp_path: Path, run_cli: RunCli) -> None:
    raw = document("mnist_spectral_mlp", limit=CHECKED, estimators=["softmax"])
    raw["model"] |= {"mean": [], "std": []}
    code, _, err = run_cli("estimate", write(tmp_path, raw), "--out", "run")
    assert code == 0
    (line,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert "% with mean: [0.1307], std: [0.3081] (mnist)" in line
    assert "clean accuracy is " in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.bits
def test_no_labels_no_accuracy(tmp_path: Path, run_cli: RunCli) -> None:
    save_npz(tmp_path / "x.npz", count=30)
    asked = write(
        tmp_path,
        digits(
            dataset={"kind": "npz", "path": "x.npz", "labels_key": None}, estimators=["softmax"]
        ),
    )
    code, out, err = run_cli("estimate", asked, "--out", "run")
    assert (code, err) == (0, "note: no labels: accuracy is not measured; robustness needs none\n")
    assert "clean accuracy  not measured (no labels)" in out
