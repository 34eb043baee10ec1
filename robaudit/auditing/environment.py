"""The environment of a run: device, versions, plugins, digests, and torch's deterministic mode."""

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

from robaudit.datasets.dataset import Sample
from robaudit.engine.registry import registered
from robaudit.errors import ModelError, SpecError
from robaudit.runs.info import Plugin
from robaudit.settings import DETERMINISTIC
from robaudit.spec.model import AuditSpec
from robaudit.system import text as file_text
from robaudit.text import clipped, count, printable

_OWN_PACKAGE = "robaudit"
_PACKAGES = (
    *(
        _OWN_PACKAGE,
        "torch",
        "torchvision",
        "numpy",
        "scipy",
        "scikit-learn",
        "pillow",
        "safetensors",
        "pydantic",
    ),
    *("onnxruntime", "timm", "transformers"),
)
_CPUINFO = Path("/proc/cpuinfo")
_LONGEST_COMMAND = 2**14  # characters
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_REPRODUCIBLE = (":4096:8", ":16:8")  # the values that torch and cuBLAS document
_NOT_DETERMINISTIC = re.compile(r"([\w.:<>-]+) does not have a deterministic implementation")
_CUBLAS = re.compile(
    r"deterministic.*not deterministic because it uses cublas", re.DOTALL | re.IGNORECASE
)
ALL_CUDA = "cuda:all"
"""All CUDA devices of this machine."""
_memory: Any = torch.utils.deterministic  # a module with a property


def pick_device(name: str, where: str = "run.device") -> torch.device:
    """The device that a spec or ``--device`` names: cpu, cuda, cuda:1 or auto (CUDA if there is
    one); of several, the first.

    Raises:
        SpecError: it is unknown, or not on this machine.
    """
    return pick_devices(name, where)[0]


def pick_devices(name: str, where: str = "run.device") -> list[torch.device]:
    """The devices that a spec or ``--device`` names: one, several (``cuda:0,cuda:1``), or all of
    this machine (``cuda:all``).

    Raises:
        SpecError: one is unknown, not on this machine, or named twice.
    """
    if name == "auto":
        return [torch.device("cuda:0" if torch.cuda.is_available() else "cpu")]
    if name == "cpu":
        return [torch.device("cpu")]
    parts = [part.strip() for part in name.split(",")]
    matches = [re.fullmatch(r"cuda(?::(\d{1,9}))?", part) for part in parts]
    if name != ALL_CUDA and not all(matches):
        raise SpecError(
            where,
            f"unknown device {name!r}",
            f"use cpu, cuda, cuda:N, several as cuda:0,cuda:1, {ALL_CUDA}, or auto",
        )
    if not torch.cuda.is_available():
        raise SpecError(
            where, f"{name} was requested, but torch finds no CUDA device here", "use cpu or auto"
        )
    devices = torch.cuda.device_count()
    numbers = (
        list(range(devices))
        if name == ALL_CUDA
        else [int(match[1] or 0) for match in matches if match]
    )
    if (beyond := next((number for number in numbers if number >= devices), None)) is not None:
        there = "use cuda:0" if devices == 1 else f"use cuda:0 to cuda:{devices - 1}"
        raise SpecError(
            where,
            f"cuda:{beyond} was requested, but torch finds {count(devices, 'CUDA device')}",
            there,
        )
    if len(set(numbers)) < len(numbers):
        raise SpecError(where, f"{name} names a device twice", "name each device once")
    return [torch.device("cuda", number) for number in numbers]


def device_name(device: torch.device) -> str:
    """The device for people: torch's name for it and, in brackets, its model."""
    if device.type == "cuda":
        return printable(f"{device} ({torch.cuda.get_device_name(device)})")
    parts = (processor_name(), platform.machine(), count(torch.get_num_threads(), "thread"))
    return printable(f"{device} ({', '.join(part for part in parts if part)})")


def processor_name() -> str:
    """The processor's model, as in ``AMD EPYC 7B13``; empty where the machine does not say."""
    match = re.search(r"^model name\s*:(.*)$", file_text(_CPUINFO), re.MULTILINE)
    name = " ".join((match[1] if match else platform.processor()).split())
    return "" if name == platform.machine() else name


def versions() -> dict[str, str | None]:
    """Versions of Python, of the packages that read and compute, and of CUDA and cuDNN where torch
    has them."""
    known: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    cuda = torch.cuda.is_available()
    cudnn = torch.backends.cudnn.version() if cuda else None
    known["cuda"] = torch.version.cuda if cuda else None
    known["cudnn"] = None if cudnn is None else str(cudnn)
    return known


def plugins(spec: AuditSpec) -> dict[str, Plugin]:
    """Package, version and entry point of the spec's estimators that are not robaudit's own, by
    registered name."""
    points = registered()
    foreign: dict[str, Plugin] = {}
    for name in sorted({entry.name for entry in spec.estimators}):
        package = points[name].dist
        if package is None or package.name != _OWN_PACKAGE:
            about, number = (
                ("unknown", "unknown") if package is None else (package.name, package.version)
            )
            foreign[name] = Plugin(
                package=printable(about), version=printable(number), entry_point=points[name].value
            )
    return foreign


def command_line(arguments: Sequence[str]) -> str:
    """robaudit with these arguments, as it could be typed; what does not print is written as
    escapes."""
    text = os.fsencode(shlex.join([_OWN_PACKAGE, *arguments])).decode("utf-8", "backslashreplace")
    return clipped(printable(text), _LONGEST_COMMAND)


def image_digest(sample: Sample) -> str:
    """A 128-bit digest (hex) of the pixels as the model receives them."""
    pixels = sample.pixels.detach().cpu().contiguous()
    head = f"{tuple(pixels.shape)}{pixels.dtype}".encode()
    return hashlib.blake2b(head + pixels.numpy().tobytes(), digest_size=16).hexdigest()


@contextlib.contextmanager
def deterministic(on: bool, device: torch.device) -> Iterator[None]:
    """Let torch use deterministic implementations within the block: every run on the same kind of
    device gives the same bits.

    Some of them are slower (atomic sums become sorted ones, cuDNN benchmarks no algorithms). Enter
    the block before anything runs on CUDA: cuBLAS reads the size of its workspace once, from the
    environment. Torch's switches are restored at the end; the environment variable stays, because
    cuBLAS obeys it until the process ends.

    Args:
        on: False changes nothing.
        device: where the networks run; the environment variable matters for CUDA only.

    Raises:
        ModelError: an operation has no deterministic implementation, or CUDA was in use with a
            workspace that is not reproducible.
    """
    if not on:
        yield
        return
    if (
        device.type == "cuda"
        and not torch.cuda.is_initialized()
        and os.environ.get(_WORKSPACE) not in _REPRODUCIBLE
    ):
        os.environ[_WORKSPACE] = _REPRODUCIBLE[0]  # in use already, torch refuses the first product
    with _switches():
        try:
            yield
        except Exception as error:
            refusal = explained(error)
            if refusal is None:
                raise
            raise refusal from error


def explained(error: BaseException) -> ModelError | None:
    """The user's error if an operation without a deterministic implementation caused this one; None
    otherwise."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        text = str(cause)
        if match := _NOT_DETERMINISTIC.search(text):
            what = (
                f"{match[1]}, an operation of the network or of an estimator, has no "
                "deterministic implementation in torch"
            )
            return ModelError("run.deterministic", what, "leave " + DETERMINISTIC + " out")
        if _CUBLAS.search(text):
            what = "CUDA was in use before deterministic mode was requested"
            return ModelError(
                "run.deterministic",
                what,
                f"set {_WORKSPACE}={_REPRODUCIBLE[0]} before Python starts",
            )
        seen.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


@contextlib.contextmanager
def _switches() -> Iterator[None]:
    """Set torch's own switches within the block."""
    cudnn = torch.backends.cudnn
    fill = _memory.fill_uninitialized_memory
    mode = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    before = cudnn.deterministic, cudnn.benchmark
    try:
        _memory.fill_uninitialized_memory = (
            False  # it would write every result twice; a result is never read before it is written
        )
        cudnn.deterministic = True
        cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn)
        cudnn.deterministic, cudnn.benchmark = before
        _memory.fill_uninitialized_memory = fill
