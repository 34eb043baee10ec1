"""Multilevel splitting against probabilities that are known, and where scores tie, end or are not
finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robaudit.methods.average_case.splitting_sampler import Schedule, SplittingRun, split
from tests.unit.numerics.problems import PROBLEMS, Problem, drawer


def runs(
    problem: Problem, lanes: int, schedule: Schedule | None = None, *, seed: int = 1
) -> list[SplittingRun]:
    return split(problem.judge, drawer(seed), lanes, schedule or Schedule())


def probabilities(found: list[SplittingRun]) -> np.ndarray:
    assert {lane.state for lane in found} == {"measured"}
    return np.exp([lane.log_p for lane in found])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_unbiased_and_as_spread_as_theory_says(name: str) -> None:
    """200 runs: no bias beyond three standard errors; the variance is the ideal one, and at most
    half more where copies mix slowly."""
    problem = PROBLEMS[name]
    found = runs(problem, 200, seed=3)
    p = probabilities(found) / problem.p
    assert abs(p.mean() - 1) < 3 * p.std(ddof=1) / math.sqrt(len(p))
    ideal = float(np.mean([lane.variance for lane in found]))
    assert ideal == pytest.approx(-math.log(problem.p) / math.log(10) * 0.9 / (0.1 * 500), rel=0.05)
    logs = np.log(p)
    spread = logs.var(ddof=1)
    error = math.sqrt(max(0.0, np.mean((logs - logs.mean()) ** 4) - spread**2) / len(logs))
    assert ideal - 3 * error < spread < 1.5 * ideal + 3 * error


def test_lanes_are_independent_of_their_neighbours() -> None:
    first, *_ = runs(PROBLEMS["two-sided"], 5, Schedule(particles=100))
    (alone,) = runs(PROBLEMS["two-sided"], 1, Schedule(particles=100))
    assert first == alone


@pytest.mark.parametrize("value", [-1.0, -math.inf])
def test_equal_scores_everywhere_end_it(value: float) -> None:
    (lane,) = runs(Problem(lambda z: torch.full((len(z),), value, dtype=torch.float64), 0.0), 1)
    assert (lane.state, lane.log_p, lane.calls) == ("stuck", 0.0, 500)


def test_where_many_share_the_highest_score_the_factor_counts_them() -> None:
    """Two scores, the higher with a probability of Phi(-1) = .1587, and no failure: that is the
    bound, not a tenth."""
    found = runs(Problem(lambda z: torch.where(z[:, 0] > 1, -1.0, -2.0).double(), 0.0), 8)
    assert {lane.state for lane in found} == {"stuck"}
    bounds = np.exp([lane.log_p for lane in found])
    assert abs(bounds.mean() - 0.158655) < 3 * math.sqrt(0.158655 * 0.841345 / 500 / len(found))
