"""Workers without processes: real ones, called directly, that are lost when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.auditing.messages import Failed, Item, Lost, Opened
from robaudit.auditing.worker import ChunkJob, Worker, WorkerPlan
from robaudit.spec.model import AuditSpec


def plan(document: Mapping[str, Any], folder: Path | None = None, **rest: Any) -> WorkerPlan:
    """The plan of a worker on this machine's processor."""
    given = {**document, "run": {"device": "cpu", **document.get("run", {})}}
    spec = AuditSpec.model_validate(given).located(folder or Path.cwd(), "spec")
    return WorkerPlan(spec, folder="run", **rest)


def opened(worker: Worker) -> Opened:
    """What a worker says when it is ready."""
    said = worker.open()
    assert isinstance(said, Opened), said
    return said


def refusal(worker: Worker) -> str:
    """The line with which a worker refuses to begin."""
    said = worker.open()
    assert isinstance(said, Failed)
    assert said.error is not None, said.trace
    return str(said.error)


class DirectTeam:
    """Members of a team that are all the same worker; each gives one item at a time.

    Args:
        worker: who computes.
        members: how many there seem to be.
        lost_at: after so many items in all, the member whose turn it is is lost.
        deadly: whoever is to compute this sample is lost at once.
        returns: whether the lost come back; then what they say.
        told: called with each item before it is passed on.
    """

    def __init__(
        self,
        worker: Worker,
        members: int = 2,
        lost_at: Sequence[int] = (),
        *,
        deadly: str | None = None,
        returns: Opened | None = None,
        told: Callable[[Item], None] = lambda _: None,
    ) -> None:
        self._worker, self._lost_at, self._returns, self._told = worker, deque(sorted(lost_at)), returns, told
        self._deadly = deadly
        self._queues: list[deque[Iterator[Item | Opened | Lost]]] = [deque() for _ in range(members)]
        self.given: list[tuple[int, ChunkJob]] = []
        self.items_sent = 0

    def give(self, worker: int, order: ChunkJob) -> None:
        self.given.append((worker, order))
        killed = self._deadly in order.ids
        self._queues[worker].append(
            iter([Lost("lost (killed)", returns=self._returns is not None)]) if killed else self._worker.compute(order)
        )

    def items(self, seconds: float) -> Iterable[tuple[int, Item | Opened | Lost]]:
        for number, queue in enumerate(self._queues):
            while queue and (item := next(queue[0], None)) is None:
                queue.popleft()
            if not queue:
                continue
            self.items_sent += 1
            if isinstance(item, Lost) or (self._lost_at and self.items_sent > self._lost_at[0]):
                if not isinstance(item, Lost):
                    self._lost_at.popleft()
                queue.clear()
                if self._returns is not None:
                    queue.append(iter([self._returns]))
                yield number, Lost("lost (killed)", returns=self._returns is not None)
                continue
            assert item is not None
            if not isinstance(item, Opened | Lost):
                self._told(item)
            yield number, item
