"""The results of some images: one estimator and noise level after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from robaudit.datasets.base import Sample
from robaudit.errors import SampleError
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.estimators.work import CleanPass, Work
from robaudit.rows import LARGEST, Row

CLEAN = "clean"


@dataclass(slots=True)
class Chunk:
    """Images that lack the same tasks; both lists shrink as the work goes on."""

    samples: list[Sample]
    tasks: list[Task]

    def split(self, images: int) -> list[Chunk]:
        """The same work in two chunks: the first so many images, and the rest."""
        return [Chunk(part, list(self.tasks)) for part in (self.samples[:images], self.samples[images:])]


@dataclass(frozen=True, slots=True)
class Refused:
    """A sample that gave no finite number."""

    sample: Sample
    task: Task | None
    error: SampleError


@dataclass(frozen=True, slots=True)
class Step:
    """What one step found: the clean pass, or one task.

    Attributes:
        task: None for the clean pass.
        seconds: how long it took.
        rows: its results.
        predicted: the classes of the samples, after the clean pass.
        refused: samples that it cannot be done with; the steps that follow leave them out.
    """

    task: Task | None
    seconds: float
    rows: Sequence[Row] = ()
    predicted: Sequence[int] = ()
    refused: Sequence[Refused] = ()

    @property
    def key(self) -> str:
        """What its seconds are called."""
        return CLEAN if self.task is None else f"{self.task.chosen.label}@{self.task.sigma!r}"


def steps(engine: Engine, samples: Sequence[Sample], tasks: Sequence[Task], where: str) -> Iterator[Step]:
    """Pass the images through the network, then do one task after the other.

    Args:
        engine: model and noise.
        samples: at least one.
        tasks: noise levels outermost: estimators of one level share what they can.
        where: what messages call the data set.
    """
    started = time.perf_counter()
    x = torch.stack([sample.pixels.to(engine.model.dtype) for sample in samples]).to(engine.model.device)
    clean = CleanPass.of(engine, x, gradients=any(task.chosen.estimator.linearises_clean for task in tasks))
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
        if work is None or work.sigma != task.sigma:
            work = Work(ids, x, labels, task.sigma, clean, engine)
        estimates = task.chosen.estimates(work)
        rows, refused = [], []
        for sample, target, estimate in zip(kept, predicted, estimates, strict=True):
            if sample.id in broken:
                continue
            if _writable(estimate.value):
                rows.append(_row(sample, target, estimate, task, engine.noise.kind))
            else:
                broken.add(sample.id)
                refused.append(_broken(sample, task, estimate, where))
        yield Step(task, time.perf_counter() - started, rows=rows, refused=refused)


def _not_finite(sample: Sample, where: str) -> Refused:
    return Refused(
        sample,
        None,
        SampleError(f"{where}: {sample.id}", "its clean logits are not finite", "look for NaN weights or extreme pixels"),
    )


def _broken(sample: Sample, task: Task, estimate: Estimate, where: str) -> Refused:
    what = f"{task.chosen.label} gave {estimate.value} at sigma {task.sigma:g}"
    remedy = "logits or gradients are not finite under noise, or the estimator is broken"
    return Refused(sample, task, SampleError(f"{where}: {sample.id}", what, remedy))


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
        kept=estimate.kept,
        worth=estimate.worth,
        not_finite=estimate.not_finite,
    )


def _writable(value: float) -> bool:
    """Whether it is a number that files hold and means survive."""
    return -LARGEST < float(value) < LARGEST


def _plain(value: float) -> float:
    """A number of Python's own: a plugin may give one of NumPy's."""
    return value if isinstance(value, int) else float(value)


def _bound(value: float | None) -> float | None:
    """The end of an interval; one at infinity is none."""
    return float(value) if value is not None and _writable(value) else None
