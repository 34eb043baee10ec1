"""The demo's weights and specs are what they say, and can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from robaudit.datasets.digits import DigitsSpec
from robaudit.demo import train as demo
from robaudit.models.architectures import digits_cnn
from robaudit.spec.model import AuditSpec
from tests.levels import sigma

FOLDER = Path(demo.__file__).parent


@pytest.mark.parametrize("recipe", demo.RECIPES)
def test_shipped_weights_are_as_good_as_they_say(recipe: demo.DemoRecipe) -> None:
    path = FOLDER / f"{recipe.name}.safetensors"
    assert path.stat().st_size < 200_000
    network = digits_cnn()
    network.load_state_dict(load_file(path))
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["architecture"] == "robaudit:digits_cnn"
    assert f"{demo.EPOCHS} epochs" in metadata["training"]
    assert demo.accuracy(network.eval()) == pytest.approx(
        float(metadata["test_accuracy"]), abs=1 / 719
    )
    assert float(metadata["test_accuracy"]) > 0.97


def test_noise_training_helps_clearly() -> None:
    rates = []
    for recipe in demo.RECIPES:
        network = digits_cnn()
        network.load_state_dict(load_file(FOLDER / f"{recipe.name}.safetensors"))
        rates.append(demo.accuracy(network, demo.SHOWN_SIGMA, copies=5))
    assert rates[1] - rates[0] > 0.03  # 3595 noisy images each: 0.03 is about five standard errors


@pytest.mark.parametrize("name", ["ordinary", "noise_trained"])
def test_shipped_specs(name: str) -> None:
    spec = AuditSpec.model_validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
    assert spec.model.path is not None
    assert (FOLDER / spec.model.path).exists()
    assert spec.dataset == DigitsSpec(kind="digits", split="test", limit=200)
    assert spec.levels == (sigma(0.1), sigma(0.25))
    assert [estimator.name for estimator in spec.estimators] == ["mc"]


def test_one_epoch_through_the_command_is_repeatable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    assert demo.main(["--out", str(tmp_path / "new"), "--epochs", "1"]) == 0
    assert torch.random.get_rng_state().equal(state)
    assert torch.get_num_threads() == threads
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "test accuracy" in lines[0]
    first, second = (
        load_file(tmp_path / "new" / f"{recipe.name}.safetensors") for recipe in demo.RECIPES
    )
    assert any(not first[key].equal(second[key]) for key in first)
    torch.set_num_threads(1)
    try:
        again = demo.train(demo.RECIPES[1], epochs=1).state_dict()
    finally:
        torch.set_num_threads(threads)
    assert all(again[key].equal(second[key]) for key in again)
