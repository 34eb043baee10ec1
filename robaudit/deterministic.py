"""How does CUDA give the same bits from every run?"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import torch

from robaudit.errors import ModelError, SpecError

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
