"""Several workers on one audit: hand out jobs, and hand out a lost worker's jobs again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from robaudit.auditing.chunks import Chunk, Signs, Step, step_name
from robaudit.auditing.messages import Done, Failed, Finished, Item, Lost, Noted, Opened, Underway
from robaudit.auditing.shipping import Sent
from robaudit.auditing.worker import ChunkJob
from robaudit.datasets.base import Dataset
from robaudit.errors import ModelError, RobauditError, SpecError
from robaudit.estimators.registry import Task
from robaudit.store.info import RowBits, kind_of
from robaudit.text import clipped, count

_WAIT = 0.25  # seconds for something to come in; after it, the signs of life are passed on
_SOON = 2.0  # seconds; a worker whose last job took longer is given the next only when it has finished
_MOST_ATTEMPTS = 4  # at a job whose workers are lost


class Transport(Protocol):
    """Carries jobs to workers, which have numbers, and brings back what they send.

    A worker does its jobs in the order given, and their items come in that order.
    """

    def give(self, worker: int, job: ChunkJob) -> None:
        """Send a job."""
        ...

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        """What has arrived, and the sender's number; waits at most this long for something."""
        ...


@dataclass(slots=True)
class _InFlight:
    """A job that a worker has, or had when it was lost.

    Attributes:
        chunk: what to compute.
        attempts: how often it was sent.
        got: results received, by sample id and step.
        gone: samples that are complete or refused.
    """

    chunk: Chunk
    ids: tuple[str, ...]
    attempts: int = 0
    got: set[tuple[str, str]] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def new(self, step: Step) -> Step:
        """The part of a step that no earlier attempt delivered."""
        refused = [one for one in step.refused if one.sample_id not in self.gone]
        rows, key = [row for row in step.rows if (row.sample_id, step.key) not in self.got], step.key
        found = {row.sample_id for row in rows}
        finished = [name for name in step.finished if name not in self.gone]
        self.got |= {(name, key) for name in found}
        self.gone |= {*finished, *(one.sample_id for one in refused)}
        return replace(step, rows=rows, refused=refused, finished=finished)

    def rest(self) -> _InFlight | None:
        """The samples that are incomplete and the tasks that any of them lacks; None if nothing is left."""
        left = [number for number, name in enumerate(self.ids) if name not in self.gone]
        if not left:
            return None
        samples = [self.chunk.samples[number] for number in left] if self.chunk.samples else []
        ids = tuple(self.ids[number] for number in left)
        tasks = [task for task in self.chunk.tasks if any((name, step_name(task)) not in self.got for name in ids)]
        return replace(self, chunk=Chunk(tasks, [self.chunk.places[number] for number in left], samples), ids=ids)


@dataclass(slots=True)
class _Worker:
    """A worker.

    Attributes:
        name: what messages call it.
        images: size of its next chunk.
        seconds: time of its last job.
        jobs: its jobs in order; it computes the first.
        cost: share of the current step that is done.
    """

    name: str
    images: int
    ready: bool = True
    seconds: float = math.inf
    jobs: deque[_InFlight] = field(default_factory=deque)
    cost: float = 0.0


class Crew:
    """Several workers, each with the model, that share the chunks of an audit.

    Args:
        transport: carries jobs and results to and from the workers.
        opened: what each reported when it was ready.
        dataset: the samples.
        reading: whether the workers read the images themselves.

    Raises:
        ModelError: they do not have the same model.
        SpecError: they are not of one kind.
    """

    several = True

    def __init__(self, transport: Transport, opened: Sequence[Opened], dataset: Dataset, *, reading: bool) -> None:
        self._transport, self._dataset = transport, dataset
        self.facts = replace(opened[0].facts, rows=max((one.facts.rows for one in opened), key=lambda rows: rows.largest_difference))
        self._mixed = self.facts.rows.bits is RowBits.MIXED
        self.reading = reading and not self._mixed  # then a chunk must have as many usable images as here
        self._workers = [_Worker(f"worker {number} on {one.host}", one.images) for number, one in enumerate(opened)]
        for worker, one in zip(self._workers, opened, strict=True):
            self._check(worker.name, one)
        self._returned: deque[_InFlight] = deque()
        self._wanted = opened[0].images
        self._left = 0

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.facts.check.classes

    def next_images(self, tasks: Sequence[Task]) -> int:
        """The size of the next chunk: what its worker asked for, smaller towards the end."""
        del tasks
        if self._mixed:
            return self._wanted
        return max(1, min(self._wanted, -(-self._left // (2 * len(self._workers)))))

    def steps(self, chunks: Iterator[Chunk], images: int, signs: Signs) -> Generator[Step]:
        """Compute the chunks. When they end, or a stop is asked for, jobs in flight are finished."""
        more, self._left = True, images
        while True:
            stopping = signs.stop_asked()
            if stopping:
                self._returned.clear()
            more = self._hand_out(iter(()) if stopping or not more else chunks) and more and not stopping
            if not (more or self._returned or any(worker.jobs for worker in self._workers)):  # all may be lost while there is more
                return
            for number, item in self._transport.items(_WAIT):
                worker = self._workers[number]
                if (step := self._hear(worker, item, signs)) is not None:
                    yield step
                    if stopping:
                        worker.jobs.clear()
            signs.underway(sum(worker.cost for worker in self._workers))

    def _hand_out(self, chunks: Iterator[Chunk]) -> bool:
        """Send jobs to workers that are free or soon will be; return whether there may be more chunks."""
        for depth in (1, 2):  # no second job while any worker has none
            for number, worker in enumerate(self._workers):
                if not worker.ready or len(worker.jobs) >= (depth if worker.seconds < _SOON else 1):
                    continue
                self._wanted = worker.images
                flight = self._returned.popleft() if self._returned else self._taken(chunks)
                if flight is None:
                    return False
                flight.attempts += 1
                worker.jobs.append(flight)
                self._transport.give(number, self._job(flight))
        return True

    def _taken(self, chunks: Iterator[Chunk]) -> _InFlight | None:
        chunk = next(chunks, None)
        if chunk is None:
            return None
        self._left -= len(chunk.places)
        return _InFlight(chunk, tuple(self._dataset.sample_id(place) for place in chunk.places))

    def _job(self, flight: _InFlight) -> ChunkJob:
        samples = tuple(map(Sent.of, flight.chunk.samples))
        return ChunkJob(tuple(flight.chunk.tasks), tuple(flight.chunk.places), flight.ids, samples)

    def _hear(self, worker: _Worker, item: Item | Opened | Lost, signs: Signs) -> Step | None:
        """Handle an item from a worker.

        Raises:
            RobauditError: the audit cannot go on.
        """
        match item:
            case Done(step):
                worker.cost = 0.0
                return worker.jobs[0].new(step) if worker.jobs else None
            case Underway(doing, cost):
                worker.cost = cost
                signs.doing(doing)
            case Noted(text):
                signs.note(f"{worker.name}: {text}")
            case Finished(images, seconds):
                worker.images, worker.seconds, worker.cost = images, seconds, 0.0
                if worker.jobs:
                    worker.jobs.popleft()
            case Failed(error, trace):
                raise failure(worker.name, error, trace)
            case Opened():
                self._check(worker.name, item)
                worker.images, worker.ready = item.images, True
            case Lost(why, returns):
                self._lose(worker, why, signs, returns=returns)
        return None

    def _lose(self, worker: _Worker, why: str, signs: Signs, *, returns: bool) -> None:
        """Take back the jobs of a lost worker."""
        if not returns:
            raise RobauditError(worker.name, why, "finished work is on disk: run the same command again to continue")
        first = next(iter(worker.jobs), None)
        if first is not None and first.attempts >= _MOST_ATTEMPTS:
            what = f"was lost {count(first.attempts, 'time')} at sample {clipped(first.ids[0], 80)!r} ({why})"
            raise RobauditError(worker.name, what, "look for lack of memory in the logs of Ray, or give each worker more: --memory")
        signs.note(f"{worker.name}: {why}; its work goes to others until it is back")
        for waiting in list(worker.jobs)[1:]:
            waiting.attempts -= 1  # it was not begun
        self._returned.extend(rest for flight in worker.jobs if (rest := flight.rest()) is not None)
        worker.jobs.clear()
        worker.ready, worker.cost = False, 0.0

    def _check(self, name: str, opened: Opened) -> None:
        """Refuse a worker whose results would differ from the others'.

        Raises:
            ModelError: it has another model.
            SpecError: it is of another kind.
        """
        facts = opened.facts
        here, first = facts.model["sha256"], self.facts.model["sha256"]
        if here != first:
            what = f"has other weights there (sha256 {here[:12]}, and {first[:12]} on the first worker)"
            raise ModelError(f"{opened.host}: {facts.model['name']}", what, "put the same file on all machines, or send it: --ship")
        if kind_of(facts.device) != kind_of(self.facts.device):
            what = f"is {facts.device}, and the first worker {self.facts.device}: they draw other noise"
            raise SpecError(name, what, "use devices of one kind")
        for package in ("robaudit", "torch"):
            if facts.versions.get(package) != self.facts.versions.get(package):
                what = f"has {package} {facts.versions.get(package)}, and the first worker {self.facts.versions.get(package)}"
                raise SpecError(name, what, "install the same version everywhere")


def failure(name: str, error: RobauditError | None, trace: str) -> Exception:
    """The exception for a failure that a worker reports: its own error, or RuntimeError for a bug."""
    return error if error is not None else RuntimeError(f"{name}:\n{trace}")
