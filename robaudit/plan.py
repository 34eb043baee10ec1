"""What is to be computed: every estimator at every noise level, and what each costs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robaudit.registry import Chosen


@dataclass(frozen=True, slots=True)
class Task:
    """One estimator at one noise level."""

    sigma: float
    chosen: Chosen

    def cost(self, classes: int) -> int:
        """About what one image costs, in forward passes."""
        forwards, backwards = self.chosen.estimator.passes(classes)
        return max(1, forwards + 2 * backwards)


def tasks_of(sigmas: Sequence[float], estimators: Sequence[Chosen]) -> tuple[Task, ...]:
    """Every estimator at every noise level, noise levels outermost: the order of a sample's rows."""
    return tuple(Task(sigma, chosen) for sigma in sigmas for chosen in estimators)
