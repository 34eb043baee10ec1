"""`adversarial_loss` where the largest loss is known: linear models on balls, and transforms that
can be counted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine import batch as batch_module
from robaudit.engine.batch import ImageBatch
from robaudit.engine.objective import Objective
from robaudit.engine.registry import Task, refuse_unfit
from robaudit.errors import SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.methods.intermediate_q.adversarial_loss import AdversarialLoss
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.noise import Noise
from robaudit.noise.spatial import Spatial
from robaudit.noise.uniform import Uniform
from tests.golden import Golden
from tests.levels import sigma
from tests.unit.engine.tools import SHAPE, chunk, curved, known, linear, weights


def work_under(
    network: nn.Module, form: Noise, level: float, dtype: torch.dtype = torch.float32
) -> ImageBatch:
    """Six random images; labels 0, 1, 0, 1, ..."""
    x = torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(5)).to(dtype)
    return chunk(network, x, form, level, labels=torch.arange(6) % 2)


def found(batch: ImageBatch, **options: object) -> Tensor:
    return torch.tensor(
        [one.value for one in AdversarialLoss.model_validate(options).estimate(batch)],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_linear_models_of_two_classes(norm: str, clip: bool) -> None:
    """s = w . x + b is largest at a corner of the box, or along w: eps |w|_1, eps |w|_2; l = log(1
    + e^s)."""
    network = linear(2, dtype=torch.float64)
    eps = 0.2
    batch = work_under(
        network, Uniform.model_validate({"norm": norm, "clip": clip}), eps, dtype=torch.float64
    )
    rows = weights(network)
    w = rows[1 - batch.labels] - rows[batch.labels]
    z = batch.logits
    s = z.gather(1, 1 - batch.labels[:, None])[:, 0] - z.gather(1, batch.labels[:, None])[:, 0]
    x = batch.x.flatten(1)
    corner = (x + eps * w.sign()).clamp(0, 1) if clip else x + eps * w.sign()
    gained = ((corner - x) * w).sum(1) if norm == "linf" else eps * w.norm(dim=1)
    best = torch.log1p(torch.exp(s + gained))
    value = found(batch, steps=20, restarts=4)
    if norm == "l2" and clip:
        assert (value <= best * (1 + 1e-9)).all()
        assert (value > torch.log1p(torch.exp(s))).all()
    else:
        assert torch.allclose(value, best, rtol=1e-9)


@pytest.mark.parametrize(
    "form",
    [Uniform(), Uniform(norm="l2"), Uniform(clip=True), Spatial()],
    ids=["linf", "l2", "clip", "spatial"],
)
def test_no_draw_of_the_noise_has_a_larger_loss(form: Noise) -> None:
    """And its class, its logarithm and its bounds belong to it."""
    batch = work_under(curved(), form, 0.3)
    estimates = AdversarialLoss(steps=30, restarts=5).estimate(batch)
    loss = Objective(batch, batch.labels, latent=True)
    for image, one in enumerate(estimates):
        z = next(batch.normals("other", image, 200))
        drawn = loss.losses(torch.full((len(z),), image), z)
        assert one.value >= float(drawn.max().exp())
        assert (one.lower, one.upper, one.interval.text) == (one.value, None, "lower bound")
        assert one.value == pytest.approx(math.exp(one.numbers["log_loss"]))
        assert known(one.loss).target == batch.labels[image]
        assert one.flips_to != batch.predicted[image]
    assert any(one.flips_to is not None for one in estimates)
    assert {one.backwards > 0 for one in estimates} == {not isinstance(form, Spatial)}


def test_a_flip_has_two_losses() -> None:
    batch = work_under(curved(), Spatial(scale=0, rotation=0, crop=0), 1.0)
    losses = torch.stack(
        [
            nn.functional.cross_entropy(batch.model(x), batch.labels, reduction="none")
            for x in (batch.x, batch.x.flip(3))
        ]
    )
    assert torch.allclose(found(batch, steps=10, restarts=3), losses.amax(0).double(), rtol=1e-5)


def test_against_the_predicted_class() -> None:
    batch = work_under(curved(), Uniform(), 0.3)
    other = replace(batch, labels=batch.predicted)
    assert torch.equal(
        found(batch, steps=3, restarts=2, target="predicted"), found(other, steps=3, restarts=2)
    )
    assert not AdversarialLoss(target="predicted").needs_labels
    assert AdversarialLoss().needs_labels


@pytest.mark.parametrize("form", [Uniform(), Spatial()], ids=["uniform", "spatial"])
@pytest.mark.bits
def test_groups_of_images_change_nothing(form: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = work_under(curved(), form, 0.3)
    together = AdversarialLoss(steps=4, restarts=3).estimate(batch)
    monkeypatch.setattr(batch_module, "HELD_BYTES", 2 * 3 * 4 * math.prod(SHAPE))
    assert AdversarialLoss(steps=4, restarts=3).estimate(batch) == together


class Breaks(nn.Module):
    """Not finite where an image is bright."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.network(x)
        return torch.where(x.flatten(1).mean(1, keepdim=True) > 0.9, torch.nan, logits)


@pytest.mark.parametrize("form", [Uniform(), Spatial()], ids=["uniform", "spatial"])
def test_logits_that_are_not_finite_give_no_value(form: Noise) -> None:
    batch = work_under(Breaks(curved()), form, 0.1)
    x = batch.x.clone()
    x[:3] = 0.95
    estimates = AdversarialLoss(steps=5, restarts=4).estimate(replace(batch, x=x))
    assert all(math.isnan(one.value) for one in estimates[:3])
    assert all(math.isfinite(one.value) for one in estimates[3:])


def test_noise_without_a_limit_is_refused(golden: Golden) -> None:
    attack = Task(AdversarialLoss(), "worst", NoiseLevel("uniform", 0.1, LevelName.EPS))
    noises = {"gaussian": Gaussian(), "uniform": Uniform()}
    refuse_unfit([attack], noises)
    with pytest.raises(SpecError) as caught:
        refuse_unfit([attack, replace(attack, at=sigma(0.1))], noises)
    golden(caught.value)
