"""Several workers on one audit, without processes: whatever is lost and when, nothing is missing
and nothing is there twice."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robaudit.auditing import main_loop
from robaudit.auditing.chunks import Chunk, Clean, Step, step_name
from robaudit.auditing.environment import image_digest
from robaudit.auditing.main_loop import compute_missing, task_names
from robaudit.auditing.prepare import open_audit
from robaudit.auditing.ray_cluster import RayWorkers
from robaudit.auditing.worker import RayWorker, Report, RestartedError
from robaudit.datasets.dataset import Labels, Sample
from robaudit.engine.registry import Task
from robaudit.errors import ModelError, RobauditError, SampleError, SpecError
from robaudit.progress import Listener
from robaudit.runs.rows import Row
from robaudit.runs.state import Flush, State
from tests.golden import Golden
from tests.radius_rows import row
from tests.specs import digits
from tests.system.ray.teams import Actor, FakeRay, prepared, request

SPEC = digits(limit=7, estimators=[{"mc": {"draws": 5}}, "softmax"], noise={"sigma": [0.1, 0.4]})
OPENED = open_audit(request(SPEC), Listener())
Answer = tuple[Step, int, list[str]]


class Heard(Listener):
    """Remembers notes, what is finished and how far the work is; asks to stop from a moment on."""

    def __init__(self) -> None:
        self.told = list[str]()
        self.stop = False
        self.finished = 0
        self.shares = [0.0]

    def note(self, text: str) -> None:
        self.told.append(text)

    def stop_asked(self) -> bool:
        return self.stop

    def advance(self, samples: int) -> None:
        self.finished += samples

    def working(self, share: float) -> None:
        self.shares.append(share)


class Recorded(State):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.rows_written = list[object]()
        self.skips_written = list[str]()

    def write(self, new: Flush) -> None:
        self.rows_written += [one.key for one in new.rows]
        self.skips_written += [skip.sample_id for skip in new.skipped]
        super().write(new)


@pytest.fixture(scope="module")
def ready() -> tuple[RayWorker, Report]:
    worker, report = prepared(request(SPEC))
    return worker, replace(report, images=2)


def at_once(worker: RayWorker) -> Callable[..., Iterator[Answer]]:
    """Its work on a chunk, all of it when the first answer is asked for: here nobody computes
    beside it."""
    return lambda *args: iter(list(worker.compute(*args)))


def crew_of(
    ray: FakeRay, actors: Sequence[Actor], reports: Sequence[Report], data: Any = OPENED.data
) -> RayWorkers:
    return RayWorkers(ray, [(actor, "cpu") for actor in actors], None, reports, data)


def carried_out(
    ray: FakeRay, actors: Sequence[Actor], report: Report, heard: Heard | None = None
) -> list[Row]:
    """The rows of an audit by these actors, each written once."""
    state = Recorded()
    with state:
        state.begin(OPENED.data, task_names(OPENED.tasks))
        crew = crew_of(ray, actors, [report] * len(actors))
        try:
            compute_missing(state, OPENED.data, OPENED.tasks, crew, heard or Heard())
        finally:
            assert len(set(state.rows_written)) == len(state.rows_written), (
                "a row was written twice"
            )
        return [row for sample in state.results() for row in sample.rows]


def actors_of(
    ready: tuple[RayWorker, Report],
    number: int,
    compute: Callable[..., Iterator[Answer]] | None = None,
) -> list[Actor]:
    worker, report = ready
    return [Actor(compute or at_once(worker), lambda: report) for _ in range(number)]


@settings(max_examples=15, deadline=None)
@given(members=st.integers(1, 3), lost_at=st.lists(st.integers(0, 40), max_size=3))
def test_lost_workers(ready: tuple[RayWorker, Report], members: int, lost_at: list[int]) -> None:
    alone = carried_out(FakeRay(), actors_of(ready, 1), ready[1])
    heard = Heard()
    assert carried_out(FakeRay(lost_at), actors_of(ready, members), ready[1], heard) == alone
    note = r"worker \d on \S+: lost \(ActorDiedError\); its work goes to others until it is back"
    assert all(re.fullmatch(note, text) for text in heard.told)
    assert len(heard.told) <= len(lost_at)


def test_a_worker_that_was_restarted_without_work_is_prepared_again(
    ready: tuple[RayWorker, Report],
) -> None:
    fresh = deque([True])
    heard = Heard()

    def compute(*args: Any) -> Iterator[Answer]:
        if fresh:
            fresh.pop()
            raise RestartedError
        yield from at_once(ready[0])(*args)

    assert len(carried_out(FakeRay(), actors_of(ready, 2, compute), ready[1], heard)) == 7 * 4
    assert re.fullmatch(r"worker \d on \S+: lost \(while it had no work\); .*", heard.told[0])


def test_a_sample_that_kills_workers_ends_the_audit(
    ready: tuple[RayWorker, Report], golden: Golden
) -> None:
    deadly = list(ready[1].seen)[5]
    actors = list[Actor]()

    def compute(chunk: Chunk, ids: Sequence[str]) -> Iterator[Answer]:
        if deadly in ids:
            for actor in actors:
                if actor.given and deadly in actor.given[-1][1]:
                    actor.lose()
        yield from at_once(ready[0])(chunk, ids)

    actors += actors_of(ready, 2, compute)
    with pytest.raises(RobauditError) as error:
        carried_out(FakeRay(), actors, ready[1])
    golden(error.value)
    assert sum(deadly in ids for actor in actors for _, ids in actor.given) == 4


def test_a_stop_lets_present_steps_finish(ready: tuple[RayWorker, Report]) -> None:
    heard = Heard()

    def compute(*args: Any) -> Iterator[Answer]:
        for answer in at_once(ready[0])(*args):
            heard.stop = heard.stop or answer[0].work is not None
            yield answer

    with State() as state:
        state.begin(OPENED.data, task_names(OPENED.tasks))
        crew = crew_of(FakeRay(), actors_of(ready, 2, compute), [ready[1]] * 2)
        with pytest.raises(KeyboardInterrupt):
            compute_missing(state, OPENED.data, OPENED.tasks, crew, heard)
        rows = [row for sample in state.results() for row in sample.rows]
        assert 0 < len(rows) <= 2 * 2 * 2, (
            "a step of each worker at most, after the one during which the stop was asked for"
        )
        again = crew_of(FakeRay(), actors_of(ready, 2), [ready[1]] * 2)
        state.begin(OPENED.data, task_names(OPENED.tasks))
        compute_missing(state, OPENED.data, OPENED.tasks, again, Heard())
        alone = carried_out(FakeRay(), actors_of(ready, 1), ready[1])
        assert [row for sample in state.results() for row in sample.rows] == alone


def elsewhere(report: Report, **changes: Any) -> Report:
    return replace(report, host="elsewhere", info=report.info.model_copy(update=changes))


def other_weights(report: Report) -> Report:
    return elsewhere(report, model=report.info.model.model_copy(update={"sha256": "0" * 64}))


def other_device(report: Report) -> Report:
    return elsewhere(report, device="cuda:0 (A)")


def other_torch(report: Report) -> Report:
    return elsewhere(report, versions={**report.info.versions, "torch": "1"})


@pytest.mark.parametrize(
    ("change", "kind"),
    [(other_weights, ModelError), (other_device, SpecError), (other_torch, SpecError)],
    ids=["weights", "device", "torch"],
)
def test_workers_must_be_alike(
    change: Callable[[Report], Report],
    kind: type[RobauditError],
    ready: tuple[RayWorker, Report],
    golden: Golden,
) -> None:
    worker, report = ready
    other = change(report)
    with pytest.raises(kind) as error:
        crew_of(FakeRay(), actors_of(ready, 2), [report, other])
    golden(error.value)
    with pytest.raises(kind) as error:  # also after a loss
        carried_out(FakeRay([2]), [Actor(at_once(worker), lambda: other) for _ in range(2)], report)
    golden(error.value)


def test_the_number_of_threads_may_differ(ready: tuple[RayWorker, Report]) -> None:
    report = ready[1]
    other = elsewhere(report, device=re.sub(r"\d+ thread.*\)", "77 threads)", report.info.device))
    crew_of(FakeRay(), actors_of(ready, 2), [report, other])


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (SpecError("here", "is wrong", "do better"), SpecError, r"^here: is wrong; do better$"),
        (ZeroDivisionError("a bug"), RuntimeError, r"worker 0 on \S+:\n.*a bug"),
    ],
)
def test_a_worker_that_fails_ends_the_audit(
    error: Exception, raised: type[Exception], words: str, ready: tuple[RayWorker, Report]
) -> None:
    def compute(*_: Any) -> Iterator[Answer]:
        raise error
        yield

    with pytest.raises(raised, match=words):
        carried_out(FakeRay(), actors_of(ready, 1, compute), ready[1])


# --- workers that only pretend to compute

TASKS = open_audit(
    request(
        digits(
            noise={"sigma": [0.1, 0.4]},
            estimators=["softmax", {"mc": {"draws": 5}}, "certified_radius"],
        )
    ),
    Listener(),
).tasks


@dataclass(frozen=True)
class Numbers:
    """A data set of so many samples."""

    size: int
    where: str = "numbers"
    class_names: None = None

    def __len__(self) -> int:
        return self.size

    def sample_id(self, index: int) -> str:
        return f"s{index}"

    def labels(self) -> Labels:
        return np.zeros(self.size, dtype=np.int64)

    def __getitem__(self, index: int) -> Sample:
        return Sample(f"s{index}", torch.full((1, 1, 1), index / 255, dtype=torch.float64), 0)


def result(place: int, task: Task, number: int) -> Row:
    """One result of a sample and a task."""
    at, name = task.names[number]
    return row(f"s{place}", place + 100.0 * TASKS.index(task) + 0.25 * number, at, estimator=name)


@dataclass
class Pretender:
    """Workers that may do any work in any order: halved where memory runs out, with what cannot be
    used refused.

    Attributes:
        bad: the step that refuses a sample, by its place: "read", the clean pass (None) or a task.
        failure: after so many answers the worker says that it cannot go on.
        heard: is asked to stop after so many answers.
    """

    bad: Mapping[int, object]
    random: Random
    heard: Heard
    failure: int | None
    stop: int | None
    sent: int = 0
    known: set[tuple[str, Task]] = field(default_factory=set)

    def compute(self, chunk: Chunk, ids: Sequence[str]) -> Iterator[Answer]:
        for part in chunk.work:
            assert any((name, part.task) not in self.known for name in ids), (
                "all of this has come already"
            )
        for step in self.steps(chunk):
            self.sent += 1
            self.heard.stop = self.sent == self.stop or self.heard.stop
            if self.sent == self.failure:
                raise RobauditError("worker", "cannot go on")
            yield step, self.random.choice([1, 2, 3, 50]), []

    def refused(self, places: Sequence[int], step: object) -> dict[str, SampleError]:
        return {
            f"s{place}": SampleError(f"s{place}", "is bad")
            for place in places
            if self.bad.get(place, "never") == step
        }

    def steps(self, chunk: Chunk) -> Iterator[Step]:
        places = list(chunk.places)
        if refused := self.refused(places, "read"):
            yield Step(None, 0.0, 0, refused=refused)
            places = [place for place in places if f"s{place}" not in refused]
        waiting = deque([(places, list(chunk.work))] if places else [])
        while waiting:
            here, work = waiting.popleft()
            if len(here) > 1 and self.random.random() < 0.2:
                waiting.extendleft([(here[1:], list(work)), (here[:1], list(work))])
                continue
            refused = self.refused(here, None)
            here = [place for place in here if f"s{place}" not in refused]
            clean = [
                Clean(f"s{place}", 0, 0, image_digest(Numbers(place + 1)[place])) for place in here
            ]
            yield Step(None, 0.0, len(clean), clean=clean, refused=refused)
            while here and work:
                if (
                    self.random.random() < 0.1
                ):  # out of memory: the clean pass again, and what is left of the work
                    waiting.appendleft((here, work))
                    break
                part = work.pop(0)
                task = part.task
                refused = self.refused(here, TASKS.index(task))
                here = [place for place in here if f"s{place}" not in refused]
                rows = [
                    result(place, task, number)
                    for place in here
                    for number in range(len(task.names))
                ]
                yield Step(
                    part,
                    0.0,
                    len(here),
                    rows,
                    refused=refused,
                    finished=[] if work else [f"s{place}" for place in here],
                )


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 25),
    bad=st.dictionaries(
        st.integers(0, 24), st.sampled_from(["read", None, 0, 2, len(TASKS) - 1]), max_size=3
    ),
    members=st.integers(1, 4),
    images=st.integers(1, 9),
    often=st.booleans(),
    begun=st.integers(1, len(TASKS)),
    ends=st.lists(st.tuples(st.sampled_from(["stop", "failure"]), st.integers(1, 60)), max_size=3),
    losses=st.lists(st.integers(0, 60), max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
@example(
    size=4, bad={}, members=1, images=1, often=True, begun=1, ends=[], losses=[3], seed=1
)  # the only one is lost between two chunks
def test_any_schedule_gives_each_result_once(
    ready: tuple[RayWorker, Report],
    size: int,
    bad: dict[int, object],
    members: int,
    images: int,
    often: bool,
    begun: int,
    ends: list[tuple[str, int]],
    losses: list[int],
    seed: int,
) -> None:
    samples = Numbers(size)
    random = Random(seed)
    state = Recorded()
    report = replace(ready[1], images=images)
    with state, pytest.MonkeyPatch.context() as patch:
        patch.setattr(main_loop, "_FLUSH_SECONDS", 0.0 if often else 1000.0)
        for tasks in (TASKS[:begun], TASKS):  # a run, and its extension
            for what, after in [*ends, ("end", 0)]:
                state.begin(samples, task_names(tasks))
                heard = Heard()
                left = len(state.unfinished)
                stop = after if what == "stop" else None
                failure = after if what == "failure" else None
                pretender = Pretender(bad, random, heard, failure, stop)
                actors = [Actor(pretender.compute, lambda: report) for _ in range(members)]
                crew = crew_of(FakeRay(losses, random), actors, [report] * members, samples)
                try:
                    compute_missing(state, samples, tasks, crew, heard, on_error=1.0)
                except (KeyboardInterrupt, RobauditError):
                    assert what != "end"
                state.begin(samples, task_names(tasks))
                assert heard.finished == left - len(state.unfinished)
                assert max(heard.shares) <= 1
            assert not len(state.unfinished)
            refused = {
                f"s{place}"
                for place, at in bad.items()
                if place < size and (not isinstance(at, int) or at < len(tasks))
            }
            expected = [
                result(place, task, number)
                for place in range(size)
                if f"s{place}" not in refused
                for task in tasks
                for number in range(len(task.names))
            ]
            assert [one for sample in state.results() for one in sample.rows] == expected
            assert all(sample.digest for sample in state.results())
            assert {skip.sample_id for skip in state.skips()} == refused
        assert len(set(state.rows_written)) == len(state.rows_written)
        assert len(set(state.skips_written)) == len(state.skips_written)
        assert set(state.seconds()) <= {"clean", *map(step_name, TASKS)}
