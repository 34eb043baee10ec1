"""Each kind as a map of a normal variable: closed forms, far tails, order, and values worked out by
hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import erf, log_ndtr

from robaudit.errors import SpecError
from robaudit.noise.correlated import CorrelatedGaussian
from robaudit.noise.covariance import CovarianceGaussian
from robaudit.noise.impulse import Impulse
from robaudit.noise.laplace import Laplace
from robaudit.noise.linear import LinearCorruption
from robaudit.noise.noise import Noise
from robaudit.noise.poisson import Poisson
from robaudit.noise.scaled import ScaledGaussian
from robaudit.noise.sensor import Sensor
from robaudit.noise.speckle import Speckle
from robaudit.noise.uniform import Uniform
from tests.golden import Golden
from tests.unit.noise.kinds import images, made, normal


def mapped(
    form: Noise, x: float, z: list[float], level: float, dtype: torch.dtype = torch.float64
) -> list[float]:
    """Values of one pixel for several z."""
    at = torch.full((1, 1, 1, 1), x, dtype=dtype)
    found: list[float] = (
        form.noisy(at, torch.tensor(z, dtype=dtype).view(-1, 1, 1, 1), level, ids=["a"])
        .flatten()
        .tolist()
    )
    return found


def test_golden_values() -> None:
    """By hand: Phi(1) = .8413447, Phi(-2) = .0227501; a Laplace variable of deviation sqrt 2 has
    the quantiles +-log(2 p)."""
    assert mapped(Uniform(), 0.5, [0.0, 1.0, -2.0], 0.5) == pytest.approx(
        [0.5, 0.5 + 0.5 * 0.6826895, 0.5 - 0.5 * 0.9544997]
    )
    assert mapped(Laplace(), 0.0, [0.0, 1.0, -2.0], math.sqrt(2)) == pytest.approx(
        [0.0, 1.1478745, -3.0900370], rel=1e-6
    )
    assert mapped(Speckle(), 0.5, [1.0, -2.0], 0.1) == pytest.approx([0.55, 0.4])
    assert mapped(ScaledGaussian(scale=(2.0,)), 0.5, [1.0, -2.0], 0.1) == pytest.approx([0.7, 0.1])
    assert mapped(LinearCorruption(mean=0.4, std=0.1), 0.5, [1.0, -2.0], 0.25) == pytest.approx(
        [0.5, 0.425]
    )
    # Phi^-1(.95) = 1.645
    assert mapped(Impulse(), 0.5, [-1.7, -1.6, 0.0, 1.6, 1.7], 0.1) == [
        0.0,
        0.5,
        0.5,
        0.5,
        1.0,
    ]
    # counts of mean 2, by 4 photons
    assert mapped(Poisson(), 0.5, [-1.11, -1.10, 0.0, 1.62], 4.0) == [
        0.0,
        0.25,
        0.5,
        1.25,
    ]
    assert mapped(
        Sensor(read_noise=0, bits=2), 0.5, [-1.11, -1.10, 0.0, 1.62], 4.0
    ) == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_laplace_in_both_tails_and_around_zero(dtype: torch.dtype) -> None:
    z = torch.cat(
        [
            torch.linspace(-38, 38, 1001, dtype=torch.float64),
            torch.logspace(-12, 0, 200, dtype=torch.float64),
        ]
    ).to(dtype)
    found = torch.tensor(
        mapped(Laplace(), 0.0, z.tolist(), math.sqrt(2), dtype), dtype=torch.float64
    )
    a = z.double().numpy()
    near = -np.log1p(-erf(np.minimum(np.abs(a), 1) / math.sqrt(2)))
    right = np.where(np.abs(a) < 1, near, -(math.log(2) + log_ndtr(-np.abs(a))))
    error = (found - torch.from_numpy(np.sign(a) * right)).abs() / torch.from_numpy(
        right
    ).clamp_min(1e-300)
    assert error[a != 0].max() < (1e-6 if dtype is torch.float32 else 1e-13)


def test_linear_corruption_without_deviation_is_no_random_noise() -> None:
    """One copy then says all, and exactly."""
    grey = LinearCorruption(std=0)
    assert (LinearCorruption().random, grey.random) == (True, False)
    assert mapped(grey, 0.3, [-2.0, 1.0], 0.5) == pytest.approx([0.4, 0.4])


def test_sensor_agrees_in_both_precisions() -> None:
    x = images(20, (1, 8, 8))
    z = normal(20, (2, 8, 8))
    low, high = (
        Sensor(bits=12).noisy(x.to(kind), z.to(kind), 50.0, ids=["a"] * 20)
        for kind in (torch.float32, torch.float64)
    )
    assert torch.equal((low.double() * 4095).round(), (high * 4095).round())


def test_noise_on_the_sphere_has_its_norm_and_the_direction_of_z() -> None:
    shape = (2, 3, 4)
    form = Uniform(norm="l2", support="sphere")
    assert form.latent_shape(shape) == shape
    assert form.ball(3.0) is None
    assert form.bounded
    z = normal(500, shape).double()
    noise = form.noisy(torch.zeros(1, *shape, dtype=torch.float64), z, 3.0, ids=["a"])
    assert torch.allclose(
        noise.flatten(1).norm(dim=1), torch.full((500,), 3.0, dtype=torch.float64)
    )
    assert torch.allclose(noise, 3.0 * z / z.flatten(1).norm(dim=1)[:, None, None, None])


def test_a_sphere_needs_the_euclidean_norm_and_room(golden: Golden) -> None:
    with pytest.raises(ValueError, match="support: sphere needs norm: l2"):
        Uniform(support="sphere")
    clipped = Uniform(norm="l2", support="sphere", clip=True)
    clipped.check((1, 2, 2), [0.5, 2.0])
    Uniform(norm="l2", support="sphere").check((1, 2, 2), [5.0])
    Uniform(norm="l2", clip=True).check((1, 2, 2), [5.0])
    with pytest.raises(SpecError) as caught:
        clipped.check((1, 2, 2), [0.5, 2.5])
    golden(caught.value)


# --- correlation ----------------------------------------------------------------------------------
# ---------------------


def test_shared_noise_is_the_same_in_every_channel() -> None:
    form = CorrelatedGaussian(length=2.0, channels="shared")
    assert form.latent_shape((3, 6, 5)) == (1, 6, 5)
    noise = form.noisy(torch.zeros(1, 3, 6, 5), normal(4, (1, 6, 5)), 0.1, ids=["a"])
    assert torch.equal(noise[:, 0], noise[:, 1])
    assert torch.equal(noise[:, 0], noise[:, 2])


def test_no_matrix_of_pixels_by_pixels() -> None:
    """1024 x 1024 pixels: their covariance matrix would take 8 TB."""
    noise = CorrelatedGaussian(length=3.0).noisy(
        torch.zeros(1, 1, 1024, 1024), normal(1, (1, 1024, 1024)), 1.0, ids=["a"]
    )
    # sum of squared correlations: pi length^2
    assert float(noise.var()) == pytest.approx(1.0, abs=5 * math.sqrt(2 * 4 * math.pi * 9) / 1024)


# --- a covariance from a file
# -----------------------------------------------------------------------------------------


def test_noise_made_in_inference_mode_can_be_differentiated_later(tmp_path: Path) -> None:
    """What a kind keeps from a first call must not be barred from autograd."""
    shape = (1, 3, 4)
    np.savez(tmp_path / "f.npz", factor=np.ones((12, 2)), diagonal=np.ones(12))
    np.save(tmp_path / "s.npy", np.ones((3, 4)))
    forms = [
        made(CovarianceGaussian, tmp_path, file="f.npz"),
        made(ScaledGaussian, tmp_path, scale="s.npy"),
        CorrelatedGaussian(length=1.25),
    ]
    assert forms[0].files == (tmp_path / "f.npz",)
    for form in forms:
        x = images(2, shape)
        z = normal(2, form.latent_shape(shape))
        with torch.inference_mode():
            first = form.noisy(x, z, 0.1, ids="ab")
        free = z.clone().requires_grad_()
        second = form.noisy(x, free, 0.1, ids="ab")
        second.square().sum().backward()
        assert free.grad is not None
        assert torch.equal(second.detach(), first)
