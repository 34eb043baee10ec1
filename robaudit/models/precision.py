"""In which number format does the network compute, and which products may CUDA round?"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from robaudit.errors import ModelError
from robaudit.models.logits import LogitModel
from robaudit.spec.model import Precision

PIXELS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}
"""The dtype of pixels, clean passes and gradients by precision."""


@contextmanager
def rounded_products(allowed: bool) -> Iterator[None]:
    """Let CUDA's float32 products (matmul, cuDNN) round their factors to TF32's 10 bits, or forbid it (torch leaves it to cuDNN)."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def for_noisy_passes(model: LogitModel, precision: Precision) -> LogitModel:
    """The model that noisy forward passes go through: a copy in bfloat16 for bf16, else the model itself.

    Raises:
        ModelError: the network cannot be cast to bfloat16.
    """
    return in_bfloat16(model) if precision == "bf16" else model


def in_bfloat16(model: LogitModel) -> LogitModel:
    """A copy whose network computes in bfloat16 (8 bits of mantissa); pixels and normalisation stay float32, and so does the result.

    Raises:
        ModelError: the network is no torch module that can be copied and cast.
    """
    remedy = "use run.precision fp32"
    if model.format == "onnx":
        raise ModelError(model.name, "onnx networks run in fp32 only", remedy)
    try:
        with torch.inference_mode(False):
            lower = copy.deepcopy(model)
            lower.compute_in(torch.bfloat16)
    except Exception as error:
        raise ModelError(model.name, f"cannot be copied and cast to bfloat16 ({type(error).__name__}: {error})"[:300], remedy) from error
    return lower
