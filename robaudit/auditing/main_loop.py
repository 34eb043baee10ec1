"""The main loop of an audit: compute missing results chunk by chunk and write them to the run's
state."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing
from enum import Enum, auto
from itertools import chain
from typing import Protocol

import numpy as np

from robaudit.auditing.chunk_sizes import FLUSH_ROWS
from robaudit.auditing.chunks import Chunk, Clean, Progress, Step, cost_of
from robaudit.auditing.rounds import Round, Work, rounds_of, work_of
from robaudit.datasets.dataset import Dataset
from robaudit.engine.registry import Task
from robaudit.errors import AnotherRunError, DataError, RobauditError, RunError
from robaudit.progress import Listener
from robaudit.runs.info import Skip
from robaudit.runs.state import Flush, Lacking, State, TaskName
from robaudit.settings import ON_ERROR, OUT
from robaudit.spec.skipping import OnError, most_skipped
from robaudit.text import count

# Seconds between two flushes. A kill loses what was computed since the last one, and each flush
# costs a sync of the disk.
_FLUSH_SECONDS = 1.0


class Ending(Enum):
    """Why :func:`compute_missing` returned."""

    COMPLETE = auto()
    TIME_OVER = auto()
    ENOUGH = auto()
    """After a round, the caller wanted no more."""


AfterRound = Callable[[bool], bool]
"""Called when all results of a round are on disk, with whether it is the last; returns whether they
are enough."""


class _Clock(Listener):
    """Asks to stop when another listener does, or when the time is over.

    Args:
        listener: the other one.
        deadline: on the clock of ``time.perf_counter``; None: never.
    """

    def __init__(self, listener: Listener, deadline: float | None) -> None:
        self._listener = listener
        self._deadline = deadline

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._deadline is not None and time.perf_counter() >= self._deadline

    def note(self, text: str) -> None:
        self._listener.note(text)

    def stop_asked(self) -> bool:
        return self.is_over or self._listener.stop_asked()


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

    def next_images(self, work: Sequence[Work]) -> int:
        """Number of images for the next chunk."""
        ...

    def steps(
        self, chunks: Iterator[Chunk], places: Sequence[int], listener: Listener, progress: Progress
    ) -> Generator[Step]:
        """Compute the chunks, each as soon as a worker is free.

        When the chunks end, those under way are finished.

        Args:
            chunks: of images that lack the same work.
            places: the places of all images, in the order of the chunks; an audit that stops early
                gives fewer chunks.
            listener: receives notes, and says when to stop.
            progress: called with the current work.
        """
        ...


def task_names(tasks: Sequence[Task]) -> list[TaskName]:
    """The names of the tasks' results, one for each value that a task gives of an image: the tasks
    of the state."""
    return list(chain.from_iterable(task.names for task in tasks))


def lacking(state: State, tasks: Sequence[Task]) -> list[Lacking]:
    """What is lacking of each task: of the value of which most samples lack a final result."""
    # The state counts each value of a task on its own. A task computes all of its values.
    by_value = iter(state.lacking())
    return [max((next(by_value) for _ in task.names), key=_samples) for task in tasks]


def _samples(lacking_of_value: Lacking) -> int:
    """The number of samples."""
    return lacking_of_value.samples


def compute_missing(
    state: State,
    data: Dataset,
    tasks: Sequence[Task],
    workers: Workers,
    listener: Listener,
    *,
    rounds: Sequence[Round] = (),
    after_round: AfterRound | None = None,
    order: Sequence[int] | None = None,
    flag: float | None = None,
    on_error: OnError = "stop",
    deadline: float | None = None,
) -> Ending:
    """Compute what a state lacks: every task of every sample, round by round.

    Args:
        state: of a run, or one in memory; :meth:`State.begin` has been called with these samples,
            and the names of these tasks.
        data: ordered samples.
        tasks: noise levels outermost.
        workers: compute the chunks.
        listener: receives the progress.
        rounds: default: a single one, with all copies of each image.
        after_round: called after each round, when everything it computed is on disk; it may end
            the audit.
        order: the places of all samples, in the order in which they are computed; default: the
            order of the data set.
        flag: images on one side of it take no more copies.
        on_error: stop at an unusable sample, or skip and list it, up to a share of all samples.
        deadline: when to stop, on the clock of ``time.perf_counter``.

    Raises:
        KeyboardInterrupt: the listener asked to stop, and work is left.
        SampleError: a sample is unusable, and ``on_error`` is "stop".
        DataError: more samples are skipped than ``on_error`` allows.
        ModelError: a single image does not fit into memory.
        RunError: data or model have changed since the run began, or the file system refuses.
    """
    loop = _Loop(state, data, tasks, workers, order, flag, on_error, listener, deadline)
    return loop.run(rounds or (rounds_of(tasks)[-1],), after_round)


class _Loop:
    """The loop of :func:`compute_missing`, with its arguments."""

    def __init__(
        self,
        state: State,
        data: Dataset,
        tasks: Sequence[Task],
        workers: Workers,
        order: Sequence[int] | None,
        flag: float | None,
        on_error: OnError,
        listener: Listener,
        deadline: float | None,
    ) -> None:
        self._state = state
        self._data = data
        self._tasks = tasks
        self._workers = workers
        # The position of each place in the order in which samples are computed.
        self._positions: Sequence[int] = range(len(data))
        if order is not None:
            self._positions = np.argsort(np.asarray(order)).tolist()
        self._flag = flag
        self._on_error = on_error
        self._skipped = sum(1 for _ in state.skips())
        self._listener = listener
        self._clock = _Clock(listener, deadline)
        # Results that are not on disk yet, and the number of samples whose round they complete.
        self._unwritten = Flush()
        self._completed_samples = 0
        self._left_in_round = 0
        self._last_write = time.perf_counter()
        # Pixel digests of samples without rows on disk: a digest is written with the first row.
        self._digests = dict[str, str]()
        # Samples whose label and prediction were compared with their rows.
        self._compared = set[str]()
        # Samples that this session has skipped: they are left out of later rounds.
        self._refused = set[str]()
        # For the progress: costs in rows through the network.
        self._lacking = lacking(state, tasks)
        self._total_cost = sum(map(self._cost_left, tasks, self._lacking))
        self._cost_done = 0.0
        self._share_shown = 0.0
        self._activity = ""
        # The index in `tasks` of each task of the state, which has one for each value.
        self._task_of_value: list[int] = []
        for index, task in enumerate(tasks):
            self._task_of_value += [index] * len(task.names)

    def _cost_left(self, task: Task, left: Lacking) -> float:
        """The expected cost of what is lacking of a task."""
        most = task.estimator.most_draws
        if most is None:
            return cost_of(Work(task), left.samples, self._workers.classes)
        return float(left.samples * (1 + most) - left.draws)

    def run(self, rounds: Sequence[Round], after_round: AfterRound | None) -> Ending:
        """Compute and write what is missing; see :func:`compute_missing`."""
        if self._on_error != "stop":
            self._refuse_many_skips(next((skip.reason for skip in self._state.skips()), ""))
        self._listener.begin(len(self._data), len(self._data) - len(self._state.unfinished))
        try:
            for this_round in rounds:
                if this_round.draws < self._fewest_draws(rounds[-1].draws):
                    continue
                is_whole = self._compute_round(this_round, rounds[-1].draws)
                if not is_whole and self._clock.is_over:
                    return Ending.TIME_OVER
                if not is_whole:
                    raise KeyboardInterrupt
                if after_round is None or self._is_uneven(this_round):
                    continue
                is_last = this_round is rounds[-1]
                if after_round(is_last) and not is_last:
                    return Ending.ENOUGH
        except RunError:
            raise  # without a write: the folder is no longer ours, or cannot be written
        except (KeyboardInterrupt, RobauditError):
            self._write()  # keep what is computed
            raise
        finally:
            self._listener.end()
        return Ending.COMPLETE

    def _fewest_draws(self, most: int) -> int:
        """The copies that all images had at least when this session began, of ``most``.

        The round that took them comes again, with nothing to compute: the last session may have
        ended before it was reported.
        """
        in_rounds = [
            left.fewest
            for task, left in zip(self._tasks, self._lacking, strict=True)
            if task.estimator.most_draws is not None and left.samples
        ]
        return min(in_rounds, default=most)

    def _is_uneven(self, this_round: Round) -> bool:
        """Whether some images have more copies than a round takes: it came again, or for samples
        that an extension added."""
        for task, left in zip(self._tasks, self._lacking, strict=True):
            most = task.estimator.most_draws
            if most is None or not left.samples:
                continue
            # Images that are complete have all copies, unless a flag stopped them.
            some_complete = self._flag is None and left.samples < len(self._data) - self._skipped
            if this_round.draws < (most if some_complete else left.most):
                return True
        return False

    def _compute_round(self, this_round: Round, most: int) -> bool:
        """Compute what is missing in a round; return whether all of it was computed."""
        plan = self._plan(this_round)
        places = [place for place, _ in plan]
        self._left_in_round = len(plan)
        self._listener.round(this_round.draws, most, len(self._data) - len(plan))
        if not plan:
            return True
        # Closed in the opposite order: the workers, then the chunks that they take.
        with (
            closing(self._chunks(plan)) as chunks,
            closing(self._workers.steps(chunks, places, self._clock, self._show_progress)) as steps,
        ):
            for step in steps:
                self._take(step)
                # Several workers finish their steps first: see RayWorkers.steps.
                if self._clock.stop_asked() and self._workers.number == 1:
                    break
                if self._write_is_due():
                    self._write()
        self._write()
        if self._left_in_round and not self._clock.stop_asked():
            raise ValueError(
                f"{self._left_in_round} samples were not computed, and no stop was requested"
            )
        return not self._left_in_round

    def _plan(self, this_round: Round) -> list[tuple[int, tuple[Work, ...]]]:
        """The places of the images that lack something in a round, and what they lack.

        Images that lack the same come together, in order, so that chunks are whole; those that lack
        least come first, so that a round that ends early has as many images as possible.
        """
        by_work: dict[Hashable, tuple[tuple[Work, ...], list[int]]] = {}
        for place in sorted(self._state.unfinished, key=self._positions.__getitem__):
            if self._refused and self._data.sample_id(place) in self._refused:
                continue
            missing: dict[int, int] = {}
            for value, draws in self._state.missing(place).items():
                missing[self._task_of_value[value]] = draws
            turn = this_round.reaches(self._positions[place], len(self._data))
            work = work_of(self._tasks, missing, this_round, turn=turn, flag=self._flag)
            if work:
                # An estimator of a plugin need not be hashable.
                key = tuple((id(part.task), part.start, part.draws) for part in work)
                _, places = by_work.setdefault(key, (work, []))
                places.append(place)

        def cost(group: tuple[tuple[Work, ...], list[int]]) -> int:
            return sum(part.cost(self._workers.classes) for part in group[0])

        cheapest_first = sorted(by_work.values(), key=cost)
        return [(place, work) for work, places in cheapest_first for place in places]

    def _chunks(self, plan: Sequence[tuple[int, tuple[Work, ...]]]) -> Generator[Chunk]:
        """Consecutive images that lack the same work, as many at a time as the workers say."""
        current = list[int]()
        current_work = tuple[Work, ...]()
        for place, work in plan:
            # The number is asked for again with each image: it follows from the last chunk that was
            # measured, and that may just have been computed.
            if current and (
                work != current_work or len(current) >= self._workers.next_images(work)
            ):
                yield self._chunk(current_work, current)
                current = []
            current_work = work
            current.append(place)
        if current:
            yield self._chunk(current_work, current)

    def _chunk(self, work: tuple[Work, ...], places: Sequence[int]) -> Chunk:
        """A chunk with the rows on which its work goes on."""
        earlier = {}
        for part in work:
            if not part.start:
                continue
            for place in places:
                (name,) = part.task.names
                row = self._state.row(self._data.sample_id(place), name)
                earlier[row.key] = row
        return Chunk(work, tuple(places), earlier)

    def _show_progress(self, work: Work | None, cost: float) -> None:
        """Show what is done, and progress within the steps that are being computed."""
        activity = "reading images" if work is None else work.task.text
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
            task = None if step.work is None else step.work.task.names[0]
            unwritten.skipped.append(Skip(sample_id=sample_id, reason=str(error), task=task))
            self._digests.pop(sample_id, None)
            self._refused.add(sample_id)
            self._skipped += 1
        if step.refused:
            # A skipped sample has no rows. Those that are on disk already are left out on reading.
            unwritten.rows = [row for row in unwritten.rows if row.sample_id not in step.refused]
        for sample in step.clean:
            self._refuse_another(sample)
            self._digests[sample.sample_id] = sample.digest
        unwritten.rows += step.rows
        if step.work is not None:
            for row in step.rows:
                draws = step.work.open_draws(row)
                if draws is not None:
                    unwritten.draws[row.key] = draws
        unwritten.seconds[step.key] = unwritten.seconds.get(step.key, 0.0) + step.seconds
        finished = len(step.finished) + len(step.refused)
        self._completed_samples += finished
        self._left_in_round -= finished
        for error in step.refused.values():
            self._refuse_many_skips(str(error))
        if step.work is not None:
            self._cost_done += cost_of(step.work, step.images, self._workers.classes)
            self._show_progress(step.work, 0.0)

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
            self._listener.advance(completed_samples)

    def _refuse_another(self, sample: Clean) -> None:
        """Refuse a sample whose image, label or prediction differs from its existing rows.

        Raises:
            RunError: the data, the model's code or the machine has changed.
        """
        where = f"{self._data.where}: {sample.sample_id}"
        if self._state.digest(sample.sample_id) not in (None, sample.digest):
            raise AnotherRunError(
                where, "this image has changed since the run began", "choose another " + OUT
            )
        # Later rounds go on with rows that were compared in this session.
        if sample.sample_id in self._compared:
            return
        self._compared.add(sample.sample_id)
        _, recorded_classes = self._state.known(sample.sample_id)
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
