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
"""The share of the budget after which an audit is stopped. A stopped audit cannot be read, so one
that is a little late may end."""

WORTH_SAYING = 10.0
"""An audit announces its time only above this many seconds."""

# The passes that are timed end with the first of these limits.
_TIMED_SECONDS = 0.3
_TIMED_SHARE = 0.05  # of the audit
_MOST_PASSES = 256  # full ones
_ROWS_OF_FILES = 8  # in a pass, of noise on files
# Halvings of the interval that contains the share of the draws: far finer than the draws, which are
# rounded to two figures.
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Speed:
    """Passes through the network on this machine.

    Attributes:
        rate: forward passes per second, noise included.
        classes: number of logits.
        once: labels of noises that never vary; an estimator takes a single copy of them.
    """

    rate: float
    classes: int
    once: frozenset[str] = frozenset()

    def passes(self, task: Task) -> int:
        """The approximate cost of an image, in forward passes (a backward pass counts as two)."""
        if task.at.noise in self.once:
            return 2  # the clean image and one copy
        return task.cost(self.classes)

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
        """The text ``about 3 min on this machine: 500 images x 1,025 passes at 2,900 passes/s``."""
        rate = f"{self.rate:.2g}"
        if self.rate >= 1:
            rate = f"{float(rate):,.0f}"  # two figures, but 2,900 and not 2.9e+03
        passes = f"{count(self.images, 'image')} x {self.passes:,} passes"
        return f"about {duration_text(self.seconds)} on this machine: {passes} at {rate} passes/s"


def measure_speed(ready: PreparedAudit, clock: Clock = time.perf_counter) -> Speed:
    """Time full passes of noisy copies of the first image, for each noise of the audit in turn. A
    small audit is timed only briefly.

    Args:
        ready: the audit.
        clock: seconds.
    """
    engine = ready.engine
    first = ready.first
    x = first.pixels.to(engine.model.device, engine.model.dtype)[None]
    varying = [noise.levels[0] for noise in ready.noises if noise.levels and noise.noise.random]
    on_files = {noise.label for noise in ready.noises if noise.noise.on_file}
    levels = varying or [NoiseLevel(None, 0.1, LevelName.SIGMA)]
    rows = engine.rows(first.pixels.shape)
    passes_of_image = sum(task.cost(engine.classes) for task in ready.tasks)
    share = _TIMED_SHARE * len(ready.data) * passes_of_image / len(levels)
    seconds_of_row = 0.0  # summed over the levels
    for at in levels:
        # A file takes much longer than its row of a pass, so that small passes tell as much.
        rows_of_pass = min(rows, _ROWS_OF_FILES) if at.noise in on_files else rows
        # Two full passes at least: the first is not timed.
        copies = min(max(int(share), 2 * rows_of_pass), _MOST_PASSES * rows_of_pass)
        batches = engine.noisy_logits(x, [first.id], at, copies, rows=rows_of_pass)
        next(batches)  # slower than the others: kernels are chosen and memory is allocated
        started = clock()
        passed = 0
        spent = 0.0
        for batch, logits in batches:
            float(logits.sum())  # waits for the device
            passed = passed + len(batch.x)
            spent = clock() - started
            if spent >= _TIMED_SECONDS / len(levels):
                break
        seconds_of_row += max(spent, 1e-9) / passed
    once = frozenset(noise.label for noise in ready.noises if not noise.noise.random)
    return Speed(len(levels) / seconds_of_row, engine.classes, once)


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

    def seconds_of_image(of_spec: AuditSpec) -> float:
        return sum(map(speed.passes, tasks_of(of_spec))) / speed.rate

    fewer_draws = spec
    if images * seconds_of_image(spec) > seconds:
        fewer_draws = _largest_share_that_fits(
            spec, speed.classes, lambda tried: images * seconds_of_image(tried) <= seconds
        )
    lines = _lowered_draws(spec, fewer_draws)
    one_image = seconds_of_image(fewer_draws)
    if images * one_image <= seconds:
        return fewer_draws, lines
    # The draws are at their minimum: fewer images.
    fitting = int(seconds / one_image)
    if fitting < 1:
        what = "the start alone took as long"
        if seconds > 0:
            what = f"one image takes about {duration_text(one_image)}"
        raise RobauditError(
            BUDGET,
            f"is too short: {what}",
            "give it more time, or fewer estimators or noise levels",
        )
    lines.append(f"{images:,} -> {count(fitting, 'image')}")
    return _with_images(fewer_draws, fitting), lines


def _largest_share_that_fits(
    spec: AuditSpec, classes: int, fits: Callable[[AuditSpec], bool]
) -> AuditSpec:
    """The spec with the largest share of its draws that fits; with the fewest draws if none
    does."""
    low = 0.0
    high = 1.0
    fitting = _with_share(spec, 0.0, classes)
    # Bisection: more draws take longer.
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = _with_share(spec, middle, classes)
        if fits(tried):
            low = middle
            fitting = tried
        else:
            high = middle
    return fitting


def _lowered_draws(before: AuditSpec, after: AuditSpec) -> list[str]:
    """A line for each estimator whose number of draws was lowered."""
    lowered_estimators = registry.build(after.estimators)
    lines = []
    for label, estimator in registry.build(before.estimators).items():
        draws = getattr(estimator, "draws", 0)
        lowered_draws = getattr(lowered_estimators[label], "draws", 0)
        if lowered_draws != draws:
            lines.append(f"{label}: {draws:,} -> {lowered_draws:,} draws")
    return lines


def _with_share(spec: AuditSpec, share: float, classes: int) -> AuditSpec:
    """The spec with this share of the draws."""
    changed = []
    estimators = registry.build(spec.estimators).values()
    for entry, estimator in zip(spec.estimators, estimators, strict=True):
        fewer_draws = _fewer_draws(estimator, share, classes)
        if fewer_draws is None:
            changed.append(entry)
        else:
            changed.append(registry.with_draws(entry, fewer_draws))
    return spec.model_copy(update={"estimators": tuple(changed)})


def _fewer_draws(estimator: Estimator, share: float, classes: int) -> int | None:
    """About this share of an estimator's draws, to two figures; None if it has no draws, or if
    fewer cost the same."""
    draws = getattr(estimator, "draws", None)
    if not isinstance(draws, int):
        return None
    least = min(draws, FEWEST_DRAWS)
    wanted = max(least, int(share * draws))
    step = 10 ** max(0, len(str(wanted)) - 2)
    rounded = max(least, wanted // step * step)
    # The nearest number below that the estimator takes, else above: it may take multiples of 16
    # only.
    for number in (*range(rounded, least - 1, -1), *range(rounded + 1, draws)):
        fewer = estimator.having(draws=number)
        if fewer is None:
            continue
        is_cheaper = fewer.passes(classes) != estimator.passes(classes)
        return number if number < draws and is_cheaper else None
    return None


def _with_images(spec: AuditSpec, images: int) -> AuditSpec:
    """The spec with its first images if it has a limit or lists ids, otherwise with a random
    subset."""
    dataset = spec.dataset
    changed = dict[str, Any]()
    if dataset.ids is not None:
        changed["ids"] = dataset.ids[:images]
    elif dataset.limit is not None:
        changed["limit"] = images
    else:
        # Of the same seed, so that it is part of the run's own subset.
        seed = dataset.sample.seed if dataset.sample is not None else 0
        changed["sample"] = SampleSpec(size=images, seed=seed)
    return spec.model_copy(update={"dataset": dataset.model_copy(update=changed)})


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
    # Not measured again: another speed would give another number of draws, and so another run.
    entries = [EstimatorSpec.model_validate(entry) for entry in begun["estimators"]]
    begun_entries = {entry.label: entry for entry in entries}
    changed = []
    for entry in spec.estimators:
        begun_entry = begun_entries.get(entry.label)
        if begun_entry is None or begun_entry.name != entry.name:
            changed.append(entry)
        else:
            changed.append(registry.with_draws_of(entry, begun_entry))
    chosen_images = {key: begun["dataset"][key] for key in ("limit", "sample", "ids")}
    dataset = type(spec.dataset).model_validate({**spec.dataset.model_dump(), **chosen_images})
    return spec.model_copy(update={"estimators": tuple(changed), "dataset": dataset})
