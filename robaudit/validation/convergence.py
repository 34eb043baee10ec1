"""How does an estimator's error fall with its number of draws?

The convergence study of Han, Srinivas and Lakkaraju (Average-case robustness): the RMSE over images against converged Monte Carlo
for n = 1, 2, 4, ... draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from robaudit.auditing import Ready
from robaudit.datasets.base import Dataset
from robaudit.estimators.registry import Chosen, Task
from robaudit.progress import Listener
from robaudit.quantities import P_ROBUST
from robaudit.validation.comparison import Comparison, compare
from robaudit.validation.compute import compute
from robaudit.validation.reference import Truths

SHARE = 0.25
"""Draws go up to a quarter of the reference's passes: beyond that the reference's own error is what one would see."""


@dataclass(frozen=True, slots=True)
class Point:
    """The error with so many draws.

    Attributes:
        estimator, sigma, n: which, and its draws of each image.
        images: over how many.
        forwards, backwards: passes of an image.
        rmse, rmse_error, bias, bias_error: as in :class:`robaudit.validation.comparison.Error`.
    """

    estimator: str
    sigma: float
    n: int
    images: int
    forwards: float
    backwards: float
    rmse: float
    rmse_error: float | None
    bias: float
    bias_error: float | None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def converge(ready: Ready, samples: Dataset, truths: Truths, ears: Listener) -> list[Point]:
    """Run the estimators of the spec that have a number of draws with 1, 2, 4, ... of them against the reference.

    Args:
        ready: the audit that the spec asks for.
        samples: the images of the reference.
        truths: the reference.
        ears: hears the progress.
    """
    draws = next(iter(truths.values())).draws
    variants = [one for task in ready.tasks for one in variants_of(task, int(SHARE * draws), ready.engine.classes)]
    if not variants:
        ears.warn("--convergence: the spec names no estimator of p_robust with a number of draws: there is nothing to vary")
        return []
    ears.note(f"convergence: {len(variants)} settings")
    found = compute(ready, ready.engine, samples, [task for _, _, task in variants], ears)
    points = []
    for label, n, task in variants:
        rows = [row for row in found.rows.values() if (row.estimator, row.sigma) == (task.chosen.label, task.sigma)]
        known = [truths[row.sample_id, row.sigma] for row in rows]
        points.append(_point(label, n, compare(rows, known, task.chosen.estimator.quantity, 0.0)))
    return points


def variants_of(task: Task, passes: int, classes: int) -> Iterator[tuple[str, int, Task]]:
    """The task with powers of two as its draws: label, draws and task; none for an estimator without such an option.

    Args:
        task: one of the spec.
        passes: what an image may cost, in forward passes (a backward pass counts two).
        classes: number of logits.
    """
    for n in (2**i for i in range(31) if task.chosen.estimator.quantity == P_ROBUST):
        estimator = task.chosen.estimator.with_draws(n)
        if estimator is None:
            continue
        other = Task(task.sigma, Chosen(f"{task.chosen.label} n={n}", task.chosen.name, estimator))
        if other.cost(classes) > passes:
            return
        yield task.chosen.label, n, other


def _point(label: str, n: int, one: Comparison) -> Point:
    error = one.error
    if error is None:
        raise ValueError(f"{label} is not a probability of robustness")
    return Point(
        label, one.sigma, n, one.images, one.forwards, one.backwards,
        error.rmse, error.rmse_error, error.bias, error.bias_error,
    )  # fmt: skip
