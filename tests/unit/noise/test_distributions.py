"""5,000 draws of every kind have the stated mean, covariance and distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from robaudit.noise.correlated import CorrelatedGaussian
from robaudit.noise.covariance import CovarianceGaussian
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.impulse import Impulse
from robaudit.noise.laplace import Laplace
from robaudit.noise.noise import AdditiveNoise, Noise, Shape
from robaudit.noise.poisson import Poisson
from robaudit.noise.scaled import ScaledGaussian
from robaudit.noise.sensor import Sensor
from robaudit.noise.speckle import Speckle
from robaudit.noise.uniform import Uniform
from tests.unit.noise.kinds import kinds, made, normal, write_files

SHAPE: Shape = (2, 4, 5)
PIXELS = math.prod(SHAPE)
N = 5000
ERRORS = 5  # standard errors

# A kind, its options and a level.
ADDITIVE: list[tuple[type[AdditiveNoise], dict[str, Any], float]] = [
    (Gaussian, {}, 0.1),
    (ScaledGaussian, {"scale": [0.5, 2.0]}, 0.1),
    (ScaledGaussian, {"scale": "values.npy"}, 0.1),
    (CorrelatedGaussian, {"length": 1.5}, 0.2),
    (CorrelatedGaussian, {"length": 30, "channels": "shared"}, 0.2),
    (CovarianceGaussian, {"file": "both.npz"}, 0.1),
    (Uniform, {}, 0.3),
    (Uniform, {"norm": "l2"}, 2.0),
    (Laplace, {}, 0.1),
    (Speckle, {}, 0.4),
    (Poisson, {}, 0.5),
    (Poisson, {}, 12.0),
]
NOT_NORMAL = (Uniform, Laplace, Poisson)
NAMES = [
    f"{cls.__name__} {' '.join(map(str, options.values()))} {level}"
    for cls, options, level in ADDITIVE
]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Noise]:
    write_files(tmp_path, SHAPE)
    return lambda cls, **options: made(cls, tmp_path, **options)


def image() -> Tensor:
    """One image with black and white among its pixels, (1, *SHAPE)."""
    x = torch.linspace(0.0, 1.0, PIXELS).view(1, *SHAPE)
    return x.flip(3)


def sample(form: Noise, level: float, x: Tensor, count: int = N) -> Tensor:
    """Noisy copies (count, PIXELS), float64."""
    return (
        form.noisy(x, normal(count, form.latent_shape(SHAPE), 7), level, ids=["a"])
        .double()
        .flatten(1)
    )


def standard_error(values: Tensor) -> Tensor:
    return values.std(0) / math.sqrt(len(values))


def test_every_additive_kind_is_here() -> None:
    assert {cls for cls in kinds().values() if issubclass(cls, AdditiveNoise)} == {
        cls for cls, _, _ in ADDITIVE
    }


@pytest.mark.parametrize(("cls", "options", "level"), ADDITIVE, ids=NAMES)
def test_mean_covariance_and_normality(
    cls: type[AdditiveNoise],
    options: dict[str, Any],
    level: float,
    build: Callable[..., AdditiveNoise],
) -> None:
    """On single values, on pairs of values and on random directions, where the covariance is
    amplitude^2 * gram.

    Normal kinds are normal, on a value and along a direction; others are not, on a value.
    """
    form = build(cls, **options)
    x = image()
    noise = sample(form, level, x) - x.double().flatten(1)
    assert (noise.mean(0).abs() <= ERRORS * standard_error(noise) + 1e-12).all()
    directions = torch.cat(
        [torch.eye(PIXELS, dtype=torch.float64), normal(8, (PIXELS,), 3).double()]
    )
    stated = form.amplitude(level, SHAPE) ** 2 * form.gram(directions[None], x)[0]
    projected = noise @ directions.T
    # neighbours, the next row, the other channel, directions
    chosen = [
        0,
        1,
        2,
        5,
        11,
        19,
        20,
        39,
        *range(PIXELS, PIXELS + 8),
    ]
    for i in chosen:
        products = projected[:, chosen] * projected[:, i : i + 1]
        off = (products.mean(0) - stated[i, chosen]).abs()
        assert (off <= ERRORS * standard_error(products) + 1e-12).all(), i
    assert stated.diagonal()[PIXELS:].min() > 0  # the directions see something
    p = [stats.kstest(projected[:, i] / stated[i, i].sqrt(), "norm").pvalue for i in (12, PIXELS)]
    if cls not in NOT_NORMAL:
        assert min(p) > 1e-4
    elif cls is not Uniform:  # a ball in 40 dimensions is close to normal
        assert p[0] < 1e-4


def test_marginals_against_scipy() -> None:
    x = torch.full((1, *SHAPE), 0.5)
    box = sample(Uniform(), 0.3, x)[:, 3] - 0.5
    assert stats.kstest(box.numpy(), stats.uniform(-0.3, 0.6).cdf).pvalue > 1e-4
    assert box.abs().max() <= 0.3 + 1e-7
    ball = sample(Uniform(norm="l2"), 2.0, x) - 0.5
    assert (
        stats.kstest(
            (ball[:, 3].numpy() / 2 + 1) / 2, stats.beta((PIXELS + 1) / 2, (PIXELS + 1) / 2).cdf
        ).pvalue
        > 1e-4
    )
    radius = ball.norm(dim=1).numpy() / 2
    assert radius.max() <= 1 + 1e-6
    assert stats.kstest(radius**PIXELS, "uniform").pvalue > 1e-4
    sphere = sample(Uniform(norm="l2", support="sphere"), 2.0, x) - 0.5
    assert (
        stats.kstest(
            (sphere[:, 3].numpy() / 2 + 1) / 2, stats.beta((PIXELS - 1) / 2, (PIXELS - 1) / 2).cdf
        ).pvalue
        > 1e-4
    )
    laplace = sample(Laplace(), 0.1, x)[:, 3] - 0.5
    assert stats.kstest(laplace.numpy(), stats.laplace(0, 0.1 / math.sqrt(2)).cdf).pvalue > 1e-4
    speckle = sample(Speckle(), 0.4, x)[:, 3]
    assert stats.kstest(speckle.numpy(), stats.norm(0.5, 0.2).cdf).pvalue > 1e-4


def agree(observed: np.ndarray, probability: np.ndarray) -> bool:
    """Chi-square test of counts against probabilities; rare outcomes are one."""
    expected = observed.sum() * probability
    many = expected >= 10
    seen = np.append(observed[many], observed[~many].sum())
    right = np.append(expected[many], expected[~many].sum())
    kept = right > 1e-9
    assert seen[~kept].sum() == 0
    p: float = stats.chisquare(seen[kept], right[kept] * seen.sum() / right[kept].sum()).pvalue
    return p > 1e-4


@pytest.mark.parametrize("photons", [0.5, 20.0, 300.0])
def test_poisson_counts(photons: float) -> None:
    x = torch.full((1, *SHAPE), 0.5)
    counts = (sample(Poisson(), photons, x)[:, :4] * photons).round().long().flatten().numpy()
    observed = np.bincount(counts, minlength=500)
    assert agree(observed, stats.poisson(photons / 2).pmf(np.arange(len(observed))))


def codes(x: float, photons: float, read_noise: float, bits: int) -> np.ndarray:
    """Probability of each code of the converter, from the mixture of normal distributions over the
    number of electrons."""
    most = 2**bits - 1
    electrons = np.arange(int(stats.poisson.isf(1e-14, x * photons)) + 1)
    weights = stats.poisson.pmf(electrons, x * photons)
    edges = np.concatenate([[-np.inf], (np.arange(most) + 0.5) / most * photons, [np.inf]])
    above = stats.norm.cdf((edges[None] - electrons[:, None]) / read_noise)
    found: np.ndarray = weights @ np.diff(above, axis=1)
    return found


@pytest.mark.parametrize(
    ("x", "photons", "read_noise", "bits"),
    [(0.5, 100.0, 2.0, 8), (0.02, 30.0, 1.5, 8), (0.99, 50.0, 5.0, 4), (0.3, 8.0, 0.7, 10)],
)
def test_sensor_codes(x: float, photons: float, read_noise: float, bits: int) -> None:
    """Clipping at black and white included."""
    form = Sensor(read_noise=read_noise, bits=bits)
    most = 2**bits - 1
    found = (
        sample(form, photons, torch.full((1, *SHAPE), x, dtype=torch.float32))[:, :4]
        .flatten()
        .numpy()
        * most
    )
    assert np.abs(found - found.round()).max() < 1e-3
    observed = np.bincount(found.round().astype(int), minlength=most + 1)
    assert agree(observed, codes(float(np.float32(x)), photons, read_noise, bits))


@pytest.mark.parametrize(
    ("photons", "read_noise", "bits"), [(200.0, 2.0, 12), (2000.0, 10.0, 8), (50.0, 0.0, 8)]
)
def test_sensor_moments_are_those_of_the_standard(
    photons: float, read_noise: float, bits: int
) -> None:
    """Mean x, variance x / photons + (read_noise / photons)^2 + step^2 / 12, away from black and
    white, in noise wider than a step."""
    x = 0.3 + 0.2 * image().double()
    noise = sample(Sensor(read_noise=read_noise, bits=bits), photons, x) - x.flatten(1)
    stated = x.flatten() / photons + (read_noise / photons) ** 2 + (1 / (2**bits - 1)) ** 2 / 12
    if read_noise:  # which makes the error of rounding uniform
        assert (noise.mean(0).abs() <= ERRORS * standard_error(noise)).all()
        assert (
            (noise.square().mean(0) - stated).abs() <= ERRORS * standard_error(noise.square())
        ).all()
    assert torch.allclose(noise.square().mean(0), stated, rtol=0.1)
    products = (noise[:, 1:] - noise[:, 1:].mean(0)) * (noise[:, :1] - noise[:, :1].mean(0))
    assert (
        products.mean(0).abs() <= ERRORS * standard_error(products)
    ).all()  # values are independent


@pytest.mark.parametrize("share", [1e-3, 0.1, 0.5, 1.0])
def test_impulse_shares(share: float) -> None:
    """Half of the share to 0, half to 1, the rest untouched; values are hit independently."""
    x = torch.full((1, *SHAPE), 0.25)
    y = sample(Impulse(), share, x)
    assert set(y.unique().tolist()) <= {0.0, 0.25, 1.0}
    for value in (0.0, 1.0):
        hit = (y == value).double()
        error = math.sqrt(share / 2 * (1 - share / 2) / y.numel())
        assert abs(float(hit.mean()) - share / 2) <= ERRORS * error
        both = (hit[:, 0] * hit[:, 1]).mean()
        assert abs(float(both) - share**2 / 4) <= ERRORS * math.sqrt(max(share**2 / 4, 1e-9) / N)
