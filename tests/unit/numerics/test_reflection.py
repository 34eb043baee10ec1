"""Reflected pairs: zero for normal margins, and what the normal fit of skewed ones misses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.numerics.margins import SOFTNESS, reflection_shift
from robaudit.numerics.normal import normal_cdf

ATTENUATION = (1 + SOFTNESS**2) ** -1.5


def normal_parts(
    images: int, pairs: int, k: int, *, share: float, seed: int, mean: float = 0.8
) -> tuple[Tensor, Tensor]:
    """Even and odd parts of jointly normal margins with correlation one half; the even part has
    that share of the variance."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2, images, pairs, k + 1, generator=generator, dtype=torch.float64)
    parts = (z[..., :1] + z[..., 1:]) / 2**0.5
    return mean + share**0.5 * parts[0], (1 - share) ** 0.5 * parts[1]


def quadratic_parts(z: Tensor, mean: float, curvature: float) -> tuple[Tensor, Tensor]:
    """g = mean + z + curvature (z^2 - 1) of normal draws z (images, pairs), one margin."""
    return (mean + curvature * (z.square() - 1))[:, :, None], z[:, :, None]


@pytest.mark.parametrize(("share", "k"), [(0.1, 1), (0.5, 9), (1.0, 9)])
def test_zero_on_average_for_normal_margins(share: float, k: int) -> None:
    images = 2000
    shift = reflection_shift(*normal_parts(images, 32, k, share=share, seed=k))
    error = float(shift.std()) / math.sqrt(images)
    assert error < 0.001
    assert abs(float(shift.mean())) < 4 * error


@pytest.mark.parametrize(
    ("mean", "curvature"), [(-1.5, -0.08), (0.0, 0.05), (0.5, -0.08), (1.5, 0.05)]
)
def test_one_quadratic_margin(mean: float, curvature: float) -> None:
    """P[mean + z + c (z^2 - 1) > 0] is known; the shift makes up for two thirds of what the normal
    fit misses, or more."""
    images = 400
    pairs = 512
    z = torch.randn(images, pairs, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    shift = reflection_shift(*quadratic_parts(z, mean, curvature))
    root = math.sqrt(1 - 4 * curvature * (mean - curvature))
    near = (-1 + root) / (2 * curvature)
    far = (-1 - root) / (2 * curvature)
    low, high = (
        float(normal_cdf(torch.tensor(t, dtype=torch.float64))) for t in sorted((near, far))
    )
    exact = 1 - (high - low) if curvature > 0 else high - low
    missed = exact - float(
        normal_cdf(torch.tensor(mean / math.sqrt(1 + 2 * curvature**2), dtype=torch.float64))
    )
    error = float(shift.std()) / math.sqrt(images)
    assert abs(missed) > 20 * error
    assert abs(float(shift.mean()) - missed) < 0.35 * abs(missed)


def test_skewness_that_no_single_margin_shows() -> None:
    """Two margins whose common even part goes with the product of their odd parts: each is
    symmetric, together they are skewed."""
    images = 300
    pairs = 512
    generator = torch.Generator().manual_seed(7)
    z = torch.randn(2, images, pairs, generator=generator, dtype=torch.float64)
    odd = torch.stack([z[0], z[1]], 2)
    even = 0.4 + 0.15 * (z[0] * z[1])[:, :, None].expand(-1, -1, 2)
    single = (3 * (even[..., 0] - 0.4) * odd[..., 0].square()).mean(1)
    assert abs(float(single.mean())) < 4 * float(single.std()) / math.sqrt(images)
    g = torch.cat([even + odd, even - odd], 1)
    reflected = torch.cat([0.8 - even + odd, 0.8 - even - odd], 1)
    votes = ((g > 0).all(2).double().mean(1) - (reflected > 0).all(2).double().mean(1)) / 2
    shift = reflection_shift(even, odd)
    assert abs(float(votes.mean())) > 0.01
    assert 0.8 * ATTENUATION < float(shift.mean() / votes.mean()) < 1.1


def test_a_batch_has_the_bits_of_each_alone_and_constant_margins_are_harmless() -> None:
    even, odd = normal_parts(17, 24, 4, share=0.4, seed=9)
    even[:, :, 2] = 3.0
    odd[:, :, 2] = 0.0
    shift = reflection_shift(even, odd)
    assert shift.isfinite().all()
    assert torch.equal(
        shift, torch.cat([reflection_shift(even[i : i + 1], odd[i : i + 1]) for i in range(17)])
    )
    even[:, :, 2] = -3.0
    assert (reflection_shift(even, odd) == 0).all()
