"""On what did a run compute: device, versions, digests?"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

import torch

from robaudit.datasets.base import Sample
from robaudit.errors import SpecError

_PACKAGES = ("robaudit", "torch", "torchvision", "numpy", "scipy", "safetensors", "pydantic", "onnxruntime")


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
    """The device in words."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)"


def versions() -> dict[str, str | None]:
    """Versions of Python, of what computes, and of CUDA and cuDNN where torch has them."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    cuda = torch.cuda.is_available()
    found["cuda"], found["cudnn"] = (torch.version.cuda, str(torch.backends.cudnn.version())) if cuda else (None, None)
    return found


def image_digest(sample: Sample) -> str:
    """128 bits (hex) of the pixels as the model gets them."""
    pixels = sample.pixels.detach().cpu().contiguous()
    head = f"{tuple(pixels.shape)}{pixels.dtype}".encode()
    return hashlib.blake2b(head + pixels.numpy().tobytes(), digest_size=16).hexdigest()


def data_digest(ids: Iterable[str], images: Mapping[str, str], labels: Mapping[str, int | None]) -> str:
    """sha256 over the audited samples in order: id, image digest, label."""
    total = hashlib.sha256()
    for sample_id in ids:
        total.update(f"{sample_id}\x1f{images[sample_id]}\x1f{labels[sample_id]}\x1e".encode())
    return total.hexdigest()
