"""Ray without processes: actors are called directly, and are lost when a test says so."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from robaudit.auditing.prepare import Request
from robaudit.auditing.worker import RayWorker, Report
from tests.specs import located


def request(document: Mapping[str, Any], folder: Path | None = None, **rest: Any) -> Request:
    """What workers are to prepare."""
    spec = located(dict(document), folder or Path.cwd(), "spec")
    return Request(spec, **rest)


def prepared(given: Request) -> tuple[RayWorker, Report]:
    """A worker on this machine's processor, and what it says when it is ready."""
    worker = RayWorker()
    return worker, worker.prepare(given, "cpu")


class RayError(Exception):
    """As Ray's."""


class RayTaskError(RayError):
    """An exception of an actor, as it arrives."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"ray::RayWorker: {cause!r}")
        self.cause = pickle.loads(pickle.dumps(cause))


class ActorDiedError(RayError):
    """The actor is lost."""


class Call:
    """An object reference of an actor's answer, or the generator of several."""

    def __init__(self, actor: Actor, values: Iterator[Any]) -> None:
        self.actor = actor
        self.lost = False
        self._values = values

    def __next__(self) -> Answer:
        if self.lost:
            return Answer(self, None)
        return Answer(self, next(self._values))


class Answer(NamedTuple):
    """The reference of one answer."""

    call: Call
    value: Any


class Actor:
    """A worker as an actor.

    Args:
        compute: what its method does.
        report: what it says when it comes back after a loss.
    """

    def __init__(self, compute: Callable[..., Iterator[Any]], report: Callable[[], Report]) -> None:
        self.calls = list[Call]()
        self.given = list[tuple[Any, ...]]()
        self.opened = list[tuple[Any, ...]]()
        self._compute = compute
        self._report = report
        self.compute = SimpleNamespace(remote=self._computing)
        self.prepare = SimpleNamespace(remote=self._preparing)

    def _computing(self, *args: Any) -> Call:
        self.given.append(args)
        self.calls.append(
            call := Call(self, _raising(self._compute(*pickle.loads(pickle.dumps(args)))))
        )
        return call

    def _preparing(self, *args: Any) -> Call:
        self.opened.append(args)
        return Call(self, iter([self._report()]))

    def lose(self) -> None:
        """Lose it, with all it has."""
        for call in self.calls:
            call.lost = True
        self.calls.clear()


def _raising(values: Iterator[Any]) -> Iterator[Any]:
    """The values; an error arrives as Ray sends it."""
    try:
        yield from values
    except Exception as error:  # noqa: BLE001  as Ray does
        raise RayTaskError(error) from None


class FakeRay:
    """Ray's ``wait`` and ``get``.

    Args:
        lost_at: after so many answers in all, the actor whose turn it is is lost.
        random: chooses of whom something has come; None: all.
    """

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError
    )

    def __init__(self, lost_at: Sequence[int] = (), random: Random | None = None) -> None:
        self._lost_at = deque(sorted(lost_at))
        self._random = random
        self.answers = 0

    def wait(
        self, calls: list[Call], *, num_returns: int = 1, timeout: float, fetch_local: bool
    ) -> tuple[list[Call], list[Call]]:
        assert calls, "nothing can come in: the audit would wait for ever"
        ready = (
            calls
            if self._random is None
            else self._random.sample(calls, self._random.randint(0, len(calls)))
        )
        return ready, [call for call in calls if call not in ready]

    def get(self, answer: Call | Answer) -> Any:
        """The value of a reference."""
        call, value = next(answer) if isinstance(answer, Call) else answer
        self.answers += 1
        if self._lost_at and self.answers > self._lost_at[0]:
            self._lost_at.popleft()
            call.actor.lose()
        if call.lost:
            raise ActorDiedError("killed")
        return value
