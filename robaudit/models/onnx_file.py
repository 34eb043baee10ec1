"""Networks from ONNX files through onnxruntime, without gradients.

Three things are checked before onnxruntime opens a file: its operators, its functions, and the
names of other files with weights. Of a trusted file, only the last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from robaudit.errors import ModelError, needs_extra
from robaudit.models.expansion import check_expansion
from robaudit.models.formats import Format, LoadedNetwork, Source, batch_note, file_sha256
from robaudit.models.operators import EXPORT_WITHOUT_OR_TRUST, Operator, check_operators
from robaudit.models.weights import few
from robaudit.text import first_line

_SCORES = ("tensor(float)", "tensor(double)", "tensor(float16)")
"""Types of outputs that may be logits; others are labels, or maps of scores by label."""
NOTE = "onnx: no gradients; estimators that need them refuse to run"
_MOST_BYTES = 2**31  # of a protobuf message
_OWN_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms")
"""Beginnings of domains that are onnxruntime's in some build of it, perhaps not in this one."""


class OnnxNetwork(nn.Module):
    """An onnxruntime session as a module.

    Args:
        session: of a graph with one input.
        device: of the images and the results.
        channels_last: whether its input is (n, height, width, channels).
    """

    def __init__(self, session: Any, device: torch.device, *, channels_last: bool = False) -> None:
        super().__init__()
        self.session = session
        self.device = device
        self.channels_last = channels_last
        self.input_name = session.get_inputs()[0].name
        outputs = session.get_outputs()
        self.output_names = [output.name for output in outputs]
        self.score_names = [output.name for output in outputs if output.type in _SCORES]

    def forward(self, images: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor | None]:
        """Run the session on the images.

        Returns:
            The only output, or a dictionary of all by name, with None for those that are no scores.

        Raises:
            ModelError: gradients are requested.
        """
        if images.requires_grad and torch.is_grad_enabled():
            raise ModelError(
                "onnx",
                "the network gives no gradients",
                "use an estimator without gradients, or another format",
            )
        if self.channels_last:
            images = images.movedim(1, -1)
        pixels = images.contiguous().cpu().numpy()
        values = self.session.run(self.score_names, {self.input_name: pixels})
        tensors = [torch.from_numpy(value).to(self.device) for value in values]
        scores: dict[str, torch.Tensor] = dict(zip(self.score_names, tensors, strict=True))
        if len(self.output_names) == 1:
            return scores[self.output_names[0]]
        return {name: scores.get(name) for name in self.output_names}


def load_onnx(source: Source) -> LoadedNetwork:
    """Load an .onnx file: fp32, on the CPU, or on CUDA if onnxruntime has its provider.

    Raises:
        RobauditError: onnxruntime is missing.
        ModelError: the file is damaged, has weights outside its folder or, without trust, uses
            operators that are not on the list; or its inputs, precision or device do not fit.
    """
    # Without this it writes to the home folder and sends telemetry.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise needs_extra(source.where, "onnxruntime", "onnx") from error
    if source.dtype is not torch.float32:
        raise ModelError(
            source.where,
            "onnx networks run in fp32 only",
            "use run.precision fp32, or load it from safetensors or TorchScript",
        )
    contents = read_contents(source.file)
    if not source.trust:
        check_operators(contents.operators, "onnx", source.where)
        _check_functions(contents, _domains(), source.where)
    options = onnxruntime.SessionOptions()
    # Never onnxruntime's own format, which is not checked; the suffix .ort would choose it.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # fatal errors only; others are raised
    options.use_deterministic_compute = torch.are_deterministic_algorithms_enabled()
    providers = _providers(source, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(str(source.file), options, providers=providers)
    except Exception as error:
        raise ModelError(
            source.where,
            f"onnxruntime cannot load it: {first_line(error)}",
            "check the file with onnx.checker",
        ) from error
    batch = _check_input(session, source.where)
    output = _output(session, source)
    notes = [NOTE] if batch is None else [NOTE, batch_note("onnx", batch)]
    channels_last = _channels_last(session.get_inputs()[0].shape)
    if channels_last:
        notes.append("onnx: images are given to it as n x height x width x channels")
    if output is not None and source.spec.output is None:
        notes.append(f"onnx: the logits are its output {output!r}; the others are no scores")
    return LoadedNetwork(
        OnnxNetwork(session, source.device, channels_last=channels_last).eval(),
        "onnx",
        weights_sha256(source.file, contents.files),
        differentiable=False,
        least_batch=batch or 1,
        most_batch=batch,
        output=output,
        notes=tuple(notes),
    )


FORMAT = Format("onnx", load_onnx, (".onnx",))


def _providers(source: Source, available: list[str]) -> list[Any]:
    """onnxruntime's providers: the CPU, or CUDA with the CPU for operators that CUDA lacks.

    Raises:
        ModelError: onnxruntime has no provider for the device.
    """
    if source.device.type == "cpu":
        return ["CPUExecutionProvider"]
    if source.device.type == "cuda" and "CUDAExecutionProvider" in available:
        # EXHAUSTIVE times the convolution's algorithms, and may choose another one in each run.
        search = "DEFAULT" if torch.are_deterministic_algorithms_enabled() else "EXHAUSTIVE"
        # TF32 is onnxruntime's default; these networks run in fp32 only.
        cuda = {
            "device_id": source.device.index or 0,
            "use_tf32": 0,
            "cudnn_conv_algo_search": search,
        }
        return [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
    raise ModelError(
        source.where,
        f"onnxruntime cannot run on {source.device} here",
        "use run.device cpu, or install onnxruntime-gpu",
    )


def _check_input(session: Any, where: str) -> int | None:
    """The batch size that the graph fixes; None if it is free.

    Raises:
        ModelError: the network does not take float32 images as its only input.
    """
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(entry.name for entry in inputs)
        raise ModelError(
            where,
            f"the network takes {len(inputs)} inputs ({names})",
            "export it with the images as its only input",
        )
    if inputs[0].type != "tensor(float)":
        raise ModelError(
            where,
            f"the network takes {inputs[0].type}",
            "export it with float32 images as its input",
        )
    shape = inputs[0].shape
    if len(shape) != 4:
        raise ModelError(
            where,
            f"the network takes an input of {len(shape)} dimensions",
            "export it for images (n, channels, height, width)",
        )
    return shape[0] if isinstance(shape[0], int) else None


def _channels_last(shape: Sequence[int | str | None]) -> bool:
    """Whether the declared shape of an input, with 1 or 3 channels, has them at its end."""
    # Keras exports so. An axis of free size is a name or None.
    return shape[3] in (1, 3) and shape[1] not in (1, 3)


def _output(session: Any, source: Source) -> str | None:
    """The name of the only output with scores beside others, such as labels; otherwise None.

    Raises:
        ModelError: no output holds scores, or the chosen one does not.
    """
    kinds = {output.name: output.type for output in session.get_outputs()}
    scores = [name for name, kind in kinds.items() if kind in _SCORES]
    chosen = source.spec.output
    # An index counts all outputs, those without scores as well.
    if isinstance(chosen, int) and -len(kinds) <= chosen < len(kinds):
        chosen = list(kinds)[chosen]
    described = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    if not scores:
        what = f"no output of the network is a tensor of scores ({described})"
        remedy = "export it with scores as a tensor (of scikit-learn: options={'zipmap': False})"
        raise ModelError(source.where, what, remedy)
    if chosen in kinds and chosen not in scores:
        what = f"model.output names {chosen!r}, which is not a tensor of scores ({described})"
        raise ModelError(source.where, what, f"name {few(scores)}")
    return scores[0] if len(scores) == 1 < len(kinds) else None


def weights_sha256(path: Path, others: list[str]) -> str:
    """The digest of all files of a network.

    It is the sha256 (hex) of the file. Where other files hold weights, it is the sha256 of a text.
    The first line of this text is the sha256 of the ONNX file. A line for each other file follows,
    sorted by name: its sha256, two spaces, and its name as written in the ONNX file. Every line
    ends with ``\\n``.

    Args:
        path: the ONNX file.
        others: the names of the other files, sorted.
    """
    if not others:
        return file_sha256(path)
    lines = [f"{file_sha256(path)}\n"]
    lines += [f"{file_sha256(path.parent / name)}  {name}\n" for name in others]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class OnnxContents:
    """The operators, functions and files to which an ONNX file refers, in all its branches.

    Attributes:
        files: names of the other files that hold weights, as written in the file, sorted.
        operators: domain and name of every operator but the file's own functions, sorted.
        functions: for each function of the file, the operators of its nodes. Functions of one name
            are together.
        graph: the operators of the graph's nodes.
    """

    files: list[str]
    operators: list[Operator]
    functions: dict[Operator, list[Operator]]
    graph: list[Operator]


def read_contents(path: Path) -> OnnxContents:
    """Read the operators, functions and files to which an ONNX file refers.

    Raises:
        RobauditError: onnx is missing.
        ModelError: it is not an ONNX model, or has weights elsewhere than in files in its folder
            that fit into memory.
    """
    where = str(path)
    try:
        import onnx
    except ImportError as error:
        raise needs_extra(where, "onnx", "onnx") from error
    # From a string: onnx.load would open the other files, whose names are not checked yet.
    try:
        if path.stat().st_size >= _MOST_BYTES:
            raise ValueError("2 GiB or more")
        model = onnx.load_model_from_string(path.read_bytes())
        if not model.HasField("graph"):
            raise ValueError("no graph")
    except Exception as error:  # protobuf's own, too
        raise ModelError(where, f"is not an ONNX model ({error})", "export it again") from error
    _check_attributes(model, where)
    files = set()
    for message in _messages(model):
        if isinstance(message, onnx.TensorProto):
            files |= {entry.value for entry in message.external_data if entry.key == "location"}
    if sum(_size(name, path, where) for name in files) > psutil.virtual_memory().total:
        raise ModelError(
            where,
            "has more weights in other files than fit into memory",
            "use a machine with more memory",
        )
    # Of several functions of one name, onnxruntime might take any: all their operators count.
    functions: dict[Operator, list[Operator]] = {}
    for function in model.functions:
        called = functions.setdefault((function.domain, function.name), [])
        called += _calls(function)
    graph = _calls(model.graph)
    operators = set(graph).union(*functions.values()) - functions.keys()
    return OnnxContents(sorted(files), sorted(operators), functions, graph)


def _check_attributes(model: Any, where: str) -> None:
    """Refuse a negative batch_dims of GatherND.

    onnxruntime does not check this attribute, and would read other memory.

    Raises:
        ModelError: a node has it.
    """
    import onnx

    for message in _messages(model):
        if isinstance(message, onnx.NodeProto) and message.op_type == "GatherND":
            dims = [attribute for attribute in message.attribute if attribute.name == "batch_dims"]
            # In a function, an attribute may refer to one of the call, whose value is elsewhere.
            if any(attribute.i < 0 or attribute.ref_attr_name for attribute in dims):
                raise ModelError(
                    where,
                    "has a GatherND whose batch_dims is not a number from 0",
                    "export it again",
                )


def _calls(part: Any) -> list[Operator]:
    """The operators of all nodes in a graph or function, branches included."""
    import onnx

    nodes = [message for message in _messages(part) if isinstance(message, onnx.NodeProto)]
    return [(node.domain, node.op_type) for node in nodes]


def _domains() -> Collection[str]:
    """The domains in which onnxruntime has operators of its own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    return {schema.domain for schema in runtime.get_all_operator_schema()}


def _check_functions(contents: OnnxContents, known: Collection[str], where: str) -> None:
    """Refuse functions that onnxruntime may not run as written, and graphs that grow without bound.

    Args:
        contents: of the file.
        known: domains in which onnxruntime has operators, which it may prefer to a function of the
            same name.
        where: the file, for messages.
    """
    for domain, name in contents.functions:
        if domain in known or domain.startswith(_OWN_DOMAINS):
            what = f"defines the function {name[:80]!r} in onnxruntime's own domain {domain[:80]!r}"
            raise ModelError(where, what, EXPORT_WITHOUT_OR_TRUST)
    # The graph has a name that no operator has.
    check_expansion({**contents.functions, ("", ""): contents.graph}, where)


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all messages inside it.

    Training data is left out: onnxruntime does not read it.
    """
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and field.name != "training_info":
            # A field has one message, or a list of them.
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(inner)


def _size(name: str, path: Path, where: str) -> int:
    """The bytes of a file with weights.

    Args:
        name: of the file, as written in the ONNX file.
        path: the ONNX file.
        where: its name in messages.

    Raises:
        ModelError: the file is not a regular file in the folder of the ONNX file (or of the file to
            which this links).
    """
    try:
        # onnxruntime takes the name */_ORT_MEM_ADDR_/* for weights in memory, at an address that
        # the file would choose.
        if ".." in Path(name).parts or "*" in name:
            raise ValueError("not a name inside its folder")
        # A link could lead to any file of the machine, whose content would become weights.
        file = (path.parent / name).resolve(strict=True)
        folders = (path.parent.resolve(), path.resolve().parent)
        if not any(file.is_relative_to(folder) for folder in folders):
            raise ValueError("outside its folder")
        # Files of /proc have no size, and may never end.
        if not file.is_file() or not file.stat().st_size:
            raise ValueError("not a regular file, or empty")
    # RuntimeError: a loop of links.
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"has weights in {name[:80]!r}, which cannot be used ({reason})"
        raise ModelError(
            where, what, "keep all the files that were exported together in one folder"
        ) from error
    return file.stat().st_size
