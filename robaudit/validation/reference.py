"""What is the truth an estimator is held against: Monte Carlo with many draws of a noise stream of its own?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robaudit.assembly import on_stream
from robaudit.auditing import Ready
from robaudit.datasets.base import Dataset
from robaudit.datasets.select import Selected
from robaudit.estimators.engine import Engine
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.registry import Chosen, Task, tasks_of
from robaudit.loop import OnError
from robaudit.numerics.intervals import clopper_pearson
from robaudit.progress import Listener, Silent
from robaudit.validation.compute import compute

STREAM = "reference"
FEWEST_DRAWS, MOST_DRAWS = 256, 10**6
_LABEL = "reference"
_PILOT_IMAGES, _PILOT_DRAWS = 8, 64


@dataclass(frozen=True, slots=True)
class Truth:
    """An image's reference at one noise level.

    Attributes:
        kept: noisy copies that kept the class.
        draws: noisy copies.
    """

    kept: int
    draws: int

    @property
    def value(self) -> float:
        """kept / draws."""
        return self.kept / self.draws

    @property
    def variance(self) -> float:
        """The unbiased estimate of the variance of :attr:`value`: p (1 - p) / (draws - 1)."""
        return self.value * (1 - self.value) / max(1, self.draws - 1)

    def interval(self) -> tuple[float, float]:
        """The 95 % Clopper-Pearson interval of p."""
        lower, upper = clopper_pearson(self.kept, self.draws)
        return float(lower), float(upper)


Truths = Mapping[tuple[str, float], Truth]
"""By (sample id, sigma)."""


def reference_engine(ready: Ready) -> Engine:
    """The audit's engine with the noise of the reference: a named stream, independent of that of a run with any seed."""
    return on_stream(ready.engine, ready.spec.run.seed, STREAM)


def reference_tasks(sigmas: Sequence[float], draws: int) -> tuple[Task, ...]:
    """Monte Carlo at every noise level."""
    return tasks_of(sigmas, [Chosen(_LABEL, "mc", MonteCarlo(samples=draws))])


def measure(ready: Ready, samples: Dataset, draws: int, ears: Listener, *, on_error: OnError = "stop") -> tuple[Truths, float]:
    """The reference of every sample at every noise level of the spec, and the seconds it took."""
    found = compute(ready, reference_engine(ready), samples, reference_tasks(ready.spec.noise.sigma, draws), ears, on_error=on_error)
    truths = {(name, sigma): Truth(round(row.value * draws), draws) for (name, sigma, _), row in found.rows.items()}
    return truths, sum(found.seconds.values())


def draws_within(ready: Ready, samples: Dataset, seconds: float, *, on_error: OnError = "stop") -> int:
    """How many draws of each image at each noise level take about so many seconds: from the time of a few, at least 256."""
    few = Selected(samples, range(min(_PILOT_IMAGES, len(samples))))
    tasks = reference_tasks(ready.spec.noise.sigma[:1], _PILOT_DRAWS)
    engine = on_stream(ready.engine, ready.spec.run.seed, "pilot")
    compute(ready, engine, Selected(samples, range(1)), tasks, Silent(), on_error=on_error)  # the first pass is slower than the others
    started = time.perf_counter()
    compute(ready, engine, few, tasks, Silent(), on_error=on_error)
    one = (time.perf_counter() - started) / (len(few) * _PILOT_DRAWS)
    wanted = seconds / (one * len(samples) * len(ready.spec.noise.sigma))
    return int(min(MOST_DRAWS, max(FEWEST_DRAWS, wanted)))
