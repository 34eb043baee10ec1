"""A worker called directly: what it says when it is ready, what it computes, what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from robaudit import ImageBatch, Result
from robaudit.auditing.chunks import Chunk, Step, Worker
from robaudit.auditing.prepare import Request, open_audit
from robaudit.auditing.rounds import Work, rounds_of, work_of
from robaudit.auditing.worker import RayWorker, RestartedError
from robaudit.errors import DataError, RobauditError
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.progress import Listener
from tests.golden import Golden
from tests.specs import digits, save_npz
from tests.system.ray.teams import prepared, request

SPEC = digits(estimators=[{"mc": {"draws": 5}}, "softmax"])


def job(given: Request, *places: int) -> tuple[Chunk, tuple[str, ...]]:
    """Everything that some images need, and their ids."""
    opened = open_audit(given, Listener())
    (whole,) = rounds_of(opened.tasks)[-1:]
    missing = dict.fromkeys(range(len(opened.tasks)), 0)
    work = work_of(opened.tasks, missing, whole, turn=True, flag=None)
    return Chunk(work, places), tuple(map(opened.data.sample_id, places))


def computed(worker: RayWorker, given: Request, *places: int) -> list[Step]:
    return [step for step, _, _ in worker.compute(*job(given, *places))]


def refusal(given: Request) -> str:
    """The line with which a worker refuses to begin."""
    with pytest.raises(RobauditError) as raised:
        prepared(given)
    return str(raised.value)


def test_a_chunk_is_computed() -> None:
    given = request(SPEC)
    worker, report = prepared(given)
    assert (report.info.model.classes, len(report.seen)) == (10, 8)
    assert any("clean accuracy 100.0%" in text for _, text in report.told)
    steps = computed(worker, given, 2, 5)
    (_, ids) = job(given, 2, 5)
    assert {(row.sample_id, row.estimator) for step in steps for row in step.rows} == {
        (n, e) for n in ids for e in ("mc", "softmax")
    }
    assert [name for step in steps for name in step.finished] == list(ids)
    assert worker.prepare(given, "cpu") is report, "it is loaded once"


def test_a_chunk_goes_on_with_earlier_rows() -> None:
    given = request(SPEC)
    worker, _ = prepared(given)
    opened = open_audit(given, Listener())
    (mc, *_) = opened.tasks
    ids = tuple(map(opened.data.sample_id, (2, 5)))
    (first,) = [
        step.rows for step, *_ in worker.compute(Chunk((Work(mc, 0, 2),), (2, 5)), ids) if step.rows
    ]
    assert [row.votes.draws for row in first if row.votes] == [2, 2]
    rest = Chunk((Work(mc, 2, 5),), (2, 5), {row.key: row for row in first})
    (rows,) = [step.rows for step, *_ in worker.compute(rest, ids) if step.rows]
    (at_once,) = [
        step.rows for step, *_ in worker.compute(Chunk((Work(mc, 0, 5),), (2, 5)), ids) if step.rows
    ]
    assert rows == at_once


def test_one_that_was_started_again_says_so() -> None:
    with pytest.raises(RestartedError):
        next(RayWorker().compute(*job(request(SPEC), 0)))


def test_other_data_are_refused(tmp_path: Path, golden: Golden) -> None:
    save_npz(tmp_path / "x.npz", count=8)
    given = request({**SPEC, "dataset": {"kind": "npz", "path": "x.npz"}}, tmp_path)
    worker, _ = prepared(given)
    chunk, ids = job(given, 1, 3)
    for places, names in ((chunk.places, ("1", "4")), ((1, 99), ids)):
        with pytest.raises(DataError) as error:
            next(worker.compute(Chunk(chunk.work, places), names))
        golden(error.value)


def test_what_cannot_be_opened_names_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    line = refusal(request({**SPEC, "dataset": {"kind": "npz", "path": "x.npz"}}, tmp_path))
    golden(line)
    golden(refusal(request({**SPEC, "estimators": ["of_a_plugin"]})))
    line = refusal(
        request({**SPEC, "model": {**SPEC["model"], "path": "gone.safetensors"}}, tmp_path)
    )
    golden(line)


def test_the_next_images_are_read_while_others_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = request(SPEC)
    both = threading.Event()
    worker, _ = prepared(given)
    real = MonteCarlo.further
    read = Worker.read
    waited = list[bool]()
    reads = list[object]()

    def further(
        self: MonteCarlo, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        waited.append(both.wait(30))
        return real(self, batch, earlier, draws)

    def reading(self: Worker, places: Sequence[int]) -> Any:
        reads.append(found := list(read(self, places)))
        if len(reads) > 1:
            both.set()
        return found

    monkeypatch.setattr(MonteCarlo, "further", further)
    monkeypatch.setattr(Worker, "read", reading)
    with ThreadPoolExecutor(2) as callers:
        chunks = list(
            callers.map(lambda places: computed(worker, given, *places), [(0, 1), (2, 3)])
        )
    assert waited
    assert all(waited)
    assert [sum(len(step.finished) for step in steps) for steps in chunks] == [2, 2]


@pytest.mark.parametrize(
    "raised",
    [
        SystemExit(4),
        RuntimeError("cumsum_cuda does not have a deterministic implementation, but you set it."),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_what_ends_a_local_audit_with_a_line_does_so_from_a_worker(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def estimate(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(MonteCarlo, "further", estimate)
    given = request(SPEC)
    worker, _ = prepared(given)
    with pytest.raises(RobauditError) as error:
        computed(worker, given, 0)
    golden(error.value)
