"""Networks from ONNX files through onnxruntime, without gradients, and the digest of all files that hold their weights."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError, needs_extra
from robaudit.models.base import LoadedNetwork, Source, file_sha256

NOTE = "onnx: no gradients; estimators that need them refuse to run"
INSIDE: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
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
}
"""The fields of each message, by number, that are (or contain) messages with tensors."""

_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1
_DEEPEST, _MOST_FIELDS = 100, 10**7
_FLATBUFFER = b"ORTM"  # onnxruntime's format, which has all weights inside


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
        RobauditError: onnxruntime is missing; ModelError: the file is damaged, or its inputs, precision or device do not fit.
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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    options.use_deterministic_compute = torch.are_deterministic_algorithms_enabled()
    providers = _providers(source, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(str(source.file), options, providers=providers)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "external data" in reason.lower():
            what = "onnxruntime cannot load it: a file with some of its weights is missing or does not match"
            raise ModelError(source.where, what, "keep all the files that were exported together in one folder") from error
        raise ModelError(source.where, f"onnxruntime cannot load it: {reason[:200]}", "check the file with onnx.checker") from error
    batch = _check_input(session, source.where)
    notes = (NOTE,) if batch is None else (NOTE, f"onnx: the batch size is fixed at {batch}, so batches are split and padded (slow)")
    network = OnnxNetwork(session, source.device).eval()
    return LoadedNetwork(network, "onnx", weights_sha256(source.file, source.where), differentiable=False, fixed_batch=batch, notes=notes)


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


def weights_sha256(path: Path, where: str) -> str:
    """sha256 (hex) of the file or, where other files hold weights, of a text that lists the sha256 of all of them.

    The first line is the sha256 of the ONNX file; then there is one line for each other file, sorted by name: its sha256, two spaces
    and its name as written in the ONNX file. Every line ends with ``\\n``.

    Raises:
        ModelError: the file is not an ONNX model, or another file is missing or not regular.
    """
    names = external_files(path, where)
    if not names:
        return file_sha256(path)
    lines = [f"{file_sha256(path)}\n"]
    for name in names:
        try:
            if not stat.S_ISREG((path.parent / name).stat().st_mode):
                raise ModelError(where, f"has weights in {name!r}, which is not a regular file", "export it again")
            lines.append(f"{file_sha256(path.parent / name)}  {name}\n")
        except (OSError, ValueError) as error:
            raise ModelError(where, f"has weights in {name!r}, which cannot be read ({error})", "put it next to the .onnx file") from error
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def external_files(path: Path, where: str) -> list[str]:
    """The names of the files besides ``path`` that hold weights, as written in it, sorted.

    Raises:
        ModelError: the file is not an ONNX model.
    """
    with path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if content[4:8] == _FLATBUFFER:
        return []
    try:
        return sorted(set(_locations(content, "ModelProto", 0, iter(range(_MOST_FIELDS)))))
    except (ValueError, IndexError) as error:
        raise ModelError(where, f"is not an ONNX model ({error})", "export it again") from error


def _locations(message: memoryview, kind: str, depth: int, budget: Iterator[int]) -> Iterator[str]:
    """The files of the tensors in a message; each field takes one from the budget."""
    if depth > _DEEPEST:
        raise ValueError("too deeply nested")
    if kind == "TensorProto":
        yield from _location(message, budget)
        return
    for number, value in _fields(message, budget):
        if number in INSIDE[kind] and isinstance(value, memoryview):
            yield from _locations(value, INSIDE[kind][number], depth + 1, budget)


def _location(tensor: memoryview, budget: Iterator[int]) -> Iterator[str]:
    """The file that holds a tensor's data, if there is one."""
    fields = [field for field in _fields(tensor, budget) if field[0] in (_EXTERNAL_DATA, _DATA_LOCATION)]
    if (_DATA_LOCATION, _EXTERNAL) in fields:
        for entry in (value for number, value in fields if number == _EXTERNAL_DATA and isinstance(value, memoryview)):
            texts = {number: bytes(text) for number, text in _fields(entry, budget) if isinstance(text, memoryview)}
            if texts.get(1) == b"location":
                yield texts.get(2, b"").decode()


def _fields(message: memoryview, budget: Iterator[int]) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of the fields of a message; fixed-size numbers are left out."""
    at = 0
    while at < len(message):
        if next(budget, None) is None:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
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
