"""Moments in closed form: goldens, quadrature, and Monte Carlo."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import multivariate_normal, norm
from torch import Tensor

from robaudit.numerics.normal_moments import (
    MeanCovariance,
    mean_of_larger,
    probability_of_larger,
    relu_moments,
    through_affine,
    through_relu,
)


def tensors(*values: float) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(value, dtype=torch.float64) for value in values)


@pytest.mark.parametrize(
    ("m1", "m2", "s1", "s2", "expected"),
    [(1, 0.5, 1, 0.7, 1.277263), (1, 0, 0.5, 0.5, 1.025127), (0, 0, 1, 1, 0.564190)],
)
def test_clark(m1: float, m2: float, s1: float, s2: float, expected: float) -> None:
    found = float(mean_of_larger(*tensors(m1, m2, math.hypot(s1, s2))))
    assert found == pytest.approx(expected, abs=5e-7)
    spread = math.hypot(s1, s2)
    difference = m1 - m2
    by_quadrature, _ = integrate.quad(
        lambda d: max(d, 0.0) * norm.pdf(d, difference, spread), -9, 9, points=[0], epsabs=1e-10
    )
    assert found == pytest.approx(m2 + by_quadrature, abs=1e-8)


def test_p_c() -> None:
    assert float(probability_of_larger(*tensors(1, 0.4, math.hypot(0.5, 0.7)))) == pytest.approx(
        0.757251, abs=5e-7
    )
    assert [
        float(probability_of_larger(*tensors(a, b, 0))) for a, b in ((1, 0), (0, 1), (1, 1))
    ] == [1.0, 0.0, 0.5]


@settings(max_examples=25, deadline=None)
@given(st.floats(-8, 8), st.floats(0.01, 10))
def test_relu_against_quadrature(a: float, s: float) -> None:
    """Of max(a + Z, 0), relative to themselves, in both tails."""
    low = max(-40.0, -a)
    first, _ = integrate.quad(
        lambda z: (a + z) * norm.pdf(z), low, low + 20, epsabs=0, epsrel=1e-11, limit=200
    )
    second, _ = integrate.quad(
        lambda z: (a + z) ** 2 * norm.pdf(z), low, low + 20, epsabs=0, epsrel=1e-11, limit=200
    )
    mean, variance = relu_moments(*tensors(a * s, s))
    assert float(mean) == pytest.approx(s * first, rel=1e-8)
    if (
        a < 2
    ):  # beyond, the difference of the two integrals has no digits left; the next test is for that
        assert float(variance) == pytest.approx(s**2 * (second - first**2), rel=1e-7)


def covariance(values: int, seed: int = 0) -> MeanCovariance:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(values, values, generator=generator, dtype=torch.float64) / math.sqrt(
        values
    )
    return MeanCovariance(
        torch.randn(values, generator=generator, dtype=torch.float64), factor @ factor.T
    )


def exact_product(m: Tensor, s: Tensor, rho: float) -> float:
    """E max(X, 0) max(Y, 0) by quadrature."""
    joint = multivariate_normal(
        m.numpy(), [[s[0] ** 2, rho * s[0] * s[1]], [rho * s[0] * s[1], s[1] ** 2]]
    )
    found, _ = integrate.dblquad(
        lambda y, x: x * y * joint.pdf([x, y]), 0, m[0] + 8 * s[0], 0, m[1] + 8 * s[1], epsabs=1e-9
    )
    return float(found)


@pytest.mark.parametrize("rho", [-0.7, 0.2, 0.6])
def test_covariances_behind_a_relu(rho: float) -> None:
    """By quadrature: each further term of the series is nearer, until only digits differ."""
    m = torch.tensor([0.4, -0.3], dtype=torch.float64)
    s = torch.tensor([0.8, 1.1], dtype=torch.float64)
    before = MeanCovariance(
        m,
        torch.tensor(
            [[s[0] ** 2, rho * s[0] * s[1]], [rho * s[0] * s[1], s[1] ** 2]], dtype=torch.float64
        ),
    )
    truth = exact_product(m, s, rho) - float(torch.prod(relu_moments(m, s)[0]))
    off = [
        abs(float(through_relu(before, order).covariance[0, 1]) - truth) for order in (1, 2, 4, 12)
    ]
    assert off[2] < off[0]
    assert off[2] < 5e-3 * float(s.prod())
    assert off[3] < 1e-4 * abs(truth) + 1e-6


def test_moments_behind_a_relu_against_draws() -> None:
    before = covariance(6)
    draws = torch.randn(100_000, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = (before.mean + draws @ torch.linalg.cholesky(before.covariance).T).clamp_min(0)
    found = through_relu(before, 8)
    sampled = torch.cov(x.T)
    spread = (((x - x.mean(0)).square().T @ (x - x.mean(0)).square()) / len(x)).sqrt() / math.sqrt(
        len(x)
    )
    assert ((found.covariance - sampled).abs() <= 5 * spread + 1e-4).all()
    assert (
        (found.mean - x.mean(0)).abs() <= 5 * sampled.diagonal().sqrt() / math.sqrt(len(x))
    ).all()


def test_the_result_is_a_covariance() -> None:
    """Positive semi-definite, symmetric, with exact variances; duplicates and constants
    included."""
    before = covariance(5)
    twin = torch.eye(5, dtype=torch.float64)[[0, 0, 1, 2, 3, 4]]
    doubled = MeanCovariance(twin @ before.mean, twin @ before.covariance @ twin.T)
    doubled.covariance[4] = doubled.covariance[:, 4] = 0.0
    for order in (1, 2, 3, 4, 7):
        found = through_relu(doubled, order).covariance
        assert float(torch.linalg.eigvalsh(found)[0]) > -1e-12
        torch.testing.assert_close(found, found.T, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(
            found.diagonal(), relu_moments(doubled.mean, doubled.covariance.diagonal().sqrt())[1]
        )
        assert not found[4].any()


def test_an_affine_map_is_exact() -> None:
    generator = torch.Generator().manual_seed(2)
    matrix = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    offset = torch.randn(3, generator=generator, dtype=torch.float64)
    before = covariance(6)
    for rows in (1, 4, 100):
        found = through_affine(
            lambda x: x.flatten(1) @ matrix.T + offset,
            before.mean.reshape(2, 3),
            before.covariance,
            rows,
        )
        torch.testing.assert_close(found.mean, matrix @ before.mean + offset)
        torch.testing.assert_close(found.covariance, matrix @ before.covariance @ matrix.T)
