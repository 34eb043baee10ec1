"""Compute chunks of images: read them, the clean pass, then each task, in smaller chunks if memory
runs out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import compress, islice

import torch

from robaudit.auditing.chunk_sizes import ChunkSizer
from robaudit.auditing.environment import image_digest
from robaudit.auditing.rounds import Work
from robaudit.datasets.ahead import Read, read_ahead
from robaudit.datasets.dataset import Dataset, Sample
from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.engine.registry import Task
from robaudit.errors import DataError, ModelError, SampleError
from robaudit.levels import NoiseLevel
from robaudit.memory import is_out_of_memory
from robaudit.progress import Listener
from robaudit.quantities import IntervalKind
from robaudit.results import LARGEST, Result
from robaudit.runs.rows import Row
from robaudit.runs.state import RowKey
from robaudit.text import count

_CLEAN = "clean"  # the name of the clean pass among the steps
_PROGRESS_SECONDS = 0.2  # between two reports of progress within a step
NEEDS_LABELS = "label it, or go by the class predicted without noise (target: predicted)"

Progress = Callable[[Work | None, float], None]
"""Called with the current work (None: images are read) and the cost done of it (see
:func:`cost_of`), a few times a second."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Images that lack the same work.

    Attributes:
        work: what to compute.
        places: of the images in the data set.
        earlier: the rows so far of work that goes on, by their keys.
    """

    work: tuple[Work, ...]
    places: tuple[int, ...]
    earlier: Mapping[RowKey, Row] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clean:
    """A sample with its label, its predicted class, and the digest of its pixels."""

    sample_id: str
    label: int | None
    predicted: int
    digest: str


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step: the clean pass, or the work on one task.

    Attributes:
        work: None for reading and the clean pass.
        seconds: how long the step took.
        images: number of images.
        rows: results of the task.
        clean: the samples, before the work on them.
        refused: errors of the samples that cannot be used, or for which the task gave no finite
            number, by id; later steps leave these samples out.
        finished: ids of the samples of which nothing in the chunk is left after this step.
    """

    work: Work | None
    seconds: float
    images: int
    rows: Sequence[Row] = ()
    clean: Sequence[Clean] = ()
    refused: Mapping[str, SampleError] = field(default_factory=dict)
    finished: Sequence[str] = ()

    @property
    def key(self) -> str:
        """The name of the step in the run's record of seconds."""
        return _CLEAN if self.work is None else step_name(self.work.task)


def step_name(task: Task) -> str:
    """The name of a task in the run's record of seconds."""
    return f"{task.label}@{task.at.key}"


def steps(
    engine: Engine,
    samples: Sequence[Sample],
    work: Sequence[Work],
    earlier: Mapping[RowKey, Row],
    where: str,
) -> Iterator[Step]:
    """Pass the images through the network, then do the work on each task.

    Where all of the work goes on with earlier rows, their predictions replace the clean pass.

    Args:
        engine: model and noise.
        samples: at least one.
        work: noise levels outermost, so that the estimators of one level can share their passes.
        earlier: the rows so far of work that goes on, by their keys.
        where: the data set, for messages.
    """
    started = time.perf_counter()
    # (images, channels, height, width), in the precision of the run
    pixels = torch.stack([sample.pixels.to(engine.model.dtype) for sample in samples])
    x = pixels.to(engine.model.device)
    labels = torch.tensor([-1 if s.label is None else s.label for s in samples], device=x.device)
    ids = [sample.id for sample in samples]
    refused = dict[str, SampleError]()
    usable = list[Sample](samples)
    if all(part.start for part in work):
        (name, *_) = work[0].task.names
        known = [earlier[(sample_id, *name)].predicted for sample_id in ids]
        classes = torch.tensor(known, device=x.device)
        batch = ImageBatch(ids, x, labels, NoiseLevel(), engine, classes)
    else:
        batch = ImageBatch.from_images(engine, x, ids=ids, labels=labels)
        finite: list[bool] = batch.logits.isfinite().all(1).tolist()
        usable = list(compress(samples, finite))
        refused = {
            sample.id: _not_finite(sample, where)
            for sample, is_finite in zip(samples, finite, strict=True)
            if not is_finite
        }
        if refused:
            batch = batch.select(torch.tensor(finite, device=x.device))
    predicted: list[int] = batch.predicted.tolist()
    # Before the digests, which are no work of the network.
    seconds = time.perf_counter() - started
    clean = [
        Clean(sample.id, sample.label, predicted_class, image_digest(sample))
        for sample, predicted_class in zip(usable, predicted, strict=True)
    ]
    yield Step(None, seconds, len(samples), clean=clean, refused=refused)
    if not usable:
        return
    # A sample that fails a task stays in the batch for the later ones; its results are ignored.
    broken = set[str]()
    for part in work:
        started = time.perf_counter()
        task = part.task
        if batch.at != task.at:
            batch = batch.under(task.at)
        results = _results(part, batch, earlier)
        rows = list[Row]()
        refused = dict[str, SampleError]()
        for sample, predicted_class, values in zip(usable, predicted, results, strict=True):
            if sample.id in broken:
                continue
            named = list(zip(task.values, values, strict=True))
            unusable = [(name, result.value) for name, result in named if _unusable(result)]
            if unusable:
                broken.add(sample.id)
                refused[sample.id] = _broken(sample, task, *unusable[0], where)
                continue
            rows += [_row_of(sample, predicted_class, result, task, name) for name, result in named]
        yield Step(part, time.perf_counter() - started, len(usable), rows=rows, refused=refused)


def _results(
    part: Work, batch: ImageBatch, earlier: Mapping[RowKey, Row]
) -> list[tuple[Result, ...]]:
    """The results of the images, from the copies of this round and the earlier ones."""
    if part.draws is None:
        return part.task.results(batch)
    before = None
    if part.start:
        (name,) = part.task.names
        before = [earlier[(sample_id, *name)] for sample_id in batch.ids]
    results = part.task.results(batch, draws=part.draws, earlier=before)
    at_look = part.at_look([result for (result,) in results], batch.predicted.tolist())
    return [(result,) for result in at_look]


def _not_finite(sample: Sample, where: str) -> SampleError:
    """The error for a sample whose clean logits are not finite."""
    return SampleError(
        f"{where}: {sample.id}",
        "its clean logits are not finite",
        "look for NaN weights or extreme pixels",
    )


def _broken(sample: Sample, task: Task, name: str, value: float, where: str) -> SampleError:
    """The error for a sample for which a task gave an unusable value."""
    what = f"{name} gave {value} at {task.at}"
    remedy = (
        "logits or gradients are not finite under noise, its class is masked by a logit of -inf, "
        "or the estimator is broken"
    )
    return SampleError(f"{where}: {sample.id}", what, remedy)


def _row_of(sample: Sample, predicted: int, result: Result, task: Task, name: str) -> Row:
    """A result of a task as a row."""
    return Row.from_result(
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
    """Whether a value cannot be stored and averaged, although its estimator does not declare it
    missing."""
    declared_missing = math.isnan(result.value) and result.interval.kind is IntervalKind.NO_VALUE
    # The comparison is false for NaN, too.
    return not declared_missing and not -LARGEST < result.value < LARGEST


class Worker:
    """Computes chunks with one engine, in this process.

    Args:
        engine: model and noise.
        sizer: the sizes of chunks.
        data: the samples.
        tasks: of the audit.
        readers: threads that read images ahead.
    """

    number = 1

    def __init__(
        self,
        engine: Engine,
        sizer: ChunkSizer,
        data: Dataset,
        tasks: Sequence[Task],
        readers: int = 0,
    ) -> None:
        self._engine = engine
        self._sizer = sizer
        self._data = data
        self._readers = readers
        self._tasks = tasks
        # Of the current step: rows that went through the network, and rows expected.
        self._rows_done = 0.0
        self._rows_expected = 0.0
        self._last_report = 0.0

    @property
    def where(self) -> str:
        """The data set, for messages."""
        return self._data.where

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self._engine.classes

    def next_images(self, work: Sequence[Work]) -> int:
        """Number of images for the next chunk."""
        return self._sizer.next_images(work)

    def steps(
        self, chunks: Iterator[Chunk], places: Sequence[int], listener: Listener, progress: Progress
    ) -> Generator[Step]:
        """Compute the chunks one after the other; the images are read ahead.

        Args:
            chunks: of images that lack the same work.
            places: the places of their images, in the order of the chunks.
            listener: receives notes.
            progress: called with the current work.
        """
        progress(None, 0.0)
        # One reader for all chunks: it reads the images of the next while one is computed.
        with closing(self.read(places)) as images:
            for chunk in chunks:
                progress(None, 0.0)
                images_of_chunk = list(islice(images, len(chunk.places)))
                yield from self.compute(chunk, images_of_chunk, listener, progress)

    def has(self, places: Sequence[int], ids: Sequence[str]) -> bool:
        """Whether the data set has samples of these ids at these places."""
        data = self._data
        return all(
            place < len(data) and data.sample_id(place) == name
            for place, name in zip(places, ids, strict=True)
        )

    def read(self, places: Sequence[int]) -> Generator[Read]:
        """Read samples in order, ahead of the caller."""
        # Four images a thread: a slow image does not stop the others.
        return read_ahead(self._data, places, self._readers, 4 * self._readers)

    def compute(
        self, chunk: Chunk, images: Iterable[Read], listener: Listener, progress: Progress
    ) -> Iterator[Step]:
        """Do the work of a chunk on the usable ones of its images, in smaller chunks where they do
        not fit into memory.

        Raises:
            ModelError: a single image does not fit into memory.
            DataError: the data set gives a sample two ids.
        """
        samples = list[Sample]()
        refused = dict[str, SampleError]()
        for place, read in images:
            checked = self._checked(place, read)
            if isinstance(checked, SampleError):
                refused[self._data.sample_id(place)] = checked
            else:
                samples.append(checked)
        if refused:
            yield Step(None, 0.0, 0, refused=refused)
        if samples:
            yield from self._compute_in_memory(chunk, samples, listener, progress)

    def _checked(self, place: int, read: Sample | SampleError) -> Sample | SampleError:
        """The sample that was read, or the reason it cannot be used: its label is missing or is not
        one of the model's classes."""
        if isinstance(read, SampleError):
            return read
        where = f"{self._data.where}: {read.id}"
        if read.label is not None and not 0 <= read.label < self.classes:
            what = f"label {read.label} is out of range: the model has {self.classes} classes"
            return SampleError(where, what, f"labels run from 0 to {self.classes - 1}")
        if read.label is None:
            estimator = needing_labels(self._tasks)
            if estimator:
                return SampleError(where, f"has no label, and {estimator} needs one", NEEDS_LABELS)
        # Noise is seeded by the id of the sample that was read, rows are looked up by the other.
        if read.id != self._data.sample_id(place):
            what = f"sample {place} has two ids, {read.id!r} and {self._data.sample_id(place)!r}"
            raise DataError(self._data.where, what, "give it one id")
        return read

    def _compute_in_memory(
        self, chunk: Chunk, samples: list[Sample], listener: Listener, progress: Progress
    ) -> Iterator[Step]:
        """Do the work, in smaller chunks where the samples do not fit into memory."""
        work = list(chunk.work)
        waiting = [(work, samples)]

        def count_rows(rows: int) -> None:
            self._rows_done += rows
            now = time.perf_counter()
            if now - self._last_report >= _PROGRESS_SECONDS:
                self._last_report = now
                progress(work[0], min(self._rows_done, self._rows_expected))

        with self._engine.counting(count_rows):
            while waiting:
                # Both lists are changed by _attempt: what is left in them is to be done again.
                work, samples = waiting.pop(0)
                work_before = tuple(work)
                images_before = len(samples)
                most = self._sizer.next_images(work)
                if images_before > most:
                    # In order: the images of the first part come first.
                    waiting[:0] = [(list(work), samples[:most]), (list(work), samples[most:])]
                    continue
                self._sizer.begin()
                longest = yield from self._attempt(work, samples, chunk.earlier, progress)
                if samples and work:
                    self._shrink(work[0].task, samples, listener)
                    waiting.insert(0, (work, samples))
                else:
                    self._sizer.took(work_before, images_before, longest)

    def _attempt(
        self,
        work: list[Work],
        samples: list[Sample],
        earlier: Mapping[RowKey, Row],
        progress: Progress,
    ) -> Generator[Step, None, float]:
        """Work until memory runs out; return the seconds of the longest step.

        Work that is done and samples that are refused are removed from the lists.
        """
        longest = 0.0
        try:
            self._begin_step(work, len(samples), progress)
            of_chunk = steps(self._engine, list(samples), list(work), earlier, self._data.where)
            for step in of_chunk:
                samples[:] = [sample for sample in samples if sample.id not in step.refused]
                longest = max(longest, step.seconds)
                if step.work is not None:
                    work.remove(step.work)
                yield step if work else replace(step, finished=[sample.id for sample in samples])
                self._begin_step(work, len(samples), progress)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler: the traceback, which keeps the tensors of the attempt alive, is gone
        # before the caller tries again.
        return longest

    def _begin_step(self, work: Sequence[Work], images: int, progress: Progress) -> None:
        """Announce the first remaining work; the clean pass before it counts as no time."""
        self._rows_done = 0.0
        if work:
            self._rows_expected = cost_of(work[0], images, self.classes)
            progress(work[0], 0.0)

    def _shrink(self, task: Task, samples: Sequence[Sample], listener: Listener) -> None:
        """Adapt after running out of memory: fewer images a chunk, or fewer rows a pass if it was a
        single image."""
        images = len(samples)
        shape = samples[0].pixels.shape
        if self._engine.model.device.type == "cuda":
            torch.cuda.empty_cache()  # else the freed blocks may stay too fragmented for the rest
        if images > 1:
            self._sizer.shrink(images)
            listener.note(
                f"out of memory with {images} images at once: continuing with {self._sizer.most}"
            )
            return
        rows = self._engine.halve(shape)
        if rows is None:
            size = "x".join(map(str, shape))
            what = (
                f"{task.label} at {task.at} does not fit into memory with a single image of {size}"
            )
            raise ModelError(
                self._engine.model.name, what, "give it more memory, or use another estimator"
            )
        listener.note(
            f"out of memory with one image: continuing with {count(rows, 'row')} in a pass"
        )


def cost_of(work: Work, images: int, classes: int) -> float:
    """The approximate cost of work on this many images, in rows through the network."""
    return float(images * (1 + work.cost(classes)))


def needing_labels(tasks: Sequence[Task]) -> str:
    """The first estimator that needs every image's label, or ''."""
    return next((task.label for task in tasks if task.estimator.needs_labels), "")
