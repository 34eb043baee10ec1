"""Networks from ONNX files through onnxruntime, without gradients: graphs of arithmetic, unless the file is trusted.

Before onnxruntime opens a file, a walk of its protobuf messages finds every operator and every other file that holds weights. The walk
sees at least what onnxruntime sees: a field that occurs twice counts both times, and what protobuf reads in another way is refused.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import nn

from robaudit.errors import ModelError, needs_extra
from robaudit.models.base import LoadedNetwork, Source, file_sha256
from robaudit.models.operators import NAMESPACES, check_operators

NOTE = "onnx: no gradients; estimators that need them refuse to run"
INSIDE: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 25: "FunctionProto"},  # 20, training_info, is not read by onnxruntime
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {13: "StringStringEntryProto"},  # external_data, whatever data_location says: halves of a tensor may be merged
}
"""The fields of each message, by number, that are (or contain) messages with nodes or tensors."""

PAIRS = {"NodeProto": (7, 4), "FunctionProto": (10, 1), "StringStringEntryProto": (1, 2)}
"""The two texts that matter in a message, by number: domain and operator, domain and name, key and value."""

_DEEPEST, _MOST_FIELDS, _LONGEST = 100, 10**7, 2**16


class Contents(NamedTuple):
    """What an ONNX file refers to.

    Attributes:
        files: names of the files besides it that hold weights, as written in it, sorted.
        operators: domain and name of all operators but the functions that it defines, sorted.
    """

    files: list[str]
    operators: list[tuple[str, str]]


class OnnxNetwork(nn.Module):
    """An onnxruntime session as a module; returns a tensor, or a dict by output name where there are several."""

    def __init__(self, session: Any, device: torch.device) -> None:
        super().__init__()
        self.session, self.device = session, device
        self.input_name = session.get_inputs()[0].name
        self.output_names = [output.name for output in session.get_outputs()]

    def forward(self, images: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Run the session on the images.

        Raises:
            ModelError: gradients are asked for.
        """
        if images.requires_grad and torch.is_grad_enabled():
            raise ModelError("onnx", "the network gives no gradients", "use an estimator without gradients, or another format")
        values = self.session.run(self.output_names, {self.input_name: images.contiguous().cpu().numpy()})
        outputs = {name: torch.from_numpy(value).to(self.device) for name, value in zip(self.output_names, values, strict=True)}
        return outputs[self.output_names[0]] if len(outputs) == 1 else outputs


def load_onnx(source: Source) -> LoadedNetwork:
    """Load an .onnx file: fp32, on the CPU, or on CUDA where onnxruntime has its provider.

    Raises:
        RobauditError: onnxruntime is missing.
        ModelError: the file is damaged, has weights outside its folder, or does more than arithmetic without trust; or its inputs,
            precision or device do not fit.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it writes to the home folder, and reports to its maker
    try:
        import onnxruntime
    except ImportError as error:
        raise needs_extra(source.where, "onnxruntime", "onnx") from error
    if source.dtype is not torch.float32:
        raise ModelError(
            source.where, "onnx networks run in fp32 only", "use run.precision fp32, or load it from safetensors or TorchScript"
        )
    contents = read_contents(source.file, source.where)
    if not source.trust:
        check_operators(contents.operators, source.where)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")  # never its own format, which the walk cannot read
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    options.use_deterministic_compute = torch.are_deterministic_algorithms_enabled()
    providers = _providers(source, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(str(source.file), options, providers=providers)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(source.where, f"onnxruntime cannot load it: {reason[:200]}", "check the file with onnx.checker") from error
    batch = _check_input(session, source.where)
    notes = (NOTE,) if batch is None else (NOTE, f"onnx: the batch size is fixed at {batch}, so batches are split and padded (slow)")
    network = OnnxNetwork(session, source.device).eval()
    return LoadedNetwork(network, "onnx", weights_sha256(source.file, contents.files), differentiable=False, fixed_batch=batch, notes=notes)


def _providers(source: Source, available: list[str]) -> list[Any]:
    """Where onnxruntime computes: on CUDA without TF32 (its default), and in deterministic mode without timing convolutions."""
    if source.device.type == "cpu":
        return ["CPUExecutionProvider"]
    if source.device.type == "cuda" and "CUDAExecutionProvider" in available:
        search = "DEFAULT" if torch.are_deterministic_algorithms_enabled() else "EXHAUSTIVE"
        cuda = {"device_id": source.device.index or 0, "use_tf32": 0, "cudnn_conv_algo_search": search}
        return [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
    raise ModelError(source.where, f"onnxruntime cannot run on {source.device} here", "use run.device cpu, or install onnxruntime-gpu")


def _check_input(session: Any, where: str) -> int | None:
    """The batch size the graph fixes; None where it is free."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(entry.name for entry in inputs)
        raise ModelError(where, f"the network takes {len(inputs)} inputs ({names})", "export it with the images as its only input")
    if inputs[0].type != "tensor(float)":
        raise ModelError(where, f"the network takes {inputs[0].type}", "export it with float32 images as its input")
    shape = inputs[0].shape
    if len(shape) != 4:
        raise ModelError(
            where, f"the network takes an input of {len(shape)} dimensions", "export it for images (n, channels, height, width)"
        )
    return shape[0] if isinstance(shape[0], int) else None


def weights_sha256(path: Path, others: list[str]) -> str:
    """sha256 (hex) of the file or, where other files hold weights, of a text that lists the sha256 of all of them.

    The first line is the sha256 of the ONNX file; then there is one line for each other file, sorted by name: its sha256, two spaces
    and its name as written in the ONNX file. Every line ends with ``\\n``.
    """
    if not others:
        return file_sha256(path)
    lines = [f"{file_sha256(path)}\n", *(f"{file_sha256(path.parent / name)}  {name}\n" for name in others)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_contents(path: Path, where: str) -> Contents:
    """Find what an ONNX file refers to.

    Raises:
        ModelError: it is not an ONNX model, or has weights in something else than files in its folder that fit into memory.
    """
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in PAIRS}
    try:
        with path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for kind, pair in _pairs(content, "ModelProto", 0, iter(range(_MOST_FIELDS))):
            found[kind].add(pair)
    except (OSError, ValueError, IndexError) as error:  # files of /proc and /sys cannot be mapped
        raise ModelError(where, f"is not an ONNX model ({error})", "export it again") from error
    files = sorted({value for key, value in found["StringStringEntryProto"] if key == "location"})
    if sum(_size(name, path, where) for name in files) > psutil.virtual_memory().total:
        raise ModelError(where, "has more weights in other files than fit into memory", "use a machine with more memory")
    functions = {(domain, name) for domain, name in found["FunctionProto"] if domain not in NAMESPACES}
    return Contents(files, sorted(found["NodeProto"] - functions))


def _size(name: str, path: Path, where: str) -> int:
    """The bytes of a file with weights, which must be in the folder of the ONNX file (or of the file that it is a link to)."""
    try:
        if Path(name).is_absolute() or ".." in Path(name).parts or "*" in name:  # onnxruntime takes */_ORT_MEM_ADDR_/* for an address
            raise ValueError("not a name inside its folder")
        file = (path.parent / name).resolve(strict=True)
        if not any(file.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
            raise ValueError("outside its folder")
        about = file.stat()
        if not stat.S_ISREG(about.st_mode) or not about.st_size:  # files of /proc have no size
            raise ValueError("not a regular file, or empty")
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"has weights in {name[:80]!r}, which cannot be used ({reason})"
        raise ModelError(where, what, "keep all the files that were exported together in one folder") from error
    return about.st_size


def _pairs(message: memoryview, kind: str, depth: int, budget: Iterator[int]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Kind and texts of the messages of PAIRS in a message; each field takes one from the budget."""
    if depth > _DEEPEST:
        raise ValueError("too deeply nested")
    texts: dict[int, str] = {}
    for number, value in _fields(message, budget):
        if inner := INSIDE.get(kind, {}).get(number):
            yield from _pairs(value, inner, depth + 1, budget)
        elif number in PAIRS.get(kind, ()):
            if len(value) > _LONGEST:
                raise ValueError(f"a name of {len(value)} bytes")
            texts[number] = bytes(value).decode()
    if kind in PAIRS:
        first, second = PAIRS[kind]
        yield kind, (texts.get(first, ""), texts.get(second, ""))


def _fields(message: memoryview, budget: Iterator[int]) -> Iterator[tuple[int, memoryview]]:
    """Number and content of the fields of a message that are messages, texts or lists."""
    at = 0
    while at < len(message):
        if next(budget, None) is None:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        key, at = _varint(message, at)
        if not 8 <= key < 2**32:  # protobuf would drop the higher bits
            raise ValueError(f"a field of number {key >> 3}")
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise ValueError("it is truncated")
                yield key >> 3, message[at : at + size]
                at += size
            case 5:
                at += 4
            case other:
                raise ValueError(f"a field of type {other}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and the place after it."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
