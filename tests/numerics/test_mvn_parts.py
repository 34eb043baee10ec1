"""The parts of `mvn_cdf` that the whole relies on: ordering, grouping, and the integrand in single precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robaudit.numerics.integration import random_shifts, shifted_lattice
from robaudit.numerics.mvn import mvn_cdf
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.ordering import Pivoting, arrange, competitive, groups, pivot_by_restriction
from robaudit.numerics.separation import separated_values
from robaudit.numerics.tilting import minimax_tilt
from tests.numerics.test_mvn import gram, limits

TINY = 1e-10


def pivoted(rows: int, k: int, rank: int, mean: float, truncation: float = 0.0) -> tuple[Tensor, Tensor, Pivoting]:
    z, correlation = limits(rows, k, seed=k, mean=mean).sort(dim=-1).values, gram(rows, k, rank, seed=k)
    return z, correlation, pivot_by_restriction(z, correlation, truncation=truncation, tolerance=TINY)


@pytest.mark.parametrize(("k", "rank"), [(9, 30), (9, 4), (40, 90), (40, 20), (40, 10)])
def test_the_pivoted_factor_gives_the_correlation_back(k: int, rank: int) -> None:
    _, correlation, pivoting = pivoted(5, k, rank, mean=1.0)
    product = pivoting.columns.transpose(1, 2) @ pivoting.columns
    torch.testing.assert_close(product, correlation, atol=1e-7, rtol=0.0)
    assert bool(((pivoting.step < k).sum(-1) == min(k, rank)).all())
    assert torch.equal(pivoting.tie, pivoting.step == k)


def test_rows_of_one_batch_may_be_regular_and_singular() -> None:
    z = limits(2, 40, seed=1)
    correlation = torch.cat([gram(1, 40, 90, seed=2), gram(1, 40, 20, seed=3)])
    both = pivot_by_restriction(z, correlation, truncation=0.0, tolerance=TINY)
    for i in range(2):
        one = pivot_by_restriction(z[i : i + 1], correlation[i : i + 1], truncation=0.0, tolerance=TINY)
        assert torch.equal(one.step[0], both.step[i])
        torch.testing.assert_close(one.estimate[0], both.estimate[i], rtol=1e-9, atol=0.0)


def test_what_is_left_out_is_within_the_truncation() -> None:
    z, correlation, pivoting = pivoted(6, 60, 200, mean=3.0, truncation=1e-3)
    value, error = mvn_cdf(z, correlation, truncation=0.0)
    assert bool((pivoting.omitted > 0).any())
    assert bool((pivoting.omitted <= 1e-3 * (value + error)).all())
    kept = pivoting.failure > 0
    torch.testing.assert_close(pivoting.omitted, normal_cdf(-z).masked_fill(kept, 0.0).sum(-1), rtol=1e-9, atol=1e-15)


def test_groups_hold_every_row_once_and_like_with_like() -> None:
    z = torch.cat([limits(4, 200, seed, mean) for seed, mean in enumerate((0.0, 2.5, 4.0, 9.0))])
    selection = competitive(z, torch.full((len(z),), 1e-6, dtype=torch.float64), None)
    parts = [rows for rows, _ in groups(selection)]
    assert torch.cat(parts).sort().values.tolist() == list(range(len(z)))
    assert len(parts) > 1
    for part in parts:
        kept = selection.kept[part]
        assert int(kept.min()) >= min(0.7 * int(kept.max()), int(kept.max()) - 16)


@pytest.mark.parametrize(("tolerance", "rounding"), [(1e-3, 1e-5), (9e-5, 1e-9)])  # single and double precision
def test_rows_of_very_different_width_do_not_change_each_other(tolerance: float, rounding: float) -> None:
    z = torch.cat([limits(2, 80, seed, mean) for seed, mean in enumerate((0.5, 2.5, 4.0))])
    correlation = gram(6, 80, 100, seed=4)
    value, _ = mvn_cdf(z, correlation, tolerance=tolerance)
    for i in range(6):
        alone, _ = mvn_cdf(z[i : i + 1], correlation[i : i + 1], tolerance=tolerance)
        assert alone.item() == pytest.approx(value[i].item(), rel=rounding)


@pytest.mark.parametrize("mean", [-2.5, 0.0, 1.5])
@pytest.mark.parametrize("tilted", [False, True])
def test_single_precision_is_within_its_stated_error(mean: float, tilted: bool) -> None:
    z, _, pivoting = pivoted(20, 30, 90, mean=mean)
    rank = torch.full((20,), 30)
    factor = arrange(z, pivoting, rank, pivoting.tie, rank > 0, TINY)
    tilt = minimax_tilt(factor) if tilted else None
    u = shifted_lattice(30, 0, 64, random_shifts(30, 16, 0, z.device)).flatten(1)
    exact = separated_values(factor, tilt, u).mean(-1)
    single = separated_values(factor, tilt, u.float().clamp_max(1.0 - 2.0**-24)).mean(-1)
    difference = (single - exact).abs()
    assert bool((difference <= (1e-5 * exact if tilted else 1e-5 * exact + 1e-7)).all())


def test_a_limit_that_almost_never_holds() -> None:
    """Where torch.special.ndtr has lost its accuracy or is zero."""
    z = torch.tensor([[-7.5, 1.0, 0.5], [-8.6, 1.0, 0.5], [-12.0, 2.0, 1.0]], dtype=torch.float64)
    value, error = mvn_cdf(z, torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    exact = normal_cdf(z).prod(-1)
    assert bool(((value - exact).abs() <= error + 1e-12 * exact).all())
    assert bool((error <= 0.05 * exact).all())
