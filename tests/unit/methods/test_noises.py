"""Estimators under every kind of noise: closed forms on linear models, matched variances, and
noises that do the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.engine.registry import Task, refuse_unfit
from robaudit.errors import SpecError
from robaudit.models import from_module
from robaudit.noise.installed import build as build_noises
from robaudit.noise.process import NoiseProcess
from robaudit.quantities import IntervalKind
from robaudit.spec.model import NoiseSpec
from tests.golden import Golden
from tests.unit.engine.tools import build, linear, weights

SHAPE = (2, 5, 4)
PIXELS = math.prod(SHAPE)
CPU = torch.device("cpu")


def scaled(x: Tensor) -> Tensor:
    """Channels of standard deviation 0.5 and 2."""
    return torch.diag(torch.tensor([0.25, 4.0], dtype=torch.float64).repeat_interleave(PIXELS // 2))


def correlated(x: Tensor, *, shared: bool = False) -> Tensor:
    """exp(-r^2 / (2 * 1.5^2)) between the pixels of a channel."""
    y, w = torch.meshgrid(torch.arange(SHAPE[1]), torch.arange(SHAPE[2]), indexing="ij")
    places = torch.stack([y.flatten(), w.flatten()], 1).double()
    plane = torch.exp(-torch.cdist(places, places).square() / (2 * 1.5**2))
    return torch.kron(
        torch.ones(2, 2, dtype=torch.float64) if shared else torch.eye(2, dtype=torch.float64),
        plane,
    )


def factors() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(3)
    return torch.from_numpy(random.normal(size=(PIXELS, 3)) / 3), torch.from_numpy(
        random.uniform(0.5, 1.0, PIXELS)
    )


def low_rank(x: Tensor) -> Tensor:
    factor, diagonal = factors()
    return factor @ factor.T + torch.diag(diagonal.square())


# Each with its covariance at sigma 1, written out.
GAUSSIAN: Mapping[str, tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "gaussian": ({}, lambda x: torch.eye(PIXELS, dtype=torch.float64)),
    "scaled": ({"kind": "gaussian_scaled", "scale": [0.5, 2]}, scaled),
    "correlated": ({"kind": "gaussian_correlated", "length": 1.5}, correlated),
    "shared": (
        {"kind": "gaussian_correlated", "length": 1.5, "channels": "shared"},
        lambda x: correlated(x, shared=True),
    ),
    "covariance": ({"kind": "gaussian_covariance", "file": "factors.npz"}, low_rank),
    "speckle": ({"kind": "speckle"}, lambda x: torch.diag(x.flatten().double().square())),
}
MATCHED: Mapping[str, tuple[dict[str, Any], Callable[[Tensor], float]]] = {
    "uniform": ({"kind": "uniform", "eps": 0.3}, lambda x: 0.3**2 / 3),
    "ball": ({"kind": "uniform", "norm": "l2", "eps": 4}, lambda x: 16 / (x.numel() + 2)),
    "laplace": ({"kind": "laplace", "sigma": 0.2}, lambda x: 0.04),
    "poisson": ({"kind": "poisson", "photons": 30}, lambda x: math.nan),
}


def noise_of(entry: Mapping[str, Any], folder: Path = Path()) -> NoiseProcess:
    (noise,) = build_noises([NoiseSpec.model_validate(entry)], folder)
    return noise


def work_under(
    noise: NoiseProcess, network: nn.Module, x: Tensor, *, classes: int, seed: int = 0
) -> ImageBatch:
    """A chunk of these images under the first level of a noise."""
    model = from_module(network, dtype=x.dtype)
    engine = Engine(model, {noise.label: noise.seeded(seed, CPU, x.dtype)}, classes)
    return ImageBatch.from_images(
        engine, x, noise.levels[0], labels=torch.zeros(len(x), dtype=torch.int64)
    )


def pixels(images: int, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return torch.rand(
        images, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float32
    ).double()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    factor, diagonal = factors()
    np.savez(tmp_path / "factors.npz", factor=factor.numpy(), diagonal=diagonal.numpy())
    return tmp_path


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_two_classes_have_the_closed_form(kind: str, folder: Path) -> None:
    """p = Phi(c / (sigma sqrt(u^T S u))): taylor and mmse exactly, logit_gaussian and mc within
    five standard errors."""
    entry, covariance = GAUSSIAN[kind]
    network = linear(2, PIXELS, dtype=torch.float64)
    weight = weights(network)
    batch = work_under(noise_of({**entry, "sigma": 0.4}, folder), network, pixels(8), classes=2)
    u = weight[0] - weight[1]
    deviations = torch.stack([(u @ covariance(x) @ u).sqrt() for x in batch.x]) * 0.4
    exact = norm.cdf((batch.margins[:, 0] / deviations).numpy())
    for name in ("taylor", "mmse"):
        assert [
            one.value
            for one in build(name, **({"draws": 2} if name == "mmse" else {})).estimate(batch)
        ] == pytest.approx(exact, abs=1e-6)
    for one, p in zip(build("logit_gaussian", draws=256).estimate(batch), exact, strict=True):
        assert one.std_error is not None
        assert abs(one.value - p) <= 5 * one.std_error + 1e-9
    for one, p in zip(build("mc", draws=1000).estimate(batch), exact, strict=True):
        assert abs(one.value - p) <= 5 * math.sqrt(p * (1 - p) / 1000) + 1e-3


@pytest.mark.parametrize("kind", MATCHED)
def test_independent_noise_has_a_matched_variance(kind: str) -> None:
    """Many pixels make the margins of a linear model nearly normal, whatever the noise of one is
    (Han et al., appendix A; Lyapunov)."""
    entry, variance = MATCHED[kind]
    shape = (1, 20, 20)
    network = linear(2, 400, seed=2, dtype=torch.float64)
    weight = weights(network)
    batch = work_under(noise_of(entry), network, pixels(8, shape), classes=2)
    u = weight[0] - weight[1]
    per_pixel = [
        x.flatten() / 30
        if kind == "poisson"
        else torch.full((400,), variance(x), dtype=torch.float64)
        for x in batch.x
    ]
    deviations = torch.stack([(u.square() * each).sum().sqrt() for each in per_pixel])
    expected = norm.cdf((batch.margins[:, 0] / deviations).numpy())
    assert [one.value for one in build("taylor").estimate(batch)] == pytest.approx(
        expected, abs=1e-6
    )
    for one, p in zip(build("mc", draws=2000).estimate(batch), expected, strict=True):
        assert abs(one.value - p) <= 5 * math.sqrt(p * (1 - p) / 2000) + 0.01


def test_noise_that_does_the_same_every_time_is_looked_at_once() -> None:
    network = linear(3, PIXELS, dtype=torch.float64)
    batch = work_under(
        noise_of({"kind": "corruption", "name": "brightness", "severity": 5}),
        network,
        pixels(6),
        classes=3,
    )
    (logits,) = [logits for _, logits in batch.engine.noisy_logits(batch.x, batch.ids, batch.at, 1)]
    kept = (logits.argmax(1) == batch.predicted).tolist()
    for name in ("mc", "logit_gaussian"):
        for one, same in zip(build(name).estimate(batch), kept, strict=True):
            assert (one.value, one.lower, one.upper, one.std_error) == (same, same, same, 0.0)
            assert (one.forwards, one.interval.kind) == (2, IntervalKind.EXACT)
            assert one.votes is not None
            assert one.votes.draws == 1


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("taylor", {"kind": "sensor", "photons": 10}),
        ("mmse", {"kind": "spatial", "size": 1}),
        ("splitting", {"kind": "corruption", "name": "contrast", "severity": 1}),
    ],
)
def test_estimators_refuse_what_they_cannot_do(
    name: str, entry: dict[str, Any], golden: Golden
) -> None:
    noise = noise_of(entry)
    task = Task(build(name), name, noise.levels[0])
    with pytest.raises(SpecError) as caught:
        refuse_unfit([task], {noise.label: noise.noise})
    golden(caught.value)


@pytest.mark.parametrize(
    "entry", [{"kind": "sensor", "photons": 8}, {"kind": "uniform", "norm": "l2", "eps": 3}]
)
def test_splitting_works_in_the_space_of_the_normal_variables(entry: dict[str, Any]) -> None:
    """Where failures are frequent it is plain counting; where they are rarer it must agree with
    mc."""
    network = linear(3, PIXELS, dtype=torch.float64)
    batch = work_under(noise_of(entry), network, pixels(3), classes=3)
    counted = build("mc", draws=5_000).estimate(batch)
    for one, reference in zip(
        build("splitting", particles=200).estimate(batch), counted, strict=True
    ):
        failing = 1 - reference.value
        if failing * 5_000 < 50:
            continue
        assert one.std_error is not None
        error = math.hypot(
            one.std_error, math.sqrt((1 - failing) / (5_000 * failing)) / math.log(10)
        )
        assert abs(one.value - math.log10(failing)) <= 5 * error
