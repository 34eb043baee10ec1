"""Weights as training scripts save them: nested, with prefixes, beside everything else that a
checkpoint holds."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from robaudit.models import LogitModel
from robaudit.models.architectures import digits_cnn
from robaudit.models.safety import Unread
from tests.golden import Golden
from tests.specs import WEIGHTS
from tests.unit.models.conftest import load, pixels, refusal

ARCHITECTURE = "robaudit:digits_cnn"
State = dict[str, torch.Tensor]


@dataclass
class Settings:
    """What someone's training script pickles into its checkpoints."""

    rate: float = 0.1

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise AssertionError("ran")


@pytest.fixture(scope="module")
def state() -> State:
    return load_file(WEIGHTS)


def saved(folder: Path, content: object, name: str = "net.ckpt") -> Path:
    torch.save(content, folder / name)
    return folder / name


def prefixed(state: State, prefix: str) -> State:
    return {f"{prefix}{key}": tensor for key, tensor in state.items()}


def optimiser(network: nn.Module) -> dict[str, Any]:
    """The state of an optimiser that has made a step."""
    adam = torch.optim.AdamW(network.parameters())
    network(torch.rand(2, 1, 8, 8)).sum().backward()
    adam.step()
    return adam.state_dict()


def same(model: LogitModel) -> bool:
    """Whether it gives the logits of the embedded network."""
    with torch.inference_mode():
        return torch.equal(model(pixels()), load(WEIGHTS, architecture=ARCHITECTURE)(pixels()))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.model."])
def test_prefixes_in_any_order(tmp_path: Path, state: State, prefix: str) -> None:
    model = load(saved(tmp_path, prefixed(state, prefix)), architecture=ARCHITECTURE)
    assert same(model)
    assert f"the prefix '{prefix}' was removed from every key" in model.notes


@pytest.mark.parametrize(
    ("prefix", "beside", "aside"),
    [
        ("model.", {"criterion.weight": torch.ones(10)}, "1 tensor (criterion.weight)"),
        (
            "1.",
            {"0.mean": torch.zeros(1, 3, 1, 1), "0.std": torch.ones(1, 3, 1, 1)},
            "2 tensors (0.mean, 0.std)",
        ),
        ("classifier_of_ours.", {"loss.log_vars": torch.ones(2)}, "1 tensor (loss.log_vars)"),
    ],
)
def test_a_prefix_with_something_beside_it(
    prefix: str, beside: State, aside: str, tmp_path: Path, state: State
) -> None:
    model = load(saved(tmp_path, {**beside, **prefixed(state, prefix)}), architecture=ARCHITECTURE)
    assert same(model)
    assert f"the weights are those under the prefix '{prefix}'; left aside: {aside}" in model.notes


def test_the_same_weights_under_two_prefixes(tmp_path: Path, state: State) -> None:
    """An attacker that holds the network, as adversarial training saves it."""
    attacker = {"module.attacker.step": torch.ones(1), **prefixed(state, "module.attacker.model.")}
    path = saved(tmp_path, {"epoch": 3, "model": {**attacker, **prefixed(state, "module.model.")}})
    model = load(path, architecture=ARCHITECTURE)
    assert same(model)
    (note,) = [note for note in model.notes if "left aside" in note]
    assert note.startswith(
        "the weights are those under the prefix 'module.model.'; left aside: 7 tensors ("
    )


def test_other_weights_under_a_second_prefix(tmp_path: Path, state: State, golden: Golden) -> None:
    other = {key: 2 * tensor for key, tensor in state.items()}
    path = saved(tmp_path, {"state_dict": {**prefixed(other, "ema."), **prefixed(state, "model.")}})
    model = load(path, architecture=ARCHITECTURE)
    assert same(model)
    assert any(
        "ema has other weights of the same names: choose with model.entry: ema" in note
        for note in model.notes
    )
    assert not same(load(path, architecture=ARCHITECTURE, entry="ema"))

    both = {**prefixed(other, "teacher."), **prefixed(state, "student.")}
    save_file(both, tmp_path / "both.safetensors")
    for path in (saved(tmp_path, both), tmp_path / "both.safetensors"):
        said = refusal(path, architecture=ARCHITECTURE)
        golden(said)
        assert same(load(path, architecture=ARCHITECTURE, entry="student"))
        golden(refusal(path, architecture=ARCHITECTURE, entry="nobody"))


@pytest.mark.parametrize("prefix", ["", "model."])
def test_more_layers_than_the_architecture(
    prefix: str, tmp_path: Path, state: State, golden: Golden
) -> None:
    """Weights inside the network cannot be left aside: it would be another network."""
    deeper = {**state, "7.weight": torch.ones(10, 10)}
    said = refusal(saved(tmp_path, prefixed(deeper, prefix)), architecture=ARCHITECTURE)
    golden(said)


def test_a_layer_of_a_larger_sequence(tmp_path: Path, state: State, golden: Golden) -> None:
    path = saved(
        tmp_path,
        {
            **prefixed(state, "net.0."),
            "net.1.weight": torch.ones(5, 10),
            "net.1.bias": torch.ones(5),
        },
    )
    said = refusal(path, architecture=ARCHITECTURE)
    golden(said)


def test_plain_weights_before_averaged_ones(tmp_path: Path, state: State, golden: Golden) -> None:
    other = {key: 2 * tensor for key, tensor in state.items()}
    path = saved(tmp_path, {"epoch": 1, "model": state, "model_ema": prefixed(other, "module.")})
    model = load(path, architecture=ARCHITECTURE)
    assert same(model)
    note = (
        "the weights are those under the key 'model'; the file also has model_ema: choose "
        "with model.entry: model_ema; not read: epoch"
    )
    assert note in model.notes
    averaged = load(path, architecture=ARCHITECTURE, entry="model_ema")
    assert not same(averaged)
    assert "the weights are those under the key 'model_ema'" in averaged.notes
    golden(refusal(path, architecture=ARCHITECTURE, entry="model_emma"))
    golden(refusal(WEIGHTS, architecture=ARCHITECTURE, entry="model_ema"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.float8_e4m3fn])
def test_weights_without_their_scale(
    tmp_path: Path, state: State, dtype: torch.dtype, golden: Golden
) -> None:
    """Integers and numbers of 8 bits have a scale somewhere else: read as they are, they would be
    other weights."""
    said = refusal(
        saved(tmp_path, {key: (100 * tensor).to(dtype) for key, tensor in state.items()}),
        architecture=ARCHITECTURE,
    )
    golden(said)
    for fine in (torch.float16, torch.bfloat16, torch.float64):
        load(
            saved(tmp_path, {key: tensor.to(fine) for key, tensor in state.items()}),
            architecture=ARCHITECTURE,
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch has another place for quantisation now
def test_networks_that_torch_has_quantised(tmp_path: Path, state: State, golden: Golden) -> None:
    """They are neither damaged nor crafted."""
    network = digits_cnn().eval()
    network.load_state_dict(state)
    small = torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8)
    torch.jit.save(torch.jit.script(small), tmp_path / "net.pt")
    said = refusal(tmp_path / "net.pt")
    golden(said)
    said = refusal(saved(tmp_path, small.state_dict()), architecture=ARCHITECTURE)
    golden(said)
    eight = {
        key: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8) for key, tensor in state.items()
    }
    said = refusal(saved(tmp_path, eight), architecture=ARCHITECTURE)
    assert (
        "holds quantised weights (0.weight is qint8)" in said
        or "holds quantised weights (0.bias is qint8)" in said
    )


def test_averaged_by_torch(tmp_path: Path, state: State) -> None:
    network = digits_cnn()
    network.load_state_dict(state)
    averaged = AveragedModel(network)
    averaged.update_parameters(network)
    assert "n_averaged" in averaged.state_dict()
    assert same(load(saved(tmp_path, {"ema": averaged.state_dict()}), architecture=ARCHITECTURE))


def lightning(state: State) -> dict[str, Any]:
    """What Lightning's Trainer saves: the network below an attribute of the module, and all else
    beside it."""
    return {
        "epoch": 4,
        "state_dict": prefixed(state, "model."),
        "callbacks": {
            "ModelCheckpoint{'monitor': 'val_loss'}": {
                "best_model_score": torch.tensor(0.1),
                "dirpath": PurePosixPath("/runs"),
            }
        },
        "optimizer_states": [optimiser(digits_cnn())],
        "lr_schedulers": [{"base_lrs": [np.float64(0.1)], "_last_lr": [np.float32(0.1)]}],
        "hyper_parameters": {
            "lr": np.float64(1e-3),
            "settings": Settings(),
            "args": Namespace(width=3, kind=int),
            "shape": np.arange(3),
            "steps": range(3),
            "frozen": frozenset({"backbone"}),
        },
    }


def timms(state: State) -> dict[str, Any]:
    """What timm's CheckpointSaver saves."""
    extra = {
        "epoch": 2,
        "arch": "resnet18",
        "version": 2,
        "args": Namespace(lr=0.1),
        "metric": np.float64(80.0),
    }
    return {
        **extra,
        "state_dict": state,
        "state_dict_ema": prefixed(state, "module."),
        "optimizer": optimiser(digits_cnn()),
    }


@pytest.mark.parametrize("make", [lightning, timms], ids=["lightning", "timm"])
def test_whole_checkpoints(tmp_path: Path, state: State, make: Any) -> None:
    """Objects that are not tensors are not read: no class that the file names is imported, or
    made."""
    path = saved(tmp_path, make(state))
    model = load(path, architecture=ARCHITECTURE)
    assert same(model)
    assert any(
        note.startswith("the weights are those under the key 'state_dict'") for note in model.notes
    )
    assert not any(
        isinstance(one, tuple) and one[0] is Unread
        for one in torch.serialization.get_safe_globals()
    )
    imported = sys.modules.copy()
    assert load(path, architecture=ARCHITECTURE).sha256 == model.sha256
    assert sys.modules.keys() <= imported.keys()


class _Nasty:
    def __init__(self, folder: Path, how: Any) -> None:
        self._do = how, (str(folder / "canary"),)

    def __reduce__(self) -> Any:
        return self._do


def test_code_beside_the_weights_never_runs(tmp_path: Path, state: State, golden: Golden) -> None:
    """A call of the system is refused with the whole file; any other call is not made."""
    import os
    import shutil
    import subprocess

    path = saved(tmp_path, {"state_dict": state, "hyper_parameters": _Nasty(tmp_path, os.mkdir)})
    for trust in (False, True):
        golden(refusal(path, architecture=ARCHITECTURE, trust=trust))
    for how in (shutil.copytree, subprocess.call, exec, eval, __import__, getattr, np.memmap):
        path = saved(tmp_path, {"state_dict": state, "hyper_parameters": _Nasty(tmp_path, how)})
        assert same(load(path, architecture=ARCHITECTURE))
    assert not (tmp_path / "canary").exists()


def test_what_is_no_state_dict(tmp_path: Path, state: State, golden: Golden) -> None:
    inside = {**state, "settings": Settings()}
    contents: tuple[Any, ...] = (
        {"state_dict": inside},
        [1, 2],
        {**state, "epoch": 3},
        dict(enumerate(state.values())),
    )
    for content in contents:
        golden(refusal(saved(tmp_path, content), architecture=ARCHITECTURE))
    several = {"first": state, "second": state}
    said = refusal(saved(tmp_path, several), architecture=ARCHITECTURE)
    golden(said)
    assert same(load(saved(tmp_path, several), architecture=ARCHITECTURE, entry="second"))
    around: dict[str, Any] = {"epoch": 1}
    around["model"] = around
    golden(refusal(saved(tmp_path, around), architecture=ARCHITECTURE))
