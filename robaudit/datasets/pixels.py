"""How do raw values become pixels: float64, (channels, height, width), usually in [0, 1]?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.errors import SampleError


def as_pixels(values: NDArray[Any] | Tensor, where: str, scale: float | None = None) -> Tensor:
    """Divide raw values by their scale: 255 for uint8, 1 for floats and booleans, unless ``scale`` says otherwise.

    Values outside [0, 1] are left alone: the audit's input check reports them.

    Args:
        values: (channels, height, width), or (height, width) for one channel.
        where: the sample, for messages.
        scale: what full intensity is in ``values``.

    Returns:
        A new float64 tensor (channels, height, width) on the CPU: x / 255 to full precision, for fp64 audits.

    Raises:
        SampleError: the shape is not that of an image, the type has no known scale, or a value is NaN or infinite.
    """
    tensor = values.detach().cpu() if isinstance(values, Tensor) else _as_tensor(values, where)
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.ndim != 3 or 0 in tensor.shape:
        raise SampleError(where, f"pixels have shape {tuple(values.shape)}", "they must be (channels, height, width)")
    divisor = known_scale(str(tensor.dtype).removeprefix("torch."), scale)
    if divisor is None:
        raise SampleError(where, f"pixels are {tensor.dtype}", "give uint8, floats in [0, 1], or a scale where the data set takes one")
    pixels = tensor.to(torch.float64, copy=True).contiguous()
    if divisor != 1:
        pixels /= divisor
    if not bool(torch.isfinite(pixels).all()):
        bad = int((~torch.isfinite(pixels)).sum())
        raise SampleError(where, f"{bad} of {pixels.numel()} pixels are NaN or infinite", "repair or leave out this sample")
    return pixels


def known_scale(dtype: str, scale: float | None) -> float | None:
    """What to divide pixels of this type by, or None where it cannot be known (integers other than uint8 need a scale)."""
    if dtype.startswith("float") or dtype in ("bool", "bfloat16"):
        return 1.0 if scale is None else scale
    if dtype == "uint8":
        return 255.0 if scale is None else scale
    return scale if dtype.startswith(("int", "uint")) else None


def _as_tensor(values: NDArray[Any], where: str) -> Tensor:
    """A NumPy array as a tensor, whatever its byte order and writability."""
    if values.dtype.kind not in "biuf":
        raise SampleError(where, f"pixels are of type {values.dtype}", "they must be numbers: uint8 or floats")
    if values.dtype.kind == "f":
        return torch.from_numpy(np.array(values, dtype=np.float64, order="C"))
    return torch.from_numpy(np.array(values, dtype=values.dtype.newbyteorder("="), order="C"))


def as_label(value: object, where: str) -> int | None:
    """A label as a plain int; None stays None.

    Raises:
        SampleError: it is not an integer, or negative.
    """
    if value is None:
        return None
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        text = repr(value)
        raise SampleError(
            where, f"the label {text if len(text) < 40 else type(value).__name__} is not an integer", "give a class index or None"
        )
    if value < 0:
        raise SampleError(where, f"the label is {value}", "class indices start at 0; give None where there is no label")
    return int(value)
