"""Compute a chunk of images: the clean pass, then each task, in smaller chunks if memory runs out."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from robaudit.auditing.environment import image_digest
from robaudit.auditing.setup import ChunkSizer
from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import DataError, ModelError, SampleError
from robaudit.estimators.base import Need
from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.memory import is_out_of_memory
from robaudit.quantities import IntervalKind
from robaudit.results import LARGEST, Result
from robaudit.rows import Row
from robaudit.text import count

_CLEAN = "clean"  # the name of the clean pass among the steps
_SECONDS_BETWEEN_SIGNS = 0.2  # of life, within a step
NEEDS_LABELS = "label it, or go by the class predicted without noise (target: predicted)"


@dataclass(slots=True)
class Chunk:
    """Images that lack the same tasks; the lists of samples and tasks shrink as tasks are done.

    Attributes:
        tasks: the tasks they lack.
        places: indices in the data set.
        samples: the images; empty if the worker reads them.
    """

    tasks: list[Task]
    places: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def split(self, images: int) -> list[Chunk]:
        """Split into two chunks: the first ``images`` images, and the rest."""
        return [Chunk(list(self.tasks), samples=part) for part in (self.samples[:images], self.samples[images:])]


@dataclass(frozen=True, slots=True)
class Refused:
    """A sample that cannot be used, or for which a step gave no finite number."""

    sample_id: str
    task: Task | None
    error: SampleError


@dataclass(frozen=True, slots=True)
class Clean:
    """A sample after the clean pass: label, predicted class, and digest of its pixels."""

    sample_id: str
    label: int | None
    predicted: int
    digest: str


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step: the clean pass, or one task.

    Attributes:
        task: None for the clean pass.
        seconds: how long it took.
        images: number of images.
        rows: its results.
        clean: the samples, from the clean pass.
        refused: samples that failed; later steps leave them out.
        finished: samples complete after this step.
    """

    task: Task | None
    seconds: float
    images: int
    rows: Sequence[Row] = ()
    clean: Sequence[Clean] = ()
    refused: Sequence[Refused] = ()
    finished: Sequence[str] = ()

    @property
    def key(self) -> str:
        """Its name in the run's record of seconds."""
        return _CLEAN if self.task is None else step_name(self.task)


def step_name(task: Task) -> str:
    """The name of a task in the run's record of seconds."""
    return f"{task.label}@{task.at.key}"


def steps(engine: Engine, samples: Sequence[Sample], tasks: Sequence[Task], where: str) -> Iterator[Step]:
    """Pass the images through the network, then do each task.

    Args:
        engine: model and noise.
        samples: at least one.
        tasks: noise levels outermost, so that the estimators of one level can share their work.
        where: the data set, for messages.
    """
    started = time.perf_counter()
    x = torch.stack([sample.pixels.to(engine.model.dtype) for sample in samples]).to(engine.model.device)
    labels = torch.tensor([-1 if s.label is None else s.label for s in samples], device=x.device)
    batch = ImageBatch.of(engine, x, ids=[s.id for s in samples], labels=labels, gradients=_linearised(tasks))
    finite: list[bool] = batch.logits.isfinite().all(1).tolist()
    refused = [_not_finite(sample, where) for sample, ok in zip(samples, finite, strict=True) if not ok]
    kept = [sample for sample, ok in zip(samples, finite, strict=True) if ok]
    if refused:
        batch = batch.select(torch.tensor(finite, device=x.device))
    predicted: list[int] = batch.predicted.tolist()
    seconds = time.perf_counter() - started  # without the digests
    known = [Clean(sample.id, sample.label, target, image_digest(sample)) for sample, target in zip(kept, predicted, strict=True)]
    yield Step(None, seconds, len(samples), clean=known, refused=refused)
    if not kept:
        return
    broken = set[str]()
    for task in tasks:
        started = time.perf_counter()
        if batch.at != task.at:
            batch = batch.under(task.at)
        results = task.results(batch)
        rows, refused, names = [], [], task.values
        for sample, target, values in zip(kept, predicted, results, strict=True):
            if sample.id in broken:
                continue
            named = list(zip(names, values, strict=True))
            if bad := next(((name, one.value) for name, one in named if _unusable(one)), None):
                broken.add(sample.id)
                refused.append(_broken(sample, task, *bad, where))
            else:
                rows += [_row_of(sample, target, one, task, name) for name, one in named]
        yield Step(task, time.perf_counter() - started, len(kept), rows=rows, refused=refused)


def _linearised(tasks: Sequence[Task]) -> list[str | None]:
    """The noises for which an estimator linearises at the clean image."""
    return list(dict.fromkeys(task.at.noise for task in tasks if Need.JACOBIAN in task.estimator.needs))


def _not_finite(sample: Sample, where: str) -> Refused:
    return Refused(
        sample.id,
        None,
        SampleError(f"{where}: {sample.id}", "its clean logits are not finite", "look for NaN weights or extreme pixels"),
    )


def _broken(sample: Sample, task: Task, name: str, value: float, where: str) -> Refused:
    what = f"{name} gave {value} at {task.at}"
    remedy = "logits or gradients are not finite under noise, or the estimator is broken"
    return Refused(sample.id, task, SampleError(f"{where}: {sample.id}", what, remedy))


def _row_of(sample: Sample, predicted: int, result: Result, task: Task, name: str) -> Row:
    return Row.of(
        result,
        sample_id=sample.id,
        label=sample.label,
        predicted=predicted,
        correct=None if sample.label is None else predicted == sample.label,
        **task.at.document(),
        estimator=name,
        quantity=task.estimator.quantity.name,
    )


def _unusable(result: Result) -> bool:
    """Whether the value is not a number that can be stored and averaged, and the estimator did not declare it missing."""
    declined = math.isnan(result.value) and result.interval.kind is IntervalKind.NO_VALUE
    return not declined and not -LARGEST < result.value < LARGEST


class Signs(Protocol):
    """Progress callbacks for one chunk."""

    def doing(self, what: str) -> None:
        """Name the step that begins."""

    def note(self, text: str) -> None:
        """Receive a note for the user."""

    def underway(self, cost: float) -> None:
        """Report the cost done in the current step, out of :func:`cost_of`; called a few times a second."""

    def stop_asked(self) -> bool:
        """Whether to stop after the current step."""
        ...


class Computer:
    """Computes chunks with one engine.

    Args:
        engine: model and noise.
        sizer: the sizes of chunks.
        where: the data set, for messages.
        signs: receives progress.
    """

    def __init__(self, engine: Engine, sizer: ChunkSizer, where: str, signs: Signs) -> None:
        self.engine, self.sizer, self.signs, self._where = engine, sizer, signs, where
        self._passed = self._due = self._told = 0.0  # in the current step: rows done, rows expected; time of the last report

    def steps(self, chunk: Chunk) -> Iterator[Step]:
        """Do all tasks of a chunk, in smaller chunks where it does not fit into memory.

        Raises:
            ModelError: a single image does not fit into memory.
        """
        waiting = [chunk]
        with self.engine.counting(self._went_through):
            while waiting:
                now = waiting.pop(0)
                tasks, images = list(now.tasks), len(now.samples)
                if images > (most := self.sizer.next_images(tasks)):
                    waiting[:0] = now.split(most)
                    continue
                self.sizer.begin()
                longest = yield from self._attempt(now)
                if now.samples and now.tasks:
                    self._shrink(now)
                    waiting.insert(0, now)
                else:
                    self.sizer.took(tasks, images, longest)

    def _attempt(self, chunk: Chunk) -> Generator[Step, None, float]:
        """Do the tasks of a chunk until memory runs out, removing finished ones; return the seconds of the longest step."""
        longest = 0.0
        try:
            self._begin_step(chunk)
            for step in steps(self.engine, list(chunk.samples), list(chunk.tasks), self._where):
                if step.refused:
                    gone = {one.sample_id for one in step.refused}
                    chunk.samples = [sample for sample in chunk.samples if sample.id not in gone]
                longest = max(longest, step.seconds)
                if step.task is not None:
                    chunk.tasks.remove(step.task)
                yield step if chunk.tasks else replace(step, finished=[sample.id for sample in chunk.samples])
                self._begin_step(chunk)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            chunk.tasks.clear()
        return longest  # the traceback kept the tensors alive until here

    def _begin_step(self, chunk: Chunk) -> None:
        """Announce the first remaining task; the clean pass before it takes no time."""
        self._passed = 0.0
        if chunk.tasks:
            self._due = cost_of(chunk.tasks[0], len(chunk.samples), self.engine.classes)
            self.signs.doing(chunk.tasks[0].text)

    def _went_through(self, rows: int) -> None:
        """Report the step's progress as rows through the network, out of the rows it is expected to take."""
        self._passed += rows
        now = time.perf_counter()
        if now - self._told >= _SECONDS_BETWEEN_SIGNS:
            self._told = now
            self.signs.underway(min(self._passed, self._due))

    def _shrink(self, chunk: Chunk) -> None:
        """Adapt after running out of memory: fewer images a chunk, or fewer rows a pass if it was a single image."""
        images, shape = len(chunk.samples), chunk.samples[0].pixels.shape
        if self.engine.model.device.type == "cuda":
            torch.cuda.empty_cache()
        if images > 1:
            self.sizer.shrink(images)
            self.signs.note(f"out of memory with {images} images at once: continuing with {self.sizer.most}")
            return
        rows = self.engine.halve(shape)
        if rows is None:
            task = chunk.tasks[0]
            raise ModelError(
                self.engine.model.name,
                f"{task.label} at {task.at} does not fit into memory with a single image of {'x'.join(map(str, shape))}",
                "give it more memory, or use another estimator",
            )
        self.signs.note(f"out of memory with one image: continuing with {count(rows, 'row')} in a pass")


def cost_of(task: Task, images: int, classes: int) -> float:
    """The approximate cost of a task for this many images, in rows through the network."""
    return float(images * (1 + task.cost(classes)))


def needing_labels(tasks: Sequence[Task]) -> str:
    """The first estimator that needs every image's label, or ''."""
    return next((task.label for task in tasks if task.estimator.needs_labels), "")


def usable(dataset: Dataset, index: int, read: Sample | SampleError, classes: int, tasks: Sequence[Task]) -> Sample | SampleError:
    """The sample that was read, or the reason it cannot be used: its label is missing or is not one of the model's classes.

    Args:
        dataset: the samples.
        index: of this sample.
        read: the sample, or the error from reading it.
        classes: number of classes of the model.
        tasks: of the audit.

    Raises:
        DataError: the data set calls it by two ids.
    """
    if isinstance(read, SampleError):
        return read
    if read.label is not None and not 0 <= read.label < classes:
        what = f"label {read.label} is out of range: the model has {classes} classes"
        return SampleError(f"{dataset.where}: {read.id}", what, f"labels run from 0 to {classes - 1}")
    if read.label is None and (label := needing_labels(tasks)):
        return SampleError(f"{dataset.where}: {read.id}", f"has no label, and {label} needs one", NEEDS_LABELS)
    if read.id != dataset.sample_id(index):
        what = f"sample {index} has two ids, {read.id!r} and {dataset.sample_id(index)!r}"
        raise DataError(dataset.where, what, "give it one id")
    return read
