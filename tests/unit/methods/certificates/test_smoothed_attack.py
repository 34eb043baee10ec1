"""`smoothed_attack`: closed forms on half-spaces, verified flips, and certificates that are never
above what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.objective import SoftVote
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.methods.certificates.certified_radius import CertifiedRadius
from robaudit.methods.certificates.smoothed_attack import SmoothedAttack
from robaudit.methods.certificates.smoothing import p_lower
from robaudit.noise.correlated import CorrelatedGaussian
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.impulse import Impulse
from robaudit.noise.laplace import Laplace
from robaudit.noise.noise import Noise
from robaudit.noise.uniform import Uniform
from robaudit.quantities import IntervalKind
from robaudit.results import Result, Searched
from tests.unit.engine.tools import Counter, chunk, curved, known, work_on
from tests.unit.methods.certificates.test_certified_radius import EQUAL, GREY, half_space

SMALL = SmoothedAttack(copies=16, verify=2000, restarts=1, steps=6, polish=4)


def values(estimator: SmoothedAttack, batch: ImageBatch) -> list[Result]:
    return [value for (value,) in estimator.estimate(batch)]


@pytest.mark.parametrize(
    "form", [Gaussian(), Laplace(), Uniform()], ids=lambda form: type(form).__name__
)
def test_a_half_space(form: Noise) -> None:
    """The vote flips exactly at the distance under symmetric noise; what is found is verified to be
    beyond, by little."""
    for seed in range(2):
        (found,) = values(
            SmoothedAttack(restarts=0), chunk(half_space(0.8, EQUAL), GREY, form, 0.5, seed=seed)
        )
        search = known(found.search)
        kept = known(search.kept)
        other = known(search.other)
        assert 0.8 < found.value < 0.8 * 1.08
        assert (found.lower, found.upper, found.interval.kind) == (
            0.0,
            found.value,
            IntervalKind.UPPER_BOUND,
        )
        assert (found.flips_to, search.label, found.note) == (1, 0, "")
        assert p_lower(other, other + kept, 0.001) > 0.5
        assert other + kept == 10_000


def test_certificates_are_below() -> None:
    batch = work_on(curved(3, seed=2), images=10)
    certified = [value for (value,) in CertifiedRadius(draws=2000).estimate(batch)]
    found = values(SMALL, batch)
    same = 0
    for proof, flip in zip(certified, found, strict=True):
        if known(proof.certificate).label == known(flip.search).label:
            same += 1
            assert proof.value <= flip.value
    assert same > 5
    assert all(flip.interval.kind is IntervalKind.UPPER_BOUND for flip in found)


def test_the_class_is_that_of_the_vote_and_every_pass_is_counted() -> None:
    network = Counter(curved())
    batch = work_on(network, images=8)
    network.images = 0
    found = values(SMALL, batch)
    assert network.images == sum(value.forwards - 1 for value in found)
    assert all(value.backwards % 16 == 0 < value.backwards for value in found)
    votes = MonteCarlo(draws=2000).estimate(batch)
    for value, counted in zip(found, votes, strict=True):
        most = known(counted.votes).counts
        assert known(value.search).label == most.index(max(most)) != value.flips_to


def test_a_soft_vote_for_another_class_at_the_image_itself() -> None:
    """Class 0 in six of ten copies, but class 1 with a large margin in the others: the mean softmax
    is for class 1, the vote is not."""

    def network(x: Tensor) -> Tensor:
        margin = 0.5 * 0.2533471 - (x - 0.5).flatten(1) @ EQUAL
        return torch.stack(
            [torch.where(margin > 0, 0.1 + 0.1 * margin, 50 * margin), torch.zeros_like(margin)], 1
        )

    (found,) = values(SmoothedAttack(restarts=0), chunk(network, GREY, Gaussian(), 0.5))
    assert known(found.search).label == 0
    assert 0.5 * 0.2533471 < found.value < 0.5 * 0.2533471 + 0.04
    assert found.flips_to == 1


def test_an_undecided_vote_is_noted() -> None:
    (found,) = values(SMALL, chunk(half_space(0.001, EQUAL), GREY, Gaussian(), 0.5))
    assert found.note == "the class of the vote is uncertain at the image itself"


def test_nothing_within_the_cap() -> None:
    (found,) = values(
        SMALL.model_copy(update={"cap": 0.7}), chunk(half_space(0.8, EQUAL), GREY, Gaussian(), 0.5)
    )
    assert (found.value, found.upper, found.flips_to) == (0.7, None, None)
    assert found.interval.kind is IntervalKind.CENSORED
    assert known(found.search) == Searched(label=0)


def test_a_constant_vote_is_never_lost() -> None:
    (found,) = values(
        SMALL,
        chunk(
            lambda x: torch.stack([x[:, 0, 0, 0] * 0 + 1, x[:, 0, 0, 0] * 0], 1),
            GREY,
            Gaussian(),
            0.5,
        ),
    )
    assert found.interval.kind is IntervalKind.CENSORED
    assert found.value == pytest.approx(4.0), "the largest distance of two images"


def test_within_the_pixels() -> None:
    """A boundary that only pixels outside of [0, 1] reach along its normal."""
    weights = torch.zeros(16)
    weights[0] = 0.8
    weights[1] = 0.6
    batch = chunk(half_space(0.6, weights), GREY, Gaussian(), 0.1)
    (free,), (clipped,) = (
        values(SMALL.model_copy(update={"clip": clip}), batch) for clip in (False, True)
    )
    assert 0.6 < free.value < 0.66
    assert clipped.value > (0.5**2 + (0.2 / 0.6) ** 2) ** 0.5


@pytest.mark.parametrize("form", [CorrelatedGaussian(length=2.0), Impulse(), Uniform(norm="l2")])
def test_refuses_other_noise(form: Noise) -> None:
    assert (
        SmoothedAttack().unfit(form)
        == "it searches under gaussian, laplace and uniform noise in the box"
    )


def offsets_of(batch: ImageBatch, copies: int) -> Tensor:
    """The offsets of :class:`SoftVote` under Gaussian noise (images, copies, ...)."""
    draws = [torch.cat([*batch.normals("test", image, copies)]) for image in range(len(batch.x))]
    return batch.level * torch.stack(draws)


@pytest.mark.parametrize("batch_size", [8, 64], ids=["in parts", "whole"])
def test_the_gradient_of_the_soft_vote(batch_size: int) -> None:
    """Against that of the formula by autograd, in float64; a point's copies may fill several
    passes."""
    network = curved(4).double()
    batch = work_on(network, images=3, dtype=torch.float64, batch_size=batch_size)
    offsets = offsets_of(batch, 24)

    def vote(point: Tensor, image: int) -> Tensor:
        logits: Tensor = network(point + offsets[image])
        return logits.softmax(1).mean(0).log()

    clean = torch.stack([vote(x, i) for i, x in enumerate(batch.x)]).detach()
    y = torch.stack([clean[0].argmin(), *clean[1:].argmax(1)])  # the first image needs a head start
    image = torch.tensor([0, 1, 2, 0])
    rows = torch.arange(4)
    to = (y[image] + torch.tensor([1, 2, 3, 2])) % 4
    points = (batch.x[image] + 0.05).requires_grad_()
    logits = torch.stack([vote(point, i) for i, point in zip(image.tolist(), points, strict=True)])
    (expected,) = torch.autograd.grad((logits[rows, to] - logits[rows, y[image]]).sum(), points)
    behind = clean.amax(1) - clean[torch.arange(3), y]
    start = torch.where(behind > 0, behind + 0.1, 0.0)
    soft = SoftVote(batch, y, torch.arange(3), 24, "test")
    found, slope = soft.slopes(image, points.detach(), to)
    wanted = logits.detach() + torch.zeros(4, 4, dtype=torch.float64).scatter(
        1, y[image][:, None], start[image][:, None]
    )
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(soft.logits(image, points.detach()), wanted)
    torch.testing.assert_close(slope, expected)


def test_copies_without_finite_logits_have_no_say() -> None:
    batch = work_on(curved(3), images=1, dtype=torch.float64)
    offsets = offsets_of(batch, 16)[0]
    kept = offsets[offsets[:, 0, 0, 0] <= 0]
    assert 0 < len(kept) < 16

    def broken(x: Tensor) -> Tensor:
        logits = curved(3).double()(x)
        return torch.where(x[:, :1, 0, 0] - batch.x[0, 0, 0, 0] > 0, torch.nan, logits)

    other = replace(batch, engine=work_on(broken, images=1, dtype=torch.float64).engine)
    few = curved(3).double()(batch.x + kept).softmax(1).mean(0).detach()
    found = SoftVote(other, few.argmax()[None], torch.arange(1), 16, "test").logits(
        torch.tensor([0]), batch.x
    )
    torch.testing.assert_close(found[0].exp(), few * len(kept) / 16)
