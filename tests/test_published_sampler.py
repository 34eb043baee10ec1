"""The published sampler that the benchmarks compare with: its golden errors, and exact reflection."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.benchmarks.qnorm.reflected_hmc import Published, PublishedRun, published_path

D = 100
CENTRE, WIDTH = 0.5, 0.1
Field = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def linear(_: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """log l = log .05 + .5 sum(delta)."""
    return (math.log(0.05) + 0.5 * (x - CENTRE).sum(1)).double(), torch.full_like(x, 0.5)


def quadratic(_: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """log l = 1 - 20 |delta - .05|^2."""
    off = x - CENTRE - 0.05
    return (1 - 20 * off.square().sum(1)).double(), -40 * off


def draws(images: int, shape: tuple[int, ...], seed: int) -> Callable[[], Tensor]:
    """Normal variables of every image, move by move."""
    generator = torch.Generator().manual_seed(seed)
    return lambda: torch.randn(images, *shape, generator=generator, dtype=torch.float64)


def run(field: Field, q: float, parameters: Published, *, images: int = 200, half: float = WIDTH, seed: int = 1) -> PublishedRun:
    centre = torch.full((images, D), CENTRE, dtype=torch.float64)
    return published_path(field, centre - half, centre + half, q, parameters, draws(images, (D,), seed), draws(images, (), seed + 1))


@pytest.mark.parametrize(
    ("field", "q", "path", "exact", "golden"),
    [
        (linear, 100, 0.4, 0.742032, 0.41),
        (linear, 1000, 0.2, 4.682119, 0.96),
        (quadratic, 100, 0.4, 0.538250, 0.63),
        (quadratic, 1000, 0.2, 2.060618, 0.66),
    ],
)
def test_errors_of_the_reference_program(field: Field, q: float, path: float, exact: float, golden: float) -> None:
    """RMSE of log Z at m = 50, L = 10, 500 gradients: that of the reference within four standard errors of its 20 seeds."""
    found = run(field, q, Published(50, 10, path))
    squared = (found.log_z - math.log(exact)).square()
    rmse = float(squared.mean().sqrt())
    error = float(squared.std()) / (2 * rmse)
    assert abs(rmse - golden) < 4 * error * math.sqrt(1 / 20 + 1 / len(squared)) + 0.005  # the golden has two digits
    assert (found.log_z < math.log(exact)).all()  # always low


def test_a_mean_of_records_at_small_q() -> None:
    """q = 1: E[log l] nearly, which is right to the second order; unbiased within four standard errors."""
    found = run(linear, 1e-6, Published(50, 10, 0.6), images=400)
    assert abs(float(found.log_z.mean()) - math.log(0.05)) < 4 * float(found.log_z.std()) / 20


def test_leapfrogs_in_a_flat_box_keep_the_uniform_distribution() -> None:
    """No slope: every move is accepted, and long paths fold many times; mean and variance of the box, and nothing outside it."""
    seen = []

    def flat(_: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(x)
        return torch.zeros(len(x), dtype=torch.float64), torch.zeros_like(x)

    run(flat, 100, Published(5, 4, 90.0))
    for x in seen:
        assert ((x >= CENTRE - WIDTH) & (x <= CENTRE + WIDTH)).all()
    n = seen[-1].numel()
    variance = (2 * WIDTH) ** 2 / 12
    assert abs(float(seen[-1].mean()) - CENTRE) < 4 * math.sqrt(variance / n)
    assert abs(float(seen[-1].var()) - variance) < 4 * variance * math.sqrt(0.8 / n)  # kurtosis 1.8


def test_ends_where_the_box_has_no_width() -> None:
    """The reference program's loop never ends there."""
    found = run(linear, 100, Published(3, 2, 0.4), images=4, half=0.0)
    assert torch.allclose(found.log_z, torch.full((4,), math.log(0.05), dtype=torch.float64))


def test_the_highest_is_of_all_points() -> None:
    seen = []

    def watched(image: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        out = linear(image, x)
        seen.append(out[0])
        return out

    parameters = Published(10, 3, 0.4)
    found = run(watched, 100, parameters, images=7)
    assert len(seen) == parameters.gradients
    assert torch.equal(torch.stack(seen).max(0).values, found.highest)
