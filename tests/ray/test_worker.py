"""A worker called directly: what it says when it is ready, what it computes, what it refuses; with model and images sent to it or not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robaudit import ImageBatch, Result
from robaudit.auditing import worker as worker_module
from robaudit.auditing.messages import Done, Failed, Finished, Item
from robaudit.auditing.prepare import open_audit
from robaudit.auditing.shipping import Sent, first_sent, packed
from robaudit.auditing.worker import ChunkJob, Worker, WorkerPlan
from robaudit.errors import DataError
from robaudit.estimators.mc import MonteCarlo
from robaudit.progress import Listener
from robaudit.rows import Row
from tests.ray.teams import opened, plan, refusal
from tests.specs import WEIGHTS, digits, save_npz

SPEC = digits(estimators=[{"mc": {"samples": 5}}, "softmax"])


def order_for(given: WorkerPlan, places: tuple[int, ...], *, sent: bool = False) -> ChunkJob:
    """An order for everything that some images need."""
    parts = open_audit(given, Listener())
    samples = tuple(Sent.of(parts.samples[place]) for place in places) if sent else ()
    return ChunkJob(parts.tasks, places, tuple(map(parts.samples.sample_id, places)), samples)


def rows(items: list[Item]) -> list[Row]:
    """What an order gave; pieces of it may come in any order."""
    return sorted(
        (row for item in items if isinstance(item, Done) for row in item.step.rows), key=lambda row: (row.sample_id, row.estimator)
    )


def test_an_order_is_carried_out() -> None:
    given = plan(SPEC)
    worker = Worker(given)
    said = opened(worker)
    assert (said.facts.check.classes, said.facts.check.checked) == (10, 8)
    assert any("clean accuracy 100.0%" in text for _, text in said.told)
    order = order_for(given, (2, 5))
    items = list(worker.compute(order))
    assert isinstance(items[-1], Finished)
    assert not any(isinstance(item, Finished | Failed) for item in items[:-1])
    assert {(row.sample_id, row.estimator) for row in rows(items)} == {(name, label) for name in order.ids for label in ("mc", "softmax")}
    assert [name for item in items if isinstance(item, Done) for name in item.step.finished] == list(order.ids)
    sent = order_for(given, (2, 5), sent=True)
    assert rows(list(worker.compute(sent))) == rows(items)
    assert worker.open() is said, "it is loaded once"


def test_files_that_were_sent(tmp_path: Path) -> None:
    """The worker needs neither the model's file nor the data's: both are gone when it begins."""
    shutil.copy(WEIGHTS, tmp_path / "w.safetensors")
    save_npz(tmp_path / "x.npz", count=8)
    document = {**SPEC, "model": {**SPEC["model"], "path": "w.safetensors"}, "dataset": {"kind": "npz", "path": "x.npz"}}
    given = plan(document, tmp_path)
    parts = open_audit(given, Listener())
    order = order_for(given, (1, 3), sent=True)
    here = Worker(given)
    weights = opened(here).facts.model["sha256"]
    expected = rows(list(here.compute(order)))
    spec, files, home = packed(given.spec, parts.noises)
    assert list(files) == ["w.safetensors"]
    sent = replace(given, spec=spec, files=files, home=home, dataset=first_sent(parts.samples, skip_bad=False))
    for name in ("w.safetensors", "x.npz"):
        (tmp_path / name).unlink()
    there = Worker(sent)
    assert opened(there).facts.model["sha256"] == weights
    assert rows(list(there.compute(order))) == expected


def failed(items: list[Item]) -> Exception:
    """The error that an order ended with."""
    assert isinstance(items[-1], Failed)
    assert items[-1].error is not None, items[-1].trace
    return items[-1].error


def test_other_data_are_refused() -> None:
    given = plan(SPEC)
    worker = Worker(given)
    opened(worker)
    order = order_for(given, (0, 1))
    for other in (replace(order, ids=("0", "elsewhere")), replace(order, places=(0, 10_000))):
        error = failed(list(worker.compute(other)))
        assert isinstance(error, DataError)
        assert str(error).endswith("holds other samples there; give all workers the same data")


def test_what_a_worker_lacks_names_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    gone = plan({**SPEC, "dataset": {"kind": "npz", "path": "gone.npz"}}, tmp_path)
    line = refusal(Worker(gone))
    assert line.startswith("node7: gone.npz: ")
    assert line.endswith(
        "(it can be read where the audit was started); put the data where all machines can read them, or send them: --ship"
    )
    unknown = plan({**SPEC, "estimators": ["of_a_plugin"]})
    assert refusal(Worker(unknown)).startswith("node7: ")


def test_a_bug_is_sent_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    given = plan(SPEC)
    worker = Worker(given)
    opened(worker)
    order = order_for(given, (0,))
    monkeypatch.setattr("robaudit.auditing.chunks.ImageBatch.of", lambda *_, **__: 1 / 0)
    last = list(worker.compute(order))[-1]
    assert isinstance(last, Failed)
    assert last.error is None
    assert last.trace.rstrip().endswith("ZeroDivisionError: division by zero")


def test_the_next_images_are_read_while_others_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    given, read = plan(SPEC), threading.Event()
    worker = Worker(given)
    opened(worker)
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
        orders = [order_for(given, (0, 1)), order_for(given, (2, 3))]
        items = [item for some in callers.map(lambda order: list(worker.compute(order)), orders) for item in some]
    assert waited
    assert all(waited)
    done = [name for item in items if isinstance(item, Done) for name in item.step.finished]
    assert done == [name for order in orders for name in order.ids]


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (SystemExit(4), "code of the model, the data set or a plugin: called sys.exit; let it return or raise"),
        (RuntimeError("cumsum_cuda does not have a deterministic implementation, but you set it."), "leave --deterministic out"),
    ],
)
def test_what_ends_a_local_audit_with_a_line_does_so_from_a_worker(
    raised: BaseException, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(MonteCarlo, "estimate", estimate)
    given = plan(SPEC)
    worker = Worker(given)
    opened(worker)
    *_, last = worker.compute(order_for(given, (0,)))
    assert isinstance(last, Failed)
    assert last.error is not None
    assert says in str(last.error)


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command line does."""
    called = list[bool]()
    monkeypatch.setattr(worker_module, "keep_freed_memory", lambda: called.append(True))
    opened(Worker(plan(SPEC)))
    assert called == [True]
