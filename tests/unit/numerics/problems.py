"""Rare failures whose probability is known, in 100 standard normal variables: scores and labels
without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from scipy.stats import chi2, norm
from torch import Tensor

D = 100
BETA = float(norm.isf(1e-6))
BETA_TWO = float(norm.isf(5e-7))
BALL = float(chi2.isf(1e-6, D))


@dataclass(frozen=True)
class Problem:
    """P[score(z) >= 0] = p."""

    score: Callable[[Tensor], Tensor]
    p: float

    def judge(self, z: Tensor, lane: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores, and the side of the first coordinate as label."""
        return self.score(z.double()), (z[:, 0] > 0).long()


PROBLEMS = {
    "half-space": Problem(lambda z: z[:, 0] - BETA, 1e-6),
    "two-sided": Problem(lambda z: z[:, 0].abs() - BETA_TWO, 1e-6),
    "outside a ball": Problem(lambda z: z.square().sum(1) - BALL, 1e-6),
    "uniform": Problem(
        lambda z: (2 * torch.special.ndtr(z[:, :12]) - 1).sum(1) - 9, 2.7086e-7
    ),  # Irwin-Hall, exact
}


def drawer(seed: int) -> Callable[[int, int, int], Iterator[Tensor]]:
    """Independent draws of each lane; a range of numbers holds the same draws however it is asked
    for."""

    def draw(lane: int, number: int, start: int) -> Iterator[Tensor]:
        block = 50
        for i in range(start // block, -(-(start + number) // block)):
            z = torch.randn(
                block, D, generator=torch.Generator().manual_seed((seed * 1009 + lane) * 2**20 + i)
            )
            yield z[max(0, start - i * block) : start + number - i * block]

    return draw
