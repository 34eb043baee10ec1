"""The parts of `mvn_cdf` that the whole relies on: the ordered factor and the integrand in single precision."""

from __future__ import annotations

import pytest
import torch

from robaudit.numerics.lattice import lattice_points
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.separation import ordered_factor, separated_values
from tests.unit.numerics.test_mvn import gram, limits


@pytest.mark.parametrize(("k", "rank"), [(9, 30), (9, 4), (40, 90), (40, 20)])
def test_the_factor_gives_the_correlation_back(k: int, rank: int) -> None:
    z, correlation = limits(5, k, seed=k).sort(dim=-1).values, gram(5, k, rank, seed=k)
    factor = ordered_factor(z, correlation, truncation=0.0)
    deviation = z / factor.limit
    root = deviation.unsqueeze(-1) * (factor.slope + torch.eye(k, dtype=torch.float64))
    torch.testing.assert_close(root @ root.transpose(1, 2), correlation, atol=2e-8, rtol=0.0)  # the least conditional variance is 1e-8
    assert factor.rank.tolist() == [k] * 5


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
