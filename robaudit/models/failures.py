"""The cause of an exception that a network raised, and the remedy where the cause is known."""

from __future__ import annotations

import re
from enum import Enum

from robaudit.text import clipped

_LONGEST = 300
_ONNX_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LISTING = "Traceback of TorchScript"
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b")
_OF_PYTHON = (AttributeError, ImportError, KeyError, NameError, TypeError)
"""Mistakes in the network's own code, where a word such as "size" means nothing."""


class Cause(Enum):
    """A known cause; its value recognises it in the text of an exception.

    The first that fits is the cause: a message about dtypes or devices often names shapes, too.
    """

    DEVICE = re.compile(
        r"no NVIDIA driver|not compiled with CUDA|No CUDA GPUs|invalid device ordinal"
        r"|on the same device|type \(torch\.cuda\."
    )
    PRECISION = re.compile(
        r"\bdtypes?\b|scalar type|Input type \("
        r"|not implemented for '(?:Half|BFloat16|Double)'"
    )
    RESHAPE = re.compile(r"shape '\[.*\]' is invalid for input|cannot be reshaped")
    SHAPE = re.compile(
        r"\b(?:shapes?|sizes?|channels?|dim(?:ension)?s?|height|width)\b",
        re.IGNORECASE,
    )


REMEDIES = {
    Cause.DEVICE: "its graph names a device: save it from the CPU, without .cuda() in forward",
    Cause.PRECISION: "its graph mixes precisions: save it in float32, without .half() in forward",
    Cause.RESHAPE: "check the size and channels of the images; no reshape may fix their number",
    Cause.SHAPE: "check the size and channels of the images (resize, crop, channels: 1 for grey)",
}


def cause_text(error: BaseException) -> str:
    """The text of an error in one line of at most 300 characters."""
    return clipped(_one_line(error), _LONGEST) or "without a message"


def known_cause(error: BaseException) -> Cause | None:
    """The first known cause that the text of the error names; None for any other."""
    if isinstance(error, _OF_PYTHON):
        return None
    text = _one_line(error)
    return next((cause for cause in Cause if cause.value.search(text)), None)


def _one_line(error: BaseException) -> str:
    """The text of an error in one line, without TorchScript's listing of the code around it."""
    lines = str(error).strip().splitlines()
    # The listing comes first; the error itself begins at the last line that names its type.
    if any(line.startswith(_LISTING) for line in lines):
        error_lines = [number for number, line in enumerate(lines) if _ERROR.match(line)]
        lines = lines[error_lines[-1] if error_lines else -1 :]
    return _ONNX_PREFIX.sub("", " ".join(" ".join(lines).split()))
