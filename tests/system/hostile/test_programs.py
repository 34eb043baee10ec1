"""Networks as programs that mean harm: what they would do while they are read, and what would run
later.

Each file is made here, by changing the code or the graph of a harmless one. It must be refused
before torch or onnxruntime reads it, by the name of what is not allowed.
"""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit import load_spec
from robaudit.errors import ModelError
from robaudit.models import Source, load_model
from robaudit.models.pretrained import filled
from robaudit.spec.model import ModelSpec
from tests import forks
from tests.conftest import RunCli
from tests.golden import Golden
from tests.specs import digits, write
from tests.system.hostile.archives import rewrite
from tests.system.hostile.models import exported, scripted
from tests.system.hostile.models import folder as model_folder

SECRET = b"a secret of another user, 64 bytes long, for a network to read.."


def refusal(path: Path, **fields: Any) -> str:
    """What a load says."""
    with pytest.raises(ModelError) as caught:
        load_model(Source(ModelSpec(path=str(path), **fields), path.parent))
    return str(caught.value)


@pytest.fixture(autouse=True)
def victim(tmp_path: Path) -> Any:
    """A file that must stay as it is, beside one that must not appear."""
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    yield path
    assert path.read_bytes() == SECRET
    assert not (tmp_path / "canary").exists()


# --- TorchScript

FORWARD = "  def forward("
"""The beginning of the methods of the harmless network."""


def with_code(folder: Path, change: Callable[[str], str]) -> Path:
    """The harmless network with the code of its main class changed."""
    path = folder / "net.pt"
    path.write_bytes(scripted())
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    main = max(
        (name for name in sizes if name.endswith(".py") and "/container" in name),
        key=sizes.__getitem__,
    )

    def changed(name: str, content: bytes) -> bytes:
        if name != main:
            return content
        before = content.decode()
        after = change(before)
        assert before != after
        return after.encode("utf-8", "surrogatepass")

    return rewrite(path, changed)


def inserted(text: str) -> Callable[[str], str]:
    """Text before the first method, with the class of the network in place of ``SELF``."""

    def change(code: str) -> str:
        (name,) = set(re.findall(r"forward\(self: ([\w.]+),", code))
        return code.replace(FORWARD, f"{text.replace('SELF', f'self: {name}')}{FORWARD}", 1)

    return change


SAVES = 'torch.save("", "CANARY")'
WRITES = 'torch.copy_(torch.from_file("VICTIM", True, 64), torch.zeros([64]))'
READS = 'torch.from_file("VICTIM", False, 16)'

RUN_WHILE_READ = {
    "a default value that saves": f"  def other(SELF,\n    y: Tuple[()]={SAVES}) -> int:\n    "
    "return 1\n",
    "a default value that writes": f"  def other(SELF,\n    y: Tensor={WRITES}) -> int:\n    "
    "return 1\n",
    "a default value that reads": f"  def other(SELF,\n    y: Tensor={READS}) -> int:\n    "
    "return 1\n",
    "a default value after a star": f"  def other(SELF, *,\n    y: Tensor={READS}) -> int:\n    "
    "return 1\n",
    "a default value in a list": f"  def other(SELF,\n    y: List[Tensor]=[{READS}]) -> int:\n   "
    " return 1\n",
    "a default value behind a type": (
        f"  def other(SELF,\n    y: Tensor=annotate(Tensor, {READS})) -> int:\n    return 1\n"
    ),
    "a constant of the class": f"  secret : Final[Tensor] = {WRITES}\n",
    "a value of the class": f"  secret = {WRITES}\n",
    "__setstate__": "  def __setstate__(SELF,\n    y: int) -> NoneType:\n    return None\n",
}
"""What torch would run while it reads the file: names, and code of a class."""


def of_test(text: str, folder: Path) -> str:
    return text.replace("CANARY", str(folder / "canary")).replace("VICTIM", str(folder / "victim"))


@pytest.mark.parametrize("code", RUN_WHILE_READ.values(), ids=RUN_WHILE_READ)
def test_code_that_torch_runs_while_it_reads(code: str, tmp_path: Path, golden: Golden) -> None:
    path = with_code(tmp_path, inserted(of_test(code, tmp_path)))
    golden(refusal(path))


def test_a_default_value_of_a_named_tuple(tmp_path: Path, golden: Golden) -> None:
    field = of_test(f"class Pair(NamedTuple):\n  x : Tensor = {WRITES}\n", tmp_path)
    path = with_code(tmp_path, lambda code: field + code)
    golden(refusal(path))


CALLED = {
    "a function": f"y = {SAVES}",
    "another name": "f = torch.save\n    y = f(x, 'CANARY')".replace("'", '"'),
    "a method": 'y = (x).save("CANARY", )',
    "an attribute by its name": 'f = getattr(x, "save")',
    "a namespace": 'y = ops.image.read_file("VICTIM")',
    "a namespace with a name": "y = ops.image",
    "printing": 'print("::error::")',
    "a class of a library": "y = __torch__.torch.classes.rnn.Cell.__new__(x)",
    "a type of a library": "y = annotate(__torch__.torch.classes.rnn.Cell, x)",
    "threads": "y = fork(x)",
    "indices without a check": "y = torch.max_pool2d_with_indices_backward(x, x, [2, 2], [2, 2], "
    "[0, 0], [1, 1], False, torch.tensor([9]))",
    "lengths without a check": 'y = torch.segment_reduce(x, "sum", lengths=torch.tensor([9999]), '
    "unsafe=True)",
}
"""Statements that call what no network needs."""


@pytest.mark.parametrize("statement", CALLED.values(), ids=CALLED)
def test_calls_that_are_not_on_the_list(statement: str, tmp_path: Path, golden: Golden) -> None:
    method = f"  def other(SELF,\n    x: Tensor) -> NoneType:\n    {statement}\n    return None\n"
    path = with_code(tmp_path, inserted(of_test(method, tmp_path)))
    golden(refusal(path))


class Warns(torch.nn.Module):
    """Warnings are Python's, so their text reaches standard error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("\x1b[2J\n::error::all is lost\n##vso[x]y", stacklevel=2)
        return x.flatten(1)[:, :10]


def test_a_networks_own_warnings_steer_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Warns()), tmp_path / "net.pt")
    write(tmp_path, digits(model={"path": "net.pt"}, limit=4))
    done = forks.robaudit(tmp_path, "estimate", "spec.yaml", "--out", "run")
    assert done.returncode == 0
    assert "warning: \\x1b[2J ::error::all is lost" in done.stderr
    assert all(c.isprintable() or c == "\n" for c in done.stderr)
    assert not [line for line in done.stderr.splitlines() if line.lstrip().startswith("::")]
    assert "##vso[" not in done.stderr


HIDDEN = {
    "a comment": "  # torch.save\n",
    "a single-quoted string": "  name = 'x'\n",
    "a string of three quotes": '  name = """x"""\n',
    "two strings in one": '  name = "x""y"\n',
    "a line that goes on": "  training2 : \\\n    bool\n",
    "a tab": "\ttraining2 : bool\n",
    "a line feed of another kind": "  training2 : bool\r",
    "a form feed": "\f",
    "a letter that is no ASCII": "  trainin\u0261 : bool\n",
    "another encoding": "# -*- coding: utf-7 -*-\n",
    "a decorator": "  @torch.save\n",
    "a lambda": "  def other(SELF) -> int:\n    return (lambda: 1)()\n",
    "a comprehension": "  def other(SELF) -> List[int]:\n    return [i for i in range(3)]\n",
    "a call of a call": "  def other(SELF) -> int:\n    return torch.len([1])(1)\n",
    "an import": "  import os\n",
    "an f-string": '  def other(SELF) -> str:\n    return f"x"\n',
    "parentheses 10,000 deep": "  def other(SELF) -> int:\n    return "
    f"{'(' * 10_000}1{')' * 10_000}\n",
}
"""Code of a form that ordinary files do not have: torch and Python might read it differently."""


@pytest.mark.parametrize("code", HIDDEN.values(), ids=HIDDEN)
def test_code_that_torch_does_not_write(code: str, tmp_path: Path, golden: Golden) -> None:
    path = with_code(tmp_path, inserted(code))
    golden(refusal(path))


def test_every_command_that_loads_a_model_refuses_it(tmp_path: Path, run_cli: RunCli) -> None:
    """A run of a good file, which somebody then replaces."""
    (tmp_path / "net.pt").write_bytes(scripted())
    write(tmp_path, digits(model={"path": "net.pt"}))
    assert run_cli("estimate", "spec.yaml", "--out", "run").code == 0
    with_code(tmp_path, inserted(of_test(RUN_WHILE_READ["a default value that writes"], tmp_path)))
    for words in (
        ("verify", "run"),
        ("estimate", "spec.yaml", "--out", "other"),
        ("init", "--model", "net.pt", "--data", "digits", "new.yaml"),
    ):
        code, _, err = run_cli(*words)
        assert code == 2, words
        assert "which torch would compute while it reads the file" in err, words


def test_methods_that_double_and_double(tmp_path: Path, golden: Golden) -> None:
    """torch replaces a call by the nodes of what it calls."""
    methods = ["  def m0(SELF,\n    x: Tensor) -> Tensor:\n    return torch.relu(x)\n"]
    for i in range(1, 26):
        body = f"    y = (self).m{i - 1}(x, )\n    return (self).m{i - 1}(y, )\n"
        methods.append(f"  def m{i}(SELF,\n    x: Tensor) -> Tensor:\n{body}")
    path = with_code(tmp_path, inserted("".join(methods)))
    golden(refusal(path))


class Small(torch.nn.Module):
    """Few attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.a = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.a


class Large(torch.nn.Module):
    """More attributes, which torch finds by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.a = 1
        self.b = 2.0
        self.c = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.a * self.b * self.c


class Both(torch.nn.Module):
    """One of each."""

    def __init__(self) -> None:
        super().__init__()
        self.small = Small()
        self.large = Large()
        self.number = 7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(self.large(self.small(x)).flatten(1), self.number)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"Large\n", b"Small\n"), (b"K\x07", b"N"), (b"X\x01\x00\x00\x00c", b"X\x01\x00\x00\x00d")],
    ids=["an object of another class", "None in place of a number", "an attribute of another name"],
)
def test_attributes_of_another_type_than_declared(
    old: bytes, new: bytes, tmp_path: Path, golden: Golden
) -> None:
    """torch does not compare them, and takes an attribute by its number: beyond the object, if it
    is small."""
    path = tmp_path / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Both()), path)
    load_model(Source(ModelSpec(path=str(path)), tmp_path))

    def changed(name: str, content: bytes) -> bytes:
        if not name.endswith("/data.pkl"):
            return content
        assert old in content
        return content.replace(old, new)

    rewrite(path, changed)
    golden(refusal(path))


def test_a_pickle_in_capital_letters(tmp_path: Path, golden: Golden) -> None:
    """torch finds it, so it is looked at."""
    path = tmp_path / "net.pt"
    path.write_bytes(scripted())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            forged = name.endswith("/data.pkl")
            archive.writestr(
                name.replace("data.pkl", "DATA.PKL") if forged else name,
                b"\x80\x02K\x01." if forged else content,
            )
    golden(refusal(path))


# --- .pt2


@pytest.mark.parametrize("hidden", ["metadata", "guards_code"])
def test_code_under_a_name_that_is_not_read_elsewhere(
    hidden: str, tmp_path: Path, golden: Golden
) -> None:
    """Descriptions of nodes are not checked, and a value of the graph may be called as they are."""
    path = tmp_path / "net.pt2"
    path.write_bytes(exported())
    code = f"__import__('os').mkdir({str(tmp_path / 'canary')!r}) or Symbol("

    def changed(member: str, content: bytes) -> bytes:
        if not member.endswith("models/model.json"):
            return content
        program = json.loads(json.dumps(json.loads(content)).replace('"relu"', f'"{hidden}"'))
        value = program["graph_module"]["graph"]["tensor_values"][hidden]
        size = value["sizes"][0]["as_expr"]
        size["expr_str"] = size["expr_str"].replace("Symbol(", code, 1)
        return json.dumps(program).encode()

    rewrite(path, changed)
    golden(refusal(path))


@pytest.mark.parametrize(
    "name",
    ["max_pool2d_with_indices_backward", "segment_reduce", "from_file", "set_.source_Tensor"],
)
def test_operators_of_pt2(name: str, tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(exported())
    target = f"torch.ops.aten.{name}" + ("" if "." in name else ".default")

    def changed(member: str, content: bytes) -> bytes:
        if not member.endswith("models/model.json"):
            return content
        return (
            json.dumps(json.loads(content)).replace("torch.ops.aten.relu.default", target).encode()
        )

    rewrite(path, changed)
    golden(refusal(path))


# --- ONNX


def onnx_model(nodes: list[Any], functions: list[Any], domains: list[str], folder: Path) -> Path:
    """A graph from x to y of these nodes."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "net", [x], [y])
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def function(name: str, calls: list[str], domain: str = "own") -> Any:
    """A function that calls others of its domain one after the other; without any, it is a Relu."""
    from onnx import helper

    steps = calls or ["Relu"]
    values = ["a", *(f"t{i}" for i in range(1, len(steps))), "b"]
    nodes = [
        helper.make_node(step, [values[i]], [values[i + 1]], domain=domain if calls else "")
        for i, step in enumerate(steps)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, imports)


def call(name: str, domain: str = "own") -> Any:
    """The graph's call of a function."""
    from onnx import helper

    return helper.make_node(name, ["x"], ["y"], domain=domain)


def test_a_loop_without_an_end(tmp_path: Path, golden: Golden) -> None:
    from onnx import TensorProto, helper

    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, None)
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    go = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    end = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
    out = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
    steps = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Relu", ["s"], ["t"])]
    body = helper.make_graph(steps, "body", [count, go, state], [end, out])
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=body)
    golden(refusal(onnx_model([loop], [], [], tmp_path)))


def test_functions_that_double_and_double(tmp_path: Path, golden: Golden) -> None:
    functions = [function("f0", [])]
    functions += [function(f"f{i}", [f"f{i - 1}"] * 2) for i in range(1, 26)]
    path = onnx_model([call("f25")], functions, ["own"], tmp_path)
    golden(refusal(path))


def test_functions_that_call_each_other(tmp_path: Path, golden: Golden) -> None:
    functions = [function("f", ["g"]), function("g", ["f"])]
    path = onnx_model([call("f")], functions, ["own"], tmp_path)
    golden(refusal(path))


@pytest.mark.parametrize(
    "domain",
    [
        "com.microsoft.nchwc",
        "com.microsoft",
        "com.ms.internal.nhwc",
        "ai.onnx.ml",
        "com.microsoft.other",
        "",
    ],
)
def test_functions_in_domains_of_onnxruntime(domain: str, tmp_path: Path, golden: Golden) -> None:
    """It would run its own operator of this name."""
    functions = [function("ReorderOutput", [], domain)]
    path = onnx_model(
        [call("ReorderOutput", domain)], functions, [domain] if domain else [], tmp_path
    )
    golden(refusal(path))


def test_a_function_behind_another_of_its_name(tmp_path: Path, golden: Golden) -> None:
    """Which of the two runs is onnxruntime's choice."""
    from onnx import helper

    hidden = function("f", [])
    hidden.node.append(helper.make_node("Unlisted", ["a"], ["c"]))
    for functions in ([function("f", []), hidden], [hidden, function("f", [])]):
        path = onnx_model([call("f")], functions, ["own"], tmp_path)
        golden(refusal(path))


def test_an_attribute_that_onnxruntime_does_not_check(tmp_path: Path, golden: Golden) -> None:
    from onnx import TensorProto, helper

    places = helper.make_node(
        "Constant", [], ["i"], value=helper.make_tensor("i", TensorProto.INT64, [1, 1], [0])
    )
    gather = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-3)
    golden(refusal(onnx_model([places, gather], [], [], tmp_path)))


# --- folders of Transformers


@pytest.mark.parametrize("place", ["config", "processor"])
def test_a_processor_that_opens_files(place: str, tmp_path: Path, golden: Golden) -> None:
    pytest.importorskip("transformers")
    config: dict[str, Any] = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 8,
    }
    processor: dict[str, Any] = {"repo_path": None, "class_info_file": str(tmp_path / "victim")}
    (config if place == "config" else processor)["image_processor_type"] = "OneFormerImageProcessor"
    (tmp_path / "models").mkdir()
    model_folder(config=config, preprocessor_config=processor)(tmp_path / "models")
    write(tmp_path, digits(model={"path": str(tmp_path / "models" / "net")}))
    with pytest.raises(ModelError) as error:
        filled(load_spec(tmp_path / "spec.yaml"))
    golden(error.value)


@pytest.mark.parametrize(
    "options", [{"model_args": {"checkpoint_path": "VICTIM"}}, {"architecture": "local-dir:FOLDER"}]
)
def test_a_model_type_that_passes_on_options(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    pytest.importorskip("transformers")
    text = (
        json.dumps(options)
        .replace("VICTIM", str(tmp_path / "victim"))
        .replace("FOLDER", str(tmp_path))
    )
    config = {"model_type": "timm_wrapper", "architectures": ["TimmWrapperForImageClassification"]}
    config = {"architecture": "resnet18", **config, **json.loads(text)}
    (tmp_path / "models").mkdir()
    model_folder(config=config)(tmp_path / "models")
    opened = list[str]()
    monkeypatch.setattr(torch, "load", lambda *args, **_: opened.append(str(args)))
    said = refusal(
        tmp_path / "models" / "net", architecture="transformers:TimmWrapperForImageClassification"
    )
    golden(said)
    assert not opened
