"""Design points and importance sampling against probabilities that are known, and the traps where one point is not enough."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robaudit.numerics.design_points import Weighted, dot, mixture, relative_error_at, sample, search, weighted
from robaudit.numerics.splitting import Schedule, split
from tests.numerics.problems import BALL, BETA, BETA_TWO, PROBLEMS, D, Problem, drawer, normals

DRAWS = 10_000
FIRST = torch.eye(D)[:1]
ONE_POINT = {"half-space": BETA * FIRST, "two-sided": BETA_TWO * FIRST, "outside a ball": math.sqrt(BALL) * FIRST}


def sampled(problem: Problem, points: Tensor, *, seed: int = 0, draws: int = DRAWS) -> Weighted:
    return sample(problem.judge, normals(draws, seed), mixture(points, draws))


def foretold(problem: Problem, points: Tensor, *, seed: int = 0) -> float:
    """By a splitting a tenth as dear as the default one."""
    lanes = split(problem.judge, drawer(seed), 4, Schedule(particles=100), keep=100)
    failing = torch.cat([lane.failing for lane in lanes if lane.failing is not None])
    log_p = math.log(math.fsum(math.exp(lane.log_p) for lane in lanes) / 4)
    return relative_error_at(mixture(points, DRAWS).log_ratio(failing), log_p, DRAWS)


def test_half_space() -> None:
    problem = PROBLEMS["half-space"]
    found = sampled(problem, ONE_POINT["half-space"])
    assert abs(found.p - problem.p) < 3 * found.std_error
    assert found.std_error / found.p == pytest.approx(0.025, abs=0.003)
    assert 1000 < found.ess < found.failed


def test_both_sides() -> None:
    problem = PROBLEMS["two-sided"]
    found = sampled(problem, torch.cat([BETA_TWO * FIRST, -BETA_TWO * FIRST]))
    assert abs(found.p - problem.p) < 3 * found.std_error
    assert found.std_error / found.p == pytest.approx(0.027, abs=0.003)
    assert set(found.labels) == {0, 1}


def test_uniform_noise() -> None:
    problem = PROBLEMS["uniform"]
    point = search(problem.slope, torch.zeros(1, D), 20)
    found = sampled(problem, point)
    assert abs(problem.slope(point)[0].item()) < 1e-6
    assert abs(found.p - problem.p) < 3 * found.std_error
    assert found.p == pytest.approx(2.76e-7, rel=0.25)


@pytest.mark.parametrize(("name", "claims"), [("two-sided", (4.8e-7, 5.2e-7)), ("outside a ball", (0.0, 1e-15))])
def test_one_point_is_wrong_and_splitting_foretells_it(name: str, claims: tuple[float, float]) -> None:
    """Wrong with a tight interval; failing particles elsewhere have weights near 10."""
    problem = PROBLEMS[name]
    found = sampled(problem, ONE_POINT[name])
    assert claims[0] < found.p < claims[1]
    assert found.p + 1.96 * found.std_error < problem.p
    assert foretold(problem, ONE_POINT[name]) > 10 * found.std_error / found.p


def test_foretold_where_nothing_is_missed() -> None:
    problem = PROBLEMS["half-space"]
    claimed = sampled(problem, ONE_POINT["half-space"])
    assert foretold(problem, ONE_POINT["half-space"]) == pytest.approx(claimed.std_error / claimed.p, rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("points", [torch.zeros(0, D), 0.5 * BETA * FIRST, 3.0 * torch.eye(D)[1:3], BETA * FIRST])
def test_unbiased_whatever_the_points(points: Tensor) -> None:
    """A failure probability of .0228, with poor points and good ones: the mean of 200 samples within three standard errors."""
    problem = Problem(lambda z: z[:, 0] - 2.0, 0.5 * math.erfc(2.0 / math.sqrt(2)))
    found = torch.tensor([sampled(problem, points, seed=i, draws=500).p for i in range(200)], dtype=torch.float64)
    assert abs(float(found.mean()) - problem.p) < 3 * float(found.std()) / math.sqrt(len(found))


def test_the_search_finds_both_sides_from_points_there() -> None:
    start = torch.cat([FIRST, -FIRST]) * 6 + 0.3 * torch.randn(2, D, generator=torch.Generator().manual_seed(0))
    found = search(PROBLEMS["two-sided"].slope, start, 4)
    assert torch.allclose(found, torch.cat([BETA_TWO * FIRST, -BETA_TWO * FIRST]), atol=1e-4)


def test_no_gradient_no_point() -> None:
    found = search(lambda u: (torch.ones(len(u), dtype=torch.float64), torch.zeros_like(u)), torch.zeros(2, D), 3)
    assert bool(found.isnan().all())
    mix = mixture(found, 100)
    assert (len(mix.points), mix.counts) == (0, (100,))


def test_points_that_say_the_same_count_once() -> None:
    points = torch.cat([4 * FIRST, 4.1 * FIRST, -5 * FIRST, torch.full((1, D), math.nan), 100 * torch.eye(D)[1:2]])
    mix = mixture(points, 1000)
    assert torch.equal(mix.points, torch.cat([4 * FIRST, -5 * FIRST]).double())
    assert sum(mix.counts) == mix.draws == 1000
    assert mix.counts[0] == 100
    assert mix.counts[2] == pytest.approx(900 * 0.05 / 1.05, abs=1)


@given(
    betas=st.lists(st.floats(0.1, 8), min_size=1, max_size=4), draws=st.integers(10, 500), scale=st.floats(0.1, 5), seed=st.integers(0, 99)
)
def test_weights_are_the_ratio_of_densities_and_at_most_ten(betas: list[float], draws: int, scale: float, seed: int) -> None:
    mix = mixture(torch.diag(torch.tensor(betas)), draws)
    u = scale * torch.randn(16, len(betas), generator=torch.Generator().manual_seed(seed))
    shares = torch.tensor(mix.counts, dtype=torch.float64) / draws
    centres = torch.cat([torch.zeros(1, len(betas), dtype=torch.float64), mix.points])
    log_q = (-0.5 * (u.double()[:, None] - centres).square().sum(2) + shares.log()).logsumexp(1)
    expected = -0.5 * u.double().square().sum(1) - log_q
    found = mix.log_ratio(u)
    assert torch.allclose(found, expected, atol=1e-9)
    assert float(found.max()) <= math.log(10) + 1e-9
    assert sum(mix.counts) == draws


def test_nothing_failed() -> None:
    found = weighted(torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.bool), torch.zeros(5, dtype=torch.int64))
    assert (found.p, found.std_error, found.ess, found.failed, found.labels) == (0.0, 0.0, 0.0, 0, {})


def test_dot_is_each_row_by_itself() -> None:
    a, b = torch.randn(2, 70, 33, generator=torch.Generator().manual_seed(0)).unbind()
    together = dot(a, b)
    assert torch.allclose(together, (a.double() * b.double()).sum(1))
    assert torch.equal(together[40:43], dot(a[40:43], b[40:43]))
