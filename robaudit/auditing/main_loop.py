"""The main loop of an audit: compute missing results chunk by chunk and write them to the run's
state."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, Protocol

from robaudit.auditing.chunk_sizes import FLUSH_ROWS
from robaudit.auditing.chunks import Chunk, Clean, Progress, Step, cost_of
from robaudit.datasets.dataset import Dataset
from robaudit.engine.registry import Task
from robaudit.errors import AnotherRunError, RobauditError, RunError
from robaudit.progress import Listener
from robaudit.runs.info import Skip
from robaudit.runs.state import Flush, State, TaskName
from robaudit.settings import BUDGET, OUT
from robaudit.text import count

OnError = Literal["stop", "skip"]
_DUE = 1.0  # seconds between two flushes


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the time for an audit.

    Attributes:
        at: on the clock of ``time.perf_counter``.
    """

    at: float

    def check(self, done: int, samples: int) -> None:
        """Stop an audit whose time is over, with this many of its samples done.

        Raises:
            RobauditError: it is over.
        """
        if time.perf_counter() < self.at:
            return
        what = (
            f"is over, and only {done} of {count(samples, 'sample')} are done: the model "
            "became slower than at the start"
        )
        raise RobauditError(
            BUDGET, what, "run the same command again to continue: finished work is on disk"
        )


class Workers(Protocol):
    """Computes the chunks of an audit: this process (:class:`~robaudit.auditing.chunks.Worker`), or
    Ray workers."""

    @property
    def classes(self) -> int:
        """Number of logits."""
        ...

    @property
    def number(self) -> int:
        """How many chunks are computed at once."""
        ...

    def next_images(self, tasks: Sequence[Task]) -> int:
        """Number of images for the next chunk."""
        ...

    def steps(
        self, chunks: Iterator[Chunk], places: Sequence[int], listener: Listener, progress: Progress
    ) -> Generator[Step]:
        """Compute the chunks, each as soon as a worker is free; when they end, finish those under
        way.

        Args:
            chunks: of images that lack the same tasks.
            places: the places of all images, in the order of the chunks; there may be fewer chunks.
            listener: receives notes, and says when to stop.
            progress: called with the current task.
        """
        ...


def task_names(tasks: Sequence[Task]) -> list[TaskName]:
    """The names of the tasks' results, which are the tasks of the state: one for each value that a
    task gives of an image."""
    return [name for task in tasks for name in task.names]


def lacking(state: State, tasks: Sequence[Task]) -> list[int]:
    """For each task, how many of the unfinished samples lack one of its values."""
    numbers = iter(state.lacking())
    return [max(next(numbers) for _ in task.names) for task in tasks]


def compute_missing(
    state: State,
    data: Dataset,
    tasks: Sequence[Task],
    workers: Workers,
    listener: Listener,
    *,
    on_error: OnError = "stop",
    deadline: Deadline | None = None,
) -> None:
    """Compute what a state lacks: every task of every sample.

    Args:
        state: of a run, or one in memory; :meth:`State.begin` has been called with these samples,
            and the names of these tasks.
        data: ordered samples.
        tasks: noise levels outermost.
        workers: compute the chunks.
        listener: receives the progress.
        on_error: stop at an unusable sample, or skip and list it.
        deadline: when to stop.

    Raises:
        KeyboardInterrupt: the listener asked to stop, and work is left.
        RobauditError: the time is over, and work is left.
        SampleError: a sample is unusable, and ``on_error`` is "stop".
        ModelError: a single image does not fit into memory.
        RunError: data or model have changed since the run began, or the file system refuses.
    """
    _Loop(state, data, tasks, workers, on_error, listener, deadline).run()


class _Loop:
    """The loop of :func:`compute_missing`, with its arguments."""

    def __init__(
        self,
        state: State,
        data: Dataset,
        tasks: Sequence[Task],
        workers: Workers,
        on_error: OnError,
        listener: Listener,
        deadline: Deadline | None,
    ) -> None:
        self._state = state
        self._data = data
        self._tasks = tasks
        self._workers = workers
        self._on_error = on_error
        self._listener = listener
        self._deadline = deadline
        # not on disk yet; samples that then lack nothing
        self._new = Flush()
        self._complete = 0
        self._since = time.perf_counter()
        self._digests = dict[str, str]()  # of the pixels of samples without rows on disk
        self._left = len(state.unfinished)
        classes = workers.classes
        self._cost = sum(
            cost_of(task, n, classes) for n, task in zip(lacking(state, tasks), tasks, strict=True)
        )
        self._paid = self._share = 0.0
        self._doing = ""
        # of each of the state's tasks
        self._task_of = [number for number, task in enumerate(tasks) for _ in task.names]

    def run(self) -> None:
        """Compute and write what is missing; see :func:`compute_missing`."""
        places = self._state.unfinished
        self._listener.begin(len(self._data), len(self._data) - self._left)
        try:
            with (
                closing(self._chunks(places)) as chunks,
                closing(
                    self._workers.steps(chunks, places, self._listener, self._progress)
                ) as steps,
            ):
                for step in steps:
                    self._take(step)
                    if self._due():
                        self._write()
                        if self._listener.stop_asked() and self._left and self._workers.number == 1:
                            raise KeyboardInterrupt  # several workers finish their steps first
                        if self._deadline is not None and self._left:
                            self._deadline.check(len(self._data) - self._left, len(self._data))
            self._write()
            if self._left and not self._listener.stop_asked():
                raise ValueError(
                    f"{self._left} samples were not computed, and no stop was requested"
                )
            if self._left:
                raise KeyboardInterrupt
        except RunError:
            raise  # the folder is no longer ours, or cannot be written
        except (KeyboardInterrupt, RobauditError):
            self._write()  # keep what is computed
            raise
        finally:
            self._listener.end()

    def _chunks(self, places: Sequence[int]) -> Generator[Chunk]:
        """Consecutive images that lack the same tasks, as many at a time as the workers say."""
        current = list[int]()
        lacked = tuple[Task, ...]()
        for place in places:
            tasks = tuple(
                self._tasks[number]
                for number in dict.fromkeys(
                    self._task_of[name] for name in self._state.missing(place)
                )
            )
            if current and (tasks != lacked or len(current) >= self._workers.next_images(tasks)):
                yield Chunk(lacked, tuple(current))
                current = []
            lacked = tasks
            current.append(place)
        if current:
            yield Chunk(lacked, tuple(current))

    def _progress(self, task: Task | None, cost: float) -> None:
        """Show what is done, and progress within the steps that are being computed."""
        what = "reading images" if task is None else task.text
        if what != self._doing:
            self._doing = what
            self._listener.doing(what)
        if self._cost:
            # a clean pass counts towards the first task
            self._share = max(self._share, min(1.0, (self._paid + cost) / self._cost))
            self._listener.working(self._share)

    def _take(self, step: Step) -> None:
        for sample_id, error in step.refused.items():
            if self._on_error == "stop":
                raise error.or_skip()
            self._listener.warn(f"skipped {error}")
            self._new.skipped.append(
                Skip(
                    sample_id=sample_id,
                    reason=str(error),
                    task=None if step.task is None else step.task.names[0],
                )
            )
            self._digests.pop(sample_id, None)
        if step.refused:
            self._new.rows = [row for row in self._new.rows if row.sample_id not in step.refused]
        for sample in step.clean:
            self._refuse_another(sample)
            self._digests[sample.sample_id] = sample.digest
        self._new.rows += step.rows
        self._new.seconds[step.key] = self._new.seconds.get(step.key, 0.0) + step.seconds
        self._complete += len(step.finished) + len(step.refused)
        if step.task is not None:
            self._paid += cost_of(step.task, step.images, self._workers.classes)
            self._progress(step.task, 0.0)

    def _due(self) -> bool:
        """Whether there are results that should go to disk now."""
        results = len(self._new.rows) + len(self._new.skipped)
        return bool(results) and (
            time.perf_counter() - self._since >= _DUE or results >= FLUSH_ROWS
        )

    def _write(self) -> None:
        """Write the results so far to disk."""
        new = self._new
        complete = self._complete
        self._new = Flush()
        self._complete = 0
        self._since = time.perf_counter()
        if new.rows or new.skipped:
            known = dict.fromkeys(row.sample_id for row in new.rows)
            new.images = {name: self._digests.pop(name) for name in known if name in self._digests}
            self._state.write(new)
            self._left -= complete
            self._listener.advance(complete)

    def _refuse_another(self, sample: Clean) -> None:
        """Refuse a sample whose image, label or prediction differs from its existing rows.

        Raises:
            RunError: the data, the model's code or the machine has changed.
        """
        before, rows = self._state.known(sample.sample_id)
        where = f"{self._data.where}: {sample.sample_id}"
        if before not in (None, sample.digest):
            raise AnotherRunError(
                where, "this image has changed since the run began", "choose another " + OUT
            )
        for label, then in rows - {(sample.label, sample.predicted)}:
            same = label == sample.label
            what = (
                f"was predicted {then} and is {sample.predicted}"
                if same
                else f"the label was {label} and is {sample.label}"
            )
            raise RunError(
                where,
                what,
                "the data, the model's code or the machine has changed since: choose another "
                + OUT,
            )
