"""A worker keeps the memory that its process frees, as the command line does."""

from __future__ import annotations

import pytest

from robaudit.auditing import worker
from robaudit.auditing.messages import Opened
from robaudit.spec.model import AuditSpec
from tests.specs import digits


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[bool]()
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: called.append(True))
    plan = worker.WorkerPlan(AuditSpec.model_validate(digits()))
    assert isinstance(worker.Worker(plan).open(), Opened)
    assert called == [True]
