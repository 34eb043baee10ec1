"""How is what is missing computed, chunk by chunk, each step on disk before the next?"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from robaudit.before import Before, KnownParts
from robaudit.chunk import Chunk, Refused, Step, steps
from robaudit.datasets.ahead import read_ahead
from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import DataError, ModelError, RobauditError, RunError, SampleError
from robaudit.estimators.engine import Engine
from robaudit.ledger import Ledger
from robaudit.memory import is_out_of_memory
from robaudit.pace import Pace
from robaudit.parts import PartRecord, Skip
from robaudit.progress import Listener
from robaudit.provenance import image_digest
from robaudit.rows import Row

OnError = Literal["stop", "skip"]
_MOST_SKIPS = 1024


class Parts(KnownParts, Protocol):
    """Takes what a loop computes, part by part, and gives it back."""

    def write(self, record: PartRecord) -> int:
        """Add a part; returns its number."""
        ...


@dataclass(slots=True)
class _Unwritten:
    """What is computed and not on disk yet."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)

    def record(self) -> PartRecord:
        """As a part."""
        known = {row.sample_id for row in self.rows}
        return PartRecord(self.rows, self.skipped, {key: digest for key, digest in self.images.items() if key in known}, self.seconds)


@dataclass
class Loop:
    """Computes what the parts of a run lack.

    Attributes:
        parts: where results go.
        dataset: ordered samples.
        engine: model and noise.
        ledger: what there is already; kept up to date.
        pace: how many images at once.
        on_error: stop at an unusable sample, or skip and list it.
        listener: hears the progress.
        workers: threads that read ahead.
    """

    parts: Parts
    dataset: Dataset
    engine: Engine
    ledger: Ledger
    pace: Pace
    on_error: OnError
    listener: Listener
    workers: int = 0
    written: int = field(default=0, init=False)
    _new: _Unwritten = field(default_factory=_Unwritten, init=False)
    _cost: float = field(default=0.0, init=False)
    _paid: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._before = Before(self.ledger, self.parts, self.dataset.where)

    def run(self) -> int:
        """Compute and write what is missing; returns how many parts that took.

        Raises:
            KeyboardInterrupt: the listener asked to stop, and something is left to do.
            SampleError: a sample cannot be used, and shall stop the run.
            ModelError: a single image does not fit into memory.
            RunError: data or model have changed since the run began, or the disk refuses.
        """
        classes = self.engine.classes
        self._cost = float(sum(n * sum(1 + task.cost(classes) for task in tasks) for n, tasks in self.ledger.lacking()))
        self.listener.begin(len(self.dataset), self.ledger.complete)
        try:
            with closing(self._chunks()) as chunks:
                for chunk in chunks:
                    self._compute(chunk)
            self._flush()
        except RunError:
            raise  # the folder is not ours, or refuses
        except (KeyboardInterrupt, RobauditError):
            self._write()  # what is computed is not lost
            raise
        finally:
            self.listener.end()
        return self.written

    def _chunks(self) -> Generator[Chunk]:
        """Consecutive images that lack the same tasks, as many at a time as the pace says."""
        current = Chunk([], [])
        with closing(read_ahead(self.dataset, self.ledger.unfinished(), self.workers, 4 * self.workers)) as samples:
            for index, found in samples:
                sample = self._usable(index, found)
                if sample is None:
                    continue
                tasks = list(self.ledger.missing(index))
                if current.samples and (tasks != current.tasks or len(current.samples) >= self.pace.next_images(tasks)):
                    yield current
                    current = Chunk([], [])
                current.samples.append(sample)
                current.tasks = tasks
        if current.samples:
            yield current

    def _compute(self, chunk: Chunk) -> None:
        """All tasks of a chunk; what does not fit into memory in smaller chunks."""
        waiting, longest = [chunk], 0.0
        images = len(chunk.samples)
        while waiting:
            now = waiting.pop(0)
            tasks, count = list(now.tasks), len(now.samples)
            if count > (most := self.pace.allowed(tasks)):
                waiting[:0] = now.split(most)
                continue
            self.pace.begin()
            longest = max(longest, self._attempt(now))
            if now.samples and now.tasks:
                self._shrink(now)
                waiting.insert(0, now)
            else:
                self.pace.fitted(tasks, count)
        self.pace.took(images, longest)
        if self._due():
            self._flush()

    def _attempt(self, chunk: Chunk) -> float:
        """Do the tasks of a chunk, as far as memory goes; what is done leaves the chunk. Returns the longest step's seconds."""
        longest = 0.0
        try:
            for step in steps(self.engine, list(chunk.samples), list(chunk.tasks), self.dataset.where):
                self._take(step, chunk)
                longest = max(longest, step.seconds)
                if step.task is not None:
                    chunk.tasks.remove(step.task)
                if chunk.tasks and self._new.rows and self._due():
                    self._flush(chunk)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            chunk.tasks.clear()
        return longest  # only here the failure's tensors are gone: the traceback held them

    def _shrink(self, chunk: Chunk) -> None:
        """After a chunk that did not fit into memory: fewer images from now on, or fewer rows in a pass if it was a single one."""
        images, shape = len(chunk.samples), chunk.samples[0].pixels.shape
        if self.engine.model.device.type == "cuda":
            torch.cuda.empty_cache()
        if images > 1:
            self.pace.shrink(images)
            self.listener.note(f"out of memory with {images} images at once: going on with {self.pace.most}")
            return
        rows = self.engine.halve(shape)
        if rows is None:
            task = chunk.tasks[0]
            raise ModelError(
                self.engine.model.name,
                f"{task.chosen.label} at sigma {task.sigma:g} does not fit into memory with a single image of {'x'.join(map(str, shape))}",
                "give it more memory, or another estimator",
            )
        self.listener.note(f"out of memory with one image: going on with {rows} {'row' if rows == 1 else 'rows'} in a pass")

    def _take(self, step: Step, chunk: Chunk) -> None:
        for one in step.refused:
            self._refuse(one.error, one.sample.id, one)
        if step.refused:
            gone = {one.sample.id for one in step.refused}
            self._new.rows = [row for row in self._new.rows if row.sample_id not in gone]
            chunk.samples = [sample for sample in chunk.samples if sample.id not in gone]
        if step.task is None:
            self._before.refuse_another_model(chunk.samples, step.predicted)
            self._new.images.update((sample.id, image_digest(sample)) for sample in chunk.samples)
        self._new.rows += step.rows
        self._new.seconds[step.key] = self._new.seconds.get(step.key, 0.0) + step.seconds
        if step.task is not None and self._cost:
            self._paid += (len(chunk.samples) + len(step.refused)) * (1 + step.task.cost(self.engine.classes))
            self.listener.working(min(1.0, self._paid / self._cost))

    def _flush(self, chunk: Chunk | None = None) -> None:
        """Put on disk what there is, in the middle of a chunk or after one; then stop if that is asked."""
        images = {sample.id: self._new.images[sample.id] for sample in (chunk.samples if chunk else ())}
        self._write()
        self._new.images = images
        if self.listener.stop_asked() and self.ledger.complete < len(self.dataset):
            raise KeyboardInterrupt

    def _due(self) -> bool:
        return self.pace.due(time.perf_counter() - self._new.since, len(self._new.rows))

    def _write(self) -> None:
        if self._new.rows or self._new.skipped:
            record = self._new.record()
            before = self.ledger.complete
            self.ledger.take(self.parts.write(record), record)
            self.written += 1
            self.listener.advance(self.ledger.complete - before)
        self._new = _Unwritten()

    def _usable(self, index: int, found: Sample | SampleError) -> Sample | None:
        """The sample, unless it is skipped.

        Raises:
            SampleError: it is unusable, and shall stop the run.
            RunError: its image has changed since its first part was written.
        """
        if isinstance(found, Sample) and found.label is not None and not 0 <= found.label < self.engine.classes:
            found = SampleError(
                f"{self.dataset.where}: {found.id}",
                f"label {found.label} is out of range: the model has {self.engine.classes} classes",
                f"labels run from 0 to {self.engine.classes - 1}",
            )
        if isinstance(found, SampleError):
            self._refuse(found, self.dataset.sample_id(index))
            if len(self._new.skipped) >= _MOST_SKIPS or self._due():  # no chunk is being computed here
                self._flush()
            return None
        if found.id != self.dataset.sample_id(index):
            raise DataError(self.dataset.where, f"sample {index} is {found.id!r} and {self.dataset.sample_id(index)!r}", "give it one id")
        self._before.refuse_another_image(index, found)
        return found

    def _refuse(self, error: SampleError, sample_id: str, at: Refused | None = None) -> None:
        if self.on_error == "stop":
            raise error.or_skip()
        self.listener.warn(f"skipped {error}")
        task = None if at is None or at.task is None else (at.task.sigma, at.task.chosen.label)
        self._new.skipped.append(Skip(sample_id, str(error), task))
