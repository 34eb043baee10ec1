"""A worker called directly: what it says when it is ready, what it computes, what it refuses; with model and images sent to it or not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from robaudit.auditing.messages import Done, Failed, Finished, Item
from robaudit.auditing.prepare import open_audit
from robaudit.auditing.shipping import Sent, first_sent, packed
from robaudit.auditing.worker import ChunkJob, Worker, WorkerPlan
from robaudit.errors import DataError
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
    monkeypatch.setattr("robaudit.auditing.chunks.CleanPass.of", lambda *_, **__: 1 / 0)
    last = list(worker.compute(order))[-1]
    assert isinstance(last, Failed)
    assert last.error is None
    assert last.trace.rstrip().endswith("ZeroDivisionError: division by zero")
