"""How does an ONNX file become a network: through onnxruntime, without gradients."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from robaudit.errors import ModelError
from robaudit.models.base import LoadedNetwork, Source
from robaudit.models.onnx_external import weights_sha256

NOTE = "onnx: no gradients; estimators that need them refuse"


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
        ModelError: onnxruntime is missing, the file is damaged, or its inputs, precision or device do not fit.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it writes to the home folder, and reports to its maker
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelError(source.where, "onnxruntime is not installed", "pip install 'robaudit[onnx]'") from error
    if source.dtype is not torch.float32:
        raise ModelError(
            source.where, "onnx networks run in fp32 only", "use run.precision fp32, or load it from safetensors or TorchScript"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    providers = _providers(source, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(str(source.file), options, providers=providers)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "external data" in reason.lower():
            what = "onnxruntime cannot load it: a file with some of its weights is missing or not as it says"
            raise ModelError(source.where, what, "keep all the files that were exported together in one folder") from error
        raise ModelError(source.where, f"onnxruntime cannot load it: {reason[:200]}", "check the file with onnx.checker") from error
    batch = _check_input(session, source.where)
    notes = (NOTE,) if batch is None else (NOTE, f"onnx: the batch size is fixed at {batch}, so batches are split and padded (slow)")
    network = OnnxNetwork(session, source.device).eval()
    return LoadedNetwork(network, "onnx", weights_sha256(source.file, source.where), differentiable=False, fixed_batch=batch, notes=notes)


def _providers(source: Source, available: list[str]) -> list[Any]:
    if source.device.type == "cpu":
        return ["CPUExecutionProvider"]
    if source.device.type == "cuda" and "CUDAExecutionProvider" in available:
        return [("CUDAExecutionProvider", {"device_id": source.device.index or 0}), "CPUExecutionProvider"]
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
