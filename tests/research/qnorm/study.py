"""Audits with `qnorm_path` beside the known norms: intervals that miss, gates that decide wrongly,
and images without a value."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import robaudit
from robaudit.api.run import Run
from robaudit.methods.intermediate_q.qnorm_path import QNormPath
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.sensor import Sensor
from robaudit.noise.uniform import Uniform
from robaudit.quantities import IntervalKind
from robaudit.runs.rows import Row
from tests.research.coverage.subjects import digits
from tests.research.qnorm.networks import network, under_gaussian
from tests.research.qnorm.truth import (
    Box,
    Problem,
    box_importance,
    importance,
    in_pixels,
    sequential,
)
from tests.shared import SHARED, card, document

ORDERS = (1.0, 10.0, 100.0)
NOISES: dict[str, dict[str, Any]] = {
    "gaussian": {"kind": "gaussian", "sigma": 0.3},
    "uniform": {"kind": "uniform", "eps": 0.5},
    "sensor": {"kind": "sensor", "photons": 30},
}
COPIES = 40_000
BOX_COPIES = 400_000
"""Copies of a box are not fitted: of 40,000 a few hundred may count."""
PARTICLES = 1024
SHARED_NOISES: dict[str, Sequence[dict[str, Any]]] = {
    "fashion_logistic": ({"sigma": 0.1}, {"kind": "uniform", "eps": 0.1}),
    "mnist_spectral_mlp": ({"sigma": 0.3}, {"kind": "uniform", "eps": 0.3}),
    "mnist_conv_small_nat": ({"kind": "uniform", "eps": 0.3}, {"sigma": 0.25}),
    "mnist_cnn_a_adv": ({"kind": "uniform", "eps": 0.3}, {"sigma": 0.4}),
    "fashion_shallow_cnn": ({"sigma": 0.1}, {"kind": "uniform", "eps": 0.1}),
    "cifar10_cnn_a_mix": ({"kind": "uniform", "eps": 8 / 255}, {"sigma": 0.05}),
    "cifar10_cnn_a_adv": ({"sigma": 0.1},),
    "cifar10_resnet20": ({"sigma": 0.05},),
    "cifar100_resnet14": ({"sigma": 0.05},),
}
"""Two noises of each shared network, the first that of the paper if it names one."""


@dataclass(frozen=True, slots=True)
class Missed:
    """The rows of one order beside the truth.

    Attributes:
        name: network, noise, order.
        rows: number of rows with a truth.
        without: number of rows without a value.
        high, low: number of rows whose interval is above, or below, the truth.
        errors: of log Z.
        half_widths: of log Z.
        gates: wrong passes of gates on the mean: `<=` just below the truth, `>=` just above it.
        audits: number of seeds.
    """

    name: str
    rows: int
    without: int
    high: int
    low: int
    errors: Sequence[float]
    half_widths: Sequence[float]
    gates: tuple[int, int]
    audits: int

    def __str__(self) -> str:
        ordered = sorted(self.errors)
        width = sorted(self.half_widths)[len(self.half_widths) // 2]
        below, above = self.gates
        return (
            f"{self.name:34} {self.rows:5} rows, {self.without} without a value  high {self.high}, "
            f"low {self.low}  error {sum(ordered) / len(ordered):+.4f}, {ordered[0]:+.3f} to "
            f"{ordered[-1]:+.3f}  half width {width:.4f}  wrong gates: <= {below}, >= {above} of "
            f"{self.audits}"
        )


@cache
def truth(name: str, noise: str, images: int) -> Mapping[float, tuple[Tensor, Tensor]]:
    """log Z by importance sampling and by sequential Monte Carlo (images,) each, by order."""
    x, labels = (part[:images] for part in digits(train=False))
    level = NOISES[noise].get("sigma") or NOISES[noise].get("eps") or NOISES[noise]["photons"]
    copies: Callable[[float], tuple[Tensor, Tensor]]
    if noise == "gaussian":
        problem = under_gaussian(name, images, level)
        copies = partial(importance, problem, copies=COPIES, seed=2)
    elif noise == "uniform":
        box = Box(network(name), x, labels, level)
        problem = box.in_normals
        copies = partial(box_importance, box, copies=BOX_COPIES, seed=2)
    else:
        problem = in_pixels(network(name), x, labels, Sensor(), level)
        copies = partial(importance, problem, copies=COPIES, seed=2)
    moved = sequential(problem, ORDERS, PARTICLES, seed=1)
    return {q: (copies(q)[0], by_particles) for q, by_particles in zip(ORDERS, moved, strict=True)}


def lines(name: str, noise: str, images: int, seeds: int) -> Iterator[Missed]:
    """Audits of a network made here beside the truth, for each order."""
    x, labels = digits(train=False)
    known = {}
    for q, (by_copies, by_particles) in truth(name, noise, images).items():
        # Neither is too large but by chance, and what one has not found, the other may have.
        apart = by_particles - by_copies
        known[q] = torch.where(apart > 0.02 + 0.1 / q, by_particles, by_copies)
    audits = [
        robaudit.audit(
            network(name),
            (x[:images], labels[:images]),
            noise=NOISES[noise],
            estimators={"qnorm_path": {"q": list(ORDERS)}},
            seed=seed,
            out=_new_folder(),
            progress=False,
        )
        for seed in range(seeds)
    ]
    yield from _compared(f"{name}, {noise}", audits, known)


def _new_folder() -> Path:
    """The folder of a run that does not exist."""
    return Path(tempfile.mkdtemp()) / "run"


def _compared(name: str, audits: Sequence[Run], known: Mapping[float, Tensor]) -> Iterator[Missed]:
    """The audits of several seeds beside the truth."""
    for q, log_norms in known.items():
        mean = float(log_norms.exp().mean())
        wrong = [0, 0]
        for run in audits:
            gates = run.gate(
                f"mean(q={q:g}) <= {mean * (1 - 1e-6)!r}", f"mean(q={q:g}) >= {mean * (1 + 1e-6)!r}"
            )
            for side, decision in enumerate(gates):
                wrong[side] += decision.verdict == "pass"
        rows = [row for run in audits for row in run.rows if row.estimator == f"qnorm_path:q={q:g}"]
        given = [row for row in rows if not math.isnan(row.value)]
        truths = [float(log_norms[int(row.sample_id)]) for row in given]
        ends = [(_log(row.lower), _log(row.upper)) for row in given]
        pairs = list(zip(ends, truths, strict=True))
        yield Missed(
            name=f"{name}, q = {q:g}",
            rows=len(rows),
            without=len(rows) - len(given),
            high=sum(lower > log_z for (lower, _), log_z in pairs),
            low=sum(upper < log_z for (_, upper), log_z in pairs),
            errors=[_log(row.value) - log_z for row, log_z in zip(given, truths, strict=True)],
            half_widths=[(upper - lower) / 2 for lower, upper in ends],
            gates=(wrong[0], wrong[1]),
            audits=len(audits),
        )


def _log(end: float | None) -> float:
    """The log of a value or of an end of an interval."""
    assert end is not None
    return math.log(end)


@dataclass(frozen=True, slots=True)
class Values:
    """What a shared network's images have at one order.

    Attributes:
        name: network, noise, order.
        images: number of images.
        without: of these, without a value.
        copies: of these, with a value from copies.
        falls: number of values below the value at the order before.
        above: number of values above the largest loss that `adversarial_loss` found.
        half_width: median, of log Z.
    """

    name: str
    images: int
    without: int
    copies: int
    falls: int
    above: int
    half_width: float

    def __str__(self) -> str:
        return (
            f"{self.name:46} {self.images} images, {self.without} without a value, {self.copies} "
            f"by copies, {self.falls} fall with q, {self.above} above the attack, half width "
            f"{self.half_width:.4f}"
        )


def values(model: str, images: int) -> Iterator[Values]:
    """The default orders on a shared network."""
    for noise in SHARED_NOISES[model]:
        bounded = noise.get("kind") == "uniform"
        estimators = ["qnorm_path", "adversarial_loss"] if bounded else ["qnorm_path"]
        run = robaudit.audit(
            document(model, limit=images, noise=noise, estimators=estimators),
            out=_new_folder(),
            progress=False,
        )
        largest = {
            row.sample_id: row.value for row in run.rows if row.estimator == "adversarial_loss"
        }
        before: dict[str, float] = {}
        for q in QNormPath().q:
            rows = [row for row in run.rows if row.estimator == f"qnorm_path:q={q:g}"]
            given = [row for row in rows if not math.isnan(row.value)]
            widths = sorted((_log(row.upper) - _log(row.lower)) / 2 for row in given)
            yield Values(
                name=f"{model}, {', '.join(f'{k} {v}' for k, v in noise.items())}, q = {q:g}",
                images=len(rows),
                without=len(rows) - len(given),
                copies=sum(row.interval.kind is IntervalKind.LOGNORMAL for row in given),
                falls=sum(row.value < before.get(row.sample_id, 0.0) for row in given),
                above=sum(row.value > largest.get(row.sample_id, math.inf) for row in given),
                half_width=widths[len(widths) // 2],
            )
            before.update((row.sample_id, row.value) for row in given)


def long_runs(model: str, images: int, particles: int, order: float = 10.0) -> Iterator[str]:
    """Two long computations on a shared network beside the default run: sequential Monte Carlo, and
    16 chains of `qnorm_path` at 48 temperatures with 6 steps each."""
    for noise in SHARED_NOISES[model][:1]:
        runs = []
        for options in ({}, {"chains": 16, "temperatures": 48, "steps": 6}):
            estimator = {"qnorm_path": {"q": [order], "target": "predicted", **options}}
            spec = document(model, limit=images, noise=noise, estimators=[estimator])
            runs.append(robaudit.audit(spec, out=_new_folder(), progress=False))
        found = sequential(_of_shared(model, noise, images), (order,), particles, 1, torch.float32)
        default, longer = runs
        rows = zip(default.rows, longer.rows, found[0].tolist(), strict=True)
        for row, long, moved in rows:
            yield (
                f"{model}, q = {order:g}, image {row.sample_id}: default {_logs(row)}, long "
                f"{_logs(long)}, particles {moved:.3f}"
            )


def _logs(row: Row) -> str:
    """log Z with the half width of its interval."""
    if math.isnan(row.value):
        return "no value"
    half = (_log(row.upper) - _log(row.lower)) / 2
    return f"{math.log(row.value):.3f} +- {half:.3f}"


def _of_shared(model: str, noise: Mapping[str, Any], images: int) -> Problem:
    """A shared network with the classes that it predicts."""
    about = card(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", FutureWarning)
        network = torch.jit.load(str(SHARED / "models" / model / "model.torchscript.pt")).eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    mean = torch.tensor(about["mean"]).view(-1, 1, 1)
    std = torch.tensor(about["std"]).view(-1, 1, 1)

    def normalised(x: Tensor) -> Tensor:
        logits: Tensor = network((x - mean) / std)
        return logits

    pixels = np.load(SHARED / "data" / f"{about['dataset']}.npz")["images"][:images]
    x = torch.from_numpy(pixels).float() / 255
    kind = Uniform() if noise.get("kind") == "uniform" else Gaussian()
    level = noise["eps"] if "eps" in noise else noise["sigma"]
    return in_pixels(normalised, x, normalised(x).argmax(1), kind, level)
