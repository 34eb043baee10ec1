"""A worker, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from robaudit import AuditSpec, ImageBatch, Result
from robaudit.auditing import worker as worker_module
from robaudit.auditing.messages import Done, Failed
from robaudit.auditing.prepare import OpenedAudit, Request, open_audit
from robaudit.auditing.worker import ChunkJob, Worker, WorkerPlan
from robaudit.estimators.mc import MonteCarlo
from robaudit.progress import Listener
from tests.specs import digits

Estimating = Callable[[MonteCarlo, ImageBatch], Sequence[Result]]


@pytest.fixture
def parts(tmp_path: Path) -> OpenedAudit:
    spec = AuditSpec.model_validate(digits(limit=4, run={"device": "cpu"})).located(tmp_path, "spec")
    return open_audit(Request(spec), Listener())


def worker_of(parts: OpenedAudit) -> Worker:
    return Worker(WorkerPlan(parts.spec))


def order_of(parts: OpenedAudit, *places: int) -> ChunkJob:
    names = tuple(parts.samples.sample_id(place) for place in places)
    return ChunkJob(parts.tasks, places, names, ())


def test_the_next_images_are_read_while_others_are_computed(parts: OpenedAudit, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, read = worker_of(parts), threading.Event()
    worker.open()
    real, chunk = MonteCarlo.estimate, worker_module._Open.chunk
    waited: list[bool] = []
    chunks: list[object] = []

    def estimate(self: MonteCarlo, batch: ImageBatch) -> Sequence[Result]:
        waited.append(read.wait(30))
        return real(self, batch)

    def reading(self: Any, order: ChunkJob) -> Any:
        chunks.append(found := chunk(self, order))
        if len(chunks) > 1:
            read.set()
        return found

    monkeypatch.setattr(MonteCarlo, "estimate", estimate)
    monkeypatch.setattr(worker_module._Open, "chunk", reading)
    with ThreadPoolExecutor(2) as callers:
        orders = [order_of(parts, 0, 1), order_of(parts, 2, 3)]
        items = [item for some in callers.map(lambda order: list(worker.compute(order)), orders) for item in some]
    assert waited
    assert all(waited)
    rows = [row.sample_id for item in items if isinstance(item, Done) for row in item.step.rows]
    assert rows == [parts.samples.sample_id(place) for place in range(4)]


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (SystemExit(4), "code of the model, the data set or a plugin: called sys.exit; let it return or raise"),
        (RuntimeError("cumsum_cuda does not have a deterministic implementation, but you set it."), "leave --deterministic out"),
    ],
)
def test_what_ends_a_local_audit_with_a_line_does_so_from_a_worker(
    raised: BaseException, says: str, parts: OpenedAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(MonteCarlo, "estimate", estimate)
    worker = worker_of(parts)
    worker.open()
    *_, last = worker.compute(order_of(parts, 0))
    assert isinstance(last, Failed)
    assert last.error is not None
    assert says in str(last.error)
