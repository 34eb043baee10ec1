"""Multilevel splitting against probabilities that are known, and where scores tie, end or are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from robaudit.numerics.splitting import Lane, Schedule, split

D = 100
BETA, BETA_TWO, BALL = float(norm.isf(1e-6)), float(norm.isf(5e-7)), float(chi2.isf(1e-6, D))


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
    "uniform": Problem(lambda z: (2 * torch.special.ndtr(z[:, :12]) - 1).sum(1) - 9, 2.7086e-7),  # Irwin-Hall, exact
}


def drawer(seed: int) -> Callable[[int, int, int], Iterator[Tensor]]:
    """Independent draws of each lane; a range of numbers holds the same draws however it is asked for."""

    def draw(lane: int, number: int, start: int) -> Iterator[Tensor]:
        block = 50
        for i in range(start // block, -(-(start + number) // block)):
            z = torch.randn(block, D, generator=torch.Generator().manual_seed((seed * 1009 + lane) * 2**20 + i))
            yield z[max(0, start - i * block) : start + number - i * block]

    return draw


def runs(problem: Problem, lanes: int, schedule: Schedule | None = None, *, seed: int = 1) -> list[Lane]:
    return split(problem.judge, drawer(seed), lanes, schedule or Schedule())


def probabilities(found: list[Lane]) -> np.ndarray:
    assert {lane.state for lane in found} == {"measured"}
    return np.exp([lane.log_p for lane in found])


@pytest.mark.parametrize("name", PROBLEMS)
def test_goldens(name: str) -> None:
    """Within three standard errors of 12 runs; about 30,500 calls each."""
    problem = PROBLEMS[name]
    found = runs(problem, 12)
    p = probabilities(found)
    ideal = np.mean([lane.variance for lane in found])
    assert ideal == pytest.approx(-math.log(problem.p) / math.log(10) * 0.9 / (0.1 * 500), rel=0.05)
    assert abs(p.mean() / problem.p - 1) < 3 * math.sqrt(ideal / len(p))
    assert 25_000 < np.mean([lane.calls for lane in found]) < 36_000
    assert all(0.2 < lane.accepted / lane.proposed < 0.4 for lane in found)


def test_lanes_are_independent_of_their_neighbours() -> None:
    first, *_ = runs(PROBLEMS["two-sided"], 5, Schedule(particles=100))
    (alone,) = runs(PROBLEMS["two-sided"], 1, Schedule(particles=100))
    assert first == alone


def test_failing_particles_are_counted_by_label() -> None:
    found = runs(PROBLEMS["half-space"], 3)
    assert [set(lane.labels) for lane in found] == [{1}] * 3  # the side on which failures are
    assert [lane.labels[1] for lane in found] == [round(lane.factors[-1] * 500) for lane in found]


@pytest.mark.parametrize("value", [-1.0, -math.inf])
def test_equal_scores_everywhere_end_it(value: float) -> None:
    (lane,) = runs(Problem(lambda z: torch.full((len(z),), value, dtype=torch.float64), 0.0), 1)
    assert (lane.state, lane.log_p, lane.calls) == ("stuck", 0.0, 500)


def test_quantised_scores_are_corrected() -> None:
    """Scores rounded to a grid tie at every level; the factors count who is really above."""

    def score(z: Tensor) -> Tensor:
        return ((z[:, 0] - 4.0) / 0.5).floor() * 0.5

    p = 0.5 * math.erfc(4.0 / math.sqrt(2))
    found = runs(Problem(score, p), 20, seed=2)
    estimates = probabilities(found)
    assert sum(lane.ties for lane in found) > 0
    assert abs(estimates.mean() / p - 1) < 3 * estimates.std(ddof=1) / p / math.sqrt(len(found))
