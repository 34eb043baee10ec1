"""The error of an estimator, and what a given error costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of an estimator on one network.

    Attributes:
        line: the curve it belongs to.
        label: the setting in words.
        rmse: over the images, one value a seed.
        forwards, backwards: passes an image, on average.
        equivalents: the same in forwards, a backward pass counted as its measured time in forwards.
        seconds: an image, all included.
    """

    line: str
    label: str
    rmse: tuple[float, ...]
    forwards: float
    backwards: float
    equivalents: float
    seconds: float

    @property
    def mean(self) -> float:
        """RMSE, mean over the seeds."""
        return fmean(self.rmse)

    @property
    def spread(self) -> float:
        """Standard deviation of the RMSE over the seeds."""
        return stdev(self.rmse) if len(self.rmse) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Reference:
    """Monte Carlo from other seeds: value and variance of its own noise, by image."""

    value: Tensor
    variance: Tensor

    @classmethod
    def of(cls, values: Sequence[Tensor], draws: int) -> Reference:
        """The mean of several runs with so many draws each."""
        p = torch.stack(list(values)).mean(0)
        return cls(p, p * (1 - p) / (len(values) * draws - 1))

    def rmse(self, values: Tensor) -> float:
        """Root mean square distance over the images, the reference's own noise taken out."""
        square = (values - self.value).square().mean() - self.variance.mean()
        return math.sqrt(max(0.0, float(square)))


def cost_to_reach(curve: Sequence[tuple[float, float]], aim: float) -> float | None:
    """Cost at which a curve of (cost, RMSE) first reaches the aim, interpolated on log scales;
    None: it does not.

    Where the cheapest setting is good enough already its cost is returned: an upper limit.
    """
    before: tuple[float, float] | None = None
    for cost, rmse in sorted(curve):
        if rmse <= aim:
            if before is None:
                return cost
            share = math.log(before[1] / aim) / math.log(before[1] / max(rmse, 1e-9))
            return math.exp(math.log(before[0]) + share * math.log(cost / before[0]))
        before = (cost, rmse)
    return None
