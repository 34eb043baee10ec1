"""`noise_tolerance`: closed forms on linear models, what it refuses, and rows at the ends of the
range."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.special import ndtri
from torch import Tensor

from robaudit.engine.registry import Task, refuse_unfit
from robaudit.errors import SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.methods.average_case.noise_tolerance import NoiseTolerance
from robaudit.noise.corruption import Corruption
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.impulse import Impulse
from robaudit.noise.noise import Noise
from robaudit.noise.poisson import Poisson
from robaudit.noise.spatial import Spatial
from robaudit.noise.uniform import Uniform
from robaudit.quantities import IntervalKind
from tests.golden import Golden
from tests.unit.engine.tools import Counter, chunk, curved, known, work_on


@pytest.mark.parametrize(
    ("form", "d", "ratio"),
    [
        (Uniform(), 1, 1.111111),
        (Uniform(), 784, 1.053012),
        (Uniform(norm="l2"), 100, 6.135884),
        (Gaussian(), 784, 1 / float(ndtri(0.95))),
    ],
    ids=["one value", "box", "ball", "gaussian"],
)
def test_the_isotropic_trade_off(form: Noise, d: int, ratio: float) -> None:
    """eps*/r at alpha = .05, r the Euclidean distance of a boundary with equal weights: here 1."""

    def network(x: Tensor) -> Tensor:
        offset = (x - 0.5).flatten(1).sum(1) / math.sqrt(d) + 1
        return torch.stack([offset, torch.zeros_like(offset)], 1)

    (one,) = NoiseTolerance(tolerance=0.2, cap=64.0).estimate(
        chunk(network, torch.full((1, 1, 1, d), 0.5), form)
    )
    assert known(one.lower) <= ratio <= known(one.upper) <= 1.2 * known(one.lower)
    assert abs(one.value - ratio) < 4 * known(one.std_error)


def test_every_pass_is_counted_and_rows_say_how_easy_the_image_is() -> None:
    network = Counter(curved())
    batch = replace(work_on(network, images=8), at=NoiseLevel("gaussian"))
    network.images = 0
    found = NoiseTolerance(tolerance=0.5).estimate(batch)
    assert network.images == sum(one.forwards - 1 for one in found)
    for one, logits in zip(found, batch.logits, strict=True):
        ranked = logits.sort(descending=True).values
        assert known(one.clean).margin == pytest.approx(float(ranked[0] - ranked[1]))
        assert known(one.clean).difficulty == pytest.approx(
            float(torch.logit(logits.softmax(0).max())), abs=1e-6
        )
        assert one.forwards <= NoiseTolerance(tolerance=0.5).most


def test_it_is_where_mc_finds_the_level() -> None:
    """The draws are those of mc: at the ends, its share of kept draws lies above and below the
    level."""
    from robaudit.methods.average_case.mc import MonteCarlo

    batch = work_on(curved(), images=4)
    found = NoiseTolerance(tolerance=0.5).estimate(replace(batch, at=NoiseLevel("gaussian")))
    for image, one in enumerate(found):
        samples = int(one.numbers["samples"])
        assert one.lower is not None
        assert one.upper is not None
        low, high = (
            MonteCarlo(draws=samples)
            .estimate(replace(batch, at=NoiseLevel("gaussian", end, LevelName.SIGMA)))[image]
            .value
            for end in (one.lower, one.upper)
        )
        assert high < 0.95 < low


def test_logits_that_are_not_finite_are_flips() -> None:
    def broken(x: Tensor) -> Tensor:
        first = x.flatten(1)[:, :1]
        return torch.cat([torch.where(first > 0.9, torch.nan, 1.0), torch.zeros_like(first)], 1)

    x = torch.full((1, 1, 2, 2), 0.5)
    batch = chunk(broken, x)
    ((one,),) = Task(NoiseTolerance(tolerance=0.3), "noise_tolerance").results(batch)
    assert one.lower is not None
    assert one.upper is not None
    assert one.lower <= 0.4 / 1.6448536 <= one.upper
    assert one.flips_to is None
    assert one.numbers["not_finite"] > 0
    assert f"{one.numbers['not_finite']} noisy copies gave non-finite logits" in one.note


def test_beyond_the_cap_the_row_is_censored() -> None:
    def constant(x: Tensor) -> Tensor:
        return x.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0.0])

    x = torch.full((1, 1, 2, 2), 0.5)
    for form, cap in (
        (Gaussian(), 1.0),
        (Uniform(), math.sqrt(3)),
        (Uniform(norm="l2"), math.sqrt(6)),
        (Impulse(), 1.0),
    ):
        (one,) = NoiseTolerance().estimate(chunk(constant, x, form))
        assert one.interval.kind is IntervalKind.CENSORED
        assert one.value == pytest.approx(cap)
        assert (one.lower, one.upper) == (one.value, None)
        assert one.forwards < 600
    (one,) = NoiseTolerance(cap=0.3).estimate(chunk(constant, x, Gaussian()))
    assert (one.value, one.note) == (0.3, "p is above 0.95 at the cap, 0.3")


def test_an_image_on_the_boundary_has_none() -> None:
    x = torch.full((1, 1, 2, 2), 0.5)
    (one,) = NoiseTolerance().estimate(
        chunk(lambda x: torch.cat([x.flatten(1)[:, :1] - 0.5, x.flatten(1)[:, :1] * 0], 1), x)
    )
    assert (one.value, one.lower, one.upper) == (0.0, 0.0, 2**-13)
    assert one.note == "p is below 0.95 at the smallest level searched, 0.000122"


def test_too_few_passes_are_said() -> None:
    batch = replace(work_on(curved(), images=2), at=NoiseLevel("gaussian"))
    for one in NoiseTolerance(tolerance=0.01, most=1000).estimate(batch):
        assert one.note.startswith("undecided: the tolerance was not reached in 1000 passes")
        assert one.forwards <= 1001
        assert one.lower is not None
        assert one.upper is not None
        assert 0 < one.lower < one.value <= one.upper


@pytest.mark.parametrize(
    ("form", "options"),
    [
        (Poisson(), {}),
        (Corruption(name="fog"), {}),
        (Impulse(), {"cap": 2.0}),
    ],
)
def test_refuses_noises_whose_level_is_no_scale(
    form: Noise, options: dict[str, float], golden: Golden
) -> None:
    task = Task(NoiseTolerance.model_validate(options), "noise_tolerance", NoiseLevel("noise"))
    with pytest.raises(SpecError) as caught:
        refuse_unfit([task], {"noise": form})
    golden(caught.value)


def test_the_cap_is_what_the_kind_can_do_to_these_images(golden: Golden) -> None:
    """Spatial transforms of 32 x 32 images end where the crop leaves the image; a size that is
    asked for is checked."""
    x = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    batch = chunk(
        lambda x: torch.cat([x.mean((1, 2, 3))[:, None], x[:, 0, :1, 0] * 0], 1), x, Spatial()
    )
    assert NoiseTolerance().largest(batch) == 1000 / 2**7
    with pytest.raises(SpecError) as caught:
        NoiseTolerance(cap=9.0).estimate(batch)
    golden(caught.value)
