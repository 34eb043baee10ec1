"""Several workers on one audit: who computes what, and what becomes of it when a worker is lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from robaudit.auditing.chunks import Chunk, Signs, Step, step_name
from robaudit.auditing.messages import Done, Failed, Finished, Item, Lost, Noted, Opened, Underway
from robaudit.auditing.shipping import Sent
from robaudit.auditing.worker import Order, other_weights
from robaudit.datasets.base import Dataset
from robaudit.errors import RobauditError, SpecError
from robaudit.estimators.registry import Task
from robaudit.store.info import RowBits, kind_of
from robaudit.text import clipped, count

_WAIT = 0.25  # seconds for something to come in; after it, the signs of life are passed on
_SOON = 2.0  # seconds; a worker whose last order took longer is given the next only when it has finished
_MOST_ATTEMPTS = 4  # at an order whose workers are lost


class Team(Protocol):
    """The workers as their transport sees them, by number.

    Orders given to one worker are carried out in this order; their items come in this order.
    """

    def names(self) -> Sequence[str]:
        """What messages call them."""
        ...

    def give(self, worker: int, order: Order) -> None:
        """Send an order."""
        ...

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        """What has come in, and from whom; waits so many seconds at most if there is nothing."""
        ...


@dataclass(slots=True)
class _Given:
    """An order under way.

    Attributes:
        chunk: what is to be computed.
        attempts: how often it has been given.
        got: the results that have come, by sample id and step.
        gone: samples that lack nothing, or have been refused.
    """

    chunk: Chunk
    ids: tuple[str, ...]
    attempts: int = 0
    got: set[tuple[str, str]] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def new(self, step: Step) -> Step:
        """What a step brings that an earlier attempt had not."""
        refused = [one for one in step.refused if one.sample_id not in self.gone]
        rows, key = [row for row in step.rows if (row.sample_id, step.key) not in self.got], step.key
        found = {row.sample_id for row in rows}
        finished = [name for name in step.finished if name not in self.gone]
        self.got |= {(name, key) for name in found}
        self.gone |= {*finished, *(one.sample_id for one in refused)}
        return replace(step, rows=rows, refused=refused, finished=finished)

    def rest(self) -> _Given | None:
        """The same without the samples that lack nothing, and without the tasks that none of the others lacks; None if nothing is left."""
        left = [number for number, name in enumerate(self.ids) if name not in self.gone]
        if not left:
            return None
        samples = [self.chunk.samples[number] for number in left] if self.chunk.samples else []
        ids = tuple(self.ids[number] for number in left)
        tasks = [task for task in self.chunk.tasks if any((name, step_name(task)) not in self.got for name in ids)]
        return replace(self, chunk=Chunk(tasks, [self.chunk.places[number] for number in left], samples), ids=ids)


@dataclass(slots=True)
class _Member:
    """A worker.

    Attributes:
        opened: what it said when it was ready; None while it is not.
        images: how many images its next chunk should have.
        seconds: that its last order took.
        given: its orders, the one that is computed first.
        cost: how much of the present step is done.
    """

    name: str
    opened: Opened
    images: int
    ready: bool = True
    seconds: float = math.inf
    given: deque[_Given] = field(default_factory=deque)
    cost: float = 0.0


class Crew:
    """Several workers, each with the model, that share the chunks of an audit.

    Args:
        team: the workers.
        opened: what each said when it was ready.
        dataset: the samples.
        reading: whether the workers read the images themselves.

    Raises:
        ModelError: they do not have the same model.
        SpecError: they are not of one kind.
    """

    several = True

    def __init__(self, team: Team, opened: Sequence[Opened], dataset: Dataset, *, reading: bool) -> None:
        self._team, self._dataset = team, dataset
        self.facts = replace(opened[0].facts, rows=max((one.facts.rows for one in opened), key=lambda rows: rows.largest_difference))
        self._mixed = self.facts.rows.bits is RowBits.MIXED
        self.reading = reading and not self._mixed  # then a chunk must have as many usable images as here
        for name, one in zip(team.names(), opened, strict=True):
            self._check(name, one)
        self._members = [_Member(name, one, one.images) for name, one in zip(team.names(), opened, strict=True)]
        self._returned: deque[_Given] = deque()
        self._wanted = opened[0].images
        self._left = 0

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.facts.check.classes

    def next_images(self, tasks: Sequence[Task]) -> int:
        """How many images the next chunk should have: as the worker that it is for wants, fewer towards the end."""
        del tasks
        if self._mixed:
            return self._wanted
        return max(1, min(self._wanted, -(-self._left // (2 * len(self._members)))))

    def steps(self, chunks: Iterator[Chunk], images: int, signs: Signs) -> Generator[Step]:
        """Compute the chunks; when they end, or the signs say so, those under way are finished."""
        more, self._left = True, images
        while True:
            stopping = signs.stop_asked()
            if stopping:
                self._returned.clear()
            more = self._hand_out(iter(()) if stopping or not more else chunks) and more and not stopping
            if not (more or self._returned or any(member.given for member in self._members)):  # all may be lost while there is more
                return
            for number, item in self._team.items(_WAIT):
                member = self._members[number]
                if (step := self._hear(member, item, signs)) is not None:
                    yield step
                    if stopping:
                        member.given.clear()
            signs.underway(sum(member.cost for member in self._members))

    def _hand_out(self, chunks: Iterator[Chunk]) -> bool:
        """Give work to whoever is free, or soon will be; return whether there may be more."""
        for depth in (1, 2):  # nobody has a second order while somebody has none
            for number, member in enumerate(self._members):
                if not member.ready or len(member.given) >= (depth if member.seconds < _SOON else 1):
                    continue
                self._wanted = member.images
                given = self._returned.popleft() if self._returned else self._taken(chunks)
                if given is None:
                    return False
                given.attempts += 1
                member.given.append(given)
                self._team.give(number, self._order(given))
        return True

    def _taken(self, chunks: Iterator[Chunk]) -> _Given | None:
        chunk = next(chunks, None)
        if chunk is None:
            return None
        self._left -= len(chunk.places)
        return _Given(chunk, tuple(self._dataset.sample_id(place) for place in chunk.places))

    def _order(self, given: _Given) -> Order:
        samples = tuple(map(Sent.of, given.chunk.samples))
        return Order(tuple(given.chunk.tasks), tuple(given.chunk.places), given.ids, samples, self.facts.model["sha256"])

    def _hear(self, member: _Member, item: Item | Opened | Lost, signs: Signs) -> Step | None:
        """Take what came from a worker.

        Raises:
            RobauditError: the audit cannot go on.
        """
        match item:
            case Done(step):
                member.cost = 0.0
                return member.given[0].new(step) if member.given else None
            case Underway(doing, cost):
                member.cost = cost
                signs.doing(doing)
            case Noted(text):
                signs.note(f"{member.name}: {text}")
            case Finished(images, seconds):
                member.images, member.seconds, member.cost = images, seconds, 0.0
                if member.given:
                    member.given.popleft()
            case Failed(error, trace):
                raise failure(member.name, error, trace)
            case Opened():
                self._check(member.name, item)
                member.opened, member.images, member.ready = item, item.images, True
            case Lost(why, returns):
                self._lose(member, why, signs, returns=returns)
        return None

    def _lose(self, member: _Member, why: str, signs: Signs, *, returns: bool) -> None:
        """Take back the orders of a worker that is gone."""
        if not returns:
            raise RobauditError(member.name, why, "finished work is on disk: run the same command again to continue")
        first = next(iter(member.given), None)
        if first is not None and first.attempts >= _MOST_ATTEMPTS:
            what = f"was lost {count(first.attempts, 'time')} at sample {clipped(first.ids[0], 80)!r} ({why})"
            raise RobauditError(member.name, what, "look for lack of memory in the logs of Ray, or give each worker more: --memory")
        signs.note(f"{member.name}: {why}; its work goes to others until it is back")
        for waiting in list(member.given)[1:]:
            waiting.attempts -= 1  # it was not begun
        self._returned.extend(rest for given in member.given if (rest := given.rest()) is not None)
        member.given.clear()
        member.ready, member.cost = False, 0.0

    def _check(self, name: str, opened: Opened) -> None:
        """Refuse a worker that would not give the results of the others.

        Raises:
            ModelError: it has another model.
            SpecError: it is of another kind.
        """
        facts = opened.facts
        if facts.model["sha256"] != self.facts.model["sha256"]:
            raise other_weights(opened, self.facts.model["sha256"])
        if kind_of(facts.device) != kind_of(self.facts.device):
            what = f"is {facts.device}, and the first worker {self.facts.device}: they draw other noise"
            raise SpecError(name, what, "use devices of one kind")
        for package in ("robaudit", "torch"):
            if facts.versions.get(package) != self.facts.versions.get(package):
                what = f"has {package} {facts.versions.get(package)}, and the first worker {self.facts.versions.get(package)}"
                raise SpecError(name, what, "install the same version everywhere")


def failure(name: str, error: RobauditError | None, trace: str) -> Exception:
    """The exception to raise for what a worker says; a bug of the worker is one here, too."""
    return error if error is not None else RuntimeError(f"{name}:\n{trace}")
