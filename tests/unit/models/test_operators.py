"""The list of operators is what ordinary networks use, and ordinary networks load."""

import warnings
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Optional

import pytest
import torch
from torch import nn

from robaudit.models.operators import allowed
from tests.research.operators import (
    LAYERS,
    NEVER,
    ONNX_SAMPLE,
    TORCH,
    Candidate,
    Form,
    collect,
    layers,
    torchvision_networks,
)
from tests.shared import SHARED, needs_shared
from tests.unit.models.conftest import load
from tests.unit.models.test_model_files import script

SAMPLE = (
    "functions",
    "softmax_scripted",
    "gates",
    "shapes",
    "prelu",
    "instance_norm",
    "attention",
    "upsample_bicubic",
)
SMALL = ("torchvision:shufflenet_v2_x0_5", "torchvision:mobilenet_v3_small")


def candidates() -> list[Candidate]:
    """Some of the networks that the list was made of."""
    chosen = {f"layer:{name}" for name in SAMPLE}
    small = [network for network in torchvision_networks() if network.name in SMALL]
    return [*(layer for layer in layers() if layer.name in chosen), *small]


@pytest.mark.parametrize("candidate", candidates(), ids=lambda candidate: candidate.name)
def test_a_sample_of_the_list_made_again(candidate: Candidate) -> None:
    forms: tuple[Form, ...] = TORCH
    if candidate.name.startswith("layer:"):
        pytest.importorskip("onnx")
        forms += ONNX_SAMPLE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has deprecated some of the forms
        used, failed = collect(candidate.build, forms)
    assert not failed
    assert len(used["torch"]) > 5
    for part in ("torch", "onnx"):
        assert used[part] - NEVER.keys() <= allowed(part)


def test_what_is_never_on_the_list() -> None:
    listed = allowed("torch") | allowed("onnx")
    assert not listed & NEVER.keys()
    for part in ("file", "save", "load", "read", "write", "print", "backward", "rpc", "set_data"):
        assert not [name for _, name in listed if part in name.lower()]


def test_every_layer_has_a_network() -> None:
    """Else a name could be in the list without ever having been written to a file."""
    for name, build in LAYERS.items():
        network = nn.Sequential(build(), nn.Flatten()).eval()
        assert network(torch.rand(2, 4, 8, 8)).shape[0] == 2, name


class Pool(Enum):
    """As in networks of timm."""

    MEAN = "mean"
    MAX = "max"


class Pair(NamedTuple):
    """What a network may return."""

    logits: torch.Tensor
    features: torch.Tensor


class Typed(nn.Module):
    """A network with an enumeration as an attribute, an optional argument and a named tuple."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool
        self.norm = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: Optional[float] = None) -> Pair:  # noqa: UP045  as TorchScript reads it
        features = x.mean((2, 3)) if self.pool == Pool.MEAN else x.amax((2, 3))
        if scale is not None:
            features = features * scale
        return Pair(self.norm(features), features)


@pytest.mark.parametrize("pool", Pool)
def test_scripts_with_types_of_their_own_load(pool: Pool, tmp_path: Path) -> None:
    path = script(tmp_path, Typed(pool))
    assert load(path, output="logits")(torch.rand(2, 4, 8, 8)).shape == (2, 3)


@needs_shared
@pytest.mark.parametrize("file", ["model.torchscript.pt", "model.pt2"])
def test_real_networks_load(file: str) -> None:
    models = [
        folder / file
        for folder in sorted(Path(SHARED, "models").iterdir())
        if (folder / file).is_file()
    ]
    assert len(models) >= 8
    for path in models:
        assert load(path).format in ("torchscript", "pt2")
