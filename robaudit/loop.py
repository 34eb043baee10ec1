"""How are the missing results computed, chunk by chunk, each on disk before the next?"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from robaudit.datasets.base import Dataset, Sample
from robaudit.errors import DataError, RunError, SampleError
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine
from robaudit.estimators.work import CleanPass, Work
from robaudit.plan import Chunk, Task, chunk_size, chunks
from robaudit.progress import Listener
from robaudit.provenance import image_digest
from robaudit.rows import Row
from robaudit.runs import PartRecord, Skip

OnError = Literal["stop", "skip"]


class Parts(Protocol):
    """Takes what a loop computes, part by part."""

    def write_part(self, record: PartRecord) -> None:
        """Add a part."""
        ...


@dataclass(frozen=True)
class Loop:
    """Computes what the parts of a run folder lack.

    Attributes:
        folder: where parts go.
        dataset: ordered samples.
        engine: model and noise.
        tasks: every estimator at every noise level.
        on_error: stop at an unusable sample, or skip and list it.
        listener: hears the progress.
    """

    folder: Parts
    dataset: Dataset
    engine: Engine
    tasks: Sequence[Task]
    on_error: OnError
    listener: Listener

    def run(self, parts: Sequence[PartRecord]) -> list[PartRecord]:
        """Compute and write the missing parts; returns them."""
        ids = [self.dataset.sample_id(i) for i in range(len(self.dataset))]
        if len(set(ids)) < len(ids):
            twice = next(sample_id for sample_id, count in Counter(ids).items() if count > 1)
            raise DataError(self.dataset.where, f"the id {twice!r} stands twice", "give every sample an id of its own")
        before = {row.sample_id: (row.label, row.predicted) for part in parts for row in part.rows}
        digests = {sample_id: digest for part in parts for sample_id, digest in part.images.items()}
        done = self._done(parts)
        complete = sum(len(done.get(sample_id, ())) == len(self.tasks) for sample_id in ids)
        self.listener.begin(len(ids), complete)
        size: int | None = None
        written = []
        try:
            if complete < len(ids):
                size = chunk_size(self.tasks, self.engine.classes, self._shape())
                left = len(ids) - complete
                for chunk in chunks(ids, self.tasks, done, size):
                    record = self._chunk(chunk, digests, before)
                    self.folder.write_part(record)
                    written.append(record)
                    self.listener.advance(len(chunk.indices))
                    left -= len(chunk.indices)
                    if left > 0 and self.listener.stop_asked():
                        raise KeyboardInterrupt
        finally:
            self.listener.end()
        return written

    def _done(self, parts: Sequence[PartRecord]) -> dict[str, set[tuple[float, str]]]:
        done: dict[str, set[tuple[float, str]]] = {}
        for part in parts:
            for row in part.rows:
                done.setdefault(row.sample_id, set()).add((row.sigma, row.estimator))
            for skip in part.skipped:
                done[skip.sample_id] = {(task.sigma, task.chosen.label) for task in self.tasks}
        return done

    def _shape(self) -> torch.Size:
        for i in range(len(self.dataset)):
            try:
                return self.dataset[i].pixels.shape
            except SampleError:
                if self.on_error == "stop":
                    raise
        return torch.Size((1,))

    def _chunk(self, chunk: Chunk, digests: Mapping[str, str], before: Mapping[str, tuple[int | None, int]]) -> PartRecord:
        skipped: list[Skip] = []
        samples = list(self._samples(chunk, skipped, digests))
        if not samples:
            return PartRecord(skipped=skipped)
        started = time.perf_counter()
        model = self.engine.model
        x = torch.stack([sample.pixels.to(model.dtype) for sample in samples]).to(model.device)
        clean = CleanPass.of(self.engine, x, gradients=any(task.chosen.estimator.linearises_clean for task in chunk.tasks))
        finite = clean.logits.isfinite().all(1).tolist()
        for sample in (s for s, ok in zip(samples, finite, strict=True) if not ok):
            self._refuse(
                SampleError(
                    f"{self.dataset.where}: {sample.id}", "its clean logits are not finite", "look for NaN weights or extreme pixels"
                ),
                sample.id,
                skipped,
            )
        if not all(finite):
            keep = torch.tensor(finite, device=x.device)
            samples = [s for s, ok in zip(samples, finite, strict=True) if ok]
            x, clean = x[keep], clean.select(keep)
        self._refuse_another_model(samples, clean, before)
        seconds = {"clean": time.perf_counter() - started}
        rows = self._rows(samples, x, clean, chunk.tasks, seconds) if samples else []
        broken = {row.sample_id: row for row in rows if not math.isfinite(row.value)}
        for sample_id, row in broken.items():
            what = f"{row.estimator} gave {row.value} at sigma {row.sigma:g}"
            remedy = "logits or gradients are not finite under noise, or the estimator is broken"
            self._refuse(SampleError(f"{self.dataset.where}: {sample_id}", what, remedy), sample_id, skipped)
        images = {sample.id: image_digest(sample) for sample in samples if sample.id not in broken}
        return PartRecord([row for row in rows if row.sample_id not in broken], skipped, images, seconds)

    def _refuse_another_model(self, samples: Sequence[Sample], clean: CleanPass, before: Mapping[str, tuple[int | None, int]]) -> None:
        """A sample that has rows already must have the label and the prediction they were made with.

        Raises:
            RunError: it has not: the data, the model's code or what it runs on has changed.
        """
        for sample, predicted in zip(samples, clean.predicted.tolist(), strict=True):
            label, then = before.get(sample.id, (sample.label, predicted))
            if (label, then) != (sample.label, predicted):
                what = (
                    f"the label was {label} and is {sample.label}" if label != sample.label else f"was predicted {then} and is {predicted}"
                )
                remedy = "data, the model's code or the machine has changed since: choose another --out"
                raise RunError(f"{self.dataset.where}: {sample.id}", what, remedy)

    def _rows(
        self, samples: Sequence[Sample], x: torch.Tensor, clean: CleanPass, tasks: Sequence[Task], seconds: dict[str, float]
    ) -> list[Row]:
        labels = torch.tensor([-1 if s.label is None else s.label for s in samples], device=x.device)
        ids = [s.id for s in samples]
        predicted = clean.predicted.tolist()
        rows: list[Row] = []
        work: Work | None = None
        for task in tasks:
            if work is None or work.sigma != task.sigma:
                work = Work(ids, x, labels, task.sigma, clean, self.engine)
            started = time.perf_counter()
            estimates = task.chosen.estimator.estimate(work)
            key = f"{task.chosen.label}@{task.sigma!r}"
            seconds[key] = seconds.get(key, 0.0) + time.perf_counter() - started
            rows += [_row(s, t, e, task, self.engine.noise.kind) for s, t, e in zip(samples, predicted, estimates, strict=True)]
        return rows

    def _samples(self, chunk: Chunk, skipped: list[Skip], digests: Mapping[str, str]) -> Iterator[Sample]:
        for i in chunk.indices:
            try:
                sample = self.dataset[i]
                if sample.label is not None and not 0 <= sample.label < self.engine.classes:
                    raise SampleError(
                        f"{self.dataset.where}: {sample.id}",
                        f"label {sample.label} is out of range: the model has {self.engine.classes} classes",
                        f"labels run from 0 to {self.engine.classes - 1}",
                    )
            except SampleError as error:
                self._refuse(error, self.dataset.sample_id(i), skipped)
                continue
            if sample.id in digests and digests[sample.id] != image_digest(sample):
                raise RunError(f"{self.dataset.where}: {sample.id}", "this image has changed since the run began", "choose another --out")
            yield sample

    def _refuse(self, error: SampleError, sample_id: str, skipped: list[Skip]) -> None:
        if self.on_error == "stop":
            raise error.or_skip()
        self.listener.warn(f"skipped {error}")
        skipped.append(Skip(sample_id, str(error)))


def _row(sample: Sample, predicted: int, estimate: Estimate, task: Task, noise: str) -> Row:
    return Row(
        sample_id=sample.id,
        label=sample.label,
        predicted=predicted,
        correct=None if sample.label is None else predicted == sample.label,
        noise=noise,
        sigma=task.sigma,
        estimator=task.chosen.label,
        quantity=task.chosen.estimator.quantity.name,
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        std_error=estimate.std_error,
        flips_to=estimate.flips_to,
        forwards=estimate.forwards,
        backwards=estimate.backwards,
        note=estimate.note,
        interval=estimate.interval,
        votes=estimate.votes,
        details=estimate.details,
    )
