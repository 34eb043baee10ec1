"""`noise_tolerance`: closed forms on linear models, what it refuses, and rows at the ends of the range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import betainc, ndtri
from scipy.stats import binom
from torch import Tensor, nn

from robaudit.errors import SpecError
from robaudit.estimators.batch import ImageBatch
from robaudit.estimators.engine import Engine
from robaudit.estimators.noise_tolerance import NoiseTolerance
from robaudit.estimators.registry import Task, refuse_unfit
from robaudit.levels import LevelName, NoiseLevel
from robaudit.models import LogitModel, from_module
from robaudit.noise.base import Noise
from robaudit.noise.corruption import Corruption
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.impulse import Impulse
from robaudit.noise.poisson import Poisson
from robaudit.noise.process import NoiseProcess
from robaudit.noise.spatial import Spatial
from robaudit.noise.uniform import Uniform
from robaudit.quantities import IntervalKind
from robaudit.results import Result
from tests.unit.estimators.tools import Counter, curved, known, work_on

CPU = torch.device("cpu")
KINDS: dict[str, Noise] = {"gaussian": Gaussian(), "uniform, linf": Uniform(), "uniform, l2": Uniform(norm="l2")}


@dataclass(frozen=True, slots=True)
class Linear:
    """A random linear model, z = W x + b, and random images (n, 1, side, side)."""

    model: LogitModel
    weight: Tensor
    x: Tensor

    @classmethod
    def random(cls, classes: int, images: int, side: int = 28, *, seed: int = 0) -> Linear:
        """Weights of mean 0 and variance 1/d, biases of as much, pixels uniform in [0, 1]."""
        generator = torch.Generator().manual_seed(seed)
        d = side * side
        layer = nn.Linear(d, classes)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(classes, d, generator=generator) / math.sqrt(d))
            layer.bias.copy_(torch.randn(classes, generator=generator))
        x = torch.rand(images, 1, side, side, generator=generator)
        return cls(from_module(nn.Sequential(nn.Flatten(), layer)), layer.weight.detach().double(), x)

    def margins(self) -> tuple[Tensor, Tensor]:
        """z_y - z_j (images, classes - 1), and w_y - w_j (images, classes - 1, d), float64."""
        logits = self.model(self.x).detach().double()
        y = logits.argmax(1)
        others = torch.stack([torch.tensor([j for j in range(logits.shape[1]) if j != k]) for k in y.tolist()])
        return logits.gather(1, y[:, None]) - logits.gather(1, others), self.weight[y][:, None] - self.weight[others]


def work_under(form: Noise, model: LogitModel, x: Tensor, classes: int, first: int = 0, seed: int = 0) -> ImageBatch:
    """Images as a chunk under a noise as a whole."""
    kind = "gaussian" if isinstance(form, Gaussian) else "uniform"
    source = NoiseProcess(form, kind, seed, model.device, model.dtype)
    engine = Engine(model, {kind: source}, classes)
    return ImageBatch.of(engine, x, NoiseLevel(kind), ids=[str(first + i) for i in range(len(x))])


def found_in(estimator: NoiseTolerance, form: Noise, model: LogitModel, x: Tensor, classes: int) -> list[Result]:
    """The estimates of images, in chunks of 50."""
    return [one for i in range(0, len(x), 50) for one in estimator.estimate(work_under(form, model, x[i : i + 50], classes, i))]


def two_classes(form: Noise, level: float, margin: Tensor, weight: Tensor) -> NDArray[np.float64]:
    """The tolerances of a linear model with two classes: exact, but for the box, whose 784 values are taken to be many (error 1e-4).

    Args:
        form: Gaussian noise, or uniform noise in the box or the ball.
        level: p.
        margin: (images,).
        weight: difference of the two rows of weights (images, d).
    """
    radius: NDArray[np.float64] = (margin / weight.norm(dim=-1)).numpy()
    if isinstance(form, Gaussian):
        return radius / float(ndtri(level))
    box = isinstance(form, Uniform) and form.norm == "linf"
    return radius * (math.sqrt(3) / float(ndtri(level)) if box else ball_ratio(weight.shape[-1], level))


def ball_ratio(d: int, level: float) -> float:
    """eps*/r = 1/h for the l2 ball: 1 - level = I_{1 - h^2}((d + 1)/2, 1/2) / 2."""
    low, high = 0.0, 1.0
    for _ in range(200):
        h = (low + high) / 2
        low, high = (h, high) if 0.5 * betainc((d + 1) / 2, 0.5, 1 - h * h) > 1 - level else (low, h)
    return 1 / low


def coverage(found: Sequence[Result], truth: NDArray[np.float64]) -> float:
    """The share of intervals that hold the truth."""
    return float(
        np.mean([(one.lower or 0.0) <= t <= (math.inf if one.upper is None else one.upper) for one, t in zip(found, truth, strict=True)])
    )


def on_a_boundary(norm: str, d: int, estimator: NoiseTolerance) -> Result:
    """The tolerance of an image at Euclidean distance 1 from a boundary with equal weights."""

    def network(x: Tensor) -> Tensor:
        offset = (x - 0.5).flatten(1).sum(1) / math.sqrt(d) + 1
        return torch.stack([offset, torch.zeros_like(offset)], 1)

    x = torch.full((1, 1, 1, d), 0.5)
    (one,) = estimator.model_copy(update={"cap": 64.0}).estimate(work_under(Uniform(norm=norm), from_module(network), x, 2))
    return one


@pytest.mark.parametrize(
    ("norm", "d", "ratio"),
    [("linf", 1, 1.111111), ("linf", 784, 1.053012), ("l2", 100, 6.135884)],
)
def test_the_isotropic_trade_off(norm: str, d: int, ratio: float) -> None:
    """eps*/r at alpha = .05, r the Euclidean distance of a boundary with equal weights."""
    one = on_a_boundary(norm, d, NoiseTolerance(tolerance=0.2))
    assert one.lower is not None
    assert one.upper is not None
    assert one.lower <= ratio <= one.upper <= 1.2 * one.lower
    assert one.std_error is not None
    assert abs(one.value - ratio) < 4 * one.std_error


@pytest.mark.parametrize("name", KINDS)
def test_two_classes_hold_the_closed_form(name: str) -> None:
    case, estimator, form = Linear.random(2, 20, side=10), NoiseTolerance(tolerance=0.5), KINDS[name]
    truth = two_classes(form, 0.95, *(t[:, 0] for t in case.margins()))
    missed = 20 * (1 - coverage(found_in(estimator, form, case.model, case.x, 2), truth))
    assert missed <= binom.ppf(0.999, 20, 0.05)


def test_every_pass_is_counted_and_rows_say_how_easy_the_image_is() -> None:
    network = Counter(curved())
    batch = replace(work_on(network, images=8), at=NoiseLevel("gaussian"))
    network.images = 0
    found = NoiseTolerance(tolerance=0.5).estimate(batch)
    assert network.images == sum(one.forwards - 1 for one in found)
    for one, logits in zip(found, batch.logits, strict=True):
        ranked = logits.sort(descending=True).values
        assert known(one.clean).margin == pytest.approx(float(ranked[0] - ranked[1]))
        assert known(one.clean).difficulty == pytest.approx(float(torch.logit(logits.softmax(0).max())), abs=1e-6)
        assert one.forwards <= NoiseTolerance(tolerance=0.5).most


def test_it_is_where_mc_finds_the_level() -> None:
    """The draws are those of mc: at the ends, its share of kept draws lies above and below the level."""
    from robaudit.estimators.mc import MonteCarlo

    batch = work_on(curved(), images=4)
    found = NoiseTolerance(tolerance=0.5).estimate(replace(batch, at=NoiseLevel("gaussian")))
    for image, one in enumerate(found):
        samples = int(one.numbers["samples"])
        assert one.lower is not None
        assert one.upper is not None
        low, high = (
            MonteCarlo(samples=samples).estimate(replace(batch, at=NoiseLevel("gaussian", end, LevelName.SIGMA)))[image].value
            for end in (one.lower, one.upper)
        )
        assert high < 0.95 < low


def test_logits_that_are_not_finite_are_flips() -> None:
    def broken(x: Tensor) -> Tensor:
        first = x.flatten(1)[:, :1]
        return torch.cat([torch.where(first > 0.9, torch.nan, 1.0), torch.zeros_like(first)], 1)

    x = torch.full((1, 1, 2, 2), 0.5)
    batch = work_under(Gaussian(), from_module(broken), x, 2)
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
    for form, cap in ((Gaussian(), 1.0), (Uniform(), math.sqrt(3)), (Uniform(norm="l2"), math.sqrt(6)), (Impulse(), 1.0)):
        (one,) = NoiseTolerance().estimate(_under(form, constant, x))
        assert one.interval.kind is IntervalKind.CENSORED
        assert one.value == pytest.approx(cap)
        assert (one.lower, one.upper) == (one.value, None)
        assert one.forwards < 600
    (one,) = NoiseTolerance(cap=0.3).estimate(_under(Gaussian(), constant, x))
    assert (one.value, one.note) == (0.3, "p is above 0.95 at the cap, 0.3")


def _under(form: Noise, network: object, x: Tensor) -> ImageBatch:
    model = from_module(network)  # type: ignore[arg-type]
    engine = Engine(model, {"it": NoiseProcess(form, "it", 0, CPU)}, 2)
    return ImageBatch.of(engine, x, NoiseLevel("it"))


def test_an_image_on_the_boundary_has_none() -> None:
    x = torch.full((1, 1, 2, 2), 0.5)
    (one,) = NoiseTolerance().estimate(_under(Gaussian(), lambda x: torch.cat([x.flatten(1)[:, :1] - 0.5, x.flatten(1)[:, :1] * 0], 1), x))
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
    ("form", "options", "why"),
    [
        (Poisson(), {}, "fewer photons are more noise, and the search goes upwards"),
        (Corruption(name="fog"), {}, "its levels are whole numbers, and a tolerance lies between them"),
        (Impulse(), {"cap": 2.0}, "cap 2 is outside its levels, 1e-06 to 1"),
    ],
)
def test_refuses_noises_whose_level_is_no_scale(form: Noise, options: dict[str, float], why: str) -> None:
    task = Task(NoiseTolerance.model_validate(options), "noise_tolerance", NoiseLevel("noise"))
    with pytest.raises(SpecError) as caught:
        refuse_unfit([task], {"noise": form})
    assert str(caught.value) == f"estimators: noise_tolerance: cannot work with the noise noise: {why}; change the noise or the options"


def test_the_cap_is_what_the_kind_can_do_to_these_images() -> None:
    """Spatial transforms of 32 x 32 images end where the crop leaves the image; a size that is asked for is checked."""
    x = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    batch = _under(Spatial(), lambda x: torch.cat([x.mean((1, 2, 3))[:, None], x[:, 0, :1, 0] * 0], 1), x)
    assert NoiseTolerance().largest(batch) == 1000 / 2**7
    with pytest.raises(SpecError, match="at size 9"):
        NoiseTolerance(cap=9.0).estimate(batch)
