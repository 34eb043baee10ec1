"""The time an audit will take on this machine, and the draws and images that fit a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from robaudit.auditing.prepare import PreparedAudit
from robaudit.datasets.select import Selected
from robaudit.engine import registry
from robaudit.engine.estimator import Estimator
from robaudit.engine.registry import Task, tasks_of
from robaudit.errors import RobauditError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.progress import Listener, duration_text
from robaudit.settings import BUDGET
from robaudit.spec.model import AuditSpec, EstimatorSpec, SampleSpec
from robaudit.text import count

Clock = Callable[[], float]

FEWEST_DRAWS = 100
"""A budget lowers no number of draws below this; then it lowers the number of images."""

SPARE = 0.9
"""Planned share of the budget: a machine's speed varies."""

LATEST = 1.5
"""The share of the budget after which an audit is stopped. Stopped audits cannot be read, so one
that is a little late may end."""

WORTH_SAYING = 10.0
"""An audit announces its time only above this many seconds."""

# of timed passes: seconds; the share of the audit; how many full ones at most
_ENOUGH = 0.3
_SHARE = 0.05
_MOST_PASSES = 256


@dataclass(frozen=True, slots=True)
class Speed:
    """Passes through the network on this machine.

    Attributes:
        rate: forward passes per second, noise included.
        classes: number of logits.
        once: labels of noises that never vary, which take a single copy.
    """

    rate: float
    classes: int
    once: frozenset[str] = frozenset()

    def passes(self, task: Task) -> int:
        """The approximate cost of an image, in forward passes (a backward pass counts as two)."""
        return 2 if task.at.noise in self.once else task.cost(self.classes)

    def expected(self, tasks: Sequence[Task], images: Sequence[int]) -> Expected:
        """The expected time of the tasks, each for its number of images."""
        total = sum(self.passes(task) * number for task, number in zip(tasks, images, strict=True))
        most = max(images, default=0)
        return Expected(most, round(total / most) if most else 0, total / self.rate, self.rate)


@dataclass(frozen=True, slots=True)
class Expected:
    """The time that an audit will take.

    Attributes:
        images: number of images to compute.
        passes: mean passes per image.
        seconds: total time.
        rate: passes per second.
    """

    images: int
    passes: int
    seconds: float
    rate: float

    @property
    def text(self) -> str:
        """``about 3 min on this machine: 500 images x 1,025 passes at 2,900 passes/s``."""
        rate = f"{float(f'{self.rate:.2g}'):,.0f}" if self.rate >= 1 else f"{self.rate:.2g}"
        passes = f"{count(self.images, 'image')} x {self.passes:,} passes"
        return f"about {duration_text(self.seconds)} on this machine: {passes} at {rate} passes/s"


def measure_speed(ready: PreparedAudit, clock: Clock = time.perf_counter) -> Speed:
    """Time full passes of noisy copies of the first image, for each noise of the audit in turn:
    briefly for a small audit.

    Args:
        ready: the audit.
        clock: seconds.
    """
    engine = ready.engine
    first = ready.first
    x = first.pixels.to(engine.model.device, engine.model.dtype)[None]
    varying = [noise.levels[0] for noise in ready.noises if noise.levels and noise.noise.random]
    levels = varying or [NoiseLevel(None, 0.1, LevelName.SIGMA)]
    each = 0.0
    full = engine.rows(first.pixels.shape)
    share = (
        _SHARE
        * len(ready.data)
        * sum(task.cost(engine.classes) for task in ready.tasks)
        / len(levels)
    )
    copies = min(max(int(share), 2 * full), _MOST_PASSES * full)
    for at in levels:
        batches = engine.noisy_logits(x, [first.id], at, copies)
        next(batches)  # the first pass is slower than the others
        started = clock()
        passed = 0
        spent = 0.0
        for batch, logits in batches:
            float(logits.sum())  # waits for the device
            passed = passed + len(batch.x)
            spent = clock() - started
            if spent >= _ENOUGH / len(levels):
                break
        each += max(spent, 1e-9) / passed
    once = frozenset(noise.label for noise in ready.noises if not noise.noise.random)
    return Speed(len(levels) / each, engine.classes, once)


def lowered(
    spec: AuditSpec, images: int, seconds: float, speed: Speed
) -> tuple[AuditSpec, list[str]]:
    """The spec with fewer draws, and if that is not enough fewer images, so that it takes at most
    ``seconds``.

    The draws of all estimators with ``draws`` are lowered in the same proportion, none below 100.

    Args:
        spec: the requested spec.
        images: number of images in the data set.
        seconds: for the passes.
        speed: of this machine.

    Returns:
        The spec, and a line for each number that was lowered.

    Raises:
        RobauditError: not even one image with so few draws fits.
    """

    def one_image(of: AuditSpec) -> float:
        return sum(map(speed.passes, tasks_of(of))) / speed.rate

    low = 0.0
    high = 1.0
    fewer = spec
    if images * one_image(spec) > seconds:
        fewer = _with_share(spec, 0.0, speed.classes)
        for _ in range(20):
            middle = (low + high) / 2
            tried = _with_share(spec, middle, speed.classes)
            low, high, fewer = (
                (middle, high, tried)
                if images * one_image(tried) <= seconds
                else (low, middle, fewer)
            )
    before = registry.build(spec.estimators)
    after = registry.build(fewer.estimators)
    draws = [
        (label, *(getattr(each, "draws", 0) for each in (estimator, after[label])))
        for label, estimator in before.items()
    ]
    lines = [
        f"{label}: {before:,} -> {after:,} draws"
        for label, before, after in draws
        if after != before
    ]
    each = one_image(fewer)
    if images * each <= seconds:
        return fewer, lines
    fitting = int(seconds / each)
    if fitting < 1:
        what = (
            f"one image takes about {duration_text(each)}"
            if seconds > 0
            else "the start alone took as long"
        )
        raise RobauditError(
            BUDGET,
            f"is too short: {what}",
            "give it more time, or fewer estimators or noise levels",
        )
    return _with_images(fewer, fitting), [*lines, f"{images:,} -> {count(fitting, 'image')}"]


def _with_share(spec: AuditSpec, share: float, classes: int) -> AuditSpec:
    """The spec with this share of the draws."""
    changed = []
    for entry, estimator in zip(
        spec.estimators, registry.build(spec.estimators).values(), strict=True
    ):
        fewer = _fewer(estimator, share, classes)
        changed.append(entry if fewer is None else registry.with_draws(entry, fewer))
    return spec.model_copy(update={"estimators": tuple(changed)})


def _fewer(estimator: Estimator, share: float, classes: int) -> int | None:
    """About this share of an estimator's draws, to two figures; None if it has none, or fewer
    cost no less."""
    draws = getattr(estimator, "draws", None)
    if not isinstance(draws, int):
        return None
    least = min(draws, FEWEST_DRAWS)
    wanted = max(least, int(share * draws))
    step = 10 ** max(0, len(str(wanted)) - 2)
    rounded = max(least, wanted // step * step)
    for number in (
        *range(rounded, least - 1, -1),
        *range(rounded + 1, draws),
    ):  # an estimator may take multiples of 16 only
        fewer = estimator.having(draws=number)
        if fewer is not None:
            return (
                number
                if number < draws and fewer.passes(classes) != estimator.passes(classes)
                else None
            )
    return None


def _with_images(spec: AuditSpec, images: int) -> AuditSpec:
    """The spec with its first images if it has a limit or lists ids, otherwise with a random
    subset."""
    dataset = spec.dataset
    update = dict[str, Any]()
    if dataset.ids is not None:
        update["ids"] = dataset.ids[:images]
    elif dataset.limit is not None:
        update["limit"] = images
    else:
        seed = dataset.sample.seed if dataset.sample is not None else 0
        update["sample"] = SampleSpec(size=images, seed=seed)
    return spec.model_copy(update={"dataset": dataset.model_copy(update=update)})


def within_budget(
    ready: PreparedAudit, seconds: float, speed: Speed, listener: Listener
) -> PreparedAudit:
    """The audit with fewer draws and images, so that its passes take ``seconds`` at most; a note
    says what was lowered.

    Raises:
        RobauditError: not even one image fits.
    """
    spec, lines = lowered(ready.spec, len(ready.data), seconds, speed)
    for line in lines:
        listener.note(f"--budget: {line}")
    tasks = tasks_of(spec)
    data = ready.data.again(spec.dataset) if isinstance(ready.data, Selected) else ready.data
    return replace(ready, spec=spec, tasks=tasks, data=data)


def as_begun(spec: AuditSpec, begun: Mapping[str, Any]) -> AuditSpec:
    """The spec with the draws and images that a budget set for an existing run, to continue it.

    Args:
        spec: the requested spec.
        begun: the ``spec`` in the run's run.json.
    """
    entries = [EstimatorSpec.model_validate(entry) for entry in begun["estimators"]]
    draws = {
        label: getattr(estimator, "draws", None)
        for label, estimator in registry.build(entries).items()
    }
    changed = []
    for entry in spec.estimators:
        number = draws.get(entry.label)
        changed.append(entry if number is None else registry.with_draws(entry, number))
    chosen_images = {key: begun["dataset"][key] for key in ("limit", "sample", "ids")}
    dataset = type(spec.dataset).model_validate(spec.dataset.model_dump() | chosen_images)
    return spec.model_copy(update={"estimators": tuple(changed), "dataset": dataset})
