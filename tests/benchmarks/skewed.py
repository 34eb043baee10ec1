"""Coverage and error of `logit_gaussian` on deep fully connected networks, whose margins are skewed.

Run by hand: `python -m tests.benchmarks.skewed` trains 25 networks of 6 to 9 layers on the embedded digits and compares with converged
`mc` at sigma .3 and .5 (roughly an hour on one core; `--networks 5` a fifth of that). Prints a table; nothing is asserted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from robaudit.datasets import open_dataset
from robaudit.estimators.base import Estimate
from robaudit.models import from_module
from robaudit.quantities import IntervalKind
from robaudit.spec.model import DigitsSpec
from tests.benchmarks.cost import Reference
from tests.benchmarks.networks import Network, estimator
from tests.benchmarks.replay import Replay

SIGMAS = (0.3, 0.5)
SETTINGS: dict[str, dict[str, Any]] = {
    "samples: 64": {"samples": 64},
    "samples: 256": {"samples": 256},
    "tolerance: .02": {"tolerance": 0.02},
    "tolerance: .01": {"tolerance": 0.01},
}
ALL, IMAGES, CONVERGED, EPOCHS = 25, 48, 30_000, 40
DOUBTFUL = (0.02, 0.98)
_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers, units a layer, activation, and the seed of weights and batches."""

    layers: int
    units: int
    activation: str
    seed: int


def shapes(count: int, first_seed: int = 0) -> list[Shape]:
    """So many of 25 networks, evenly spaced: 15 with ReLU, then 5 with tanh and 5 with sigmoid; another first seed trains others."""
    kinds = ["relu"] * 15 + ["tanh"] * 5 + ["sigmoid"] * 5
    chosen = [i * ALL // count for i in range(count)]
    return [Shape(6 + i % 4, (100, 150, 200)[i % 3], kinds[i], first_seed + i) for i in chosen]


def digits(split: str) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) and labels."""
    data = open_dataset(DigitsSpec.model_validate({"kind": "digits", "split": split}), base_dir=Path(), trust=False)
    samples = [data[i] for i in range(len(data))]
    return torch.stack([s.pixels.float() for s in samples]), torch.tensor([s.label for s in samples])


def trained(shape: Shape, x: Tensor, y: Tensor) -> nn.Sequential:
    """The network after a few seconds of Adam."""
    with torch.random.fork_rng():
        torch.manual_seed(shape.seed)
        layers: list[nn.Module] = [nn.Flatten()]
        for width in (x[0].numel(), *[shape.units] * (shape.layers - 2)):
            layers += [_layer(width, shape), _ACTIVATIONS[shape.activation]()]
        network = nn.Sequential(*layers, nn.Linear(shape.units, 10))
    generator = torch.Generator().manual_seed(shape.seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x), generator=generator).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()
    return network.eval().requires_grad_(False)


def _layer(width: int, shape: Shape) -> nn.Linear:
    layer = nn.Linear(width, shape.units)
    if shape.activation == "relu":
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    elif shape.activation == "sigmoid":  # otherwise deep ones do not learn
        nn.init.xavier_normal_(layer.weight, gain=4.0)
        with torch.no_grad():
            layer.bias.copy_(-layer.weight.sum(1) / 2)
    return layer


@dataclass(frozen=True, slots=True)
class Found:
    """Estimates of one network's images by one setting, and converged `mc`."""

    estimates: Sequence[Estimate]
    truth: Tensor


def row(label: str, found: Sequence[Found]) -> str:
    """One line of the table, over all networks: coverage, bias and votes among images with .02 < p < .98."""
    truth = torch.cat([one.truth for one in found])
    estimates = [e for one in found for e in one.estimates]
    value, lower, upper = (torch.tensor([getattr(e, name) for e in estimates], dtype=torch.float64) for name in ("value", "lower", "upper"))
    doubtful = (truth > DOUBTFUL[0]) & (truth < DOUBTFUL[1])
    covered = ((lower <= truth) & (truth <= upper))[doubtful].double().mean()
    rmse = Reference(truth, truth * (1 - truth) / CONVERGED).rmse(value)
    bias, half = (value - truth)[doubtful].mean(), ((upper - lower) / 2)[doubtful].mean()
    votes = fmean(e.interval.kind is IntervalKind.ANTITHETIC for e in estimates)
    passes = fmean(e.forwards for e in estimates)
    return f"| {label} | {covered:.3f} | {rmse:.4f} | {bias:+.4f} | {half:.3f} | {passes:.0f} | {votes:.2f} |"


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.skewed", description=__doc__)
    parser.add_argument(
        "--networks", type=int, default=ALL, choices=range(1, ALL + 1), metavar="N", help="how many of the 25 networks (default: all)"
    )
    parser.add_argument("--images", type=int, default=IMAGES, help=f"test images of each (default {IMAGES})")
    parser.add_argument("--first-seed", type=int, default=0, help="of weights and batches: another one trains other networks (default 0)")
    given = parser.parse_args()
    x, y = digits("train")
    test = digits("test")[0][: given.images]
    found: dict[tuple[float, str], list[Found]] = {(sigma, label): [] for sigma in SIGMAS for label in SETTINGS}
    for shape in shapes(given.networks, given.first_seed):
        network = Network(str(shape), from_module(trained(shape, x, y)), test, 10)
        for sigma in SIGMAS:
            converged = estimator("mc", samples=CONVERGED).estimate(network.work(sigma, network.engine(seed=999)))
            truth = torch.tensor([e.value for e in converged], dtype=torch.float64)
            work = network.work(sigma, Replay(network.engine(seed=1)))
            for label, options in SETTINGS.items():
                estimates = estimator("logit_gaussian", **options).estimate(work)
                found[sigma, label].append(Found(estimates, truth))
        print(f"{shape}: done", flush=True)
    print("| setting | coverage | RMSE | bias | half width | passes | by votes |\n|---|---|---|---|---|---|---|")
    for (sigma, label), some in found.items():
        print(row(f"sigma {sigma:g}, {label}", some), flush=True)


if __name__ == "__main__":
    main()
