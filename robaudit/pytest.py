"""Gates as tests: ``from robaudit.pytest import assert_robust``.

The import is light: neither torch nor the rest of robaudit is imported before a test asserts
something.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest

from robaudit.errors import RobauditError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from robaudit.api.run import Run

Inconclusive = Literal["fail", "xfail", "pass"]

_CHOICES = ("fail", "xfail", "pass")


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
    """Audit a network in a test, and fail the test unless all gates pass.

    The message has a line for each gate.

    Args:
        net: as for :func:`robaudit.audit`; or a spec.
        dataset: as for :func:`robaudit.audit`.
        gates: thresholds such as ``"mean >= 0.9"``.
        inconclusive: the test's end if a gate is inconclusive and none fails: "fail", "xfail" or
            "pass".
        population: the intervals also cover the choice of the images.
        point: let values without an interval decide.
        confidence: the confidence of the intervals; with ``until_decided=True`` that of all
            analyses together. Default: 0.95.
        strict: the run must not have warned, either.
        audit: further arguments of :func:`robaudit.audit`, such as ``sigma=0.05``.

    Returns:
        The run, if the gates pass.
    """
    # pytest leaves this frame out of its traceback.
    __tracebackhide__ = True
    from robaudit.api.audit import audit as run_audit

    with _one_line():
        if inconclusive not in _CHOICES:
            raise RobauditError(
                "inconclusive", f"{inconclusive!r} is unknown", "fail, xfail or pass"
            )
        options: dict[str, Any] = {"progress": False, **audit, "gates": gates}
        gate_confidence = confidence
        if audit.get("until_decided"):
            # The run then records the confidence of each analysis, and its gates use that.
            options["confidence"] = confidence
            gate_confidence = None
        run = run_audit(net, dataset, **options)
        decisions = run.gate(
            gates, population=population, point=point, confidence=gate_confidence, strict=strict
        )
    undecided = decisions.verdict == "inconclusive"
    if decisions.verdict == "fail" or (undecided and inconclusive == "fail"):
        pytest.fail(_message(run, decisions), pytrace=False)
    if undecided and inconclusive == "xfail":
        pytest.xfail(_message(run, decisions))
    return run


def _message(run: Run, decisions: Sequence[object]) -> str:
    """The lines of the gates, after the warnings of the audit."""
    warnings = [f"warning: {text}" for text in run.info.notices]
    return "\n".join([*warnings, repr(decisions)])


@contextmanager
def _one_line() -> Generator[None]:
    """Let a user error fail the test with one line, without robaudit's frames."""
    __tracebackhide__ = True
    try:
        yield
    except RobauditError as error:
        raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None
