"""Full batches, padded tails, batch sizes by memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine, rows_by_rule
from robaudit.levels import NoiseLevel
from robaudit.models import from_module
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.process import NoiseProcess
from robaudit.numerics.margins import margin_gradients
from tests.levels import gaussian_process, sigma
from tests.unit.engine.tools import SHAPE, Counter, curved

CPU = torch.device("cpu")
IMAGES = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("batch_size", "draws", "sizes"),
    [
        (16, 10, [16, 16]),
        (16, 11, [16, 16, 8]),
        (None, 11, [40]),
        (20, 7, [20, 8]),
        (1, 2, [1] * 6),
    ],
)
def test_the_tail_is_padded_to_a_multiple_of_eight(
    batch_size: int | None, draws: int, sizes: list[int]
) -> None:
    network = Counter(curved())
    engine = Engine(from_module(network), gaussian_process(0, CPU), 4, batch_size)
    for batch, logits in engine.noisy_logits(IMAGES, ["a", "b", "c"], sigma(0.3), draws):
        assert len(logits) == len(batch.image) == len(batch.draw)
    assert network.sizes == sizes


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 8, 8), 128), ((3, 32, 32), 64), ((3, 999, 999), 8)]
)
def test_the_rule_on_the_cpu(shape: tuple[int, ...], rows: int) -> None:
    assert rows_by_rule(shape, CPU) == rows


def test_the_rule_on_cuda_is_cut_by_memory_to_a_power_of_two() -> None:
    cuda = torch.device("cuda")
    assert [rows_by_rule((3, 32, 32), cuda, most) for most in (None, 5000, 1000, 3, 0)] == [
        1024,
        4096,
        512,
        2,
        1,
    ]
    assert [rows_by_rule((3, 224, 224), cuda, most) for most in (None, 3000)] == [16, 2048]


def test_passes_are_counted_within_the_block_only() -> None:
    model = from_module(curved())
    lower = from_module(curved(seed=1))
    engine = Engine(model, gaussian_process(0, CPU), 4, 8, noisy=lower)
    clipped = model.clipping(True)
    told = list[int]()
    with engine.counting(told.append):
        model(IMAGES)
        clipped(IMAGES)
        lower.clipping(True)(IMAGES)
        with torch.inference_mode():
            model.clipping(True)(IMAGES.requires_grad_(False))
        margin_gradients(model, IMAGES)
    assert told == [3, 3, 3, 3, 9]
    for one in (model, clipped, lower):
        one(IMAGES)
    assert len(told) == 5
    with engine.counting(told.append), pytest.raises(ZeroDivisionError):
        1 / 0  # noqa: B018
    model(IMAGES)
    assert len(told) == 5


def test_noisy_passes_go_through_their_own_model() -> None:
    exact = Counter(curved())
    lower = Counter(curved(seed=1))
    engine = Engine(from_module(exact), gaussian_process(0, CPU), 4, noisy=from_module(lower))
    engine.logits(IMAGES)
    assert (exact.sizes, lower.sizes) == ([8], [])
    for _ in engine.noisy_logits(IMAGES, ["a", "b", "c"], sigma(0.3), 8):
        pass
    assert (exact.sizes, lower.sizes) == ([8], [24])


def test_tangents_under_clipped_noise_are_those_of_the_clipped_network() -> None:
    """Where pixels are 0 or 1 its gradient may be another one; a noise beside it that is not
    clipped keeps its own."""
    x = IMAGES.where(IMAGES > 0.5, 0.0)
    clips = {"gaussian": False, "clipped": True}
    noises = {
        label: NoiseProcess(Gaussian(clip=clip), "gaussian", 0, CPU)
        for label, clip in clips.items()
    }
    batch = ImageBatch.from_images(Engine(from_module(curved()), noises, 4), x)
    for label, clip in clips.items():
        _, _, u = margin_gradients(from_module(curved()).clipping(clip), x)
        assert torch.allclose(
            batch.under(NoiseLevel(label)).tangent().gram, Gaussian().gram(u, x), atol=1e-6
        )


@pytest.mark.parametrize("clip", [False, True])
def test_the_network_sees_clipped_copies_where_the_noise_clips(clip: bool) -> None:
    """Its logits are the pixels."""
    engine = Engine(
        from_module(torch.nn.Flatten()),
        NoiseProcess(Gaussian(clip=clip), "gaussian", 0, CPU),
        IMAGES[0].numel(),
    )
    pixels = torch.cat(
        [logits for _, logits in engine.noisy_logits(IMAGES, ["a", "b", "c"], sigma(1.0), 20)]
    )
    assert bool(((pixels >= 0) & (pixels <= 1)).all()) is clip


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("values", [(), (0.4,), (0.4, 0.6)])
def test_noisy_copies_are_normalised_as_clean_images(values: tuple[float, ...], clip: bool) -> None:
    """They are written as (x - mean) / std + (sigma / std) z, and are the same numbers."""
    model = from_module(curved(), mean=values, std=values)
    noise = NoiseProcess(Gaussian(clip=clip), "gaussian", 0, CPU)
    engine = Engine(model, noise, 4, 16)
    ids = ["a", "b", "c"]
    found = [logits for _, logits in engine.noisy_logits(IMAGES, ids, sigma(0.3), 11)]
    pixels = [
        batch.x.clone() for batch in engine.noisy_batches(IMAGES, ids, sigma(0.3), 11, rows=16)
    ]
    expected = model.clipping(clip)(torch.cat(pixels))
    assert torch.allclose(torch.cat(found), expected, rtol=1e-5, atol=1e-5)


def test_networks_that_write_into_their_input() -> None:
    class InPlace(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = curved()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.network(x.mul_(2.0))  # type: ignore[no-any-return]

    doubled = from_module(lambda x: curved()(2.0 * x))
    results = []
    for model in (from_module(InPlace()), doubled):
        engine = Engine(model, gaussian_process(0, CPU), 4, 16)
        passes = engine.noisy_logits(IMAGES, ["a", "b", "c"], sigma(0.3), 30)
        results.append(torch.cat([logits.clone() for _, logits in passes]))
    assert torch.equal(*results)


def test_noise_that_changes_what_it_inherits_is_asked() -> None:
    """Isotropic Gaussian noise is added without a call of the kind; a subclass may do more."""

    class Shifted(Gaussian):
        def noisy(
            self, x: torch.Tensor, z: torch.Tensor, level: float, *, ids: Sequence[str]
        ) -> torch.Tensor:
            return super().noisy(x, z, level, ids=ids) + 1.0

    pixels = from_module(torch.nn.Flatten())
    found = []
    for kind in (Gaussian, Shifted):
        engine = Engine(pixels, NoiseProcess(kind(), "gaussian", 0, CPU), IMAGES[0].numel())
        passes = engine.noisy_logits(IMAGES, ["a", "b", "c"], sigma(0.3), 4)
        found.append(torch.cat([logits.clone() for _, logits in passes]))
    assert torch.allclose(found[0] + 1.0, found[1], atol=1e-6)
