"""Models that cannot be audited: one line, exit 2, nothing written, and no code of the file has run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Refuse
from tests.specs import NETWORK, WEIGHTS, digits, save_npz, write

RefuseModel = Callable[..., str]


@pytest.fixture
def refuse_model(tmp_path: Path, refuse: Refuse) -> RefuseModel:
    """Refuse an audit of the digits with this model section."""

    def run(model: dict[str, Any], *args: str, says: str, **sections: Any) -> str:
        return refuse("estimate", write(tmp_path, digits(model=model, **sections)), *args, says=says)

    return run


class Canary:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_pickle_with_code_never_runs(tmp_path: Path, refuse_model: RefuseModel) -> None:
    """Not even with --trust."""
    canary = tmp_path / "canary"
    torch.save({"weights": Canary(canary)}, tmp_path / "model.pt")
    refuse_model({"path": "model.pt"}, "--trust", says="which would run code when loaded; export it with")
    assert not canary.exists()


ARCHITECTURES = {
    "none": (None, {}, "holds weights only; add architecture: torchvision:NAME, timm:NAME, robaudit:NAME or"),
    "unknown": ("robaudit:digit_cnn", {}, "there is no such network; did you mean 'digits_cnn'?"),
    "other class count": (
        "robaudit:digits_cnn",
        {"num_classes": 3},
        "the last layer has 10 rows: write architecture_options: {num_classes: 10}",
    ),
}


@pytest.mark.parametrize(("name", "options", "says"), ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_architecture(name: str | None, options: dict[str, Any], says: str, refuse_model: RefuseModel) -> None:
    refuse_model({"path": str(WEIGHTS), "architecture": name, "architecture_options": options}, says=says)


def test_logits_that_overflow(tmp_path: Path, refuse_model: RefuseModel) -> None:
    tensors = load_file(WEIGHTS)
    save_file({key: tensor * 1e30 for key, tensor in tensors.items()}, tmp_path / "huge.safetensors")
    refuse_model({**NETWORK, "path": "huge.safetensors"}, says="its logits are not finite on any of 8 clean images; look for NaN weights")


@pytest.mark.parametrize(
    "section", [{"architecture": "own:make"}, {"path": str(WEIGHTS), "architecture": "own:make"}], ids=["alone", "with weights"]
)
def test_python_code_needs_trust(section: dict[str, Any], tmp_path: Path, refuse_model: RefuseModel) -> None:
    (tmp_path / "own.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'canary')!r}).touch()\n")
    refuse_model(section, says="own:make: is Python code and would run on this machine; pass --trust if you trust it, or convert")
    assert not (tmp_path / "canary").exists()


PYTHON = {
    "no function": ("own_models:mak", "own_models has no function 'mak'; did you mean 'make'?"),
    "raises": ("own_models:fail", "raised RuntimeError: no luck"),
}


@pytest.mark.parametrize(("target", "says"), PYTHON.values(), ids=list(PYTHON))
def test_trusted_python_code(target: str, says: str, tmp_path: Path, refuse_model: RefuseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    code = "def make(): return 3\ndef fail(): raise RuntimeError('no\\nluck')\n"
    (tmp_path / "own_models.py").write_text(code)
    refuse_model({"architecture": target}, "--trust", says=says)


def test_images_of_another_shape(tmp_path: Path, refuse_model: RefuseModel) -> None:
    save_npz(tmp_path / "images.npz", shape=(3, 32, 32))
    refuse_model(NETWORK, dataset={"kind": "npz", "path": "images.npz"}, says="the network does not take images of 3 x 32 x 32")


def test_onnx_has_no_gradients(tmp_path: Path, refuse_model: RefuseModel) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, shape = onnx.helper, ["n", 1, 8, 8]
    nodes = [helper.make_node("Flatten", ["x"], ["y"], axis=1)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", ["n", 64]))]
    graph = helper.make_graph(nodes, "flat", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "flat.onnx")
    for estimators, others in ((["mc", "taylor"], "mc or softmax"), (["mc", "radius_attack"], "radius_random")):
        refuse_model(
            {"path": "flat.onnx"},
            dataset={"kind": "digits", "limit": 4, "class_names": None},
            estimators=estimators,
            says=f"has no gradients, and {estimators[1]} needs them; use {others}, or another format of the model",
        )
