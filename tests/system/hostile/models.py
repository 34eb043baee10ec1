"""Weights files that run code, lie, expand, or are broken."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from robaudit.models.architectures import digits_cnn
from tests.specs import WEIGHTS
from tests.system.hostile.archives import DEFLATED, Member, rewrite, write_zip, zeros
from tests.system.hostile.case import Case, model_spec, payload
from tests.system.hostile.data import SPECIAL, place

NAMES = (
    "net.pt",
    "net.pth",
    "net.bin",
    "net.ckpt",
    "net.pt2",
    "net.torchscript",
    "net.safetensors",
    "net.onnx",
    "net.npz",
    "net.npy",
)
PICKLED = "pickled Python object"
ARCHITECTURE: dict[str, Any] = {"architecture": "robaudit:digits_cnn"}


@functools.cache
def network() -> nn.Module:
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    return module.eval()


def once(save: Callable[[Path], object]) -> Callable[[], bytes]:
    """The bytes of the file that ``save`` writes, made once."""

    @functools.cache
    def made() -> bytes:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # torch has deprecated some; people still have such files
            warnings.simplefilter("ignore")
            path = Path(folder) / "net"
            save(path)
            return path.read_bytes()

    return made


@once
def scripted(path: Path) -> None:
    torch.jit.save(torch.jit.trace(network(), torch.rand(2, 1, 8, 8)), path)


@once
def exported(path: Path) -> None:
    batch = ({0: torch.export.Dim("batch")},)
    with path.open("wb") as file:
        torch.export.save(
            torch.export.export(network(), (torch.rand(3, 1, 8, 8),), dynamic_shapes=batch), file
        )


@once
def saved(path: Path) -> None:
    torch.save(network().state_dict(), path)


def onnx_bytes(constant: list[int] | None = None) -> bytes:
    """A linear network in ONNX; to its logits, it may add the sum of zeros of a shape."""
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, [64, 10], bytes(64 * 10 * 4), raw=True)
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m" if constant else "y"]),
    ]
    if constant is not None:
        shape = helper.make_tensor("s", TensorProto.INT64, [len(constant)], constant)
        nodes += [
            helper.make_node("Constant", [], ["c"], value=shape),
            helper.make_node("ConstantOfShape", ["c"], ["z"]),
            helper.make_node("ReduceSum", ["z"], ["t"], keepdims=0),
            helper.make_node("Add", ["m", "t"], ["y"]),
        ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "net", [x], [y], [weights])
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    return model


def file(
    content: bytes | Callable[[Path], bytes], name: str = "net.pt", **fields: Any
) -> Callable[[Path], None]:
    """Write a file and a spec with it as the model; the content may depend on the folder (where the
    canary would be)."""

    def make(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content(folder))
        model_spec(folder, name, **fields)

    return make


def bare(protocol: int) -> Callable[[Path], bytes]:
    return lambda folder: pickle.dumps(payload(folder), protocol=protocol)


def torch_saved(
    value: Callable[[], object] | None = None, *, zipped: bool = True
) -> Callable[[Path], bytes]:
    """What torch.save writes of a value: of a state dict with a payload in it, unless given."""

    def content(folder: Path) -> bytes:
        stream = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = (
                {**network().state_dict(), "9.weight": payload(folder)}
                if value is None
                else value()
            )
            torch.save(held, stream, _use_new_zipfile_serialization=zipped)
        return stream.getvalue()

    return content


def changed(
    whole: Callable[[], bytes], name: str, member: str, content: Callable[[Path, bytes], bytes]
) -> Callable[[Path], None]:
    """An archive with a member replaced; its name's end is given."""

    def make(folder: Path) -> None:
        (folder / name).write_bytes(whole())
        rewrite(
            folder / name,
            lambda inner, old: content(folder, old) if inner.endswith(member) else old,
        )
        model_spec(folder, name)

    return make


def bomb(folder: Path, _: bytes) -> bytes:
    return pickle.dumps(payload(folder), protocol=2)


def archive(member: Member, **lies: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_zip(folder / "net.pt", member, **lies)
        model_spec(folder, "net.pt", **ARCHITECTURE)

    return make


def lying_storage(numel: int) -> Callable[[Path, bytes], bytes]:
    """The pickle, its first storage claiming more elements than its record has."""

    def content(_: Path, old: bytes) -> bytes:
        at = old.index(b"X\x03\x00\x00\x00cpu")
        end = old.index(b"Q", at)
        begin = max(old.rfind(mark, at, end) for mark in (b"K", b"M"))
        length = 2 if old[begin : begin + 1] == b"K" else 3
        return old[:begin] + b"J" + struct.pack("<i", numel) + old[begin + length :]

    return content


def cut(whole: Callable[[], bytes], share: float) -> Callable[[Path], bytes]:
    return lambda _: whole()[: int(share * len(whole()))]


def safetensors(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with this header: bytes as they are, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(numbers: int, at: tuple[int, int] | None = None) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [numbers], "data_offsets": list(at or (0, 4 * numbers))}


def sparse_file(name: str, head: bytes, size: int, **fields: Any) -> Callable[[Path], None]:
    """A file that is large on paper only."""

    def make(folder: Path) -> None:
        (folder / name).write_bytes(head)
        os.truncate(folder / name, size)
        model_spec(folder, name, **fields)

    return make


def oversized_cases() -> dict[str, Case]:
    """The network is compared with its weights before it takes memory or time."""
    vit = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 100_000}
    transformer = folder(
        config={"model_type": "vit", "architectures": ["ViTForImageClassification"], **vit},
        preprocessor_config={
            "image_processor_type": "ViTImageProcessor",
            "size": {"height": 8, "width": 8},
        },
    )
    timm: dict[str, Any] = {
        "architecture": "timm:vit_tiny_patch16_224",
        "architecture_options": {"depth": 100_000},
    }
    expanded = file(
        torch_saved(
            lambda: {
                "1.weight": torch.zeros(1).expand(45_000, 45_000),
                "1.bias": torch.zeros(45_000),
            }
        ),
        architecture="robaudit:mlp",
        architecture_options={"sizes": [45_000, 45_000]},
    )
    attacks = {
        "timm, 100,000 layers": (
            file(WEIGHTS.read_bytes(), "net.safetensors", **timm),
            "has many more with depth: 100000",
        ),
        "vit of 100,000 layers": (transformer, "ViTForImageClassification has many more"),
        "one number for 45,000 x 45,000": (expanded, "45,001 numbers; robaudit:mlp has many more"),
    }
    return {
        f"oversized: {name}": Case(make, says, dangerous=True)
        for name, (make, says) in attacks.items()
    }


def pickle_cases() -> dict[str, Case]:
    cases = {
        f"pickle named {name}": Case(file(bare(2), name), f"{name}: ")
        for name in (*NAMES, "net.csv", "net")
    }
    cases |= {
        f"torch.save named {name}": Case(file(torch_saved(), name), PICKLED) for name in NAMES
    }
    cases |= {
        f"pickle declared {form}": Case(
            file(torch_saved(), "net.x", format=form, **ARCHITECTURE), PICKLED
        )
        for form in ("torchscript", "pt2", "safetensors", "onnx")
    }
    cases["torch.save of old, dangerous"] = Case(
        file(torch_saved(zipped=False), "net.pt", **ARCHITECTURE), PICKLED, dangerous=True
    )
    cases["torch.save, dangerous"] = Case(
        file(torch_saved(), "net.pt", **ARCHITECTURE), PICKLED, dangerous=True
    )
    cases["a whole pickled network"] = Case(file(torch_saved(lambda: nn.Linear(2, 2))), PICKLED)
    return cases


def folder(**files: object) -> Callable[[Path], None]:
    """A model's folder with these files (``config`` is config.json): bytes as they are, anything
    else as JSON."""

    def make(place: Path) -> None:
        (place / "net").mkdir()
        shutil.copy(WEIGHTS, place / "net" / "model.safetensors")
        for name, content in files.items():
            whole = content if isinstance(content, bytes) else json.dumps(content).encode()
            (place / "net" / f"{name}.json").write_bytes(whole)
        model_spec(place, "net")

    return make


def zip_cases() -> dict[str, Case]:
    huge = zeros(10 * 1024)
    return {
        "zip: 10 GB of zeros": Case(
            archive(Member("net/data.pkl", huge, DEFLATED, 10 * 2**30)),
            "claims to expand to 10737418240 bytes",
            dangerous=True,
        ),
        "zip: code said to be 1 kB": Case(
            archive(Member("net/code/net.py", huge, DEFLATED, 1000)), "net.pt: ", dangerous=True
        ),
        "zip: its directory elsewhere": Case(
            archive(Member("net/data.pkl", b"x"), directory_offset=2**31), "net.pt: "
        ),
    }


def torchscript_cases() -> dict[str, Case]:
    cases = {
        f"torchscript cut at {share:.0%}": Case(
            file(cut(scripted, share)), "net.pt: ", dangerous=share == 0.5
        )
        for share in (0.01, 0.5, 0.99)
    }
    cases |= {
        f"torchscript: code as {member}": Case(
            changed(scripted, "net.pt", f"/{member}", bomb), "net.pt: "
        )
        for member in ("data.pkl", "constants.pkl")
    }
    cases |= {
        f"torchscript: a storage of {numel} elements": Case(
            changed(scripted, "net.pt", "/data.pkl", lying_storage(numel)),
            "net.pt: ",
            dangerous=numel > 10**6,
        )
        for numel in (10**6, 5 * 10**8)
    }
    return cases


def false_weights(key: str, value: object) -> Callable[[Path], None]:
    """A .pt2 file whose first tensor is said to be another."""

    def content(_: Path, old: bytes) -> bytes:
        document = json.loads(old)
        next(iter(document["config"].values()))["tensor_meta"][key] = value
        return json.dumps(document).encode()

    return changed(exported, "net.pt2", "data/weights/model_weights_config.json", content)


def pt2_cases() -> dict[str, Case]:
    cases = {
        f"pt2 cut at {share:.0%}": Case(file(cut(exported, share), "net.pt2"), "net.pt2: ")
        for share in (0.1, 0.5, 0.98)
    }
    lies = {
        "sizes": [{"as_int": 2**40}],
        "strides": [{"as_int": -1}],
        "storage_offset": {"as_int": 2**40},
    }
    cases |= {
        f"pt2: weights with false {key}": Case(
            false_weights(key, value), "net.pt2: ", dangerous=key == "sizes"
        )
        for key, value in lies.items()
    }
    deep = changed(
        exported, "net.pt2", "models/model.json", lambda _, old: b"[" * 100_000 + b"]" * 100_000
    )
    return cases | {"pt2: a graph 100,000 deep": Case(deep, "cannot load it")}


def safetensors_cases() -> dict[str, Case]:
    first = "0.weight"
    headers: dict[str, bytes] = {
        "a header of 2^63 bytes": safetensors({}, length=2**63),
        "a header 10,000 deep": safetensors(b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        "2^40 elements and no bytes": safetensors({first: tensor(2**40, at=(0, 0))}),
    }
    cases = {
        f"safetensors: {name}": Case(
            file(data, "net.safetensors", **ARCHITECTURE), "net.safetensors: "
        )
        for name, data in headers.items()
    }
    ten = 10 * 2**30
    big = safetensors({first: tensor(ten // 4)})
    return cases | {
        "safetensors: 10 GB of one tensor": Case(
            sparse_file("net.safetensors", big, len(big) + ten, **ARCHITECTURE),
            "net.safetensors: ",
            dangerous=True,
        ),
    }


def onnx_cases() -> dict[str, Case]:
    whole = functools.cache(onnx_bytes)

    cases = {
        f"onnx cut at {share:.0%}": Case(file(cut(whole, share), "net.onnx"), "net.onnx: ")
        for share in (0.05, 0.5, 0.95)
    }
    vast = file(lambda _: onnx_bytes(constant=[2**42]), "net.onnx")
    return cases | {
        "onnx: a constant of 16 TB": Case(vast, "net.onnx: ", dangerous=True),
    }


def place_cases() -> dict[str, Case]:
    def path_only(path: str) -> Callable[[Path], None]:
        return lambda folder: model_spec(folder, path, **ARCHITECTURE)

    def special(what: str) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            place(folder / "net.pt", what)
            model_spec(folder, "net.pt")

        return make

    return {
        **{f"model: {what}": Case(special(what), "net.pt: ") for what in SPECIAL},
        "model: /dev/stdin": Case(path_only("/dev/stdin"), "/dev/stdin: "),
        "model: a name of 4,000 characters": Case(path_only("x" * 4000), "File name too long"),
        "model: an escape in the name": Case(path_only("\x1b[2J\x07.pt"), ".pt: no such file in "),
        "model: 10 GB of onnx": Case(
            sparse_file("net.onnx", b"\x08\x08", 10 * 2**30), "net.onnx: ", dangerous=True
        ),
    }


MODELS = {
    **pickle_cases(),
    **zip_cases(),
    **torchscript_cases(),
    **pt2_cases(),
    **safetensors_cases(),
    **onnx_cases(),
    **place_cases(),
    **oversized_cases(),
}
