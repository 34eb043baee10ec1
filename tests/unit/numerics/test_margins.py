"""The shape tests and the pair moments agree with SciPy and NumPy, and keep their false alarms."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from robaudit.numerics.margins import halves, pair_moments, shape_of_pairs, standardise


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_scores_are_scipys_for_uncorrelated_pairs() -> None:
    odd = normals(1, 60).exp()
    even = normals(1, 60, seed=1)
    odd = odd / odd.square().mean().sqrt()
    centred = even - even.mean()
    # parts of equal variance: members of a pair do not correlate
    centred = centred / centred.square().mean().sqrt()
    shape = shape_of_pairs(centred, odd)
    u = torch.cat([centred + odd, centred - odd], dim=1)[0].numpy()
    assert float(shape.skewness) == pytest.approx(stats.skew(u), abs=1e-12)
    assert float(shape.kurtosis) == pytest.approx(stats.kurtosis(u), abs=1e-12)
    expected = 2 * min(stats.skewtest(u).pvalue, stats.kurtosistest(u).pvalue)
    assert float(shape.p_value) == pytest.approx(min(1.0, expected), rel=1e-9)


@pytest.mark.parametrize("even_share", [0.0, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("pairs", [16, 32, 256])
def test_false_alarms_are_at_most_one_percent(even_share: float, pairs: int) -> None:
    trials = 4000
    even, odd = (
        share**0.5 * normals(trials, pairs, seed=s)
        for s, share in ((1, even_share), (2, 1 - even_share))
    )
    rate = float((shape_of_pairs(even, odd).p_value < 0.01).double().mean())
    # the kurtosis approximation is good to .003 at 32 draws
    assert rate <= 0.013 + 3 * math.sqrt(0.01 * 0.99 / trials)


def test_the_covariance_is_unbiased() -> None:
    """Average over many replicates of margins with a known covariance (linear plus an even
    square)."""
    replicates = 5_000
    pairs = 8
    z = normals(replicates, pairs, seed=3)
    g = torch.stack([2 * z + z.square(), -2 * z + z.square()], dim=2).flatten(1)[:, :, None]
    covariance = pair_moments(*halves(g)).covariance[:, 0, 0]
    assert abs(float(covariance.mean()) - 6.0) < 4 * float(covariance.std()) / math.sqrt(replicates)


def test_a_margin_that_never_changes_holds_only_above_zero() -> None:
    z, _ = standardise(torch.tensor([[0.0, 1.0, -1.0]]), torch.zeros(1, 3, 3))
    assert z.tolist() == [[-math.inf, math.inf, -math.inf]], "a tie is a failure"
