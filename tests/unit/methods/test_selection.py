"""With many classes only those that can matter are differentiated: at the values of all of them,
and said where not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine.selection import keep_margins
from robaudit.numerics.margins import margin_gradients
from robaudit.results import Result
from tests.unit.engine.tools import Counter, build, curved, linear, work_on

NAMES = ("taylor", "taylor_mvs", "mmse", "mmse_mvs")
OPTIONS = {"taylor": {}, "taylor_mvs": {}, "mmse": {"draws": 4}, "mmse_mvs": {"draws": 4}}


def spread(network: nn.Sequential, scale: float) -> nn.Sequential:
    """The network with biases of its last layer so spread that few classes compete; the greater the
    scale, the fewer."""
    layer = network[-1]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias.add_(
            scale * torch.randn(layer.bias.shape, generator=torch.Generator().manual_seed(1))
        )
    return network


def run(name: str, network: nn.Module, *, sigma: float, **options: int) -> list[Result]:
    return list(
        build(name, **{**OPTIONS[name], **options}).estimate(
            work_on(network, images=6, sigma=sigma)
        )
    )


@pytest.mark.parametrize("sigma", [0.1, 0.2])
@pytest.mark.parametrize("name", ["taylor", "mmse"])
@pytest.mark.parametrize("shape", ["linear", "curved"])
def test_equals_all_classes(name: str, shape: str, sigma: float) -> None:
    network = spread(linear(100), 5.0) if shape == "linear" else spread(curved(100), 3.0)
    few = run(name, network, sigma=sigma)
    every = run(name, network, sigma=sigma, classes=99)
    assert any(0.05 < e.value < 0.95 for e in every)
    for a, b in zip(few, every, strict=True):
        assert "left out" not in b.note
        if "left out" not in a.note:
            assert a.value == pytest.approx(b.value, abs=1e-3)
        assert a.flips_to == b.flips_to
    assert sum("left out" in a.note for a in few) <= 1
    assert sum(a.backwards for a in few) <= sum(b.backwards for b in every) / 4


@pytest.mark.parametrize("name", NAMES)
def test_what_may_be_missing_is_noted(name: str) -> None:
    """All of 100 classes compete: 8 are not enough, and the note's estimate covers the difference
    within a factor of three."""
    few = run(name, linear(100), sigma=1.0, classes=8)
    every = run(name, linear(100), sigma=1.0, classes=99)
    differences = [a.value - b.value for a, b in zip(few, every, strict=True)]
    assert max(differences) > 1e-3
    for difference, estimate in zip(differences, few, strict=True):
        assert difference > -2e-3  # two CDF errors: fewer conditions are never less likely
        noted = (
            float(estimate.note.split("about ")[1].split()[0])
            if "left out" in estimate.note
            else 5e-4
        )
        assert difference <= 3 * noted + 2e-3


@pytest.mark.parametrize("name", NAMES)
def test_counts_the_passes_it_makes(name: str) -> None:
    network = Counter(spread(linear(60), 3.0))
    estimator = build(name, **OPTIONS[name])
    batch = work_on(network, images=8)
    network.images -= 1  # work_on asks once for the number of classes
    estimates = estimator.estimate(batch)
    forwards, most = estimator.passes(60)
    assert network.images == forwards * 8
    draws = 4 if "mmse" in name else 1
    for estimate in estimates:
        assert estimate.forwards == forwards
        assert 8 * draws <= estimate.backwards <= most == 32 * draws
        assert estimate.backwards % draws == 0
    assert len({e.backwards for e in estimates}) > 1


def test_constant_logits_of_many_classes() -> None:
    """No margin varies: nothing is divided by zero, and the likeliest flip is a class."""

    def constant(x: Tensor) -> Tensor:
        return x.flatten(1)[:, :1] * 0 + torch.arange(50.0)

    for name in NAMES:
        for estimate in build(name, **OPTIONS[name]).estimate(work_on(constant)):
            assert estimate.value == pytest.approx(1.0)
            assert estimate.note == ""
            assert estimate.flips_to is not None
            assert 0 <= estimate.flips_to < 49


def test_keeps_the_smallest_z_and_as_few_as_will_do() -> None:
    mean = torch.full((2, 50), 20.0, dtype=torch.float64)
    mean[0, 30], mean[0, 7] = 0.5, -1.0
    mean[1, :20] = torch.linspace(1, 2, 20, dtype=torch.float64)
    kept = keep_margins(mean, torch.ones_like(mean), torch.arange(50).expand(2, -1), 16)
    assert kept.counts.tolist() == [8, 16]
    assert kept.others[0, :2].tolist() == [7, 30]
    assert (kept.others[0, 8:] == -1).all()
    assert kept.others[1].tolist() == list(range(16))
    assert float(kept.failure[0]) < 1e-60
    expected = sum(0.5 * math.erfc(z / 1.125 / math.sqrt(2)) for z in mean[1, 16:20].tolist())
    assert float(kept.failure[1]) == pytest.approx(expected)


def test_gradients_of_chosen_classes() -> None:
    network = curved(6)
    x = torch.rand(3, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 2, 5])
    others = torch.tensor([[3, 1], [0, -1], [4, -1]])
    logits, g, u = margin_gradients(network, x, target, others)
    _, all_g, all_u = margin_gradients(network, x, target)
    for row, column, position in ((0, 0, 2), (0, 1, 0), (1, 0, 0), (2, 0, 4)):
        assert torch.equal(g[row, column], all_g[row, position])
        torch.testing.assert_close(u[row, column], all_u[row, position])
    assert g[1:, 1].tolist() == [1.0, 1.0]
    assert not u[1:, 1].any()
    assert logits.shape == (3, 6)
