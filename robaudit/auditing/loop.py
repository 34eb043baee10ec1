"""The loop of an audit: compute what is missing, chunk by chunk, and write it to the run's state as it goes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import torch

from robaudit.auditing.environment import image_digest
from robaudit.auditing.setup import Pace, make_pace
from robaudit.datasets.ahead import read_ahead
from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import AnotherRunError, DataError, ModelError, RobauditError, RunError, SampleError
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.estimators.work import CleanPass, Work
from robaudit.memory import Limit, is_out_of_memory
from robaudit.progress import Listener
from robaudit.rows import LARGEST, Row
from robaudit.spec.model import AuditSpec
from robaudit.store.state import Flush, Skip, State, TaskName
from robaudit.text import count

OnError = Literal["stop", "skip"]
_CLEAN = "clean"  # the name of the clean pass among the steps
_SECONDS_BETWEEN_SIGNS = 0.2  # of life, within a step
_MOST_SKIPS = 1024  # in one flush, roughly
NEEDS_LABELS = "label it, or go by the class predicted without noise (target: predicted)"


@dataclass(slots=True)
class Chunk:
    """Images that lack the same tasks; both lists shrink as the work proceeds."""

    samples: list[Sample]
    tasks: list[Task]

    def split(self, images: int) -> list[Chunk]:
        """The same work in two chunks: this many images, and the rest."""
        return [Chunk(part, list(self.tasks)) for part in (self.samples[:images], self.samples[images:])]


@dataclass(frozen=True, slots=True)
class Refused:
    """A sample for which a step gave no finite number."""

    sample: Sample
    task: Task | None
    error: SampleError


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step: the clean pass, or one task.

    Attributes:
        task: None for the clean pass.
        seconds: how long it took.
        rows: its results.
        predicted: the samples' predicted classes, from the clean pass.
        refused: samples for which it failed; the steps that follow leave them out.
    """

    task: Task | None
    seconds: float
    rows: Sequence[Row] = ()
    predicted: Sequence[int] = ()
    refused: Sequence[Refused] = ()

    @property
    def key(self) -> str:
        """Its name in the run's record of seconds."""
        return _CLEAN if self.task is None else step_name(self.task)


def step_name(task: Task) -> str:
    """The name of a task in the run's record of seconds."""
    return f"{task.chosen.label}@{task.at.key}"


def steps(engine: Engine, samples: Sequence[Sample], tasks: Sequence[Task], where: str) -> Iterator[Step]:
    """Pass the images through the network, then do one task after the other.

    Args:
        engine: model and noise.
        samples: at least one.
        tasks: noise levels outermost, so that the estimators of one level can share their work.
        where: the data set, for messages.
    """
    started = time.perf_counter()
    x = torch.stack([sample.pixels.to(engine.model.dtype) for sample in samples]).to(engine.model.device)
    clean = CleanPass.of(engine, x, gradients=_linearised(tasks))
    finite: list[bool] = clean.logits.isfinite().all(1).tolist()
    refused = [_not_finite(sample, where) for sample, ok in zip(samples, finite, strict=True) if not ok]
    kept = [sample for sample, ok in zip(samples, finite, strict=True) if ok]
    if refused:
        keep = torch.tensor(finite, device=x.device)
        x, clean = x[keep], clean.select(keep)
    predicted = clean.predicted.tolist()
    yield Step(None, time.perf_counter() - started, predicted=predicted, refused=refused)
    if not kept:
        return
    labels = torch.tensor([-1 if s.label is None else s.label for s in kept], device=x.device)
    ids, broken = [s.id for s in kept], set[str]()
    work: Work | None = None
    for task in tasks:
        started = time.perf_counter()
        if work is None or work.at != task.at:
            work = Work(ids, x, labels, task.at, clean, engine)
        estimates = task.chosen.estimates(work)
        rows, refused, names = [], [], task.chosen.names
        for sample, target, values in zip(kept, predicted, estimates, strict=True):
            if sample.id in broken:
                continue
            named = list(zip(names, values, strict=True))
            if bad := next(((name, one.value) for name, one in named if not _writable(one.value)), None):
                broken.add(sample.id)
                refused.append(_broken(sample, task, *bad, where))
            else:
                rows += [_row_of(sample, target, one, task, name) for name, one in named]
        yield Step(task, time.perf_counter() - started, rows=rows, refused=refused)


def _linearised(tasks: Sequence[Task]) -> list[str]:
    """The noises under which an estimator linearises at the clean image."""
    return list(dict.fromkeys(task.at.noise for task in tasks if task.chosen.estimator.linearises_clean))


def _not_finite(sample: Sample, where: str) -> Refused:
    return Refused(
        sample,
        None,
        SampleError(f"{where}: {sample.id}", "its clean logits are not finite", "look for NaN weights or extreme pixels"),
    )


def _broken(sample: Sample, task: Task, name: str, value: float, where: str) -> Refused:
    what = f"{name} gave {value} at {task.at}"
    remedy = "logits or gradients are not finite under noise, or the estimator is broken"
    return Refused(sample, task, SampleError(f"{where}: {sample.id}", what, remedy))


def _row_of(sample: Sample, predicted: int, estimate: Estimate, task: Task, name: str) -> Row:
    return Row(
        sample_id=sample.id,
        label=sample.label,
        predicted=predicted,
        correct=None if sample.label is None else predicted == sample.label,
        noise=task.at.noise,
        level_name=task.at.name.value,
        level=task.at.level,
        estimator=name,
        quantity=task.chosen.estimator.quantity.name,
        value=float(estimate.value),
        lower=_bound(estimate.lower),
        upper=_bound(estimate.upper),
        std_error=_bound(estimate.std_error),
        flips_to=None if estimate.flips_to is None else int(estimate.flips_to),
        forwards=int(estimate.forwards),
        backwards=int(estimate.backwards),
        note=estimate.note,
        interval=estimate.interval,
        votes=estimate.votes,
        details=None if estimate.details is None else {name: _plain(value) for name, value in estimate.details.items() if _writable(value)},
        worth=estimate.worth,
        not_finite=estimate.not_finite,
        kept=estimate.kept,
    )


def _writable(value: float) -> bool:
    """Whether a number can be stored and averaged."""
    return -LARGEST < float(value) < LARGEST


def _plain(value: float) -> float:
    """The number as a Python int or float: a plugin may return NumPy's."""
    return value if isinstance(value, int) else float(value)


def _bound(value: float | None) -> float | None:
    """An end of an interval; None for an infinite one."""
    return float(value) if value is not None and _writable(value) else None


def task_names(tasks: Sequence[Task]) -> list[TaskName]:
    """The names of the tasks' results, which are the tasks of the state: one for each value that a task gives of an image."""
    return [name for task in tasks for name in task.names]


def needing_labels(tasks: Sequence[Task]) -> str:
    """The first estimator that needs the label of every image; "" where none does."""
    return next((task.chosen.label for task in tasks if task.chosen.estimator.needs_labels), "")


def compute_missing(
    state: State,
    spec: AuditSpec,
    engine: Engine,
    dataset: Dataset,
    tasks: Sequence[Task],
    image: torch.Tensor,
    limit: Limit,
    listener: Listener,
    *,
    batch_dependent: bool,
    on_error: OnError = "stop",
    workers: int = 0,
) -> int:
    """Compute what a state lacks: of every sample, every task.

    Args:
        state: of a run, or one in memory; :meth:`State.begin` has been called with these samples, and the names of these tasks.
        spec: whether the run is deterministic, which sets the size of the chunks.
        engine: model and noise.
        dataset: ordered samples.
        tasks: noise levels outermost.
        image: one image, for its shape.
        limit: of the process's memory.
        listener: receives the progress.
        batch_dependent: whether the model looks at all the images of a batch, so that the size of a chunk must not depend on time.
        on_error: stop at an unusable sample, or skip and list it.
        workers: threads that read ahead.

    Returns:
        The number of flushes.

    Raises:
        KeyboardInterrupt: the listener asked to stop, and work is left.
        SampleError: a sample is unusable, and ``on_error`` is "stop".
        ModelError: a single image does not fit into memory.
        RunError: data or model have changed since the run began, or the file system refuses.
    """
    pace = make_pace(spec, engine, tasks, image, limit, batch_dependent=batch_dependent)
    return _Loop(state, dataset, engine, tasks, pace, on_error, listener, workers).run()


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


@dataclass
class _Loop:
    """Computes what the state of a run lacks; for the fields see :func:`compute_missing`."""

    state: State
    dataset: Dataset
    engine: Engine
    tasks: Sequence[Task]
    pace: Pace
    on_error: OnError
    listener: Listener
    workers: int = 0
    flushes: int = field(default=0, init=False)
    _new: _Unwritten = field(default_factory=_Unwritten, init=False)
    _left: int = field(default=0, init=False)
    _cost: float = field(default=0.0, init=False)
    _paid: float = field(default=0.0, init=False)
    _passed: float = field(default=0.0, init=False)
    """Rows that have gone through the network in the present step."""
    _due_cost: float = field(default=0.0, init=False)
    """What the present step is expected to cost."""
    _told: float = field(default=0.0, init=False)
    _task_of: Sequence[int] = field(default=(), init=False)
    """The task of each of the state's."""

    def __post_init__(self) -> None:
        self._task_of = [number for number, task in enumerate(self.tasks) for _ in task.names]

    def run(self) -> int:
        """Compute and write what is missing; see :func:`compute_missing`."""
        unfinished, classes = self.state.unfinished, self.engine.classes
        self._left = len(unfinished)
        self._cost = float(sum(n * (1 + task.cost(classes)) for n, task in zip(self._lacking(), self.tasks, strict=True)))
        self.listener.begin(len(self.dataset), len(self.dataset) - self._left)
        try:
            with closing(self._chunks(unfinished)) as chunks, self.engine.counting(self._went_through):
                for chunk in chunks:
                    self._compute(chunk)
            self._flush()
        except RunError:
            raise  # the folder is no longer ours, or cannot be written
        except (KeyboardInterrupt, RobauditError):
            self._write()  # keep what is computed
            raise
        finally:
            self.listener.end()
        return self.flushes

    def _lacking(self) -> list[int]:
        """For each task, how many of the unfinished samples lack one of its values."""
        most = [0] * len(self.tasks)
        for number, lacking in zip(self._task_of, self.state.lacking(), strict=True):
            most[number] = max(most[number], lacking)
        return most

    def _chunks(self, unfinished: Sequence[int]) -> Generator[Chunk]:
        """Consecutive images that lack the same tasks, as many at a time as the pace says."""
        current = Chunk([], [])
        self.listener.doing("reading images")
        with closing(read_ahead(self.dataset, unfinished, self.workers, 4 * self.workers)) as samples:
            for index, read in samples:
                sample = self._usable(index, read)
                if sample is None:
                    continue
                tasks = [self.tasks[number] for number in dict.fromkeys(self._task_of[name] for name in self.state.missing(index))]
                if current.samples and (tasks != current.tasks or len(current.samples) >= self.pace.next_images(tasks)):
                    yield current
                    self.listener.doing("reading images")
                    current = Chunk([], [])
                current.samples.append(sample)
                current.tasks = tasks
        if current.samples:
            yield current

    def _compute(self, chunk: Chunk) -> None:
        """Do all tasks of a chunk, in smaller chunks where it does not fit into memory."""
        waiting, longest = [chunk], 0.0
        total = len(chunk.samples)
        while waiting:
            now = waiting.pop(0)
            tasks, images = list(now.tasks), len(now.samples)
            if images > (most := self.pace.allowed(tasks)):
                waiting[:0] = now.split(most)
                continue
            self.pace.begin()
            longest = max(longest, self._attempt(now))
            if now.samples and now.tasks:
                self._shrink(now)
                waiting.insert(0, now)
            else:
                self.pace.fitted(tasks, images)
                self._new.complete += len(now.samples)
        self.pace.took(total, longest)
        if self._due():
            self._flush()

    def _attempt(self, chunk: Chunk) -> float:
        """Do the tasks of a chunk until memory runs out, removing what is done from it; return the seconds of the longest step."""
        longest = 0.0
        try:
            self._begin_step(chunk)
            for step in steps(self.engine, list(chunk.samples), list(chunk.tasks), self.dataset.where):
                self._take(step, chunk)
                longest = max(longest, step.seconds)
                if step.task is not None:
                    chunk.tasks.remove(step.task)
                self._begin_step(chunk)
                if chunk.tasks and self._new.rows and self._due():
                    self._flush(chunk)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            chunk.tasks.clear()
        return longest  # only here are the tensors of the failure freed: the traceback kept them alive

    def _begin_step(self, chunk: Chunk) -> None:
        """Say what is computed next: the first of the tasks that are left; the clean pass before it takes no time."""
        self._passed = 0.0
        if chunk.tasks:
            task = chunk.tasks[0]
            self._due_cost = len(chunk.samples) * (1 + task.cost(self.engine.classes))
            self.listener.doing(task.text)

    def _went_through(self, rows: int) -> None:
        """Show progress within a step: by the rows that have gone through the network, of those that it is expected to take."""
        self._passed += rows
        now = time.perf_counter()
        if self._cost and now - self._told >= _SECONDS_BETWEEN_SIGNS:
            self._told = now
            self.listener.working(min(1.0, (self._paid + min(self._passed, self._due_cost)) / self._cost))

    def _shrink(self, chunk: Chunk) -> None:
        """Adapt to a chunk that did not fit into memory: fewer images from now on, or fewer rows in a pass if it was a single image."""
        images, shape = len(chunk.samples), chunk.samples[0].pixels.shape
        if self.engine.model.device.type == "cuda":
            torch.cuda.empty_cache()
        if images > 1:
            self.pace.shrink(images)
            self.listener.note(f"out of memory with {images} images at once: continuing with {self.pace.most}")
            return
        rows = self.engine.halve(shape)
        if rows is None:
            task = chunk.tasks[0]
            raise ModelError(
                self.engine.model.name,
                f"{task.chosen.label} at {task.at} does not fit into memory with a single image of {'x'.join(map(str, shape))}",
                "give it more memory, or use another estimator",
            )
        self.listener.note(f"out of memory with one image: continuing with {count(rows, 'row')} in a pass")

    def _take(self, step: Step, chunk: Chunk) -> None:
        for one in step.refused:
            self._refuse(one.error, one.sample.id, one)
        if step.refused:
            gone = {one.sample.id for one in step.refused}
            self._new.rows = [row for row in self._new.rows if row.sample_id not in gone]
            chunk.samples = [sample for sample in chunk.samples if sample.id not in gone]
        if step.task is None:
            self._refuse_another_model(chunk.samples, step.predicted)
            self._new.images.update((sample.id, image_digest(sample)) for sample in chunk.samples)
        self._new.rows += step.rows
        self._new.seconds[step.key] = self._new.seconds.get(step.key, 0.0) + step.seconds
        if step.task is not None and self._cost:
            self._paid += (len(chunk.samples) + len(step.refused)) * (1 + step.task.cost(self.engine.classes))
            self.listener.working(min(1.0, self._paid / self._cost))

    def _flush(self, chunk: Chunk | None = None) -> None:
        """Write the results so far to disk, within a chunk or after one; then stop if asked to."""
        images = {sample.id: self._new.images[sample.id] for sample in (chunk.samples if chunk else ())}
        self._write()
        self._new.images = images
        if self.listener.stop_asked() and self._left:
            raise KeyboardInterrupt

    def _due(self) -> bool:
        return self.pace.due(time.perf_counter() - self._new.since, len(self._new.rows))

    def _write(self) -> None:
        if self._new.rows or self._new.skipped:
            self.state.write(self._new.flush())
            self.flushes += 1
            self._left -= self._new.complete
            self.listener.advance(self._new.complete)
        self._new = _Unwritten()

    def _usable(self, index: int, read: Sample | SampleError) -> Sample | None:
        """The sample; None if it is skipped.

        Raises:
            SampleError: it is unusable, and ``on_error`` is "stop".
            DataError: the data set calls it by two ids.
            AnotherRunError: its image has changed since its first results were written.
        """
        if isinstance(read, Sample) and read.label is not None and not 0 <= read.label < self.engine.classes:
            read = SampleError(
                f"{self.dataset.where}: {read.id}",
                f"label {read.label} is out of range: the model has {self.engine.classes} classes",
                f"labels run from 0 to {self.engine.classes - 1}",
            )
        if isinstance(read, Sample) and read.label is None and (label := needing_labels(self.tasks)):
            read = SampleError(f"{self.dataset.where}: {read.id}", f"has no label, and {label} needs one", NEEDS_LABELS)
        if isinstance(read, SampleError):
            self._refuse(read, self.dataset.sample_id(index))
            if len(self._new.skipped) >= _MOST_SKIPS or self._due():  # no chunk is being computed here
                self._flush()
            return None
        if read.id != self.dataset.sample_id(index):
            raise DataError(
                self.dataset.where, f"sample {index} has two ids, {read.id!r} and {self.dataset.sample_id(index)!r}", "give it one id"
            )
        digest, _ = self.state.known(read.id)
        if digest is not None and digest != image_digest(read):
            raise AnotherRunError(f"{self.dataset.where}: {read.id}", "this image has changed since the run began", "choose another --out")
        return read

    def _refuse_another_model(self, samples: Sequence[Sample], predicted: Sequence[int]) -> None:
        """Refuse a sample whose label or prediction is not that of the rows it already has.

        Raises:
            RunError: the data, the model's code or the machine has changed.
        """
        for sample, now in zip(samples, predicted, strict=True):
            for label, then in self.state.known(sample.id)[1] - {(sample.label, now)}:
                what = f"the label was {label} and is {sample.label}" if label != sample.label else f"was predicted {then} and is {now}"
                remedy = "the data, the model's code or the machine has changed since: choose another --out"
                raise RunError(f"{self.dataset.where}: {sample.id}", what, remedy)

    def _refuse(self, error: SampleError, sample_id: str, at: Refused | None = None) -> None:
        if self.on_error == "stop":
            raise error.or_skip()
        self.listener.warn(f"skipped {error}")
        task = None if at is None or at.task is None else at.task.names[0]
        self._new.skipped.append(Skip(sample_id, str(error), task))
        self._new.complete += 1
