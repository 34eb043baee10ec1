"""The radius of linear networks, and how they are recognised."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine.batch import ImageBatch
from robaudit.engine.objective import Objective
from robaudit.errors import ModelError
from robaudit.methods.radius.minimal_norm import Search, shared_flips
from robaudit.methods.radius.radius_attack import RadiusAttack
from robaudit.methods.radius.radius_exact import RadiusExact, matrix, other_operation
from robaudit.methods.radius.radius_random import RadiusRandom
from robaudit.models import from_module
from robaudit.quantities import IntervalKind
from tests.golden import Golden
from tests.unit.engine.tools import SHAPE, chunk, curved, known, linear, values, weights, work_on

IMAGE = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1))


def corner() -> nn.Sequential:
    """Logits (2 a, b, 0) of the first two pixels a, b."""
    layer = nn.Linear(24, 3)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
        layer.weight[0, 0] = 2.0
        layer.weight[1, 1] = 1.0
    return nn.Sequential(nn.Flatten(), layer)


def test_the_golden_corner() -> None:
    batch = work_on(corner(), images=1)
    x = batch.x.clone()
    x.view(-1)[:2] = torch.tensor([1.0, 0.5])
    batch = ImageBatch.from_images(batch.engine, x)
    ((l2, linf),) = values(RadiusExact(), batch)
    assert l2.value == pytest.approx(0.67082039, abs=1e-7)
    assert linf.value == pytest.approx(0.5, abs=1e-7)
    assert (l2.lower, l2.upper, l2.interval.kind) == (l2.value, l2.value, IntervalKind.EXACT)
    assert l2.flips_to == linf.flips_to == 1
    assert known(l2.clean).difficulty == pytest.approx(1.02592302, abs=1e-6)
    assert known(l2.clean).margin == pytest.approx(1.5, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_step_of_the_radius_reaches_the_boundary_and_none_is_shorter(classes: int) -> None:
    network = linear(classes, dtype=torch.float64)
    batch = work_on(network, dtype=torch.float64, images=20)
    w = weights(network)
    for x, y, estimates in zip(
        batch.x.flatten(1), batch.predicted.tolist(), values(RadiusExact(), batch), strict=True
    ):
        for one, norm in zip(estimates, (2.0, math.inf), strict=True):
            assert one.flips_to is not None
            across = w[one.flips_to] - w[y]
            step = across / across.norm() if norm == 2 else across.sign()
            logits = network(torch.stack([x + f * one.value * step for f in (1 - 1e-9, 1 + 1e-9)]))
            assert logits.argmax(1).tolist() == [y, one.flips_to]
            z = network(x[None])[0].detach()
            radii = [
                float((z[y] - z[j]) / (w[y] - w[j]).norm(2 if norm == 2 else 1))
                for j in range(classes)
                if j != y
            ]
            assert one.value == pytest.approx(min(radii), rel=1e-12)


def test_random_directions_are_above_the_attack_and_that_above_the_truth() -> None:
    """On every image; the attack exceeds the truth by 0.1 % at the median and 1 % at the 99th
    percentile, at most."""
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(784, 10)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 784, generator=generator) / 28)
        layer.bias.copy_(torch.randn(10, generator=generator) / 10)
    batch = chunk(
        nn.Sequential(nn.Flatten(), layer),
        torch.rand(16, 1, 28, 28, generator=generator),
        level=0.1,
    )
    exact, attack, rays = (
        values(one, batch) for one in (RadiusExact(), RadiusAttack(), RadiusRandom(directions=60))
    )
    slack = 1e-6 * batch.logits.abs().amax().item()  # logits of float32 are no better
    for part in range(2):
        slope = torch.tensor(
            [known(known(one[part].clean).margin) / one[part].value for one in exact]
        )
        truth, found, far = (
            torch.tensor([one[part].value for one in some]) for some in (exact, attack, rays)
        )
        assert (found >= truth - slack / slope).all()
        assert (far > found).all()
        ratio = found / truth
        assert ratio.quantile(0.5) <= 1.001
        assert ratio.quantile(0.99) <= 1.01


def test_a_flip_is_one_in_a_plain_pass() -> None:
    """Of the network in its own precision, at the pixels that were found."""
    network = curved()
    x = torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(9))
    batch = work_on(network, images=12)
    field = Objective(batch, batch.predicted)
    for norm in ("l2", "linf"):
        for clipped in (False, True):
            search = Search(norm, clipped, steps=10)
            (flips,) = shared_flips(
                field.logits, field.slopes, batch.x, batch.predicted, [search], Seeded(x)
            )
            with torch.no_grad():
                label = network(flips.pixels).argmax(1)
            assert flips.found.any()
            assert torch.equal(label, flips.label)
            assert torch.equal(label != batch.predicted, flips.found)
            added = (flips.pixels.double() - batch.x.double()).flatten(1)
            size = added.norm(dim=1) if norm == "l2" else added.abs().amax(1)
            assert torch.equal(torch.where(flips.found, size, torch.inf), flips.radius)
            if clipped:
                assert flips.pixels.min() >= 0
                assert flips.pixels.max() <= 1


class Seeded:
    """The same starts for every search."""

    def __init__(self, like: Tensor) -> None:
        self._like = like

    def __call__(self, restart: int) -> Tensor:
        return torch.rand(self._like.shape, generator=torch.Generator().manual_seed(restart))


class Rounded(nn.Module):
    """A linear network of pixels in steps of a quarter: flat wherever it has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear(4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner((4 * x).round() / 4)
        return out


@pytest.mark.parametrize("restarts", [0, 9])
def test_no_image_is_censored_where_another_search_finds_a_flip(restarts: int) -> None:
    batch = work_on(Rounded(), images=8)
    attack = values(RadiusAttack(restarts=restarts), batch)
    rays = values(RadiusRandom(directions=250), batch)
    assert all(one.interval.kind is not IntervalKind.CENSORED for row in rays for one in row)
    assert all(one.interval.kind is not IntervalKind.CENSORED for row in attack for one in row)


def affine(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers).eval()


class Doubled(nn.Module):
    """Fixed weights beside the pixels, in the ways that networks are written."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((2, 1, 1), 3.0))
        self.weight = nn.Parameter(torch.rand(24, 4))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.einsum(
            "nd,dk->nk",
            ((x - 0.5) / 0.25 * self.scale + x).permute(0, 2, 3, 1).reshape(len(x), -1),
            self.weight,
        )
        return out


AFFINE: dict[str, nn.Module] = {
    "linear": linear(4),
    "convolution": affine(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(6, 4),
    ),
    "products with fixed weights": Doubled(),
}
OTHERS: dict[str, nn.Module] = {
    "relu": affine(nn.Flatten(), nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 4)),
    "max_pool2d_with_indices": affine(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", AFFINE)
def test_an_affine_network_is_recognised(name: str) -> None:
    model = from_module(AFFINE[name])
    assert other_operation(model, IMAGE) == ""
    w = matrix(model, IMAGE, 4, 3)
    other = torch.rand(SHAPE, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        moved = (model(other[None]) - model(IMAGE[None]))[0].double()
    torch.testing.assert_close(w @ (other - IMAGE).flatten().double(), moved, atol=1e-5, rtol=1e-5)


class Masked(nn.Module):
    """A linear graph whose factor is a comparison of the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (x * (x > 0.5)).flatten(1)[:, :4]
        return out


def test_a_comparison_of_pixels_is_noticed() -> None:
    assert other_operation(from_module(Masked()), IMAGE).endswith("operation gt")


@pytest.mark.parametrize("name", OTHERS)
def test_another_network_is_not(name: str, golden: Golden) -> None:
    assert other_operation(from_module(OTHERS[name]), IMAGE).endswith(f"operation {name}")
    with pytest.raises(ModelError) as caught:
        RadiusExact().check_model(from_module(OTHERS[name]), IMAGE)
    golden(caught.value)


@pytest.mark.parametrize(
    ("forward", "operation"),
    [
        (lambda x: (x * x).flatten(1)[:, :4], "mul"),
        (lambda x: 1 / x.flatten(1)[:, :4], "reciprocal"),
        (lambda x: torch.div(x.flatten(1)[:, :4], 3, rounding_mode="floor"), "div"),
    ],
)
def test_pixels_times_pixels_are_not_affine(
    forward: Callable[[Tensor], Tensor], operation: str
) -> None:
    assert other_operation(forward, IMAGE) == f"its graph has the operation {operation}"


def test_batch_statistics_are_not_affine() -> None:
    network = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten())
    assert other_operation(network.train(), torch.rand(SHAPE)).endswith(
        "operation native_batch_norm"
    )
    assert other_operation(network.eval(), torch.rand(SHAPE)) == ""


def test_every_image_is_compared_with_the_linear_function(golden: Golden) -> None:
    """Whatever the graph of operations showed."""
    with pytest.raises(ModelError) as caught:
        values(RadiusExact(), work_on(curved()))
    golden(caught.value)


def test_random_directions_say_where_the_network_gives_no_numbers() -> None:
    """Logits are NaN as soon as a pixel leaves [-.1, 1.1], so most rays end before they flip."""
    inner = linear(3)

    def network(x: Tensor) -> Tensor:
        away = ((x - 0.5).abs() > 0.6).flatten(1).any(1)
        return torch.where(away[:, None], torch.nan, inner(x))

    rows = values(RadiusRandom(directions=50), work_on(network))
    assert all(
        one.numbers["not_finite"] > 0
        and "points gave non-finite logits, counted as no flips" in one.note
        for one, _ in rows
    )
    assert not any(
        one.note for row in values(RadiusRandom(directions=50), work_on(inner)) for one in row
    )


def test_a_network_that_never_changes_its_mind_is_beyond_the_diameter() -> None:
    """Every class has the same weights: infinity is exact, and so is the lower end of the censored
    row."""
    layer = nn.Linear(24, 3)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
    for l2, linf in values(RadiusExact(), work_on(nn.Sequential(nn.Flatten(), layer))):
        assert l2.value == pytest.approx(math.sqrt(24))
        assert (l2.lower, l2.upper, l2.interval.kind) == (l2.value, None, IntervalKind.CENSORED)
        assert (linf.value, linf.lower, linf.flips_to, linf.interval.kind) == (
            1.0,
            1.0,
            None,
            IntervalKind.CENSORED,
        )
