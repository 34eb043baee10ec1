"""Workers that only pretend to compute, in any order, with any losses and ends: each result is written once, and none is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robaudit.auditing import loop
from robaudit.auditing.chunks import Clean, Refused, Step, step_name
from robaudit.auditing.crew import Crew
from robaudit.auditing.environment import image_digest
from robaudit.auditing.loop import compute_missing, task_names
from robaudit.auditing.messages import Done, Failed, Finished, Item, Lost, Noted, Opened, Underway
from robaudit.auditing.prepare import open_audit
from robaudit.auditing.worker import ChunkJob, Worker
from robaudit.datasets.base import Labels, Sample
from robaudit.errors import RobauditError, SampleError
from robaudit.estimators.registry import Task
from robaudit.progress import Listener
from robaudit.rows import Row
from robaudit.store.state import Flush, State
from tests.radius_rows import row
from tests.ray.teams import opened, plan
from tests.specs import digits

SPEC = digits(noise={"sigma": [0.1, 0.4]}, estimators=["softmax", {"mc": {"samples": 5}}, "certified_radius"])
TASKS = open_audit(plan(SPEC), Listener()).tasks


@pytest.fixture(scope="module")
def said() -> Opened:
    """What a worker says when it is ready."""
    return opened(Worker(plan(SPEC)))


@dataclass(frozen=True)
class Numbers:
    """A data set of so many samples, some unreadable."""

    size: int
    unreadable: frozenset[int] = frozenset()
    where: str = "numbers"
    class_names: None = None

    def __len__(self) -> int:
        return self.size

    def sample_id(self, index: int) -> str:
        return f"s{index}"

    def labels(self) -> Labels:
        return np.zeros(self.size, dtype=np.int64)

    def __getitem__(self, index: int) -> Sample:
        if index in self.unreadable:
            raise SampleError(f"s{index}", "cannot be read")
        return Sample(f"s{index}", torch.full((1, 1, 1), index / 255, dtype=torch.float64), 0)


@dataclass(frozen=True)
class Bad:
    """Samples that a step refuses, by the place of its task: None is the clean pass."""

    samples: Numbers
    at: dict[int, int | None]

    def refused(self, place: int, task: Task | None) -> list[Refused]:
        """The refusal of a sample by a step, if there is one."""
        if place not in self.at or self.at[place] != (None if task is None else TASKS.index(task)):
            return []
        return [Refused(f"s{place}", task, SampleError(f"s{place}", "is bad"))]


def result(place: int, task: Task, number: int) -> Row:
    """One result of a sample and a task."""
    at, name = task.names[number]
    return row(f"s{place}", place + 100.0 * TASKS.index(task) + 0.25 * number, at, estimator=name)


def items_of(order: ChunkJob, bad: Bad, random: Random) -> Iterator[Item]:
    """What a worker may send about an order: halved where memory runs out, with what cannot be used refused."""
    places = list(order.places)
    if not order.samples and (gone := [place for place in places if place in bad.samples.unreadable]):
        errors = [Refused(f"s{place}", None, SampleError(f"s{place}", "cannot be read")) for place in gone]
        yield Done(Step(None, 0.0, 0, refused=errors))
        places = [place for place in places if place not in gone]
    waiting = deque([(places, list(order.tasks))] if places else [])
    while waiting:
        here, tasks = waiting.popleft()
        if len(here) > 1 and random.random() < 0.2:
            yield Noted("out of memory")
            waiting.extendleft([(here[1:], list(tasks)), (here[:1], list(tasks))])
            continue
        refused = [one for place in here for one in bad.refused(place, None)]
        here = [place for place in here if not bad.refused(place, None)]
        clean = [Clean(f"s{place}", 0, 0, image_digest(Numbers(place + 1)[place])) for place in here]
        yield Done(Step(None, 0.0, len(clean), clean=clean, refused=refused))
        while here and tasks:
            if random.random() < 0.3:
                yield Underway(tasks[0].text, 1.0)
            if random.random() < 0.1:  # out of memory: the clean pass again, and what is left of the tasks
                waiting.appendleft((here, tasks))
                break
            task = tasks.pop(0)
            refused = [one for place in here for one in bad.refused(place, task)]
            here = [place for place in here if not bad.refused(place, task)]
            rows = [result(place, task, number) for place in here for number in range(len(task.names))]
            yield Done(Step(task, 0.0, len(here), rows, refused=refused, finished=[] if tasks else [f"s{place}" for place in here]))
    yield Finished(random.choice([1, 2, 3, 50]), random.choice([0.0, 9.0]))


@dataclass
class Pretenders:
    """A team of workers of which any may be heard at any time, or be lost and come back later.

    Attributes:
        losses: how many there may still be.
        failure: after so many items a worker says that it cannot go on.
        heard: is asked to stop after so many items.
    """

    said: Opened
    members: int
    bad: Bad
    random: Random
    heard: Heard
    losses: int
    failure: int | None
    stop: int | None
    sent: int = 0
    orders: list[deque[Iterator[Item]]] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    known: set[tuple[str, Task]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.orders = [deque() for _ in range(self.members)]

    def give(self, worker: int, order: ChunkJob) -> None:
        assert worker not in self.away
        assert len(self.orders[worker]) < 2
        for task in order.tasks:
            assert any((name, task) not in self.known for name in order.ids), "all of this has come already"
        self.orders[worker].append(items_of(order, self.bad, self.random))

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        assert self.away or any(self.orders), "nothing can come in: the audit would wait for ever"
        for number in self.random.sample(range(self.members), self.members):
            if self.random.random() < 0.3:
                continue
            if number in self.away:
                self.away.remove(number)
                yield number, replace(self.said, images=self.random.choice([1, 4]))
            elif self.orders[number]:
                yield number, self.next_of(number)

    def next_of(self, number: int) -> Item | Lost:
        self.sent += 1
        self.heard.stop = self.sent == self.stop or self.heard.stop
        if self.sent == self.failure:
            return Failed(RobauditError("worker", "cannot go on"))
        if self.losses and self.random.random() < 0.15:
            self.losses -= 1
            self.orders[number].clear()
            self.away.add(number)
            return Lost("lost", returns=True)
        while (item := next(self.orders[number][0], None)) is None:
            self.orders[number].popleft()
        if isinstance(item, Finished):
            self.orders[number].popleft()
        if isinstance(item, Done) and item.step.task is not None:
            self.known |= {(one.sample_id, item.step.task) for one in item.step.rows}
        return item


@dataclass
class Heard(Listener):
    """Counts what is finished."""

    stop: bool = False
    finished: int = 0
    shares: list[float] = field(default_factory=lambda: [0.0])

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
        self.rows_written, self.skips_written = list[object](), list[str]()

    def write(self, new: Flush) -> None:
        self.rows_written += [one.key for one in new.rows]
        self.skips_written += [skip.sample_id for skip in new.skipped]
        super().write(new)


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 25),
    bad=st.dictionaries(st.integers(0, 24), st.sampled_from(["read", None, 0, 2, len(TASKS) - 1]), max_size=3),
    members=st.integers(1, 4),
    images=st.integers(1, 9),
    reading=st.booleans(),
    often=st.booleans(),
    begun=st.integers(1, len(TASKS)),
    ends=st.lists(st.tuples(st.sampled_from(["stop", "failure"]), st.integers(1, 60)), max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
@example(size=4, bad={}, members=1, images=1, reading=True, often=True, begun=1, ends=[], seed=1)  # the only one is lost between two chunks
def test_any_schedule_gives_each_result_once(
    said: Opened,
    size: int,
    bad: dict[int, object],
    members: int,
    images: int,
    reading: bool,
    often: bool,
    begun: int,
    ends: list[tuple[str, int]],
    seed: int,
) -> None:
    samples = Numbers(size, frozenset(place for place, why in bad.items() if why == "read" and place < size))
    wrong = Bad(samples, {place: why for place, why in bad.items() if why is None or isinstance(why, int)})
    random = Random(seed)
    state = Recorded()
    with state, pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_DUE", 0.0 if often else 1000.0)
        for tasks in (TASKS[:begun], TASKS):  # a run, and its extension
            for what, after in [*ends, ("end", 0)]:
                state.begin(samples, task_names(tasks))
                heard, left = Heard(), len(state.unfinished)
                first = replace(said, images=images)
                stop, failure = after if what == "stop" else None, after if what == "failure" else None
                team = Pretenders(first, members, wrong, random, heard, 3, failure, stop)
                crew = Crew(team, [first] * members, samples, reading=reading)
                try:
                    compute_missing(state, samples, tasks, crew, heard, on_error="skip")
                except (KeyboardInterrupt, RobauditError):
                    assert what != "end"
                state.begin(samples, task_names(tasks))
                assert heard.finished == left - len(state.unfinished)
                assert max(heard.shares) <= 1
            assert not len(state.unfinished)
            refused = {f"s{place}" for place in samples.unreadable}
            refused |= {f"s{place}" for place, at in wrong.at.items() if place < size and (at is None or at < len(tasks))}
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
