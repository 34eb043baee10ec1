"""The loop: known optima and seeds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robaudit.errors import RobauditError
from robaudit.methods.training.cross_entropy import CrossEntropy
from robaudit.methods.training.loop import fit
from robaudit.methods.training.spec import Recipe
from tests.golden import Golden


def images(count: int = 21) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand((count, 1, 2, 3), generator=generator), torch.arange(count) % 3


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.BatchNorm2d(1),
            nn.Flatten(),
            nn.Linear(6, 8),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(8, 3),
        )


def same(first: nn.Module, second: nn.Module) -> bool:
    a = first.state_dict()
    b = second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


RECIPE = Recipe(epochs=3, batch_size=5, lr=0.01, schedule="cosine", seed=4)


def test_cross_entropy_finds_the_frequencies_of_the_classes() -> None:
    """Black images leave the bias alone, whose optimum is known."""
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    losses = fit(
        net,
        CrossEntropy(),
        torch.zeros(10, 1, 2, 2),
        labels,
        Recipe(epochs=150, batch_size=10, lr=0.2, schedule="cosine"),
    )
    assert isinstance(net[1], nn.Linear)
    shares = torch.tensor([0.6, 0.3, 0.1])
    assert torch.allclose(net[1].bias.softmax(0), shares, atol=1e-3)
    assert losses[-1] == pytest.approx(-float((shares * shares.log()).sum()), abs=1e-5)


def test_seeds() -> None:
    results = []
    for seed in (4, 4, 5):
        net = network()
        state = torch.random.get_rng_state()
        fit(net, CrossEntropy(), *images(), RECIPE.model_copy(update={"seed": seed}))
        assert torch.random.get_rng_state().equal(state)
        assert not net.training
        results.append(net)
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_an_epoch_takes_every_image_once_in_an_order_of_its_own() -> None:
    """Batches differ by one image at most: a last batch of one would be too small for batch
    norm."""
    seen = []

    class Looking(CrossEntropy):
        def loss(self, batch: Any) -> Tensor:
            seen.append(batch.images[:, 0, 0, 0])
            return super().loss(batch)

    x, labels = images(21)
    fit(network(), Looking(), x, labels, Recipe(epochs=2, batch_size=10))
    assert list(map(len, seen)) == [7] * 6
    first = torch.cat(seen[:3])
    second = torch.cat(seen[3:])
    assert torch.equal(first.sort().values, x[:, 0, 0, 0].sort().values)
    assert torch.equal(second.sort().values, x[:, 0, 0, 0].sort().values)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("constant", [1.0] * 4), ("cosine", [1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5])],
)
def test_the_schedule_of_the_rate(schedule: str, rates: list[float]) -> None:
    """Adam moves a weight of constant slope by the rate."""
    weights = []

    class Downhill(CrossEntropy):
        def loss(self, batch: Any) -> Tensor:
            (_, linear) = batch.network
            weights.append(linear.bias[0].item())
            return linear.bias[0]  # type: ignore[no-any-return]

    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    fit(net, Downhill(), *images(8), Recipe(epochs=2, batch_size=4, lr=0.01, schedule=schedule))
    assert isinstance(net[1], nn.Linear)
    weights.append(net[1].bias[0].item())
    assert [(before - after) / 0.01 for before, after in pairwise(weights)] == pytest.approx(
        rates, rel=1e-3
    )


def test_a_loss_that_is_not_finite(golden: Golden) -> None:
    with pytest.raises(RobauditError) as caught:
        fit(network(), CrossEntropy(), images()[0] * torch.inf, images()[1], RECIPE)
    golden(caught.value)
