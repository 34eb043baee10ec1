"""The normal distribution function and its inverse are accurate far into the tails, in both precisions."""

from __future__ import annotations

import numpy as np
import torch
from scipy import special

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.separation import scaled_upper_quantile


def test_distribution_function_keeps_its_relative_accuracy() -> None:
    x = np.linspace(-37.0, 8.0, 10_001)
    logarithm = normal_cdf(torch.from_numpy(x)).log().numpy()
    assert np.abs(logarithm - special.log_ndtr(x)).max() <= 1e-12


def single_quantile(probability: torch.Tensor) -> torch.Tensor:
    scratch = torch.empty(2, *probability.shape).unbind()
    upper = scaled_upper_quantile(probability.clone(), torch.empty_like(probability), scratch)
    return torch.mul(upper.double(), -(2.0**0.5))


def test_single_precision_quantile() -> None:
    low = torch.logspace(-25, -0.31, 5_000)
    high = 1.0 - torch.logspace(-7, -0.31, 5_000)
    for probability in (low, high):
        exact = special.ndtri(probability.double().numpy())
        assert np.abs(single_quantile(probability).numpy() / exact - 1.0).max() <= 5e-6


def test_single_precision_quantile_is_finite_everywhere() -> None:
    value = single_quantile(torch.tensor([0.0, 1e-40, 1e-25, 0.5, 1.0 - 2.0**-24, 1.0]))
    assert bool(value.isfinite().all())
    assert value[3].item() == 0.0
    assert bool((value.diff() >= 0.0).all())
