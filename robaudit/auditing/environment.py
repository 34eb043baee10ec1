"""What a run computes on: device, versions, digests, and torch's deterministic mode."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from robaudit.datasets.base import Sample
from robaudit.errors import ModelError, SpecError
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


_memory: Any = torch.utils.deterministic  # a module with a property
_KEY = "CUBLAS_WORKSPACE_CONFIG"
_FIXED = (":4096:8", ":16:8")  # what torch and cuBLAS call reproducible
_NO_FORM = re.compile(r"([\w.:<>-]+) does not have a deterministic implementation")
_CUBLAS = re.compile(r"deterministic.*not deterministic because it uses cublas", re.DOTALL | re.IGNORECASE)


@contextlib.contextmanager
def deterministic(on: bool, device: torch.device) -> Iterator[None]:
    """While it lasts, torch takes the form of every operation that gives the same bits from every run on one kind of device.

    Some forms are slower (atomic sums become sorted ones, cuDNN tries no algorithms out). Enter it before the first work on CUDA:
    cuBLAS reads the size of its workspace once, from the environment. All switches are put back as they were; the environment's
    only if CUDA has not begun in the meantime, for then it says what cuBLAS goes by until the process ends.

    Args:
        on: False changes nothing.
        device: where the networks run; the environment matters to CUDA alone.

    Raises:
        SpecError: CUDA was in use already, with a workspace that is not reproducible.
        ModelError: an operation within has no such form.
    """
    if not on:
        yield
        return
    with _workspace(device), _switches():
        try:
            yield
        except Exception as error:
            refusal = explained(error)
            if refusal is None:
                raise
            raise refusal from error


def explained(error: BaseException) -> ModelError | None:
    """The error in a line, where it (or what caused it) is that an operation has no deterministic form; None for any other."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        text = str(cause)
        found = _NO_FORM.search(text)
        if found:
            what = f"{found[1]}, an operation of the network or of an estimator, has no deterministic form in torch"
            return ModelError("run.deterministic", what, "leave --deterministic out")
        if _CUBLAS.search(text):
            return ModelError(
                "run.deterministic", "CUDA was in use before it was asked for", f"set {_KEY}={_FIXED[0]} before Python starts"
            )
        seen.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


@contextlib.contextmanager
def _switches() -> Iterator[None]:
    """torch's own switches."""
    cudnn, fill = torch.backends.cudnn, _memory.fill_uninitialized_memory
    mode, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    before = cudnn.deterministic, cudnn.benchmark
    try:
        _memory.fill_uninitialized_memory = False  # it would write every result twice; a result is never read before it is written
        cudnn.deterministic, cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn)
        cudnn.deterministic, cudnn.benchmark = before
        _memory.fill_uninitialized_memory = fill


@contextlib.contextmanager
def _workspace(device: torch.device) -> Iterator[None]:
    """A workspace of cuBLAS that is reproducible.

    Raises:
        SpecError: cuBLAS may have read another one already.
    """
    before = os.environ.get(_KEY)
    if device.type != "cuda" or before in _FIXED:
        yield
        return
    if torch.cuda.is_initialized():
        what = "CUDA is in use already" + (f" with {_KEY}={before}" if before else "")
        raise SpecError("run.deterministic", what, f"set {_KEY}={_FIXED[0]} before Python starts, or leave --deterministic out")
    os.environ[_KEY] = _FIXED[0]
    try:
        yield
    finally:
        if not torch.cuda.is_initialized():
            if before is None:
                os.environ.pop(_KEY, None)
            else:
                os.environ[_KEY] = before
