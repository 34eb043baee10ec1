"""On what did a run compute: device, versions, digests?"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from robaudit.datasets.base import Sample
from robaudit.errors import SpecError
from robaudit.estimators.registry import Chosen, installed
from robaudit.text import clipped, printable

_OURS = "robaudit"
_PACKAGES = (_OURS, "torch", "torchvision", "numpy", "scipy", "scikit-learn", "pillow", "safetensors", "pydantic", "onnxruntime")
_CPUINFO = Path("/proc/cpuinfo")
_LONGEST = 2**14  # characters of a command


def pick_device(name: str, where: str = "run.device") -> torch.device:
    """The device a spec or ``--device`` names: cpu, cuda, cuda:1 or auto (CUDA if there is one).

    Raises:
        SpecError: unknown, or not on this machine.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise SpecError(where, f"unknown device {name!r}", "use cpu, cuda, cuda:N or auto")
    if not torch.cuda.is_available():
        raise SpecError(where, f"{name} is asked for, but torch sees no CUDA device here", "use cpu or auto")
    index, count = int(match[1] or 0), torch.cuda.device_count()
    if index >= count:
        raise SpecError(where, f"{name} is asked for, but there are {count} CUDA devices", f"use cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", index)


def device_name(device: torch.device) -> str:
    """The device in words: its name for torch, and in brackets its model."""
    if device.type == "cuda":
        return printable(f"{device} ({torch.cuda.get_device_name(device)})")
    threads = torch.get_num_threads()
    parts = (processor_name(), platform.machine(), f"{threads} thread{'s' * (threads != 1)}")
    return printable(f"{device} ({', '.join(part for part in parts if part)})")


def processor_name() -> str:
    """The processor's model, as in ``AMD EPYC 7B13``; empty where the machine does not say."""
    try:
        found = re.search(r"^model name\s*:(.*)$", _CPUINFO.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    name = " ".join((found[1] if found else platform.processor()).split())
    return "" if name == platform.machine() else name


def versions() -> dict[str, str | None]:
    """Versions of Python, of what reads and computes, and of CUDA and cuDNN where torch has them."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    cuda = torch.cuda.is_available()
    cudnn = torch.backends.cudnn.version() if cuda else None
    found["cuda"], found["cudnn"] = torch.version.cuda if cuda else None, None if cudnn is None else str(cudnn)
    return found


def plugins(chosen: Sequence[Chosen]) -> dict[str, dict[str, str]]:
    """Whose the estimators are that are not ours: package, version and entry point, by the name they are registered under."""
    points = installed()
    found: dict[str, dict[str, str]] = {}
    for name in sorted({one.name for one in chosen}):
        package = points[name].dist
        if package is None or package.name != _OURS:
            about = ("unknown", "unknown") if package is None else (package.name, package.version)
            found[name] = dict(zip(("package", "version", "entry_point"), (*map(printable, about), points[name].value), strict=True))
    return found


def command_line(arguments: Sequence[str]) -> str:
    """The command of ours with these arguments, as it could be typed; what does not print is written as escapes."""
    text = os.fsencode(shlex.join([_OURS, *arguments])).decode("utf-8", "backslashreplace")
    return clipped(printable(text), _LONGEST)


def image_digest(sample: Sample) -> str:
    """128 bits (hex) of the pixels as the model gets them."""
    pixels = sample.pixels.detach().cpu().contiguous()
    head = f"{tuple(pixels.shape)}{pixels.dtype}".encode()
    return hashlib.blake2b(head + pixels.numpy().tobytes(), digest_size=16).hexdigest()
