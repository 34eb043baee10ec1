"""Every estimator and every kind of noise on the pretended device: deterministic forms only, and
the CPU's numbers within 1e-6."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine.estimator import Estimator
from robaudit.methods.average_case import mvn
from robaudit.noise import orthogonal
from robaudit.noise.noise import AdditiveNoise, Noise, Shape
from robaudit.noise.process import NoiseProcess
from robaudit.results import Result
from tests.system.device import pretended
from tests.unit.engine.tools import (
    built,
    curved,
    fitting,
    installed_estimators,
    network_for,
    values,
    work_on,
)
from tests.unit.noise.kinds import SHAPES, examples, images, some_level

_FEW = {"steps": 2, "polish": 1, "restarts": 1}
SHORT: dict[str, dict[str, int]] = {
    "radius_attack": _FEW,
    "smoothed_attack": _FEW,
    "adversarial_loss": {"steps": 2, "restarts": 1},
    "qnorm_path": {"temperatures": 12, "steps": 1},
}


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the grid of a block begins where the seed says, on the CPU where a draw says."""

    def by_seed(generator: torch.Generator, tall: int, wide: int) -> tuple[int, int]:
        return generator.initial_seed() % tall, (generator.initial_seed() // 2**16) % wide

    monkeypatch.setattr(orthogonal, "_offset", by_seed)


def found_on(device: str, estimator: Estimator, network: nn.Module) -> list[tuple[Result, ...]]:
    work = work_on(network, device=device, images=3)
    return values(estimator, fitting(estimator, work))


@pytest.fixture(autouse=True)
def double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU computes common probabilities of the normal CDF in single precision, CUDA never: here
    both in double, so that nothing else hides behind its rounding."""
    monkeypatch.setattr(mvn, "_COMMON", 1.0)


def same(a: float | None, b: float | None) -> bool:
    return a == b or (
        a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    )


def assert_same(estimator: Estimator, network: nn.Module) -> None:
    here = found_on("cpu", estimator, network)
    with pretended() as card, deterministic():
        there = found_on("cuda", estimator, network)
    assert card.launches > 0
    for ours, theirs in zip(here, there, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert (a.flips_to, a.votes, a.forwards, a.backwards) == (
                b.flips_to,
                b.votes,
                b.forwards,
                b.backwards,
            )
            assert all(
                same(getattr(a, name), getattr(b, name))
                for name in ("value", "lower", "upper", "std_error")
            ), (a, b)


@pytest.mark.parametrize("name", sorted(installed_estimators()))
def test_estimators(name: str) -> None:
    estimator = built(installed_estimators()[name], **SHORT.get(name, {}))
    assert_same(estimator, network_for(estimator))


class Scaled(nn.Module):
    """Constants behind the last nonlinearity: a temperature, and a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.network = curved()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x) / 2.5 - 0.5
        return logits * torch.tensor(3.0)


@pytest.mark.parametrize("name", ["margin_radius", "smoothed_margin"])
def test_constants_behind_the_last_nonlinearity(name: str) -> None:
    assert_same(built(installed_estimators()[name]), Scaled())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_noises(shape: Shape, tmp_path: Path) -> None:
    x = images(4, shape)
    ids = [str(i // 3) for i in range(12)]
    for name, form in examples(tmp_path, shape):
        level = min(some_level(form), 100.0)

        def found(place: str, form: Noise = form, level: float = level) -> list[Tensor]:
            source = NoiseProcess(form, form.name, 0, torch.device(place), torch.float64)
            z = torch.cat(
                [block for sample in ids[::3] for block in source.blocks(sample, 3, shape)]
            )
            pixels = x.to(place, torch.float64)
            moved = [z, form.noisy(pixels.repeat_interleave(3, 0), z, level, ids=ids)]
            if isinstance(form, AdditiveNoise):
                moved.append(form.gram(pixels.flatten(1)[:, None].expand(-1, 2, -1), pixels))
            return [one.cpu() for one in moved]

        with pretended(), deterministic():
            there = found("cuda")
        for ours, theirs in zip(found("cpu"), there, strict=True):
            # a count may fall on the other side of a rounding error
            wrong = int(((ours - theirs).abs() > 1e-6).sum())
            assert wrong <= (0 if form.differentiable else 0.01 * ours.numel()), name
