"""`mvn_cdf` gives known probabilities, with an honest error, in every corner of its contract."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch import Tensor

from robaudit.methods.average_case import mvn
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf

INF = float("inf")
ROUNDING = 1e-12  # of float64 sums in another order, not a stochastic tolerance


def equicorrelated(k: int, rho: float) -> Tensor:
    return torch.full((k, k), rho, dtype=torch.float64).fill_diagonal_(1.0)


def gram(rows: int, k: int, rank: int, seed: int, shift: float = 0.7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(rows, k, rank, generator=generator, dtype=torch.float64) + shift
    factor = torch.nn.functional.normalize(factor, dim=-1)
    correlation = factor @ factor.transpose(1, 2)
    correlation.diagonal(dim1=1, dim2=2).fill_(1.0)
    return correlation


def limits(rows: int, k: int, seed: int, mean: float = 1.5) -> Tensor:
    return (
        torch.randn(rows, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        + mean
    )


def one_factor(upper: np.ndarray, loading: np.ndarray) -> float:
    """The probability for the correlation loading_i loading_j, by quadrature over the common
    factor."""
    rest = np.sqrt(1.0 - loading**2)

    def integrand(x: float) -> float:
        density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
        return density * math.exp(float(special.log_ndtr((upper - loading * x) / rest).sum()))

    return float(
        sum(
            integrate.quad(integrand, a, b)[0]
            for a, b in itertools.pairwise(np.linspace(-14.0, 14.0, 57))
        )
    )


# --- exact dimensions
# ------------------------------------------------------------------------------------------------


def test_one_variable_is_phi() -> None:
    z = torch.tensor([[-30.0], [-1.0], [0.0], [9.0], [INF], [-INF]], dtype=torch.float64)
    one = torch.ones(6, 1, 1, dtype=torch.float64)
    assert torch.equal(mvn_cdf(z, one)[0], normal_cdf(z[:, 0]))


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-0.999, 0.999))
@settings(
    max_examples=20, deadline=None, derandomize=True
)  # the error covers 99.7 % of problems: a search would meet the others
def test_two_variables_against_quadrature(a: float, b: float, rho: float) -> None:
    rest = math.sqrt((1 - rho) * (1 + rho))
    jump = (
        np.clip(np.array([b / rho if rho else 0.0]) + np.array([-8, -2, 0, 2, 8]) * rest, -10, a)
        if a > -10
        else np.array([-10.0])
    )
    cuts = sorted({-10.0, *np.linspace(-10, a, 9).tolist(), *jump.tolist()})
    truth = sum(
        integrate.quad(
            lambda x: stats.norm._pdf(x) * special.ndtr((b - rho * x) / rest),
            low,
            high,
            epsabs=1e-15,
        )[0]
        for low, high in itertools.pairwise(cuts)
    )
    value, error = mvn_cdf(
        torch.tensor([[a, b]], dtype=torch.float64), equicorrelated(2, rho)[None]
    )
    assert abs(value.item() - truth) <= error.item() + ROUNDING
    assert error.item() <= 1e-3


# --- golden values --------------------------------------------------------------------------------
# -------------------


@pytest.mark.parametrize("k", [3, 9, 99])
def test_equicorrelated_half_orthant_is_one_over_k_plus_one(k: int) -> None:
    value, error = mvn_cdf(torch.zeros(1, k, dtype=torch.float64), equicorrelated(k, 0.5)[None])
    assert abs(value.item() - 1.0 / (k + 1)) <= error.item() <= 1e-3


@pytest.mark.parametrize(("k", "mean"), [(5, -1.0), (30, 3.0), (99, 1.0)])
def test_one_factor_by_quadrature(k: int, mean: float) -> None:
    random = np.random.default_rng(k)
    upper = random.normal(mean, 1.0, k)
    loading = random.uniform(0.3, 0.9, k)
    correlation = torch.from_numpy(np.outer(loading, loading)).fill_diagonal_(1.0)
    truth = one_factor(upper, loading)
    value, error = mvn_cdf(torch.from_numpy(upper)[None], correlation[None])
    assert abs(value.item() - truth) <= error.item() + ROUNDING
    assert error.item() <= 1e-3


def one_factor_rows(means: np.ndarray, k: int) -> tuple[Tensor, Tensor, np.ndarray]:
    random = np.random.default_rng(7)
    spread = random.normal(0.0, 0.5, k)
    loading = random.uniform(0.4, 0.9, k)
    truth = np.array([one_factor(mean + spread, loading) for mean in means])
    correlation = torch.from_numpy(np.outer(loading, loading)).fill_diagonal_(1.0)
    return torch.from_numpy(means[:, None] + spread), correlation.expand(len(means), k, k), truth


@pytest.mark.parametrize("k", [9, 40])
def test_lower_tail_keeps_five_percent_or_1e_7(k: int) -> None:
    upper, correlation, truth = one_factor_rows(np.linspace(-4.5, -1.0, 6), k)
    value, error = mvn_cdf(upper, correlation)
    seen = truth > 1e-13
    assert truth[seen].min() < 1e-8
    assert (error.numpy() <= np.maximum(0.05 * truth, 1.01e-7)).all()
    assert (np.abs(value.numpy() - truth) <= error.numpy())[seen].all()


def test_against_scipy() -> None:
    z = limits(6, 9, seed=4)
    correlation = gram(6, 9, 30, seed=4)
    value, error = mvn_cdf(z, correlation)
    for i in range(6):
        theirs = stats.multivariate_normal.cdf(
            z[i].numpy(),
            np.zeros(9),
            correlation[i].numpy(),
            maxpts=200_000,
            abseps=1e-5,
            releps=1e-5,
            rng=np.random.default_rng(i),
        )
        assert (
            abs(value[i].item() - theirs) <= error[i].item() + 3e-5
        )  # SciPy's own three standard errors, above 1e-5


# --- the corners of the contract
# -------------------------------------------------------------------------------------


def test_infinite_limits() -> None:
    z = limits(5, 6, seed=8)
    correlation = gram(5, 6, 20, seed=8)
    z[:, 2:4] = INF
    left = [0, 1, 4, 5]
    value, error = mvn_cdf(z, correlation)
    fewer, fewer_error = mvn_cdf(z[:, left], correlation[:, left][:, :, left])
    assert bool(((value - fewer).abs() <= error + fewer_error).all())
    z[0, 5] = -INF
    assert mvn_cdf(z, correlation)[0][0].item() == 0.0
    nothing = torch.full((2, 4), INF, dtype=torch.float64)
    assert mvn_cdf(nothing, gram(2, 4, 9, seed=1))[0].tolist() == [1.0, 1.0]


def test_a_limit_that_almost_never_holds() -> None:
    """Where torch.special.ndtr has lost its accuracy or is zero."""
    z = torch.tensor([[-7.5, 1.0, 0.5], [-8.6, 1.0, 0.5], [-12.0, 2.0, 1.0]], dtype=torch.float64)
    value, error = mvn_cdf(z, torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    exact = normal_cdf(z).prod(-1)
    assert bool(((value - exact).abs() <= error + 1e-12 * exact).all())
    assert bool((error <= 0.05 * exact).all())


def test_opposite_rows_make_an_interval() -> None:
    z = torch.tensor([[1.0, 0.5, 0.7], [1.0, -1.5, 0.7], [2.0, 0.1, INF]], dtype=torch.float64)
    correlation = torch.tensor(
        [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64
    ).expand(3, 3, 3)
    value, error = mvn_cdf(z, correlation)
    interval = (normal_cdf(z[:, 0]) - normal_cdf(-z[:, 1])).clamp_min(0.0)
    assert bool(((value - interval * normal_cdf(z[:, 2])).abs() <= error + ROUNDING).all())


def test_rank_one_and_two_polytopes() -> None:
    angle = torch.linspace(0.0, 2.0 * math.pi, 9, dtype=torch.float64)[:-1]
    factor = torch.stack([angle.cos(), angle.sin()], -1)  # a regular octagon around the origin
    z = torch.full((1, 8), 1.3, dtype=torch.float64)
    value, error = mvn_cdf(z, (factor @ factor.T)[None])
    half = math.pi / 8
    inside = integrate.quad(lambda a: 1.0 - math.exp(-0.5 * (1.3 / math.cos(a)) ** 2), -half, half)[
        0
    ] / (2 * half)
    assert abs(value.item() - inside) <= error.item()


def test_truncation_bound_holds() -> None:
    z = limits(8, 60, seed=12, mean=3.5)
    correlation = gram(8, 60, 200, seed=12)
    full, full_error = mvn_cdf(z, correlation, truncation=0.0)
    short, short_error = mvn_cdf(z, correlation, truncation=0.05)
    assert bool(((full - short).abs() <= full_error + short_error).all())
    assert bool((short_error > full_error).any())


def test_nan_stays_in_its_row() -> None:
    z = limits(4, 5, seed=13)
    correlation = gram(4, 5, 20, seed=13)
    clean = mvn_cdf(z, correlation)[0]
    z[1, 2] = math.nan
    correlation[3, 0, 1] = math.nan
    value, error = mvn_cdf(z, correlation)
    assert value.isnan().tolist() == error.isnan().tolist() == [False, True, False, True]
    assert bool(((value - clean)[[0, 2]].abs() <= ROUNDING).all())


@pytest.mark.parametrize(
    ("upper", "correlation", "message"),
    [
        (torch.zeros(3), torch.eye(3), "upper should be"),
        (torch.zeros(1, 3), torch.eye(3), "and correlation"),
        (torch.zeros(1, 3), 2.0 * torch.eye(3)[None], "diagonal"),
        (torch.zeros(1, 2), torch.tensor([[[1.0, 1.5], [1.5, 1.0]]]), "beyond"),
    ],
)
def test_broken_contracts(upper: Tensor, correlation: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mvn_cdf(upper, correlation)


# --- properties -----------------------------------------------------------------------------------
# -------------------


def mixed_problems() -> tuple[Tensor, Tensor]:
    z = torch.cat(
        [limits(5, 9, seed, mean) for seed, mean in enumerate((-2.0, 0.0, 1.5, 4.0, 9.0))]
    )
    correlation = torch.cat([gram(5, 9, rank, seed) for seed, rank in enumerate((9, 4, 40, 9, 2))])
    z[3, 4], z[7, 1], z[12] = INF, -INF, 40.0
    return z, correlation


def test_same_seed_same_bits_and_no_global_generator() -> None:
    z, correlation = mixed_problems()
    before = torch.get_rng_state()
    first, second, other = (mvn_cdf(z, correlation, seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_the_error_is_honest() -> None:
    misses = problems_seen = 0
    for k, rank, mean in (
        (4, 30, 1.0),
        (9, 300, 1.0),
        (9, 300, 3.0),
        (9, 9, 1.5),
        (9, 4, 1.5),
        (30, 200, 2.0),
    ):
        z = limits(40, k, seed=k, mean=mean)
        correlation = gram(40, k, rank, seed=k)
        truth, truth_error = mvn_cdf(z, correlation, points=1 << 14, tolerance=2e-4, seed=1000)
        value, error = mvn_cdf(z, correlation, seed=1)
        assert error.max().item() <= 2e-3
        misses += int(((value - truth).abs() > torch.hypot(error, truth_error)).sum())
        problems_seen += len(z)
    # If at least 99 % are covered, so many misses have a chance of 1e-3.
    assert misses <= stats.binom.ppf(0.999, problems_seen, 0.01)


def test_single_precision_is_within_its_stated_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for k, rank in ((9, 9), (9, 40), (40, 60), (60, 30)):
        z = limits(30, k, seed=15, mean=1.5)
        correlation = gram(30, k, rank, seed=15)
        # Both see the same 1,024 points, which is the first look.
        single, _ = mvn_cdf(z, correlation, points=1024, tolerance=1e-4)
        monkeypatch.setattr(mvn, "_COMMON", 2.0)  # no probability is so large
        double, _ = mvn_cdf(z, correlation, points=1024, tolerance=1e-4)
        monkeypatch.undo()
        assert not torch.equal(single, double)
        seen = double > 2e-2
        assert bool(((single - double).abs()[seen] <= 1e-5 * double[seen]).all())


def test_hundreds_of_variables_that_others_determine() -> None:
    """Rounding must not grow in the factor of a singular matrix: the second row gave NaN."""
    generator = torch.Generator().manual_seed(1)
    factor = torch.randn(2, 999, 20, generator=generator, dtype=torch.float64) + 0.7
    factor = torch.nn.functional.normalize(factor, dim=-1)
    correlation = factor @ factor.transpose(1, 2)
    correlation.diagonal(dim1=1, dim2=2).fill_(1.0)
    z = limits(2, 999, seed=1, mean=3.5)
    value, error = mvn_cdf(z, correlation, points=2048)
    draws = torch.randn(20_000, 20, generator=generator, dtype=torch.float64)
    for row in range(2):
        holds = (draws @ factor[row].T <= z[row]).all(1).double()
        standard_error = float(holds.std()) / math.sqrt(len(draws))
        assert abs(value[row] - holds.mean()) <= error[row] + 4 * standard_error


def test_points_bound_the_work_and_more_points_lower_the_error() -> None:
    z = limits(20, 12, seed=14, mean=0.5)
    correlation = gram(20, 12, 30, seed=14)
    few, many = (mvn_cdf(z, correlation, points=points, tolerance=0.0)[1] for points in (256, 8192))
    assert many.median().item() < 0.3 * few.median().item()
