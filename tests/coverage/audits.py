"""Whole audits of networks that nobody tuned for: how often gates and comparisons err, and how often rows miss, on each side.

The truth is the share of many plain copies. A gate is put at the truth, so each of its two verdicts is an error, and each should be
rare: at most 2.5 % of the seeds. A row misses where its lower end is above p, or its upper end below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robaudit.compare.difference import compare
from robaudit.datasets import open_dataset
from robaudit.estimators.base import Estimate
from robaudit.estimators.engine import Engine
from robaudit.estimators.mc import count_votes
from robaudit.estimators.work import CleanPass, Work
from robaudit.gates.decide import decide
from robaudit.models import LogitModel, from_module
from robaudit.noise.registry import gaussian_source
from robaudit.quantities import P_ROBUST
from robaudit.rows import Row
from robaudit.spec.model import DigitsSpec
from robaudit.stats.votes import by_votes
from tests.benchmarks import networks
from tests.compare.tools import decided, made
from tests.estimators.tools import build
from tests.gates.tools import gate, run_of
from tests.levels import sigma
from tests.shared import MODELS, SHARED

TRUTH = 20_000
"""Copies of each image behind the truth."""
BINS = (0.0, 0.05, 0.5, 0.95, 0.9995, 1.0)
"""Of p, for the rows."""
GATES = ("mean", "worst_class", "median", "p05", "noisy_accuracy")
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "mc, 64 copies": ("mc", {"samples": 64}),
    "logit_gaussian": ("logit_gaussian", {}),
    "logit_gaussian, tolerance .03": ("logit_gaussian", {"tolerance": 0.03}),
    "mmse": ("mmse", {}),
}
COMPARED = ("mc, 64 copies", "logit_gaussian")
SLOW = ("mmse",)
"""A fifth of the seeds: no gate rests on them."""
Images = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Subject:
    """A network with images, their labels, a noise level, and a copy with 2 % noise on its weights (None where it is a script)."""

    name: str
    model: LogitModel
    x: Tensor
    labels: Tensor
    classes: int
    level: float
    changed: LogitModel | None = None


@dataclass(frozen=True, slots=True)
class Errors:
    """How often something was wrong, on each side.

    Attributes:
        network, estimator: of what.
        about: the gate, or the rows' bin of p.
        cases: verdicts or rows.
        up: gates passed, or rows with a lower end above p.
        down: gates failed, or rows with an upper end below p.
        width: mean width of the intervals; NaN without any.
    """

    network: str
    estimator: str
    about: str
    cases: int
    up: int
    down: int
    width: float


def together(some: Sequence[Errors]) -> Errors:
    """The errors of several networks as one."""
    cases = sum(one.cases for one in some)
    width = sum(one.width * one.cases for one in some) / cases
    return replace(some[0], cases=cases, up=sum(one.up for one in some), down=sum(one.down for one in some), width=width)


# --- networks


def digits(train: bool) -> Images:
    """The embedded digits."""
    data = open_dataset(DigitsSpec(kind="digits", split="train" if train else "test"), base_dir=SHARED, trust=False)
    samples = [data[i] for i in range(len(data))]
    return torch.stack([one.pixels.float() for one in samples]), torch.tensor([one.label or 0 for one in samples])


def connected(depth: int, activation: type[nn.Module], width: int = 60) -> nn.Sequential:
    """A fully connected network of so many layers."""
    hidden = [part for i in range(depth - 1) for part in (nn.Linear(64 if i == 0 else width, width), activation())]
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))
    if activation is nn.Sigmoid:
        for part in network:
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight, gain=4.0)  # else deep ones do not learn
    return network


def convolutional() -> nn.Sequential:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )


def trained(network: nn.Module, images: Images, *, eps: float = 0.0, epochs: int = 30) -> nn.Module:
    """The network after some epochs of Adam; ``eps``: on images moved so far by the sign of the gradient (adversarial training)."""
    x, y = images
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            moved = x[batch]
            if eps:
                moved = moved.clone().requires_grad_()
                (slope,) = torch.autograd.grad(nn.functional.cross_entropy(network(moved), y[batch]), moved)
                moved = moved.detach() + eps * slope.sign()
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(moved), y[batch]).backward()
            optimiser.step()
    return network.eval().requires_grad_(False)


def perturbed(network: nn.Module, share: float = 0.02) -> nn.Module:
    """A copy whose weights are multiplied by 1 + share * N(0, 1)."""
    other = copy.deepcopy(network)
    for parameter in other.parameters():
        parameter.mul_(1 + share * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    return other


def made_here(images: int) -> Iterator[Subject]:
    """Networks trained here, each with a noise level that flips some of the copies of many images."""
    train, (x, y) = digits(train=True), digits(train=False)
    kinds: dict[str, tuple[Callable[[], nn.Module], float, float]] = {
        "4 layers, ReLU": (partial(connected, 4, nn.ReLU), 0.0, 0.2),
        "6 layers, ReLU": (partial(connected, 6, nn.ReLU), 0.0, 0.2),
        "9 layers, ReLU": (partial(connected, 9, nn.ReLU), 0.0, 0.2),
        "6 layers, ReLU, adversarial": (partial(connected, 6, nn.ReLU), 0.1, 0.3),
        "4 layers, sigmoid": (partial(connected, 4, nn.Sigmoid), 0.0, 0.2),
        "5 layers, sigmoid": (partial(connected, 5, nn.Sigmoid), 0.0, 0.2),
        "2 convolutions": (convolutional, 0.0, 0.2),
    }
    for name, (fresh, eps, level) in kinds.items():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            network = trained(fresh(), train, eps=eps)
        models = from_module(network), from_module(perturbed(network))
        yield Subject(name, models[0], x[:images], y[:images], 10, level, models[1])


def of_shared(images: int) -> Iterator[Subject]:
    """The shared models, at sigma .1."""
    bench = networks.Bench(torch.device("cpu"), shared=SHARED)
    for name in MODELS if SHARED.is_dir() else ():
        one = networks.load(bench, name, images)
        labels = one.model(one.x).argmax(1)
        yield Subject(name, one.model, one.x, labels, one.classes, 0.1)


# --- audits


def audit(subject: Subject, model: LogitModel, estimator: str, seed: int) -> list[Row]:
    """The rows of an estimator on all images."""
    name, options = ESTIMATORS[estimator]
    engine = Engine(model, gaussian_source(seed, torch.device("cpu")), subject.classes)
    ids = [str(i) for i in range(len(subject.x))]
    work = Work(ids, subject.x, subject.labels, sigma(subject.level), CleanPass.of(engine, subject.x), engine)
    found = zip(ids, subject.labels.tolist(), work.clean.predicted.tolist(), build(name, **options).estimate(work), strict=True)
    return [_row(*one, name, subject.level) for one in found]


def _row(sample: str, label: int, predicted: int, one: Estimate, name: str, level: float) -> Row:
    return Row(
        sample_id=sample,
        label=label,
        predicted=predicted,
        correct=label == predicted,
        **sigma(level).document(),
        estimator=name,
        quantity=P_ROBUST.name,
        value=one.value,
        lower=one.lower,
        upper=one.upper,
        std_error=one.std_error,
        flips_to=one.flips_to,
        forwards=one.forwards,
        backwards=one.backwards,
        note=one.note,
        interval=one.interval,
        votes=one.votes,
        kept=one.kept,
        split=one.split,
        not_finite=one.not_finite,
    )


def truths(subject: Subject, model: LogitModel, draws: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share of copies that keep the predicted class, and that have the label, of each image."""
    engine = Engine(model, gaussian_source(2**31, torch.device("cpu")), subject.classes)
    clean = CleanPass.of(engine, subject.x)
    ids = [str(i) for i in range(len(subject.x))]
    work = Work(ids, subject.x, subject.labels, sigma(subject.level), clean, engine)
    shares = count_votes(work, range(len(ids)), 0, draws).double().div(draws)
    return tuple(shares.gather(1, of[:, None])[:, 0].numpy() for of in (clean.predicted, subject.labels))  # type: ignore[return-value]


def study(subject: Subject, seeds: int, draws: int = TRUTH) -> Iterator[Errors]:
    """Wrong verdicts and missing rows of every estimator, over seeds."""
    p, hits = truths(subject, subject.model, draws)
    labels = subject.labels.numpy()
    at = {
        "mean": p.mean(),
        "worst_class": min(p[labels == c].mean() for c in np.unique(labels)),
        "median": np.quantile(p, 0.5),
        "p05": np.quantile(p, 0.05),
        "noisy_accuracy": hits.mean(),
    }
    asked = [gate(f"{name} >= {value:.12g}") for name, value in at.items()]
    for estimator in ESTIMATORS:
        repeats = max(1, seeds // 5) if estimator in SLOW else seeds
        runs = [audit(subject, subject.model, estimator, seed) for seed in range(repeats)]
        voted = bool(runs[0][0].votes)
        verdicts = [decide(run_of(rows), asked if voted else asked[:-1]) for rows in runs]
        for k, name in enumerate(GATES if voted else GATES[:-1]):
            ends = [(one[k].lower, one[k].upper) for one in verdicts]
            width = float(np.mean([np.nan if low is None or high is None else high - low for low, high in ends]))
            passed, failed = (sum(one[k].verdict == which for one in verdicts) for which in ("pass", "fail"))
            yield Errors(subject.name, estimator, name, repeats, passed, failed, width)
        kinds = {estimator: runs}
        if any(not row.interval.covers_bias for row in runs[0]) and voted:
            kinds[f"{estimator}: its votes"] = [[by_votes(row) for row in rows] for rows in runs]
        for kind, some in kinds.items():
            if some[0][0].lower is not None:
                yield from _of_rows(subject.name, kind, some, p)
        if subject.changed is not None and estimator in COMPARED:
            yield _compared(subject, estimator, runs, p, draws)


def _of_rows(network: str, estimator: str, runs: Sequence[Sequence[Row]], p: NDArray[np.float64]) -> Iterator[Errors]:
    lower, upper = (np.array([[getattr(row, end) for row in rows] for rows in runs], dtype=np.float64) for end in ("lower", "upper"))
    for low, high in pairwise(BINS):
        of = (p > low) & (p <= high) if low else p <= high
        if of.any():
            above, below = int((lower > p)[:, of].sum()), int((upper < p)[:, of].sum())
            yield Errors(network, estimator, f"to {high:g}", int(of.sum()) * len(runs), above, below, float((upper - lower)[:, of].mean()))


def _compared(subject: Subject, estimator: str, runs: Sequence[list[Row]], p: NDArray[np.float64], draws: int) -> Errors:
    """Gates on the drop to the changed network, at the truth."""
    assert subject.changed is not None
    q, _ = truths(subject, subject.changed, draws)
    text = f"mean_drop <= {float((p - q).mean()):.12g}"
    found = []
    for seed, rows in enumerate(runs):
        new = [replace(row, label=old.label) for row, old in zip(audit(subject, subject.changed, estimator, seed), rows, strict=True)]
        found.append(decided(compare(made(rows), made(new, 0, "b")), text)[0])
    width = float(np.mean([one.upper - one.lower if one.lower is not None and one.upper is not None else np.nan for one in found]))
    passed, failed = (sum(one.verdict == which for one in found) for which in ("pass", "fail"))
    return Errors(subject.name, estimator, "compare: mean_drop", len(found), passed, failed, width)


def errors(seeds: int, images: int, draws: int = TRUTH, *, shared: bool = True, most: int | None = None) -> Iterator[Errors]:
    """All networks; the shared ones with a quarter of the seeds, and a tenth of the images and of the copies behind the truth.

    Args:
        seeds: audits of each.
        images: of each network made here.
        draws: behind the truth.
        shared: the shared ones, too.
        most: networks made here, at most.
    """
    for number, subject in enumerate(made_here(images)):
        if most is None or number < most:
            yield from study(subject, seeds, draws)
    for subject in of_shared(max(10, images // 10)) if shared else ():
        yield from study(subject, max(1, seeds // 4), max(1000, draws // 10))
