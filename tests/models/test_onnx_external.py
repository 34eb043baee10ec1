"""The digest of an ONNX model covers the files that its weights are in, wherever the model says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from robaudit.errors import ModelError
from robaudit.models import onnx_file as onnx_file_module
from robaudit.models.onnx_file import INSIDE, external_files, weights_sha256
from tests.models.conftest import load, pixels, refusal, small_net
from tests.models.test_onnx import graph

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def elsewhere(name: str, location: str, **more: str) -> Any:
    """A tensor of four numbers that are in another file."""
    tensor = onnx.TensorProto(name=name, data_type=FLOAT, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"offset": "0", "location": location, "length": "16", **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The usual network with its weights in a file of their own."""
    model = onnx.load(graph(tmp_path, small_net()))
    onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
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


def test_a_file_by_itself_keeps_its_own_digest(tmp_path: Path) -> None:
    path = graph(tmp_path, small_net())
    assert external_files(path, "net.onnx") == []
    assert load(path).sha256 == sha256(path)


def test_missing_and_special_files(split: Path) -> None:
    other = split.parent / "net.onnx.data"
    other.unlink()
    assert "a file with some of its weights is missing" in refusal(split)
    with pytest.raises(ModelError, match=r"has weights in 'net\.onnx\.data', which cannot be read"):
        weights_sha256(split, "net.onnx")
    other.mkdir()
    with pytest.raises(ModelError, match="which is not a regular file"):
        weights_sha256(split, "net.onnx")


def everywhere() -> Any:
    """A model with a tensor in another file in every place that a tensor can be."""
    names = iter(f"file {i}" for i in range(100))

    def tensor() -> Any:
        return elsewhere("w", next(names))

    def sparse() -> Any:
        return onnx.SparseTensorProto(values=tensor(), indices=tensor(), dims=[4])

    def inner(depth: int) -> Any:
        made = onnx.GraphProto(initializer=[tensor(), tensor()], sparse_initializer=[sparse()])
        made.node.append(node(depth))
        return made

    def node(depth: int) -> Any:
        fields: dict[str, Any] = {"t": tensor(), "tensors": [tensor()], "sparse_tensor": sparse(), "sparse_tensors": [sparse()]}
        if depth:
            fields |= {"g": inner(depth - 1), "graphs": [inner(depth - 1)]}
        return onnx.NodeProto(attribute=[onnx.AttributeProto(name="a", ints=[1, 2], floats=[1.0], **fields)])

    training = onnx.TrainingInfoProto(initialization=inner(0), algorithm=inner(0))
    function = onnx.FunctionProto(node=[node(0)], attribute_proto=[onnx.AttributeProto(t=tensor())])
    model = onnx.ModelProto(ir_version=9, doc_string="x" * 300, graph=inner(1), training_info=[training], functions=[function])
    return model, next(names)


def test_every_place_is_looked_into(tmp_path: Path) -> None:
    model, after = everywhere()
    count = int(after.removeprefix("file "))
    assert count > 40
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert external_files(tmp_path / "net.onnx", "net.onnx") == sorted(f"file {i}" for i in range(count))


def test_the_numbers_are_those_of_onnx() -> None:
    """Every field that leads to a tensor is in the table, also those of an ONNX newer than it."""
    found: dict[str, dict[int, str]] = {}

    def kinds(descriptor: Any) -> Iterator[Any]:
        return (field for field in descriptor.fields if field.message_type is not None)

    def leads_to_tensor(descriptor: Any, above: tuple[str, ...] = ()) -> bool:
        name = descriptor.name
        return name == "TensorProto" or (
            name not in above and any(leads_to_tensor(field.message_type, (*above, name)) for field in kinds(descriptor))
        )

    todo = [onnx.ModelProto.DESCRIPTOR]
    while todo:
        descriptor = todo.pop()
        if descriptor.name in found or descriptor.name == "TensorProto":
            continue
        found[descriptor.name] = {f.number: f.message_type.name for f in kinds(descriptor) if leads_to_tensor(f.message_type)}
        todo += [f.message_type for f in kinds(descriptor)]
    assert {name: fields for name, fields in found.items() if fields} == INSIDE


def test_an_unused_place_does_not_count(tmp_path: Path) -> None:
    """Where the numbers are, is what ``data_location`` says."""
    tensor = elsewhere("w", "other")
    tensor.data_location = onnx.TensorProto.DEFAULT
    (tmp_path / "net.onnx").write_bytes(onnx.ModelProto(graph=onnx.GraphProto(initializer=[tensor])).SerializeToString())
    assert external_files(tmp_path / "net.onnx", "net.onnx") == []


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: b"\x0b" + c, lambda c: b"\xff" * 20 + c, lambda c: c + b"\x3a\xff"])
def test_damaged_messages(tmp_path: Path, damage: Any) -> None:
    content = everywhere()[0].SerializeToString()
    (tmp_path / "net.onnx").write_bytes(damage(content))
    with pytest.raises(ModelError, match=r"^net\.onnx: is not an ONNX model \("):
        external_files(tmp_path / "net.onnx", "net.onnx")


def field(number: int, content: bytes) -> bytes:
    """A field that is a message of less than 2^14 bytes."""
    return bytes([number << 3 | 2, len(content) & 127 | 128, len(content) >> 7]) + content


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    for times, refused in ((20, False), (60, True)):
        made = b""
        for _ in range(times):
            made = field(1, field(5, field(6, made)))  # the graph of an attribute of a node
        (tmp_path / "net.onnx").write_bytes(field(7, made))
        with pytest.raises(ModelError, match="too deeply nested") if refused else nullcontext():
            assert external_files(tmp_path / "net.onnx", "net.onnx") == []


def test_fields_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file_module, "_MOST_FIELDS", 1000)
    for count in (999, 1000):
        (tmp_path / "net.onnx").write_bytes(b"\x08\x08" * count)
        assert external_files(tmp_path / "net.onnx", "net.onnx") == []
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08" * 1001)
    with pytest.raises(ModelError, match="more than 1000 fields"):
        external_files(tmp_path / "net.onnx", "net.onnx")
