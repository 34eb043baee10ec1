"""The files that are sent with a model: all that its loader will read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit.auditing.shipping import packed
from robaudit.auditing.worker import Worker, WorkerPlan
from tests.ray.teams import opened, plan, refusal
from tests.specs import WEIGHTS, digits


def sent(given: WorkerPlan) -> WorkerPlan:
    """The plan of a worker that is sent the model."""
    spec, files, home = packed(given.spec, ())
    return replace(given, spec=spec, files=files, home=home)


def arrives(model: dict[str, Any], folder: Path) -> set[str]:
    """Whether the model that is sent is that of the files, which are gone by then; returns their names."""
    given = replace(plan(digits(model=model), folder), trust=True)
    plan_sent = sent(given)
    here = opened(Worker(given)).facts.model["sha256"]
    for name in plan_sent.files:
        for file in folder.rglob(Path(name).name):
            file.unlink()
    assert opened(Worker(plan_sent)).facts.model["sha256"] == here
    return set(plan_sent.files)


def test_code_without_weights(tmp_path: Path) -> None:
    """With the modules beside it that it imports, also within functions; and without the others."""
    (tmp_path / "sentnet.py").write_text("def model():\n    from sentparts import head\n    return head.make()\n", encoding="utf-8")
    (tmp_path / "sentparts").mkdir()
    (tmp_path / "sentparts" / "__init__.py").write_text("import torch, sentseed\n", encoding="utf-8")
    head = "import torch\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    (tmp_path / "sentparts" / "head.py").write_text(head, encoding="utf-8")
    (tmp_path / "sentseed.py").write_text("import torch\ntorch.manual_seed(0)\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("import sentnet\n", encoding="utf-8")
    document = digits(model={"format": "python", "architecture": "sentnet:model"})
    _, files, _ = packed(plan(document, tmp_path).spec, ())
    assert set(files) == {"sentnet.py", "sentseed.py", "sentparts/__init__.py", "sentparts/head.py"}


def test_an_onnx_file_with_its_weights_in_another(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    values = torch.ones(64, 10).numpy()
    make = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Flatten", ["x"], ["f"]), onnx.helper.make_node("MatMul", ["f", "w"], ["y"])]
    shapes = [make("x", 1, ["n", 1, 8, 8])], [make("y", 1, ["n", 10])]
    whole = onnx.helper.make_graph(nodes, "net", *shapes, [onnx.numpy_helper.from_array(values, "w")])
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    assert arrives({"path": "net.onnx"}, tmp_path) == {"net.onnx", "net.data"}


def test_files_keep_their_names(tmp_path: Path) -> None:
    """In the record, in warnings and in errors; the folder in which they were unpacked is gone."""
    from safetensors.torch import load_file, save_file

    (tmp_path / "net").mkdir()
    path = tmp_path / "net" / "w.safetensors"
    save_file({name: tensor.flip(0).contiguous() for name, tensor in load_file(WEIGHTS).items()}, path)
    given = plan(digits(model={"path": "net/w.safetensors", "architecture": "robaudit:digits_cnn"}, limit=50), tmp_path)
    here, there = opened(Worker(given)), opened(Worker(sent(given)))
    assert there.facts.model["name"] == here.facts.model["name"] == str(path)
    assert there.told == here.told
    assert there.facts.check.warnings == here.facts.check.warnings
    assert str(path) in here.facts.check.warnings[0]
    path.write_bytes(path.read_bytes()[:-100])
    assert refusal(Worker(sent(given))) == refusal(Worker(given))
