"""The parts of `mvn_cdf` that the whole relies on: the ordered factor and the integrand in single precision."""

from __future__ import annotations

import pytest
import torch

from robaudit.numerics.lattice import lattice_points
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.separation import ordered_factor, separated_values
from tests.numerics.test_mvn import gram, limits


@pytest.mark.parametrize(("k", "rank"), [(9, 30), (9, 4), (40, 90), (40, 20)])
def test_the_factor_gives_the_correlation_back(k: int, rank: int) -> None:
    z, correlation = limits(5, k, seed=k).sort(dim=-1).values, gram(5, k, rank, seed=k)
    factor = ordered_factor(z, correlation, truncation=0.0)
    deviation = z / factor.limit
    root = deviation.unsqueeze(-1) * (factor.slope + torch.eye(k, dtype=torch.float64))
    torch.testing.assert_close(root @ root.transpose(1, 2), correlation, atol=2e-8, rtol=0.0)  # the least conditional variance is 1e-8
    assert factor.rank.tolist() == [k] * 5


def test_what_is_left_out_is_within_the_truncation() -> None:
    z, correlation = limits(6, 60, seed=60, mean=3.0).sort(dim=-1).values, gram(6, 60, 200, seed=60)
    factor = ordered_factor(z, correlation, truncation=1e-3)
    value, error = mvn_cdf(z, correlation, truncation=0.0)
    assert bool((factor.omitted > 0).any())
    assert bool((factor.omitted <= 1e-3 * (value + error)).all())
    beyond = torch.arange(60) >= factor.rank.unsqueeze(-1)
    torch.testing.assert_close(factor.omitted, (normal_cdf(-z) * beyond).sum(-1), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("tolerance", "rounding"), [(1e-3, 1e-5), (9e-5, 1e-9)])  # single and double precision
def test_rows_of_very_different_width_do_not_change_each_other(tolerance: float, rounding: float) -> None:
    z = torch.cat([limits(2, 80, seed, mean) for seed, mean in enumerate((0.5, 2.5, 4.0))])
    correlation = gram(6, 80, 100, seed=4)
    value, _ = mvn_cdf(z, correlation, tolerance=tolerance)
    for i in range(6):
        alone, _ = mvn_cdf(z[i : i + 1], correlation[i : i + 1], tolerance=tolerance)
        assert alone.item() == pytest.approx(value[i].item(), rel=rounding)


def test_each_row_has_its_own_tolerance() -> None:
    z, correlation = limits(6, 20, seed=5, mean=1.5), gram(6, 20, 60, seed=5)
    wanted = torch.tensor([2e-4, 1e-2] * 3, dtype=torch.float64)
    value, error = mvn_cdf(z, correlation, tolerance=wanted)
    for rows, tolerance in ((slice(0, None, 2), 2e-4), (slice(1, None, 2), 1e-2)):
        alone, alone_error = mvn_cdf(z[rows], correlation[rows], tolerance=tolerance)
        torch.testing.assert_close(value[rows], alone, rtol=1e-5, atol=0)
        torch.testing.assert_close(error[rows], alone_error, rtol=1e-2, atol=0)
    assert error[0::2].max() < 2.2e-4 < error[1::2].max()


@pytest.mark.parametrize("mean", [1.5, 2.5])
def test_single_precision_is_within_its_stated_error(mean: float) -> None:
    factor = ordered_factor(limits(20, 30, seed=30, mean=mean), gram(20, 30, 90, seed=30), truncation=0.0)
    u = lattice_points(30, 0, 64, 0, factor.limit.device)
    exact = separated_values(factor.limit, factor.slope, u).mean(-1)
    single = separated_values(factor.limit, factor.slope, u.float().clamp_max(1.0 - 2.0**-24)).mean(-1)
    common = exact > 0.01
    assert bool(common.any())
    assert bool(((single - exact).abs() <= 1e-5 * exact)[common].all())


def test_a_limit_that_almost_never_holds() -> None:
    """Where torch.special.ndtr has lost its accuracy or is zero."""
    z = torch.tensor([[-7.5, 1.0, 0.5], [-8.6, 1.0, 0.5], [-12.0, 2.0, 1.0]], dtype=torch.float64)
    value, error = mvn_cdf(z, torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    exact = normal_cdf(z).prod(-1)
    assert bool(((value - exact).abs() <= error + 1e-12 * exact).all())
    assert bool((error <= 0.05 * exact).all())
