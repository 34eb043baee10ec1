"""The cause of an exception that a network raised, and the remedy where the cause is known."""

from __future__ import annotations

import re
from enum import Enum

from robaudit.text import clipped

_LONGEST = 300
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LISTING = "Traceback of TorchScript"
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b")
_OF_PYTHON = (AttributeError, ImportError, KeyError, NameError, TypeError)
"""Mistakes in the network's own code, where a word such as "size" means nothing."""


class Cause(Enum):
    """A known cause; its value recognises it in the text of an exception."""

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
    """What went wrong, in one line of at most 300 characters."""
    return clipped(_said(error), _LONGEST) or "without a message"


def known_cause(error: BaseException) -> Cause | None:
    """The first known cause that the text of the error names; None for any other."""
    if isinstance(error, _OF_PYTHON):
        return None
    said = _said(error)
    return next((cause for cause in Cause if cause.value.search(said)), None)


def _said(error: BaseException) -> str:
    """The text of an error in one line, without TorchScript's listing of the code around it."""
    lines = str(error).strip().splitlines()
    if any(line.startswith(_LISTING) for line in lines):
        named = [number for number, line in enumerate(lines) if _ERROR.match(line)]
        lines = lines[named[-1] if named else -1 :]
    return _CODE.sub("", " ".join(" ".join(lines).split()))
