"""The time an audit will take on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from robaudit.auditing.prepare import PreparedAudit
from robaudit.engine.registry import Task
from robaudit.levels import LevelName, NoiseLevel
from robaudit.progress import duration_text
from robaudit.text import count

Clock = Callable[[], float]

WORTH_SAYING = 10.0
"""An audit announces its time only above this many seconds."""

# The passes that are timed end with the first of these limits.
_TIMED_SECONDS = 0.3
_TIMED_SHARE = 0.05  # of the audit
_MOST_PASSES = 256  # full ones
_ROWS_OF_FILES = 8  # in a pass, of noise on files


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
        for _, logits in batches:
            float(logits.sum())  # waits for the device
            passed = passed + len(logits)
            spent = clock() - started
            if spent >= _TIMED_SECONDS / len(levels):
                break
        seconds_of_row += max(spent, 1e-9) / passed
    once = frozenset(noise.label for noise in ready.noises if not noise.noise.random)
    return Speed(len(levels) / seconds_of_row, engine.classes, once)
