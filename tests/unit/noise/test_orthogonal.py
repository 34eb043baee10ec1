"""Coupled draws: normal one by one, nearly cancelling where neighbours interact, reproducible by
sample."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from robaudit.noise.noise import Shape
from robaudit.noise.orthogonal import BLOCK, orthogonal_block, patch_of
from robaudit.noise.process import NoiseProcess
from robaudit.noise.uniform import Uniform
from tests.levels import gaussian_process

CPU = torch.device("cpu")
SHAPES = [(3, 8, 8), (1, 9, 7), (2, 3, 4), (4, 5, 5), (5, 6, 3), (6, 4, 4), (12, 3, 2), (1, 1, 1)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def blocks() -> torch.Tensor:
    """400 blocks of a small colour image (400, 48, 3, 8, 8), float64."""
    g = generator(3)
    return torch.stack([orthogonal_block((3, 8, 8), g) for _ in range(400)]).double()


def draws(
    seed: int, sample: str, count: int, start: int = 0, shape: Shape = (1, 6, 6)
) -> torch.Tensor:
    return torch.cat(
        list(gaussian_process(seed, CPU).orthogonal_blocks(sample, count, shape, start))
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_each_draw_is_standard_normal(shape: tuple[int, int, int]) -> None:
    """Draw 0 of many blocks: single pixels, and a sum over all pixels with random weights, which
    needs them jointly normal."""
    g = generator(1)
    z = torch.stack([orthogonal_block(shape, g)[0] for _ in range(1500)]).double().flatten(1)
    weights = torch.randn(z.shape[1], generator=generator(2), dtype=torch.float64)
    assert kstest((z @ weights / weights.norm()).numpy(), "norm").pvalue > 1e-3
    assert kstest(z[:, 0].numpy(), "norm").pvalue > 1e-3
    assert kstest(z[:, -1].numpy(), "norm").pvalue > 1e-3
    n = z.numel()
    assert abs(float((z**4).mean()) - 3) < 5 * math.sqrt(96 / n)


def test_pixels_of_a_draw_are_independent(blocks: torch.Tensor) -> None:
    """Products and squares of neighbours, of one patch or of two: means within 5 standard errors
    (blocks are independent)."""
    a = blocks[..., 1:]
    b = blocks[..., :-1]
    for product in (a * b, a.square() * b.square() - 1):
        means = product.flatten(1).mean(1)
        assert abs(float(means.mean())) < 5 * float(means.std()) / math.sqrt(len(means))


def test_products_of_neighbours_cancel_over_a_block(blocks: torch.Tensor) -> None:
    """Variance of the block's mean of z_a z_b, times 48: 1 for independent draws, far less for
    neighbours."""

    def spread(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(BLOCK * (a * b).mean(1).square().mean())

    # two channels of a pixel: always of one patch
    assert spread(blocks[:, :, 0], blocks[:, :, 1]) < 0.12
    assert spread(blocks[..., 1:], blocks[..., :-1]) < 0.4  # three times of four
    # never of one patch: like independent draws
    assert 0.95 < spread(blocks[..., 4:], blocks[..., :-4]) < 1.05


def test_fourth_powers_lose_almost_nothing(blocks: torch.Tensor) -> None:
    """The worst case, harmonics of degree 4 in one patch: the variance of the block's mean is at
    most 1.06 times the independent one."""
    a = blocks[:, :, 0]
    b = blocks[:, :, 1]
    harmonic = (a**4 - 6 * a**2 * b**2 + b**4).mean(1)
    independent = float(
        (
            blocks[:, 0, 0] ** 4
            - 6 * blocks[:, 0, 0] ** 2 * blocks[:, 0, 1] ** 2
            + blocks[:, 0, 1] ** 4
        ).var()
    )
    assert BLOCK * float(harmonic.var()) < 1.2 * independent


def test_images_without_blocks() -> None:
    assert patch_of((7,)) is patch_of((3, 2000, 2000)) is None
    assert patch_of((3, 224, 224)) == (3, 4, 4)
    noise = NoiseProcess(Uniform(norm="l2"), "uniform")
    shape = (1, 2, 2)
    assert torch.equal(
        torch.cat(list(noise.orthogonal_blocks("a", 5, shape))),
        torch.cat(list(noise.blocks("a", 5, shape))),
    )
    with pytest.raises(ValueError, match="no blocks"):
        orthogonal_block((3, 2000, 2000), generator())


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 120), more=st.integers(0, 120), start=st.integers(0, 100))
def test_more_draws_go_on_with_the_same_ones(count: int, more: int, start: int) -> None:
    whole = draws(3, "a", start + count + more)
    assert torch.equal(draws(3, "a", count, start), whole[start : start + count])


def test_seed_and_sample_make_other_noise_and_blocks_are_another_stream() -> None:
    base = draws(0, "a", 10)
    assert not torch.equal(base, draws(1, "a", 10))
    assert not torch.equal(base, draws(0, "b", 10))
    blocks = torch.cat(list(gaussian_process(0, CPU).blocks("a", 10, (1, 6, 6))))
    assert abs(float((base * blocks).mean())) < 5 / math.sqrt(base.numel())
