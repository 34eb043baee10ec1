"""Processes that are started to compute keep the memory they free, as the command line does."""

from __future__ import annotations

import os
import socket

import pytest

from robaudit.auditing import processes, ray_cluster
from robaudit.auditing.worker import Plan
from robaudit.spec.model import AuditSpec
from tests.specs import digits

PLAN = Plan(AuditSpec.model_validate(digits()), None, "run", trust=False, skip_bad=False)


def test_a_ray_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[bool]()
    monkeypatch.setattr(ray_cluster, "keep_freed_memory", lambda: called.append(True))
    ray_cluster.RayWorker(PLAN)
    assert called == [True]


def test_the_process_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[bool]()
    monkeypatch.setattr(processes, "keep_freed_memory", lambda: called.append(True))
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall((4).to_bytes(4, "big") + b"none")  # no plan: it says so, and ends
        with pytest.raises(SystemExit):
            processes.main(theirs.detach())
    assert called == [True]
