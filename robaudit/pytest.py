"""Gates as tests: ``from robaudit.pytest import assert_robust``, and the pytest plugin that caches its runs.

The plugin is light: it imports neither torch nor the rest of robaudit before a test asserts something.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from robaudit.errors import InUseError, RobauditError, RunError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from robaudit.api.run import Run

Inconclusive = Literal["fail", "xfail", "pass"]

_CHOICES = ("fail", "xfail", "pass")
_current: list[_Test] = []


class _Test:
    """The current test, and the number of its runs so far."""

    def __init__(self, item: pytest.Item) -> None:
        self.item, self.runs = item, 0

    def folder(self) -> Path | None:
        """The folder of its next run, in pytest's cache; None without a cache."""
        cache = getattr(self.item.config, "cache", None)
        if cache is None:
            return None
        self.runs += 1
        name = hashlib.sha256(f"{self.item.nodeid} {self.runs}".encode()).hexdigest()[:16]
        return Path(cache.mkdir("robaudit")) / name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember which test runs, for the folder of its runs."""
    _current.append(_Test(item))
    try:
        return (yield)
    finally:
        _current.pop()


def assert_robust(
    net: nn.Module | Callable[[torch.Tensor], Any],
    dataset: object,
    *,
    gates: str | Sequence[str],
    inconclusive: Inconclusive = "fail",
    population: bool = False,
    point: bool = False,
    confidence: float | None = None,
    strict: bool = False,
    **audit: Any,
) -> Run:
    """Audit a network in a test, and fail the test unless all gates pass; the message has a line for each gate.

    The run is cached in ``.pytest_cache/d/robaudit``: as long as the network, the data and the arguments stay the same, nothing is
    recomputed. ``pytest --cache-clear`` removes it.

    Args:
        net: as for :func:`robaudit.audit`; or a spec.
        dataset: as for :func:`robaudit.audit`.
        gates: such as ``"mean >= 0.9"``.
        inconclusive: what the test does if a gate is inconclusive and none fails: "fail", "xfail" or "pass".
        population: the intervals also cover the choice of the images.
        point: let values without an interval decide.
        confidence: of the intervals, with ``until_decided=True`` of all analyses together; default 0.95.
        strict: the run must not have warned, either.
        audit: further arguments of :func:`robaudit.audit`, such as ``sigma=0.05``.

    Returns:
        The run, if the gates pass.
    """
    __tracebackhide__ = True
    with _one_line():
        if inconclusive not in _CHOICES:
            raise RobauditError("inconclusive", f"{inconclusive!r} is unknown", "fail, xfail or pass")
        until = {"confidence": confidence} if audit.get("until_decided") else {}
        run = _audited(net, dataset, {"progress": False, **audit, **until, "gates": gates})
        each = None if until else confidence
        decisions = run.gate(gates, population=population, point=point, confidence=each, strict=strict)
    if decisions.verdict == "fail" or (decisions.verdict == "inconclusive" and inconclusive == "fail"):
        pytest.fail(_message(run, decisions), pytrace=False)
    if decisions.verdict == "inconclusive" and inconclusive == "xfail":
        pytest.xfail(_message(run, decisions))
    return run


def _audited(net: Any, dataset: object, arguments: Mapping[str, Any]) -> Run:
    """The cached run of the test if it matches, else a new one."""
    from robaudit.api.audit import audit

    folder = _current[-1].folder() if _current and "out" not in arguments else None
    if folder is None:
        return audit(net, dataset, **arguments)
    with suppress(RunError):
        return audit(net, dataset, **arguments, out=folder)
    try:  # another network, other data or arguments, or damaged
        _remove(folder)
    except InUseError:  # the same test in another session
        return audit(net, dataset, **arguments)
    return audit(net, dataset, **arguments, out=folder)


def _remove(path: Path) -> None:
    """Remove a folder of the cache, or a file in its place.

    Raises:
        InUseError: another process writes there.
    """
    from robaudit.store.folder import locked

    if path.is_dir() and not path.is_symlink():
        with locked(path):
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _message(run: Run, decisions: Sequence[object]) -> str:
    """The lines of the gates, after the warnings of the audit."""
    warnings = [f"warning: {text}" for text in run.info.warnings]
    return "\n".join([*warnings, repr(decisions)])


@contextmanager
def _one_line() -> Generator[None]:
    """Let a user error fail the test with one line, without robaudit's frames."""
    __tracebackhide__ = True
    try:
        yield
    except RobauditError as error:
        raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None
