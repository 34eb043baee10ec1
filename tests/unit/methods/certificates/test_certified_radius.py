"""`certified_radius`: linear models with known radii, its draws, its answers to a question, and
what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from scipy.stats import binom
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.registry import Task, refuse_unfit
from robaudit.errors import SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.methods.certificates.certified_radius import CertifiedRadius, theorem_of
from robaudit.methods.certificates.smoothing import GAUSSIAN, largest_radius, p_lower
from robaudit.noise.correlated import CorrelatedGaussian
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.laplace import Laplace
from robaudit.noise.noise import Noise
from robaudit.noise.uniform import Uniform
from robaudit.quantities import IntervalKind
from robaudit.results import Result
from tests.golden import Golden
from tests.unit.engine.tools import Counter, chunk, curved, known, work_on


def half_space(distance: float, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Class 0 up to a distance along unit weights from the grey image."""

    def network(x: Tensor) -> Tensor:
        margin = distance - (x - 0.5).flatten(1) @ weights
        return torch.stack([margin, torch.zeros_like(margin)], 1)

    return network


def one(estimator: CertifiedRadius, batch: ImageBatch) -> Result:
    ((found,),) = estimator.estimate(batch)
    return found


GREY = torch.full((1, 1, 4, 4), 0.5)
EQUAL = torch.full((16,), 0.25)
FIRST = torch.eye(16)[0]
CASES: dict[str, tuple[Noise, float, str, Tensor, float]] = {
    "gaussian": (Gaussian(), 0.5, "l2", EQUAL, 0.8),
    "laplace": (Laplace(), 0.5, "l1", FIRST, 0.4),
    "box": (Uniform(), 0.5, "l1", FIRST, 0.3),
    "clipped": (Gaussian(clip=True), 0.25, "l2", FIRST, 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_half_space(name: str) -> None:
    """The radius of a half-space is its distance (for l1 noise along an axis); two seeds are below
    it, and as near as draws allow."""
    form, level, norm, weights, distance = CASES[name]
    estimator = CertifiedRadius(draws=20_000, norm=norm)
    for seed in range(2):
        found = one(estimator, chunk(half_space(distance, weights), GREY, form, level, seed=seed))
        proof = known(found.certificate)
        assert 0.93 * distance < found.value < distance
        assert proof.p_lower == float(p_lower(known(proof.kept), 20_000, 0.001))
        assert (proof.label, found.numbers["selected"], proof.draws) == (0, 0, 20_000)
        assert (found.lower, found.upper, found.interval.kind, found.note) == (
            found.value,
            None,
            IntervalKind.LOWER_BOUND,
            "",
        )
        assert (found.forwards, found.backwards, found.flips_to) == (20_101, 0, None)
        assert proof.largest == largest_radius(theorem_of(form) or GAUSSIAN, level, 20_000, 0.001)


def test_coverage_end_to_end() -> None:
    """100 images of the half-space each at alpha .05: with and without a question at the true
    radius, few are above it."""
    x = GREY.expand(100, -1, -1, -1)
    batch = chunk(half_space(0.8, EQUAL), x, Gaussian(), 0.5)
    for estimator in (
        CertifiedRadius(draws=400, alpha=0.05),
        CertifiedRadius(draws=400, alpha=0.05, decide=0.8000001),
    ):
        found = [value for (value,) in estimator.estimate(batch)]
        assert len({value.value for value in found}) > 1
        assert sum(value.value > 0.8 for value in found) <= binom.ppf(1 - 1e-6, 100, 0.05)


def test_its_draws_are_those_of_mc_and_every_pass_is_counted() -> None:
    network = Counter(curved())
    batch = work_on(network, images=5)
    network.images = 0
    found = [value for (value,) in CertifiedRadius(draws=304, selection=48).estimate(batch)]
    assert network.images == sum(value.forwards - 1 for value in found) == 5 * 352
    votes, first = (MonteCarlo(draws=n).estimate(batch) for n in (352, 48))
    for value, all_of_them, some in zip(found, votes, first, strict=True):
        proof = known(value.certificate)
        whole = known(all_of_them.votes).counts
        selected = known(some.votes).counts
        assert value.numbers["selected"] == selected.index(max(selected))
        assert proof.kept == whole[int(value.numbers["selected"])] - max(selected)
        assert proof.p_lower == float(p_lower(known(proof.kept), 304, 0.001))
        assert value.value == pytest.approx(GAUSSIAN.radius(known(proof.p_lower), 0.3))
        assert (proof.label is not None) == (known(proof.p_lower) > 0.5) == (value.value > 0)


def test_a_question_is_answered_as_by_all_draws() -> None:
    """Images of a curved network: the same answers, from the first draws of the same ones; none of
    them chose the class, too."""
    network = Counter(curved(3, seed=2))
    batch = work_on(network, images=16)
    estimator = CertifiedRadius(draws=5000, decide=0.3)
    fixed = [value for (value,) in CertifiedRadius(draws=5000).estimate(batch)]
    network.images = 0
    quick = [value for (value,) in estimator.estimate(batch)]
    assert network.images == sum(value.forwards - 1 for value in quick)
    for i, (many, few) in enumerate(zip(fixed, quick, strict=True)):
        proof = known(few.certificate)
        assert (few.value >= 0.3) == (many.value >= 0.3)
        assert few.numbers["selected"] == many.numbers["selected"]
        assert few.numbers["selection"] <= 100 >= known(proof.draws) - 4900
        kept = known(proof.kept)
        draws = known(proof.draws)
        assert few.value == pytest.approx(GAUSSIAN.radius(known(proof.p_lower), 0.3), rel=1e-9)
        assert few.note == ("" if few.value >= 0.3 else few.note)
        assert kept <= draws
        if i < 3 and draws < 1000:
            whole, some = (
                known(MonteCarlo(draws=n).estimate(batch)[i].votes).counts
                for n in (100 + draws, 100)
            )
            assert kept == whole[int(few.numbers["selected"])] - some[int(few.numbers["selected"])]
    assert 0 < sum(value.value >= 0.3 for value in quick) < 16
    assert sum(value.forwards for value in quick) < sum(value.forwards for value in fixed) / 3


def test_it_abstains_where_no_class_has_a_majority() -> None:
    """Three classes with a third each."""

    def network(x: Tensor) -> Tensor:
        return torch.stack([x[:, 0, 0, i] for i in range(3)], 1)

    found = one(CertifiedRadius(draws=500), chunk(network, GREY, Gaussian(), 0.5))
    assert (found.value, found.lower, found.flips_to) == (0.0, 0.0, None)
    assert known(found.certificate).label is None
    assert "abstains: no class has a significant majority" in found.note


def test_a_vote_for_another_class_than_that_of_the_clean_image() -> None:
    """Class 1 near the image alone."""

    def network(x: Tensor) -> Tensor:
        inside = 0.01 - (x - 0.5).flatten(1).square().sum(1)
        return torch.stack([torch.zeros_like(inside), inside], 1)

    found = one(CertifiedRadius(draws=500), chunk(network, GREY, Gaussian(), 0.5))
    assert found.value == pytest.approx(0.5 * 2.2, rel=0.02)
    assert known(found.certificate).label == found.flips_to == 0
    assert found.note == "the vote's class differs from the clean image's"


def test_copies_without_finite_logits_vote_for_no_class() -> None:
    """NaN in a tenth of the space."""
    share = 0.1

    def network(x: Tensor) -> Tensor:
        value = x.flatten(1)[:, 0] - 0.5
        logit = torch.where(value > 0.5 * 1.2815516, torch.nan, 1.0)
        return torch.stack([logit, torch.zeros_like(logit)], 1)

    found = one(CertifiedRadius(draws=4000), chunk(network, GREY, Gaussian(), 0.5))
    error = math.sqrt(share * (1 - share) / 4100)
    lost = found.numbers["not_finite"]
    assert lost / 4100 == pytest.approx(share, abs=5 * error)
    assert known(known(found.certificate).kept) <= 4100 - lost
    assert (
        found.note == f"{lost} noisy copies gave non-finite logits, counted as votes for no class"
    )
    assert 0 < found.value < 0.5 * 1.2815516


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"draws": 9}, "no certificate is possible with fewer than 10 copies at alpha 0.001"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        CertifiedRadius.model_validate(options)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        (CorrelatedGaussian(length=2.0), {}),
        (Uniform(norm="l2"), {"norm": "l1"}),
        (Gaussian(), {"norm": "l1"}),
        (Laplace(), {}),
        (Gaussian(), {"decide": 3.0}),
        (Gaussian(), {"decide": 1.0}),
        (Gaussian(), {"decide": 0.9, "draws": 1000}),
    ],
)
def test_refuses(form: Noise, options: dict[str, Any], golden: Golden) -> None:
    task = Task(
        CertifiedRadius.model_validate(options), "c", NoiseLevel("noise", 0.25, LevelName.SIGMA)
    )
    with pytest.raises(SpecError) as caught:
        refuse_unfit([task], {"noise": form})
    golden(caught.value)
