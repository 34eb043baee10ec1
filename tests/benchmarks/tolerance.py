"""`noise_tolerance` against closed forms on linear models, and its passes on a real network beside a grid of ten levels.

Run by hand: `python -m tests.benchmarks.tolerance [--part linear,table,digits,network] [--models FOLDER]`. Prints tables; counts passes only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.special import betainc, ndtri
from torch import Tensor, nn

from robaudit.datasets import open_dataset
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.noise_tolerance import NoiseTolerance
from robaudit.estimators.work import CleanPass, Work
from robaudit.levels import whole_noise
from robaudit.models import LogitModel, from_module
from robaudit.models.architectures import digits_cnn
from robaudit.noise.base import NoiseKind
from robaudit.noise.draws import NormalDraws
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.registry import NoiseSource
from robaudit.noise.uniform import Uniform
from robaudit.numerics.tolerance import Plan, critical_counts
from robaudit.spec.model import DigitsSpec
from tests.benchmarks.networks import Bench, load
from tests.shared import SHARED
from tests.specs import WEIGHTS

KINDS: dict[str, NoiseKind] = {"gaussian": Gaussian(), "uniform, linf": Uniform(), "uniform, l2": Uniform(norm="l2")}
GRID = 10
_FRESH = 10_000  # copies at each end
_DRAWS = 2_000_000  # for the reference of models with ten classes: its standard error is a twentieth of an interval's


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


def work_under(form: NoiseKind, model: LogitModel, x: Tensor, classes: int, first: int = 0, seed: int = 0) -> Work:
    """Images as a chunk under a noise as a whole."""
    kind = "gaussian" if isinstance(form, Gaussian) else "uniform"
    source = NoiseSource(form, NormalDraws(kind, seed, model.device, model.dtype))
    engine = Engine(model, {kind: source}, classes)
    labels = torch.full((len(x),), -1)
    return Work([str(first + i) for i in range(len(x))], x, labels, whole_noise(kind), CleanPass.of(engine, x), engine)


def found_in(estimator: NoiseTolerance, form: NoiseKind, model: LogitModel, x: Tensor, classes: int, say: bool = False) -> list[Estimate]:
    """The estimates of images, in chunks."""
    found: list[Estimate] = []
    chunk = 10 if say else 50
    for first in range(0, len(x), chunk):
        found += estimator.estimate(work_under(form, model, x[first : first + chunk], classes, first))
        if say:
            print(f"  {len(found)} of {len(x)}", flush=True)
    return found


def two_classes(form: NoiseKind, level: float, margin: Tensor, weight: Tensor) -> NDArray[np.float64]:
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


def many_classes(level: float, margins: Tensor, weights: Tensor, draws: int = _DRAWS, seed: int = 0) -> NDArray[np.float64]:
    """The tolerances under Gaussian noise: quantiles of the levels at which draws of all margins flip, max_j of (L z)_j / m_j inverted."""
    z = torch.randn(draws, weights.shape[1], generator=torch.Generator().manual_seed(seed))
    found = []
    for m, w in zip(margins, weights, strict=True):
        factor = torch.linalg.cholesky(w @ w.T) / m[:, None]
        steepest = (z @ factor.float().T).amax(1)  # a draw flips from the level 1 / this on
        found.append(1 / float(np.quantile(steepest.numpy(), level)))
    return np.array(found)


def coverage(found: Sequence[Estimate], truth: NDArray[np.float64]) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean([(one.lower or 0.0) <= t <= (one.upper or 0.0) for one, t in zip(found, truth, strict=True)]))


def grid_passes(found: Estimate, estimator: NoiseTolerance) -> float:
    """Passes of ten levels, each with so many draws that a binomial interval of 95 % is as wide in the level as the image's interval.

    Both intervals are the levels at which the number of flips lies between two bounds; the grid looks once, so its bounds are closer.
    """
    plan = Plan(estimator.level, estimator.tolerance, estimator.most, 1.0)
    look = next(look for look in plan.looks if look.draws == (found.details or {})["samples"])
    few, many = critical_counts(look.draws, plan.flips, 0.025)
    return GRID * look.draws * ((many - few) / (look.many - look.few)) ** 2


def linear(images: int, estimator: NoiseTolerance) -> None:
    """Coverage on random linear models."""
    print("| model, d = 784 | noise | images | hold the closed form | mean width | passes |\n|---|---|---|---|---|---|")
    two, ten = Linear.random(2, images), Linear.random(10, images, seed=1)
    cases = [(two, 2, name, two_classes(form, estimator.level, *(t[:, 0] for t in two.margins()))) for name, form in KINDS.items()]
    for case, classes, name, truth in [*cases, (ten, 10, "gaussian", many_classes(estimator.level, *ten.margins()))]:
        found = found_in(estimator, KINDS[name], case.model, case.x, classes)
        widths = [(one.upper or 0.0) / one.lower - 1 for one in found if one.lower and not math.isinf(one.upper or 0.0)]
        passes = np.mean([one.forwards for one in found])
        print(
            f"| {classes} classes | {name} | {len(found)} | {coverage(found, truth):.1%} | {np.mean(widths):.3f} | {passes:,.0f} |",
            flush=True,
        )


def table(estimator: NoiseTolerance) -> None:
    """The ratios eps*/r at alpha = .05 on one boundary, r its Euclidean distance."""
    print("| ball | d | eps*/r | found | interval | passes |\n|---|---|---|---|---|---|")
    cases = (
        ("linf", 1, 1.111111),
        ("linf", 2, 1.034126),
        ("linf", 784, math.sqrt(3) / ndtri(0.95)),
        ("l2", 100, 6.135884),
        ("l2", 784, 17.042906),
    )
    for norm, d, ratio in cases:
        one = on_a_boundary(norm, d, estimator)
        print(f"| {norm} | {d} | {ratio:.6f} | {one.value:.4f} | {one.lower:.4f} to {one.upper:.4f} | {one.forwards:,} |", flush=True)


def on_a_boundary(norm: str, d: int, estimator: NoiseTolerance) -> Estimate:
    """The tolerance of an image at Euclidean distance 1 from a boundary with equal weights."""

    def network(x: Tensor) -> Tensor:
        offset = (x - 0.5).flatten(1).sum(1) / math.sqrt(d) + 1
        return torch.stack([offset, torch.zeros_like(offset)], 1)

    x = torch.full((1, 1, 1, d), 0.5)
    (one,) = replace_cap(estimator, 64.0).estimate(work_under(Uniform(norm=norm), from_module(network), x, 2))
    return one


def replace_cap(estimator: NoiseTolerance, cap: float) -> NoiseTolerance:
    """The estimator with another largest level."""
    return estimator.model_copy(update={"cap": cap})


def digits(images: int, estimator: NoiseTolerance) -> None:
    """Coverage on the embedded network: the share of kept copies at both ends, from draws of another seed."""
    module = digits_cnn()
    module.load_state_dict(load_file(WEIGHTS))
    data = open_dataset(DigitsSpec(kind="digits", split="test"), base_dir=Path(), trust=False)
    model, x = from_module(module), torch.stack([data[i].pixels for i in range(images)])
    print("| noise | images | between 0 and the cap | hold the crossing | passes | checked | not as inferred |\n|" + "---|" * 7)
    for label, form in KINDS.items():
        found = found_in(estimator, form, model, x, 10)
        inside = [(i, one) for i, one in enumerate(found) if one.lower and math.isfinite(one.upper or math.inf)]
        held = 0
        for i, one in inside:
            work = work_under(form, model, x[i : i + 1], 10, i, seed=1)
            ends = [replace(work, at=replace(work.at, level=end or 0.0)) for end in (one.lower, one.upper)]
            low, high = (MonteCarlo(samples=_FRESH).estimate(end)[0].value for end in ends)
            held += high < estimator.level <= low
        passes = np.mean([one.forwards for _, one in inside])
        checked, reversals = (sum(int((one.details or {})[key]) for _, one in inside) for key in ("checked", "reversals"))
        print(
            f"| {label} | {images} | {len(inside)} | {held / len(inside):.1%} | {passes:,.0f} | {checked:,} | {reversals} |",
            flush=True,
        )


def network(bench: Bench, name: str, images: int, estimator: NoiseTolerance, kinds: Sequence[str]) -> None:
    """Passes on a real network."""
    case = load(bench, name, images)
    print("| noise | images | between 0 and the cap | median | median width | passes | grid of ten | share | checked | not as inferred |")
    print("|" + "---|" * 10)
    for label in kinds:
        found = found_in(estimator, KINDS[label], case.model, case.x, case.classes, say=True)
        inside = [one for one in found if one.lower and math.isfinite(one.upper or math.inf)]
        mine = np.array([one.forwards for one in inside])
        grid = np.array([grid_passes(one, estimator) for one in inside])
        details = [one.details or {} for one in inside]
        checked, reversals = (sum(int(d[key]) for d in details) for key in ("checked", "reversals"))
        median = np.median([one.value for one in inside])
        width = np.median([(one.upper or 0.0) / (one.lower or 1.0) - 1 for one in inside])
        print(
            f"| {label} | {len(found)} | {len(inside)} | {median:.4f} | {width:.3f} | {mine.mean():,.0f} | "
            f"{grid.mean():,.0f} | {mine.sum() / grid.sum():.3f} | {checked} | {reversals} |",
            flush=True,
        )
        for index, one in enumerate(found):
            print("   ", index, f"{one.value:.5f} {one.lower:.5f} {one.upper:.5f}", one.forwards, one.details, one.note, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tolerance", description=__doc__)
    parser.add_argument("--part", default="linear,table,digits,network", help="linear, table, digits, network; separated by commas")
    parser.add_argument("--images", type=int, default=400, help="of linear models")
    parser.add_argument("--digits-images", type=int, default=100, help="of the embedded network")
    parser.add_argument("--network-images", type=int, default=50, help="of the real network")
    parser.add_argument("--tolerance", type=float, default=0.1, help="relative width of the intervals")
    parser.add_argument("--models", type=Path, default=SHARED, help="the folder with models/ and data/; default: ../shared")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="of noise, for the real network; default: all")
    given = parser.parse_args(arguments)
    estimator = NoiseTolerance(tolerance=given.tolerance)
    parts = given.part.split(",")
    if "table" in parts:
        table(estimator)
    if "linear" in parts:
        linear(given.images, estimator)
    if "digits" in parts:
        digits(given.digits_images, estimator)
    if "network" in parts:
        network(
            Bench(torch.device("cpu"), shared=given.models), "cifar10_resnet20", given.network_images, estimator, given.kind or list(KINDS)
        )


if __name__ == "__main__":
    main()
