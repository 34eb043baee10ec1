"""ONNX graphs give the logits that torch gives, and say what they cannot do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robaudit.auditing import environment
from robaudit.errors import ModelError, RobauditError
from robaudit.models import Source, load_model
from robaudit.spec.model import ModelSpec
from tests.system.device import pretended
from tests.unit.models.conftest import load, one_line, pixels, refusal, small_net

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT, DOUBLE = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def graph(
    folder: Path, net: nn.Sequential, batch: int | str = "n", inputs: int = 1, outputs: int = 1, rank: int = 4, kind: int = FLOAT
) -> Path:
    """The conv-relu-flatten-gemm network of `small_net` as an ONNX file, or a spoilt one."""
    shape: list[Any] = [batch, 1, 8, 8][:rank]
    names = {"0.weight": "w0", "0.bias": "b0", "3.weight": "w3", "3.bias": "b3"}
    weights = [onnx.numpy_helper.from_array(tensor.detach().numpy(), names[key]) for key, tensor in net.state_dict().items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["h0"]),
        helper.make_node("Relu", ["h0"], ["h1"]),
        helper.make_node("Flatten", ["h1"], ["h2"]),
        helper.make_node("Gemm", ["h2", "w3", "b3"], ["logits"], transB=1),
    ]
    if kind != FLOAT or rank != 4:
        nodes, weights = [helper.make_node("Flatten", ["x"], ["logits"])], []
    entries = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "mask")[:inputs]]
    exits = [helper.make_tensor_value_info("logits", kind, None)]
    if outputs == 2:
        exits.insert(0, helper.make_tensor_value_info("h2", kind, None))
    model = helper.make_model(helper.make_graph(nodes, "net", entries, exits, weights), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.parametrize("batch", ["n", 4])
def test_agrees_with_torch(tmp_path: Path, batch: int | str, capfd: pytest.CaptureFixture[str]) -> None:
    net = small_net()
    model = load(graph(tmp_path, net, batch), mean=[0.3], std=[0.7])
    assert (model.format, model.differentiable) == ("onnx", False)
    assert (model.info.least_batch, model.info.most_batch) == ((4, 4) if batch == 4 else (1, None))
    for count in (1, 4, 6):
        with torch.inference_mode():
            assert torch.allclose(model(pixels(count)), net((pixels(count) - 0.3) / 0.7), atol=1e-5)
    assert capfd.readouterr().err == ""


def test_output_by_name_or_index(tmp_path: Path) -> None:
    net = small_net()
    path = graph(tmp_path, net, outputs=2)
    for output in ("logits", 1):
        assert torch.allclose(load(path, output=output)(pixels()), net(pixels()), atol=1e-5)
    with pytest.raises(ModelError, match="keys h2, logits"):
        load(path)(pixels())


def test_gives_no_gradients(tmp_path: Path) -> None:
    model = load(graph(tmp_path, small_net()))
    with pytest.raises(ModelError, match="gives no gradients") as caught:
        model(pixels().requires_grad_())
    assert one_line(caught.value)


def test_refusals(tmp_path: Path) -> None:
    net = small_net()
    assert "takes 2 inputs (x, mask)" in refusal(graph(tmp_path, net, inputs=2))
    assert "an input of 2 dimensions" in refusal(graph(tmp_path, net, rank=2))
    assert "takes tensor(double)" in refusal(graph(tmp_path, net, kind=DOUBLE))
    path = graph(tmp_path, net)
    assert "fp32 only" in refusal(path, dtype=torch.float64)
    with pytest.raises(ModelError, match="does not take images of 1 x 9 x 9"):
        load(path)(pixels(side=9))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Relu", b"Relv"))
    assert "onnxruntime cannot load it" in refusal(path)
    path.write_bytes(whole[:-100])
    assert "is not an ONNX model (" in refusal(path)


def test_device_that_onnxruntime_does_not_have(tmp_path: Path) -> None:
    path = graph(tmp_path, small_net())
    with pytest.raises(ModelError, match="cannot run on mps") as caught:
        load_model(Source(ModelSpec(path=str(path)), device=torch.device("mps")))
    assert one_line(caught.value)


@pytest.mark.parametrize(("deterministic", "search"), [(False, "EXHAUSTIVE"), (True, "DEFAULT")])
def test_cuda_without_tf32_and_on_request_without_timing(
    deterministic: bool, search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    path, asked, begin = graph(tmp_path, small_net()), list[object](), onnxruntime.InferenceSession

    def session(file: str, options: Any, providers: list[Any]) -> Any:
        asked.extend([options.use_deterministic_compute, *providers])
        return begin(file, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    x, source = pixels(), Source(ModelSpec(path=str(path)), device=torch.device("cuda", 0))
    with pretended(), environment.deterministic(deterministic, torch.device("cuda", 0)):
        model = load_model(source)
        found = model(x.cuda()).cpu()
    cuda = {"device_id": 0, "use_tf32": 0, "cudnn_conv_algo_search": search}
    assert asked == [deterministic, ("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
    assert torch.equal(found, load(path)(x))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_is_not_installed(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph(tmp_path, small_net())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RobauditError, match=rf"needs {package}, which is not installed; pip install 'robaudit\[onnx\]'"):
        load(path)
