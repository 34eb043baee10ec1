"""The main loop of an audit: compute missing results chunk by chunk and write them to the run's state."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

from robaudit.auditing.chunks import Chunk, Clean, Computer, Refused, Signs, Step, cost_of, usable
from robaudit.auditing.environment import image_digest
from robaudit.auditing.setup import FLUSH_ROWS, ChunkSizer
from robaudit.datasets.ahead import Read, read_ahead
from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import AnotherRunError, RobauditError, RunError, SampleError
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.progress import Listener
from robaudit.rows import Row
from robaudit.store.state import Flush, Skip, State, TaskName

OnError = Literal["stop", "skip"]
_MOST_SKIPS = 1024  # in one flush, roughly
_DUE = 1.0  # seconds between two flushes


class Workers(Protocol):
    """Computes the chunks of an audit."""

    @property
    def classes(self) -> int:
        """Number of logits."""
        ...

    @property
    def reading(self) -> bool:
        """Whether the workers read the images; otherwise chunks carry them."""
        ...

    @property
    def several(self) -> bool:
        """Whether several chunks are computed at once."""
        ...

    def next_images(self, tasks: Sequence[Task]) -> int:
        """Number of images for the next chunk."""
        ...

    def steps(self, chunks: Iterator[Chunk], images: int, signs: Signs) -> Generator[Step]:
        """Compute the chunks, each taken when somebody is free for it; when they end, those under way are finished.

        Args:
            chunks: of images that lack the same tasks.
            images: how many there are in all, about.
            signs: receives signs of life, and says when to stop.
        """
        ...


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """The usual worker: this process, on one device.

    Args:
        engine: model and noise.
        sizer: the sizes of chunks.
        where: the data set, for messages.
    """

    engine: Engine
    sizer: ChunkSizer
    where: str
    reading: bool = field(default=False, init=False)
    several: bool = field(default=False, init=False)

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.engine.classes

    def next_images(self, tasks: Sequence[Task]) -> int:
        """Number of images for the next chunk."""
        return self.sizer.next_images(tasks)

    def steps(self, chunks: Iterator[Chunk], images: int, signs: Signs) -> Generator[Step]:
        """Compute the chunks one after the other."""
        del images
        computer = Computer(self.engine, self.sizer, self.where, signs)
        for chunk in chunks:
            yield from computer.steps(chunk)


def task_names(tasks: Sequence[Task]) -> list[TaskName]:
    """The names of the tasks' results, which are the tasks of the state: one for each value that a task gives of an image."""
    return [name for task in tasks for name in task.names]


def lacking(state: State, tasks: Sequence[Task]) -> list[int]:
    """For each task, how many of the unfinished samples lack one of its values."""
    numbers = iter(state.lacking())
    return [max(next(numbers) for _ in task.names) for task in tasks]


def compute_missing(
    state: State,
    dataset: Dataset,
    tasks: Sequence[Task],
    workers: Workers,
    listener: Listener,
    *,
    on_error: OnError = "stop",
    readers: int = 0,
) -> int:
    """Have computed what a state lacks: of every sample, every task.

    Args:
        state: of a run, or one in memory; :meth:`State.begin` has been called with these samples, and the names of these tasks.
        dataset: ordered samples.
        tasks: noise levels outermost.
        workers: who computes.
        listener: receives the progress.
        on_error: stop at an unusable sample, or skip and list it.
        readers: threads that read ahead.

    Returns:
        The number of flushes.

    Raises:
        KeyboardInterrupt: the listener asked to stop, and work is left.
        SampleError: a sample is unusable, and ``on_error`` is "stop".
        ModelError: a single image does not fit into memory.
        RunError: data or model have changed since the run began, or the file system refuses.
    """
    return _Loop(state, dataset, tasks, workers, on_error, listener, readers).run()


@dataclass(slots=True)
class _Unwritten:
    """Results that are not on disk yet.

    Attributes:
        complete: samples that lack nothing once these are written.
    """

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)
    complete: int = 0

    def flush(self) -> Flush:
        """The results in the form that the state takes."""
        known = {row.sample_id for row in self.rows}
        return Flush(self.rows, self.skipped, {key: digest for key, digest in self.images.items() if key in known}, self.seconds)

    def rest(self) -> _Unwritten:
        """What remains once the flush is on disk: the digests of samples without rows."""
        known = {row.sample_id for row in self.rows}
        return _Unwritten(images={key: digest for key, digest in self.images.items() if key not in known})


@dataclass
class _Loop:
    """Has computed what the state of a run lacks; for the fields see :func:`compute_missing`."""

    state: State
    dataset: Dataset
    tasks: Sequence[Task]
    workers: Workers
    on_error: OnError
    listener: Listener
    readers: int = 0
    flushes: int = field(default=0, init=False)
    _new: _Unwritten = field(default_factory=_Unwritten, init=False)
    _left: int = field(default=0, init=False)
    _cost: float = field(default=0.0, init=False)
    _paid: float = field(default=0.0, init=False)
    _task_of: Sequence[int] = field(default=(), init=False)
    """The task of each of the state's."""

    def __post_init__(self) -> None:
        self._task_of = [number for number, task in enumerate(self.tasks) for _ in task.names]

    def run(self) -> int:
        """Compute and write what is missing; see :func:`compute_missing`."""
        unfinished, classes = self.state.unfinished, self.workers.classes
        self._left = len(unfinished)
        self._cost = sum(cost_of(task, n, classes) for n, task in zip(lacking(self.state, self.tasks), self.tasks, strict=True))
        self.listener.begin(len(self.dataset), len(self.dataset) - self._left)
        try:
            with closing(self._chunks(unfinished)) as chunks, closing(self.workers.steps(chunks, len(unfinished), self)) as steps:
                for step in steps:
                    self._take(step)
                    if (self._new.rows or self._new.skipped) and self._due():
                        self._flush()
            self._write()
            if self._left and not self.listener.stop_asked():
                raise ValueError(f"{self._left} samples were not computed, and nobody asked to stop")
            if self._left:
                raise KeyboardInterrupt
        except RunError:
            raise  # the folder is no longer ours, or cannot be written
        except (KeyboardInterrupt, RobauditError):
            self._write()  # keep what is computed
            raise
        finally:
            self.listener.end()
        return self.flushes

    def doing(self, what: str) -> None:
        """Pass on what is computed."""
        self.listener.doing(what)

    def note(self, text: str) -> None:
        """Pass on a note."""
        self.listener.note(text)

    def stop_asked(self) -> bool:
        """Whether the listener asks to stop."""
        return self.listener.stop_asked()

    def underway(self, cost: float) -> None:
        """Show progress within the steps that are being computed."""
        if self._cost:
            self.listener.working(min(1.0, (self._paid + cost) / self._cost))

    def _chunks(self, unfinished: Sequence[int]) -> Generator[Chunk]:
        """Consecutive images that lack the same tasks, as many at a time as the workers say, until the listener asks to stop."""
        current = Chunk([])
        with closing(self._read(unfinished)) as samples:
            for index, read in samples:
                sample = None if read is None else self._usable(index, read)
                if read is not None and sample is None:
                    continue
                tasks = [self.tasks[number] for number in dict.fromkeys(self._task_of[name] for name in self.state.missing(index))]
                if current.places and (tasks != current.tasks or len(current.places) >= self.workers.next_images(tasks)):
                    yield current
                    if self.workers.several and self.listener.stop_asked():
                        return
                    self._say_reading()
                    current = Chunk([])
                current.tasks = tasks
                current.places.append(index)
                current.samples += [] if sample is None else [sample]
        if current.places:
            yield current

    def _read(self, places: Sequence[int]) -> Generator[Read | tuple[int, None]]:
        """The samples; only their places if the workers read them."""
        if self.workers.reading:
            yield from ((place, None) for place in places)
            return
        self._say_reading()
        with closing(read_ahead(self.dataset, places, self.readers, 4 * self.readers)) as samples:
            yield from samples

    def _say_reading(self) -> None:
        if not self.workers.several:
            self.listener.doing("reading images")

    def _take(self, step: Step) -> None:
        for one in step.refused:
            self._refuse(one)
        if step.refused:
            gone = {one.sample_id for one in step.refused}
            self._new.rows = [row for row in self._new.rows if row.sample_id not in gone]
        for sample in step.clean:
            self._refuse_another(sample)
            self._new.images[sample.sample_id] = sample.digest
        self._new.rows += step.rows
        self._new.seconds[step.key] = self._new.seconds.get(step.key, 0.0) + step.seconds
        self._new.complete += len(step.finished)
        if step.task is not None:
            self._paid += cost_of(step.task, step.images, self.workers.classes)
            self.underway(0.0)

    def _flush(self) -> None:
        """Write the results so far to disk; then stop at once if asked to, unless several chunks are under way."""
        self._write()
        if self.listener.stop_asked() and self._left and not self.workers.several:
            raise KeyboardInterrupt

    def _due(self) -> bool:
        """Whether the results so far should go to disk now."""
        return time.perf_counter() - self._new.since >= _DUE or len(self._new.rows) >= FLUSH_ROWS

    def _write(self) -> None:
        if self._new.rows or self._new.skipped:
            self.state.write(self._new.flush())
            self.flushes += 1
            self._left -= self._new.complete
            self.listener.advance(self._new.complete)
        self._new = self._new.rest()

    def _usable(self, index: int, read: Sample | SampleError) -> Sample | None:
        """The sample; None if it is skipped.

        Raises:
            SampleError: it is unusable, and ``on_error`` is "stop".
            DataError: the data set calls it by two ids.
            AnotherRunError: its image has changed since its first results were written.
        """
        sample = usable(self.dataset, index, read, self.workers.classes, self.tasks)
        if isinstance(sample, Sample):
            before, _ = self.state.known(sample.id)
            if before is not None:
                self._refuse_another_image(sample.id, before, image_digest(sample))
            return sample
        self._refuse(Refused(self.dataset.sample_id(index), None, sample))
        if len(self._new.skipped) >= _MOST_SKIPS or self._due():
            self._flush()
        return None

    def _refuse_another(self, sample: Clean) -> None:
        """Refuse a sample whose image, label or prediction differs from its existing rows.

        Raises:
            RunError: the data, the model's code or the machine has changed.
        """
        before, rows = self.state.known(sample.sample_id)
        self._refuse_another_image(sample.sample_id, before, sample.digest)
        for label, then in rows - {(sample.label, sample.predicted)}:
            same = label == sample.label
            what = f"was predicted {then} and is {sample.predicted}" if same else f"the label was {label} and is {sample.label}"
            remedy = "the data, the model's code or the machine has changed since: choose another --out"
            raise RunError(f"{self.dataset.where}: {sample.sample_id}", what, remedy)

    def _refuse_another_image(self, sample_id: str, before: str | None, digest: str) -> None:
        if before not in (None, digest):
            what = "this image has changed since the run began"
            raise AnotherRunError(f"{self.dataset.where}: {sample_id}", what, "choose another --out")

    def _refuse(self, one: Refused) -> None:
        if self.on_error == "stop":
            raise one.error.or_skip()
        self.listener.warn(f"skipped {one.error}")
        task = None if one.task is None else one.task.names[0]
        self._new.skipped.append(Skip(one.sample_id, str(one.error), task))
        self._new.images.pop(one.sample_id, None)
        self._new.complete += 1
