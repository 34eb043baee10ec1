"""The main loop of an audit: compute missing results chunk by chunk and write them to the run's
state."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from robaudit.auditing.chunk_sizes import FLUSH_ROWS
from robaudit.auditing.chunks import Chunk, Clean, Progress, Step, cost_of
from robaudit.datasets.dataset import Dataset
from robaudit.engine.registry import Task
from robaudit.errors import AnotherRunError, DataError, RobauditError, RunError
from robaudit.progress import Listener
from robaudit.runs.info import Skip
from robaudit.runs.state import Flush, State, TaskName
from robaudit.settings import BUDGET, ON_ERROR, OUT
from robaudit.spec.skipping import OnError, most_skipped
from robaudit.text import count

# Seconds between two flushes. A kill loses what was computed since the last one, and each flush
# costs a sync of the disk.
_FLUSH_SECONDS = 1.0


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
        """Compute the chunks, each as soon as a worker is free.

        When the chunks end, those under way are finished.

        Args:
            chunks: of images that lack the same tasks.
            places: the places of all images, in the order of the chunks; an audit that stops early
                gives fewer chunks.
            listener: receives notes, and says when to stop.
            progress: called with the current task.
        """
        ...


def task_names(tasks: Sequence[Task]) -> list[TaskName]:
    """The names of the tasks' results, one for each value that a task gives of an image: the tasks
    of the state."""
    return list(chain.from_iterable(task.names for task in tasks))


def lacking(state: State, tasks: Sequence[Task]) -> list[int]:
    """The number of unfinished samples that lack a value of each task."""
    # The state counts each value of a task on its own. A task computes all of its values, so the
    # value that most samples lack sets its number.
    by_value = iter(state.lacking())
    return [max(next(by_value) for _ in task.names) for task in tasks]


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
        on_error: stop at an unusable sample, or skip and list it, up to a share of all samples.
        deadline: when to stop.

    Raises:
        KeyboardInterrupt: the listener asked to stop, and work is left.
        RobauditError: the time is over, and work is left.
        SampleError: a sample is unusable, and ``on_error`` is "stop".
        DataError: more samples are skipped than ``on_error`` allows.
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
        self._skipped = sum(1 for _ in state.skips())
        self._listener = listener
        self._deadline = deadline
        # Results that are not on disk yet, and the number of samples that they complete.
        self._unwritten = Flush()
        self._completed_samples = 0
        self._last_write = time.perf_counter()
        # Pixel digests of samples without rows on disk: a digest is written with the first row.
        self._digests = dict[str, str]()
        self._samples_left = len(state.unfinished)
        # For the progress: costs in rows through the network.
        classes = workers.classes
        images = lacking(state, tasks)
        self._total_cost = sum(
            cost_of(task, number, classes) for number, task in zip(images, tasks, strict=True)
        )
        self._cost_done = 0.0
        self._share_shown = 0.0
        self._activity = ""
        # The index in `tasks` of each task of the state, which has one for each value.
        self._task_of_value: list[int] = []
        for index, task in enumerate(tasks):
            self._task_of_value += [index] * len(task.names)

    def run(self) -> None:
        """Compute and write what is missing; see :func:`compute_missing`."""
        places = self._state.unfinished
        if self._on_error != "stop":
            self._refuse_many_skips(next((skip.reason for skip in self._state.skips()), ""))
        self._listener.begin(len(self._data), len(self._data) - self._samples_left)
        try:
            # Closed in the opposite order: the workers, then the chunks that they take.
            with (
                closing(self._chunks(places)) as chunks,
                closing(
                    self._workers.steps(chunks, places, self._listener, self._show_progress)
                ) as steps,
            ):
                for step in steps:
                    self._take(step)
                    if self._write_is_due():
                        self._write()
                        # Only here, where everything that was computed is on disk.
                        self._stop_if_asked_or_late()
            self._write()
            if self._samples_left and not self._listener.stop_asked():
                raise ValueError(
                    f"{self._samples_left} samples were not computed, and no stop was requested"
                )
            if self._samples_left:
                raise KeyboardInterrupt
        except RunError:
            raise  # without a write: the folder is no longer ours, or cannot be written
        except (KeyboardInterrupt, RobauditError):
            self._write()  # keep what is computed
            raise
        finally:
            self._listener.end()

    def _stop_if_asked_or_late(self) -> None:
        """End the audit if work is left, and a stop was requested or the time is over.

        Raises:
            KeyboardInterrupt: the listener asked to stop.
            RobauditError: the time is over.
        """
        if not self._samples_left:
            return
        # Several workers finish their steps first: see RayWorkers.steps.
        if self._listener.stop_asked() and self._workers.number == 1:
            raise KeyboardInterrupt
        if self._deadline is not None:
            self._deadline.check(len(self._data) - self._samples_left, len(self._data))

    def _chunks(self, places: Sequence[int]) -> Generator[Chunk]:
        """Consecutive images that lack the same tasks, as many at a time as the workers say."""
        current = list[int]()
        current_tasks = tuple[Task, ...]()
        for place in places:
            tasks = self._missing_tasks(place)
            # The number is asked for again with each image: it follows from the last chunk that was
            # measured, and that may just have been computed.
            if current and (
                tasks != current_tasks or len(current) >= self._workers.next_images(tasks)
            ):
                yield Chunk(current_tasks, tuple(current))
                current = []
            current_tasks = tasks
            current.append(place)
        if current:
            yield Chunk(current_tasks, tuple(current))

    def _missing_tasks(self, place: int) -> tuple[Task, ...]:
        """The tasks that a sample lacks, in order."""
        indices = dict.fromkeys(self._task_of_value[value] for value in self._state.missing(place))
        return tuple(self._tasks[index] for index in indices)

    def _show_progress(self, task: Task | None, cost: float) -> None:
        """Show what is done, and progress within the steps that are being computed."""
        activity = "reading images" if task is None else task.text
        if activity != self._activity:
            self._activity = activity
            self._listener.doing(activity)
        if self._total_cost:
            # A clean pass counts towards the first task. Costs are approximate, so the share could
            # run backwards or beyond 1.
            share = min(1.0, (self._cost_done + cost) / self._total_cost)
            self._share_shown = max(self._share_shown, share)
            self._listener.working(self._share_shown)

    def _take(self, step: Step) -> None:
        """Add the results of a step to those that go to disk next.

        Raises:
            SampleError: a sample is unusable, and ``on_error`` is "stop".
            RunError: a sample differs from its existing rows.
        """
        unwritten = self._unwritten
        for sample_id, error in step.refused.items():
            if self._on_error == "stop":
                raise error.or_skip()
            self._listener.warn(f"skipped {error}")
            task = None if step.task is None else step.task.names[0]
            unwritten.skipped.append(Skip(sample_id=sample_id, reason=str(error), task=task))
            self._digests.pop(sample_id, None)
            self._skipped += 1
        if step.refused:
            # A skipped sample has no rows. Those that are on disk already are left out on reading.
            unwritten.rows = [row for row in unwritten.rows if row.sample_id not in step.refused]
        for sample in step.clean:
            self._refuse_another(sample)
            self._digests[sample.sample_id] = sample.digest
        unwritten.rows += step.rows
        unwritten.seconds[step.key] = unwritten.seconds.get(step.key, 0.0) + step.seconds
        self._completed_samples += len(step.finished) + len(step.refused)
        for error in step.refused.values():
            self._refuse_many_skips(str(error))
        if step.task is not None:
            self._cost_done += cost_of(step.task, step.images, self._workers.classes)
            self._show_progress(step.task, 0.0)

    def _refuse_many_skips(self, reason: str) -> None:
        """Refuse an audit of what is left of a data set.

        Args:
            reason: why one of the samples was skipped.

        Raises:
            DataError: more samples are skipped than allowed.
        """
        samples = len(self._data)
        share = most_skipped(self._on_error)
        if self._skipped <= share * samples:
            return
        what = (
            f"{self._skipped} of {count(samples, 'sample')} skipped, more than {share:.0%}; "
            f"for example: {reason}"
        )
        remedy = "repair the data, or allow a larger share: " + ON_ERROR + " SHARE"
        raise DataError(self._data.where, what, remedy)

    def _write_is_due(self) -> bool:
        """Whether there are results that should go to disk now."""
        results = len(self._unwritten.rows) + len(self._unwritten.skipped)
        if not results:
            return False
        late = time.perf_counter() - self._last_write >= _FLUSH_SECONDS
        return late or results >= FLUSH_ROWS

    def _write(self) -> None:
        """Write the results so far to disk."""
        flush = self._unwritten
        completed_samples = self._completed_samples
        # Emptied before the write: an interrupt may come after the commit, and the write that
        # follows it in run() would count skips and seconds twice.
        self._unwritten = Flush()
        self._completed_samples = 0
        self._last_write = time.perf_counter()
        if flush.rows or flush.skipped:
            sample_ids = dict.fromkeys(row.sample_id for row in flush.rows)
            flush.digests = {
                name: self._digests.pop(name) for name in sample_ids if name in self._digests
            }
            self._state.write(flush)
            # Only what is on disk counts as done.
            self._samples_left -= completed_samples
            self._listener.advance(completed_samples)

    def _refuse_another(self, sample: Clean) -> None:
        """Refuse a sample whose image, label or prediction differs from its existing rows.

        Raises:
            RunError: the data, the model's code or the machine has changed.
        """
        recorded_digest, recorded_classes = self._state.known(sample.sample_id)
        where = f"{self._data.where}: {sample.sample_id}"
        if recorded_digest not in (None, sample.digest):
            raise AnotherRunError(
                where, "this image has changed since the run began", "choose another " + OUT
            )
        for label, predicted in recorded_classes - {(sample.label, sample.predicted)}:
            what = f"the label was {label} and is {sample.label}"
            if label == sample.label:
                what = f"was predicted {predicted} and is {sample.predicted}"
            raise RunError(
                where,
                what,
                "the data, the model's code or the machine has changed since: choose another "
                + OUT,
            )
