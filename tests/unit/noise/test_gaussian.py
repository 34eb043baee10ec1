"""The noise is normal, reproducible by sample, and the same whatever surrounds it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.noise.gaussian import Gaussian
from robaudit.noise.noise import Noise, Shape
from robaudit.noise.process import DrawPool, block_seed, block_size, stream_key
from robaudit.noise.uniform import Uniform
from tests.levels import gaussian_process

CPU = torch.device("cpu")


def draws(seed: int, sample: str, count: int, shape: Shape = (1, 4, 4)) -> torch.Tensor:
    return torch.cat(list(gaussian_process(seed, CPU).blocks(sample, count, shape)))


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 700), more=st.integers(0, 700))
def test_more_draws_begin_with_the_same_draws(count: int, more: int) -> None:
    assert torch.equal(draws(3, "a", count), draws(3, "a", count + more)[:count])


@pytest.mark.parametrize(("start", "count"), [(0, 10), (250, 20), (256, 44), (299, 1)])
def test_reading_may_start_at_any_draw(start: int, count: int) -> None:
    later = torch.cat(list(gaussian_process(3, CPU).blocks("a", count, (1, 4, 4), start)))
    assert torch.equal(later, draws(3, "a", start + count)[start:])


def test_seed_and_sample_make_other_noise() -> None:
    base = draws(0, "a", 10)
    assert not torch.equal(base, draws(1, "a", 10))
    assert not torch.equal(base, draws(0, "b", 10))


def test_precision_changes_only_the_type() -> None:
    low = torch.cat(list(gaussian_process(0, CPU, torch.float32).blocks("a", 20, (1, 1, 5))))
    high = torch.cat(list(gaussian_process(0, CPU, torch.float64).blocks("a", 20, (1, 1, 5))))
    assert torch.equal(low.double(), high)


def test_moments_are_those_of_a_standard_normal() -> None:
    z = draws(11, "m", 4000, (1, 8, 8)).double().flatten()
    n = z.numel()
    assert abs(float(z.mean())) < 5 / math.sqrt(n)
    assert abs(float(z.var()) - 1) < 5 * math.sqrt(2 / n)
    assert abs(float((z**3).mean())) < 5 * math.sqrt(15 / n)
    assert abs(float((z**4).mean()) - 3) < 5 * math.sqrt(96 / n)


def test_blocks_are_uncorrelated() -> None:
    """Neighbouring seeds of the same sample, and the same block of two samples."""
    size = block_size(64)
    z = draws(5, "x", 2 * size, (1, 1, 64))
    other = draws(5, "y", size, (1, 1, 64))
    n = size * 64
    for a, b in ((z[:size], z[size:]), (z[:size], other)):
        assert abs(float((a * b).mean())) < 5 / math.sqrt(n)


def test_block_size_is_bounded() -> None:
    assert block_size(1) == 256
    assert block_size(3 * 32 * 32) == 21
    assert block_size(3 * 224 * 224) == 1
    assert block_size(3 * 224 * 224, torch.device("cuda")) == 55


def test_samples_never_share_runs_of_blocks() -> None:
    """Streams of 1,000 samples x 157 blocks (mc 10,000 at 3 x 32 x 32): shared blocks are single
    ones, and no more than chance."""
    owner: dict[int, tuple[int, int]] = {}
    shared = []
    for sample in range(1000):
        key = stream_key(0, "gaussian", str(sample))
        for block in range(157):
            low = block_seed(key, block) & 0xFFFFFFFF
            if low in owner:
                shared.append((owner[low][0], sample))
            owner[low] = (sample, block)
    expected = (1000 * 157) ** 2 / 2 / 2**32
    assert len(shared) < expected + 6 * math.sqrt(expected)
    assert len(set(shared)) == len(shared)


def test_a_pool_holds_the_draws_of_blocks_until_it_grows_too_large() -> None:
    source = gaussian_process(3, CPU)
    shape = (1, 2, 2)
    pool = DrawPool(
        [stream_key(3, "gaussian", one) for one in "ab"], shape, block_size(4), 10**5, source
    )
    for samples, number in (([1], 300), ([0, 1], 600)):
        kept = pool.with_draws(samples, number, torch.empty(0))
        assert kept is not None
        for sample in samples:
            assert torch.equal(
                kept[sample, :number], torch.cat(list(source.blocks("ab"[sample], number, shape)))
            )
    assert pool.with_draws([0], 10**4, torch.empty(0)) is None


@pytest.mark.parametrize("form", [Gaussian(), Uniform()], ids=lambda form: type(form).__name__)
def test_a_level_for_each_row_is_the_same_noise(form: Noise) -> None:
    x = torch.rand(3, 1, 4, 4)
    z = torch.randn(3, 1, 4, 4)
    levels = [0.1, 0.5, 2.0]
    together = form.noisy_rows(x, z, torch.tensor(levels)[:, None, None, None])
    alone = torch.cat(
        [form.noisy(x[i : i + 1], z[i : i + 1], level, ids=["a"]) for i, level in enumerate(levels)]
    )
    assert form.by_row
    assert torch.allclose(together, alone, rtol=1e-6, atol=1e-6)
