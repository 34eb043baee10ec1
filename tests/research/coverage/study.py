"""One line of the coverage study: an interval, a truth, and how often the first contains the
second."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

PROBABILITIES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
CASES = 2000
NOMINAL = 0.95


@dataclass(frozen=True, slots=True)
class Line:
    """Simulated cases of one interval at one truth.

    Attributes:
        interval: which one.
        setting: of what.
        truth: what the interval is to hold.
        cases: simulated.
        covered: share of them whose interval held the truth.
        width: mean width.
        draws: mean number of draws, or of images.
        exempt: why less than nominal is expected here, or nothing.
    """

    interval: str
    setting: str
    truth: float
    cases: int
    covered: float
    width: float
    draws: float
    exempt: str = ""

    @classmethod
    def of(
        cls,
        interval: str,
        setting: str,
        truth: float,
        lower: ArrayLike,
        upper: ArrayLike,
        draws: ArrayLike,
        exempt: str = "",
    ) -> Line:
        """From the ends of every case."""
        low = np.asarray(lower, dtype=np.float64)
        high = np.asarray(upper, dtype=np.float64)
        held = (low <= truth) & (truth <= high)
        return cls(
            interval,
            setting,
            truth,
            held.size,
            float(held.mean()),
            float((high - low).mean()),
            float(np.asarray(draws, dtype=np.float64).mean()),
            exempt,
        )

    @property
    def floor(self) -> float:
        """Nominal minus two binomial errors."""
        return NOMINAL - 2 * math.sqrt(NOMINAL * (1 - NOMINAL) / self.cases)

    @property
    def holds(self) -> bool:
        """Whether enough cases were covered."""
        return self.covered >= self.floor
