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
from typing import Any

import torch

from robaudit.datasets.dataset import Sample
from robaudit.engine.registry import registered
from robaudit.errors import ModelError, SpecError
from robaudit.runs.info import Plugin
from robaudit.settings import DETERMINISTIC
from robaudit.spec.model import AuditSpec
from robaudit.system import processor_name
from robaudit.text import clipped, count, printable

_OWN_PACKAGE = "robaudit"
# Packages that read data and models, or compute values.
_PACKAGES = (
    _OWN_PACKAGE,
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "pillow",
    "safetensors",
    "pydantic",
    "onnxruntime",
    "timm",
    "transformers",
)
_LONGEST_COMMAND = 2**14  # characters; a shell may pass a list of a million files
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_REPRODUCIBLE = (":4096:8", ":16:8")  # the values that torch and cuBLAS document
# Torch says it in words only, so these follow its messages.
_NOT_DETERMINISTIC = re.compile(r"([\w.:<>-]+) does not have a deterministic implementation")
_CUBLAS = re.compile(
    r"deterministic.*not deterministic because it uses cublas", re.DOTALL | re.IGNORECASE
)
ALL_CUDA = "cuda:all"
"""All CUDA devices of this machine."""
_memory: Any = torch.utils.deterministic  # a module with a property, which mypy does not know


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
    if name == ALL_CUDA:
        numbers = list(range(devices))
    else:
        numbers = [int(match[1] or 0) for match in matches if match]
    beyond = next((number for number in numbers if number >= devices), None)
    if beyond is not None:
        remedy = "use cuda:0" if devices == 1 else f"use cuda:0 to cuda:{devices - 1}"
        raise SpecError(
            where,
            f"cuda:{beyond} was requested, but torch finds {count(devices, 'CUDA device')}",
            remedy,
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
        if package is None:
            package_name = "unknown"
            package_version = "unknown"
        elif package.name == _OWN_PACKAGE:
            continue
        else:
            package_name = package.name
            package_version = package.version
        foreign[name] = Plugin(
            package=printable(package_name),
            version=printable(package_version),
            entry_point=points[name].value,
        )
    return foreign


def command_line(arguments: Sequence[str]) -> str:
    """robaudit with these arguments, as it could be typed; characters that do not print become
    escapes."""
    # Arguments may be bytes of file names that are not UTF-8.
    text = os.fsencode(shlex.join([_OWN_PACKAGE, *arguments])).decode("utf-8", "backslashreplace")
    return clipped(printable(text), _LONGEST_COMMAND)


def image_digest(sample: Sample) -> str:
    """A 128-bit digest (hex) of the pixels as the model receives them."""
    pixels = sample.pixels.detach().cpu().contiguous()
    # Shape and type are part of it: the same bytes may be another image.
    head = f"{tuple(pixels.shape)}{pixels.dtype}".encode()
    return hashlib.blake2b(head + pixels.numpy().tobytes(), digest_size=16).hexdigest()


@contextlib.contextmanager
def deterministic(on: bool, device: torch.device) -> Iterator[None]:
    """Let torch use deterministic implementations within the block: every run on the same kind of
    device gives the same bits.

    Some of them are slower: atomic sums become sorted ones, and cuDNN benchmarks no algorithms.
    Enter the block before anything runs on CUDA: cuBLAS reads the size of its workspace once, from
    the environment. Torch's switches are restored at the end. The environment variable stays,
    because cuBLAS obeys it until the process ends.

    Args:
        on: whether to change anything.
        device: where the networks run; the environment variable matters for CUDA only.

    Raises:
        ModelError: an operation has no deterministic implementation, or CUDA was in use with a
            workspace that is not reproducible.
    """
    if not on:
        yield
        return
    # If CUDA is in use already, the variable comes too late: torch then refuses the first product.
    in_time = device.type == "cuda" and not torch.cuda.is_initialized()
    if in_time and os.environ.get(_WORKSPACE) not in _REPRODUCIBLE:
        os.environ[_WORKSPACE] = _REPRODUCIBLE[0]
    with _switches():
        try:
            yield
        except Exception as error:
            user_error = explained(error)
            if user_error is None:
                raise
            raise user_error from error


def explained(error: BaseException) -> ModelError | None:
    """The user's error if an operation without a deterministic implementation caused this one; None
    otherwise."""
    cause: BaseException | None = error
    seen: set[int] = set()
    # Along the chain of causes, which code of a network or a plugin may have closed to a ring.
    while cause is not None and id(cause) not in seen:
        text = str(cause)
        match = _NOT_DETERMINISTIC.search(text)
        if match:
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
        # As Python prints it: `raise ... from None` hides the context.
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context
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
        # Filling would write every result twice, and no result is read before it is written.
        _memory.fill_uninitialized_memory = False
        cudnn.deterministic = True
        cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn)
        cudnn.deterministic, cudnn.benchmark = before
        _memory.fill_uninitialized_memory = fill
