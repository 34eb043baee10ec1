"""The nearest flip where it is known, on boundaries that are flat, bent or out of reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robaudit.methods.radius.minimal_norm import (
    Flips,
    Logits,
    Search,
    Slopes,
    passes_of,
    shared_flips,
)
from robaudit.methods.radius.norm_steps import FeasibleSet, Norm, dots, size
from robaudit.numerics.rowwise import total

NORMS: tuple[Norm, ...] = ("l2", "linf")


@dataclass(frozen=True)
class Uniform:
    """The same variables for an image wherever it is in a batch."""

    numbers: Tensor
    shape: torch.Size

    def __call__(self, restart: int) -> Tensor:
        """(images, *shape)."""
        return torch.stack(
            [
                torch.rand(self.shape, generator=generator(1000 * int(i) + restart))
                for i in self.numbers
            ]
        )


class Linear:
    """z = W x + b, row by row in the same order of sums."""

    def __init__(self, w: Tensor, b: Tensor) -> None:
        self.w = w
        self.b = b

    def __call__(self, _: Tensor, pixels: Tensor) -> Tensor:
        return total(pixels.flatten(1)[:, None] * self.w) + self.b

    def passes(self, y: Tensor) -> tuple[Logits, Slopes]:
        """With and without gradients."""

        def slopes(image: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            return self(image, pixels), (self.w[other] - self.w[y[image]]).view(pixels.shape)

        return self, slopes

    def exact(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """min_j (z_y - z_j) / |w_y - w_j| in the dual norm, float64."""
        wide = self.w.double()
        z = x.flatten(1).double() @ wide.T + self.b.double()
        apart = (wide[y][:, None] - wide).norm(p=2 if norm == "l2" else 1, dim=2)
        away: Tensor = (z.gather(1, y[:, None]) - z) / apart
        return away.scatter(1, y[:, None], math.inf).amin(1)


def differentiated(logits: Logits, y: Tensor) -> tuple[Logits, Slopes]:
    """A function's passes, by autograd."""

    def slopes(image: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        points = pixels.clone().requires_grad_(True)
        z = logits(image, points)
        (w,) = torch.autograd.grad(
            (z.gather(1, other[:, None]) - z.gather(1, y[image][:, None])).sum(), points
        )
        return z.detach(), w

    return logits, slopes


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hunt(passes: tuple[Logits, Slopes], x: Tensor, y: Tensor, search: Search) -> Flips:
    """The search, whose every flip is then verified."""
    (found,) = shared_flips(*passes, x, y, [search], Uniform(torch.arange(len(x)), x.shape[1:]))
    label = passes[0](torch.arange(len(x)), found.pixels).argmax(1)
    assert torch.equal(label != y, found.found | (label != y) & ~found.found)
    assert (label[found.found] != y[found.found]).all()
    assert torch.equal(label[found.found], found.label[found.found])
    added = (found.pixels.double() - x.double()).flatten(1)
    assert torch.equal(size(added, search.norm)[found.found], found.radius[found.found])
    assert (found.radius[found.found] <= search.cap).all()
    assert (found.gradients <= passes_of([search])[0]).all()
    if search.clipped:
        assert ((found.pixels >= 0) & (found.pixels <= 1)).all()
    return found


@pytest.mark.parametrize(("norm", "radius"), [("l2", 0.67082039), ("linf", 0.5)])
def test_three_classes_in_the_plane(norm: Norm, radius: float) -> None:
    model = Linear(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), torch.zeros(3))
    x = torch.tensor([[1.0, 0.5]])
    y = torch.tensor([0])
    found = hunt(model.passes(y), x, y, Search(norm))
    assert found.label.tolist() == [1]
    assert radius <= float(found.radius[0]) * (1 + 1e-6)
    assert float(found.radius[0]) == pytest.approx(radius, rel=2e-4)
    assert float(model.exact(x, y, norm)[0]) == pytest.approx(radius, abs=1e-8)


def ball(radius: float, inside: bool) -> Logits:
    """Two classes: z = (0, +-(|x|^2 - R^2)), class 0 inside the ball or outside it."""

    def logits(_: Tensor, pixels: Tensor) -> Tensor:
        far = pixels.flatten(1).square().cumsum(1)[:, -1] - radius**2
        return torch.stack([torch.zeros_like(far), far if inside else -far], dim=1)

    return logits


@pytest.mark.parametrize("inside", [True, False])
def test_spheres(inside: bool) -> None:
    """From a point off the centre, to the sphere: | |x| - R | in l2, and by bisection of the l_inf
    ball's nearest point or corner."""
    d = 20
    radius = 2.0
    x = torch.randn(6, d, generator=generator(4), dtype=torch.float64)
    x *= (torch.linspace(0.3, 1.6, 6) if inside else torch.linspace(2.5, 6.0, 6))[:, None] / x.norm(
        dim=1, keepdim=True
    )
    y = torch.zeros(6, dtype=torch.int64)
    found = hunt(differentiated(ball(radius, inside), y), x, y, Search("l2"))
    known = (radius - x.norm(dim=1)).abs()
    assert torch.allclose(found.radius, known, rtol=2e-3)
    assert (found.radius >= known - 1e-9).all()
    found = hunt(differentiated(ball(radius, inside), y), x, y, Search("linf"))
    corner = x.abs() if inside else -x.abs()
    low = torch.zeros(6)
    high = torch.full((6,), 10.0)
    for _ in range(60):
        middle = (low + high) / 2
        reached = (
            (corner + middle[:, None]).square().sum(1) >= radius**2
            if inside
            else (-corner - middle[:, None]).clamp_min(0).square().sum(1) <= radius**2
        )
        low = torch.where(reached, low, middle)
        high = torch.where(reached, middle, high)
    assert torch.allclose(found.radius, high.double(), rtol=2e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_pixels_stay_in_the_box(norm: Norm) -> None:
    """The only useful pixel can move by .2; the rest has to come from one that counts a tenth as
    much."""
    w = torch.zeros(2, 3)
    w[1] = torch.tensor([1.0, 0.1, 0.0])
    model = Linear(w, torch.tensor([0.0, -1.2]))
    x = torch.tensor([[0.8, 0.5, 0.5]])
    y = torch.tensor([0])
    found = hunt(model.passes(y), x, y, Search(norm, clipped=True))
    assert float(found.radius[0]) == math.inf  # even (1, 1, .) has 1.1 - 1.2 < 0
    model = Linear(w, torch.tensor([0.0, -1.08]))
    found = hunt(model.passes(y), x, y, Search(norm, clipped=True))
    known = 0.3 if norm == "linf" else math.hypot(0.2, 0.3)
    assert float(found.radius[0]) == pytest.approx(known, rel=2e-3)
    free = hunt(model.passes(y), x, y, Search(norm))
    assert float(free.radius[0]) == pytest.approx(float(model.exact(x, y, norm)[0]), rel=2e-3)
    assert float(free.radius[0]) < known


@pytest.mark.parametrize("norm", NORMS)
def test_nothing_beyond_the_cap(norm: Norm) -> None:
    model = Linear(torch.randn(4, 30, generator=generator(5)), torch.zeros(4))
    x = torch.rand(8, 30, generator=generator(6))
    y = model(torch.empty(0), x).argmax(1)
    exact = model.exact(x, y, norm)
    cap = float(exact.median()) * 1.005
    found = hunt(model.passes(y), x, y, Search(norm, cap=cap))
    assert torch.equal(found.found, exact < cap)
    lost = ~found.found
    assert torch.equal(found.pixels[lost], x[lost])
    assert torch.equal(found.label[lost], y[lost])


def test_images_that_are_already_wrong_cost_one_pass() -> None:
    model = Linear(torch.randn(3, 10, generator=generator(7)), torch.zeros(3))
    x = torch.rand(5, 10, generator=generator(8))
    label = model(torch.empty(0), x).argmax(1)
    found = hunt(model.passes((label + 1) % 3), x, (label + 1) % 3, Search("l2"))
    assert (found.radius == 0).all()
    assert found.gradients.tolist() == [0] * 5
    assert torch.equal(found.label, label)


def network(seed: int) -> Logits:
    """A bent boundary: a layer of tanh, in fixed sums."""
    first = torch.randn(16, 12, generator=generator(seed), dtype=torch.float64)
    second = torch.randn(4, 16, generator=generator(seed + 1), dtype=torch.float64)
    return lambda _, pixels: total(
        torch.tanh(total(pixels.flatten(1)[:, None] * first))[:, None] * second
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6), st.floats(0.0, 2.0), st.sampled_from(NORMS))
def test_the_nearest_point_of_a_half_space_in_a_box(
    pixels: int, seed: int, needed: float, norm: Norm
) -> None:
    """It reaches what is needed or the far corner, and no other point of the box that does is
    nearer."""
    w = torch.randn(1, pixels, generator=generator(seed), dtype=torch.float64)
    x = torch.rand(1, pixels, generator=generator(seed + 1), dtype=torch.float64)
    rooms = FeasibleSet(norm, -x, 1 - x)
    d = rooms.nearest(w, torch.tensor([needed], dtype=torch.float64))
    assert torch.equal(d, rooms.boxed(d))
    most = float(torch.where(w > 0, w * (1 - x), -w * x).sum())
    reached = float(dots(w, d))
    if most <= needed:
        # Newton's steps from below may end before the corner
        assert reached >= most - 0.3 * abs(most)
        return
    assert reached <= needed + 1e-9
    others = 2 * torch.rand(200, pixels, generator=generator(seed + 2), dtype=torch.float64) - 1
    others = FeasibleSet(norm, -x.expand(200, -1), 1 - x.expand(200, -1)).boxed(others)
    enough = dots(w.expand(200, -1), others) >= reached
    assert (size(others[enough], norm) >= float(size(d, norm)) - 1e-9).all()


def test_a_flip_in_one_norm_counts_in_the_other() -> None:
    """Each alone finds no more than both together; no norm is farther than the other's flip proves,
    on any image."""
    x = torch.rand(20, 12, generator=generator(14), dtype=torch.float64)
    y = network(15)(torch.empty(0), x).argmax(1)
    searches = [Search(norm, steps=4, restarts=1, polish=2) for norm in NORMS]
    both = shared_flips(
        *differentiated(network(15), y), x, y, searches, Uniform(torch.arange(20), x.shape[1:])
    )
    assert torch.equal(both[0].found, both[1].found)
    assert both[0].found.any()
    for search, mine in zip(searches, both, strict=True):
        for other in both:
            at_most = size((other.pixels - x).flatten(1), search.norm)
            assert (mine.radius[other.found] <= at_most[other.found] * (1 + 1e-6)).all()
    assert (both[0].gradients <= passes_of(searches)[0]).all()


def test_what_one_norm_cannot_reach_the_other_finds() -> None:
    """The slope leads to the flip in steps of equal pixels alone: l2's chain follows a pixel that
    does nothing, and only its rays flip."""

    def logits(_: Tensor, pixels: Tensor) -> Tensor:
        far = pixels.flatten(1)[:, :3].amin(1)
        return torch.stack([torch.zeros_like(far), far - 0.2], dim=1)

    def slopes(image: Tensor, pixels: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        lead = torch.tensor([1e-6, 1e-6, 1e-6, 1.0], dtype=pixels.dtype)
        return logits(image, pixels), lead.expand(len(pixels), 4).clone()

    x = torch.zeros(1, 4, dtype=torch.float64)
    y = torch.tensor([0])
    few = [Search(norm, restarts=0, polish=0) for norm in NORMS]
    (alone,) = shared_flips(logits, slopes, x, y, few[:1], Uniform(torch.arange(1), x.shape[1:]))
    assert alone.found.all()
    l2, linf = shared_flips(logits, slopes, x, y, few, Uniform(torch.arange(1), x.shape[1:]))
    assert linf.radius.item() == pytest.approx(0.2, rel=1e-3)
    assert l2.radius.item() <= linf.radius.item() * 2
