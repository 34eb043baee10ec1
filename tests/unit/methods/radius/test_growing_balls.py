"""Attacks in growing balls, where the first ball with a flip is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robaudit.methods.radius.growing_balls import Grid, first_escapes
from robaudit.methods.radius.minimal_norm import Flips
from robaudit.methods.radius.norm_steps import Norm

SHAPE = (1, 4, 5)
PIXELS = math.prod(SHAPE)
NORMS: tuple[Norm, ...] = ("l2", "linf")


def random(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Network:
    """Logits W f(x), with f the identity or a sine; row by row, so that no row sees the others."""

    def __init__(self, weights: Tensor, *, bend: float = 0.0) -> None:
        self.weights = weights
        self.bend = bend

    def logits(self, image: Tensor, pixels: Tensor) -> Tensor:
        flat = pixels.flatten(1)
        seen = flat + self.bend * torch.sin(7 * flat)
        found: Tensor = (seen[:, None] * self.weights).cumsum(2)[..., -1]
        return found

    def slopes(self, image: Tensor, pixels: Tensor, to: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        flat = pixels.flatten(1)
        slope = (self.weights[to] - self.weights[y[image]]) * (
            1 + 7 * self.bend * torch.cos(7 * flat)
        )
        return self.logits(image, pixels), slope.view(pixels.shape)


def starts(image: Tensor, ball: int) -> Tensor:
    """Three points of each image in the unit ball of either norm."""
    return torch.stack(
        [(random(3, *SHAPE, seed=100 * ball + i) - 0.5) / math.sqrt(PIXELS) for i in image.tolist()]
    )


def hunt(
    network: Network, x: Tensor, grid: Grid, *, images: Tensor | None = None
) -> tuple[Flips, Tensor]:
    """The escapes of chosen images, each with its own starts, and the classes of these images."""
    chosen = torch.arange(len(x)) if images is None else images
    part = x[chosen]
    z = network.logits(chosen, part)
    y = z.argmax(1)
    target = z.scatter(1, y[:, None], -math.inf).argmax(1)
    found = first_escapes(
        network.logits,
        lambda image, pixels, to: network.slopes(image, pixels, to, y),
        part,
        y,
        target,
        lambda image, ball: starts(chosen[image], ball),
        grid,
    )
    return found, y


def two_classes() -> tuple[Network, Tensor]:
    return Network(random(2, PIXELS, seed=1) - 0.5), random(12, *SHAPE, seed=2)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("clipped", [False, True])
def test_the_point_is_in_the_ball_and_a_flip(norm: Norm, clipped: bool) -> None:
    network = Network(random(5, PIXELS, seed=3) - 0.5, bend=0.1)
    x = random(10, *SHAPE, seed=4)
    grid = Grid(norm, 0.04, 60, steps=30, clipped=clipped)
    found, y = hunt(network, x, grid)
    escaped = found.found
    assert escaped.any()
    moved = (found.pixels - x).flatten(1)
    size = moved.norm(dim=1) if norm == "l2" else moved.abs().amax(1)
    assert (size <= found.radius * (1 + 1e-12)).all()
    label = network.logits(torch.arange(len(x)), found.pixels).argmax(1)
    assert torch.equal(label, found.label)
    assert torch.equal(label != y, escaped)
    if clipped:
        assert found.pixels.min() >= 0
        assert found.pixels.max() <= 1


def test_only_a_plain_pass_counts() -> None:
    """A network that flips only where gradients are recorded never leaves its class."""
    network, x = two_classes()
    y = network.logits(torch.arange(len(x)), x).argmax(1)
    looked = []

    def plain(image: Tensor, pixels: Tensor) -> Tensor:
        looked.append(len(image))
        return torch.nn.functional.one_hot(y[image], 2).double()

    def flipped(image: Tensor, pixels: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.one_hot(1 - y[image], 2).double(), torch.ones_like(pixels)

    found = first_escapes(plain, flipped, x, y, 1 - y, starts, Grid("l2", 0.1, 2, steps=4))
    assert not found.found.any()
    assert int(found.forwards.sum()) == sum(looked)
    assert (found.forwards == 2 * 3 * (4 + 1)).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_no_flip_and_no_step(bad: float) -> None:
    x = random(3, *SHAPE, seed=5)
    y = torch.zeros(3, dtype=torch.int64)

    def broken(image: Tensor, pixels: Tensor) -> Tensor:
        return torch.full((len(pixels), 2), bad, dtype=torch.float64)

    found = first_escapes(
        broken,
        lambda image, pixels, to: (broken(image, pixels), torch.full_like(pixels, bad)),
        x,
        y,
        1 - y,
        starts,
        Grid("linf", 0.1, 2, steps=4),
    )
    assert not found.found.any()
    assert (found.lost == 2 * 3 * 5).all()
    assert found.pixels.isfinite().all()
