"""ONNX graphs give the logits that torch gives, say what they cannot do, and do nothing else."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robaudit.auditing import environment
from robaudit.errors import ModelError, RobauditError
from robaudit.models import Source, load_model
from robaudit.models.logits import for_noisy_passes
from robaudit.models.onnx_file import read_contents
from robaudit.spec.model import ModelSpec
from tests.golden import Golden
from tests.system.device import pretended
from tests.unit.models.conftest import load, one_line, pixels, refusal, small_net

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
DOUBLE = onnx.TensorProto.DOUBLE


def graph(
    folder: Path,
    net: nn.Sequential,
    batch: int | str = "n",
    inputs: int = 1,
    outputs: int = 1,
    rank: int = 4,
    kind: int = FLOAT,
) -> Path:
    """The conv-relu-flatten-gemm network of `small_net` as an ONNX file, or a spoilt one."""
    shape: list[Any] = [batch, 1, 8, 8][:rank]
    names = {"0.weight": "w0", "0.bias": "b0", "3.weight": "w3", "3.bias": "b3"}
    weights = [
        onnx.numpy_helper.from_array(tensor.detach().numpy(), names[key])
        for key, tensor in net.state_dict().items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["h0"]),
        helper.make_node("Relu", ["h0"], ["h1"]),
        helper.make_node("Flatten", ["h1"], ["h2"]),
        helper.make_node("Gemm", ["h2", "w3", "b3"], ["logits"], transB=1),
    ]
    if kind != FLOAT or rank != 4:
        nodes = [helper.make_node("Flatten", ["x"], ["logits"])]
        weights = []
    entries = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "mask")[:inputs]]
    exits = [helper.make_tensor_value_info("logits", kind, None)]
    if outputs == 2:
        exits.insert(0, helper.make_tensor_value_info("h2", kind, None))
    model = helper.make_model(
        helper.make_graph(nodes, "net", entries, exits, weights),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 9
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.parametrize("batch", ["n", 4])
def test_agrees_with_torch(
    tmp_path: Path, batch: int | str, capfd: pytest.CaptureFixture[str]
) -> None:
    net = small_net()
    model = load(graph(tmp_path, net, batch), mean=[0.3], std=[0.7])
    assert (model.format, model.differentiable) == ("onnx", False)
    assert (model.info.least_batch, model.info.most_batch) == ((4, 4) if batch == 4 else (1, None))
    for count in (1, 4, 6):
        with torch.inference_mode():
            assert torch.allclose(model(pixels(count)), net((pixels(count) - 0.3) / 0.7), atol=1e-5)
    assert capfd.readouterr().err == ""


def test_output_by_name_or_index(tmp_path: Path, golden: Golden) -> None:
    net = small_net()
    path = graph(tmp_path, net, outputs=2)
    for output in ("logits", 1):
        assert torch.allclose(load(path, output=output)(pixels()), net(pixels()), atol=1e-5)
    with pytest.raises(ModelError) as caught:
        load(path)(pixels())
    golden(caught.value)


def flat(
    folder: Path,
    shape: list[Any],
    values: int,
    extra: Sequence[Any] = (),
    exits: Sequence[Any] = (),
) -> Path:
    """A linear network on flat pixels with the logits z, further nodes and further outputs, which
    come first."""
    weights = torch.arange(values * 3, dtype=torch.float32).view(values, 3).sin()
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["z"]),
        *extra,
    ]
    entries = [helper.make_tensor_value_info("x", FLOAT, shape)]
    ends = [*exits, helper.make_tensor_value_info("z", FLOAT, ["n", 3])]
    held = [onnx.numpy_helper.from_array(weights.numpy(), "w")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(
        helper.make_graph(nodes, "net", entries, ends, held), opset_imports=imports, ir_version=8
    )
    (folder / "net.onnx").write_bytes(made.SerializeToString())
    return folder / "net.onnx"


def test_channels_at_the_end(tmp_path: Path, golden: Golden) -> None:
    """As exports of TensorFlow have them."""
    model = load(flat(tmp_path, ["n", 4, 5, 3], 60))
    images = torch.rand(2, 3, 4, 5)
    weights = torch.arange(180, dtype=torch.float32).view(60, 3).sin()
    assert torch.allclose(model(images), images.permute(0, 2, 3, 1).flatten(1) @ weights, atol=1e-5)
    assert any("given to it as n x height x width x channels" in note for note in model.notes)
    with pytest.raises(ModelError) as caught:
        model(images[..., :4])
    golden(caught.value)


def beside(kind: str) -> tuple[list[Any], list[Any]]:
    """Nodes and outputs that scikit-learn's converter puts beside the scores."""
    nodes = [helper.make_node("ArgMax", ["z"], ["index"], axis=1, keepdims=0)]
    if kind == "numbers":
        return nodes, [helper.make_tensor_value_info("index", onnx.TensorProto.INT64, ["n"])]
    if kind == "text":
        names = {"keys_int64s": [0, 1, 2], "values_strings": ["cat", "dog", "owl"]}
        nodes.append(
            helper.make_node("LabelEncoder", ["index"], ["label"], domain="ai.onnx.ml", **names)
        )
        return nodes, [helper.make_tensor_value_info("label", onnx.TensorProto.STRING, ["n"])]
    nodes = [
        helper.make_node(
            "ZipMap",
            ["z"],
            ["scores"],
            domain="ai.onnx.ml",
            classlabels_strings=["cat", "dog", "owl"],
        )
    ]
    entry = onnx.ValueInfoProto(name="scores")
    each = helper.make_map_type_proto(
        onnx.TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, [])
    )
    entry.type.CopyFrom(helper.make_sequence_type_proto(each))
    return nodes, [entry]


@pytest.mark.parametrize("output", [None, "z", 1])
@pytest.mark.parametrize("kind", ["numbers", "text", "map"])
def test_labels_and_maps_beside_the_scores(
    kind: str, output: str | int | None, tmp_path: Path
) -> None:
    model = load(flat(tmp_path, ["n", 1, 8, 8], 64, *beside(kind)), output=output)
    weights = torch.arange(192, dtype=torch.float32).view(64, 3).sin()
    assert torch.allclose(model(pixels()), pixels().flatten(1) @ weights, atol=1e-5)
    assert any("the logits are its output 'z'" in note for note in model.notes) == (output is None)


def test_an_output_that_holds_no_scores(tmp_path: Path, golden: Golden) -> None:
    path = flat(tmp_path, ["n", 1, 8, 8], 64, *beside("text"))
    for output in ("label", 0):
        said = refusal(path, output=output)
        golden(said)
    model = onnx.load(flat(tmp_path, ["n", 1, 8, 8], 64, *beside("map")))
    del model.graph.output[1]
    onnx.save_model(model, tmp_path / "net.onnx")
    said = refusal(tmp_path / "net.onnx")
    golden(said)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_lower_precisions_are_refused(precision: Any, tmp_path: Path, golden: Golden) -> None:
    with pytest.raises(ModelError) as caught:
        for_noisy_passes(load(graph(tmp_path, small_net())), precision)
    golden(caught.value)


def test_gives_no_gradients(tmp_path: Path, golden: Golden) -> None:
    model = load(graph(tmp_path, small_net()))
    with pytest.raises(ModelError) as caught:
        model(pixels().requires_grad_())
    golden(caught.value)
    assert one_line(caught.value)


def test_refusals(tmp_path: Path, golden: Golden) -> None:
    net = small_net()
    golden(refusal(graph(tmp_path, net, inputs=2)))
    golden(refusal(graph(tmp_path, net, rank=2)))
    golden(refusal(graph(tmp_path, net, kind=DOUBLE)))
    path = graph(tmp_path, net)
    golden(refusal(path, dtype=torch.float64))
    with pytest.raises(ModelError) as caught:
        load(path)(pixels(side=9))
    golden(caught.value)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Relu", b"Relv"))
    golden(refusal(path))
    golden(refusal(path, trust=True))
    path.write_bytes(whole[:-100])
    golden(refusal(path))


def test_device_that_onnxruntime_does_not_have(tmp_path: Path, golden: Golden) -> None:
    path = graph(tmp_path, small_net())
    with pytest.raises(ModelError) as caught:
        load_model(Source(ModelSpec(path=str(path)), device=torch.device("mps")))
    golden(caught.value)
    assert one_line(caught.value)


@pytest.mark.parametrize(("deterministic", "search"), [(False, "EXHAUSTIVE"), (True, "DEFAULT")])
def test_cuda_without_tf32_and_on_request_without_timing(
    deterministic: bool, search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    path = graph(tmp_path, small_net())
    asked = list[object]()
    begin = onnxruntime.InferenceSession

    def session(file: str, options: Any, providers: list[Any]) -> Any:
        asked.extend([options.use_deterministic_compute, *providers])
        return begin(file, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(
        onnxruntime,
        "get_available_providers",
        lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    x = pixels()
    source = Source(ModelSpec(path=str(path)), device=torch.device("cuda", 0))
    with pretended(), environment.deterministic(deterministic, torch.device("cuda", 0)):
        model = load_model(source)
        found = model(x.cuda()).cpu()
    cuda = {"device_id": 0, "use_tf32": 0, "cudnn_conv_algo_search": search}
    assert asked == [deterministic, ("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
    assert torch.equal(found, load(path)(x))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_is_not_installed(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    path = graph(tmp_path, small_net())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RobauditError) as caught:
        load(path)
    golden(caught.value)


# --- it computes, and reads no file but those in its folder that hold its weights; these count in
# its digest


def elsewhere(name: str, location: str, **more: str) -> Any:
    """A tensor of four numbers that are in another file."""
    tensor = onnx.TensorProto(
        name=name, data_type=FLOAT, dims=[4], data_location=onnx.TensorProto.EXTERNAL
    )
    for key, value in {"offset": "0", "location": location, "length": "16", **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The usual network with its weights in a file of their own."""
    model = onnx.load(graph(tmp_path, small_net()))
    onnx.save_model(
        model,
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.onnx.data",
        size_threshold=0,
    )
    return tmp_path / "net.onnx"


def test_weights_in_another_file_count(split: Path) -> None:
    """A run on other weights must not be resumed, compared or verified as if it were on these."""
    model = load(split)
    assert torch.allclose(model(pixels()), small_net()(pixels()), atol=1e-5)
    text = f"{sha256(split)}\n{sha256(split.parent / 'net.onnx.data')}  net.onnx.data\n"
    assert model.sha256 == hashlib.sha256(text.encode()).hexdigest()
    content = bytearray((split.parent / "net.onnx.data").read_bytes())
    content[0] ^= 1
    (split.parent / "net.onnx.data").write_bytes(content)
    assert load(split).sha256 != model.sha256


def test_missing_special_and_huge_files(split: Path, golden: Golden) -> None:
    other = split.parent / "net.onnx.data"
    other.unlink()
    golden(refusal(split))
    other.touch()
    golden(refusal(split))
    os.truncate(other, 2**43)
    golden(refusal(split))
    other.unlink()
    for target in ("/proc/self/pagemap", "net.onnx.data"):
        other.symlink_to(target)
        golden(refusal(split))
        other.unlink()


@pytest.mark.parametrize(
    "name", ["../w", "/proc/self/pagemap", "*/_ORT_MEM_ADDR_/*", "w\0", "", "link/w"]
)
@pytest.mark.parametrize("place", ["graph", "function", "branch"])
def test_weights_elsewhere_are_not_read(
    tmp_path: Path, name: str, place: str, golden: Golden
) -> None:
    home = tmp_path / "home"
    for folder in (home / "a", home / "*" / "_ORT_MEM_ADDR_"):
        folder.mkdir(parents=True)
    (home / "link").symlink_to("..")
    for file in (tmp_path / "w", home / "w", home / "*" / "_ORT_MEM_ADDR_" / "*"):
        file.write_bytes(bytes(16))
    for location, refused in ((name, True), ("w", False)):
        (home / "net.onnx").write_bytes(holding(place, elsewhere("w", location)))
        if refused:
            golden(refusal(home / "net.onnx"))
        else:
            assert read_contents(home / "net.onnx").files == ["w"]


def test_a_folder_of_links_to_one_place(split: Path) -> None:
    """As in the cache of the Hugging Face Hub."""
    links = split.parent / "snapshot"
    links.mkdir()
    for name in ("net.onnx", "net.onnx.data"):
        (links / name).symlink_to(split.parent / name)
    assert load(links / "net.onnx").sha256 == load(split).sha256


def holding(place: str, tensor: Any = None, operator: tuple[str, str] = ("", "Identity")) -> bytes:
    """The Flatten network with a tensor and an operator in its graph, in a function, or in a branch
    of an If."""
    nodes = [helper.make_node("Flatten", ["x"], ["f"])]
    weights = [] if tensor is None else [tensor]
    functions = []
    initializers = list[Any]()
    extra = helper.make_node(operator[1], ["f"], ["y"], domain=operator[0])
    imports = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("own", 1),
        helper.make_opsetid("com.microsoft", 1),
    ]
    if operator[0] not in ("", "own", "com.microsoft"):
        imports.append(helper.make_opsetid(operator[0], 1))
    if place == "function":
        constants = [helper.make_node("Constant", [], ["c"], value=one) for one in weights]
        functions = [helper.make_function("own", "F", ["f"], ["y"], [*constants, extra], imports)]
        nodes.append(helper.make_node("F", ["f"], ["y"], domain="own"))
    elif place == "branch":
        out = [helper.make_tensor_value_info("y", FLOAT, None)]
        branch = helper.make_graph([extra], "branch", [], out, weights)
        whole = helper.make_graph([helper.make_node("Identity", ["f"], ["y"])], "other", [], out)
        initializers = [helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])]
        nodes.append(helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=whole))
    else:
        nodes = [*nodes, extra]
        initializers = weights
    ends = (
        [helper.make_tensor_value_info("x", FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 64])],
    )
    made = helper.make_model(
        helper.make_graph(nodes, "net", *ends, initializers),
        opset_imports=imports,
        functions=functions,
        ir_version=8,
    )
    content: bytes = made.SerializeToString()
    return content


@pytest.mark.parametrize("place", ["graph", "function", "branch"])
def test_operators_that_are_not_on_the_list(tmp_path: Path, place: str, golden: Golden) -> None:
    path = tmp_path / "net.onnx"
    for operator in (
        ("custom", "Run"),
        ("com.microsoft", "EPContext"),
        ("com.microsoft", "Snpe"),
        ("own", "G"),
    ):
        path.write_bytes(holding(place, operator=operator))
        golden(refusal(path))
        golden(refusal(path, trust=True))
    path.write_bytes(holding(place, operator=("com.microsoft", "QuickGelu")))
    golden(refusal(path))
    assert load(path, trust=True)(pixels()).shape == (5, 64)
    path.write_bytes(holding(place, operator=("", "Relu")))
    assert load(path)(pixels()).shape == (5, 64)


def test_a_function_does_not_hide_an_operator(tmp_path: Path, golden: Golden) -> None:
    """Onnxruntime may prefer its own operator to a function of the same name."""
    model = onnx.ModelProto.FromString(holding("graph", operator=("com.microsoft", "EPContext")))
    relu = helper.make_node("Relu", ["f"], ["y"])
    model.functions.append(
        helper.make_function(
            "com.microsoft", "EPContext", ["f"], ["y"], [relu], [helper.make_opsetid("", 17)]
        )
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    golden(refusal(tmp_path / "net.onnx"))


def test_onnxruntimes_own_format_is_refused(tmp_path: Path, golden: Golden) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "net.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(
        str(graph(tmp_path, small_net())), options, providers=["CPUExecutionProvider"]
    )
    golden(refusal(tmp_path / "net.ort", format="onnx"))
    # by its suffix alone, onnxruntime would take it for its own
    graph(tmp_path, small_net()).replace(tmp_path / "net.ort")
    assert load(tmp_path / "net.ort", format="onnx")(pixels()).shape == (5, 3)
