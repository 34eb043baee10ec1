"""Norms of the loss by every method, image by image, kept in a file so that no part is computed twice."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robaudit.datasets import open_dataset
from robaudit.datasets.npz import NpzSpec
from robaudit.estimators import registry
from robaudit.estimators.engine import Engine
from robaudit.estimators.loss_field import LossField
from robaudit.estimators.streams import Streams
from robaudit.estimators.work import CleanPass, Work
from robaudit.noise.base import shape_of
from robaudit.noise.registry import build
from robaudit.results import LossNorm, Result
from robaudit.spec.model import NoiseSpec
from tests.benchmarks.networks import Bench, Network, card, load
from tests.benchmarks.qnorm.reflected_hmc import Published, published_path

ORDERS = (1.0, 10.0, 100.0, 1000.0)
MOST = 100
"""Test images of each network, the first ones of the file."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network under a noise.

    Attributes:
        network: its name.
        title: for the reader.
        noise: an entry of a spec.
        published: m and L of the published sampler, and the length of its trajectory at each of :data:`ORDERS`; None where it does not go.
        path: options of `qnorm_path` that take as many gradients, or moves.
        longer: those with about 20 times as many.
        copies: of `qnorm_mc`, as many.
        long_images: the first ones, which have the longer run.
    """

    network: str
    title: str
    noise: dict[str, Any]
    published: tuple[int, int, tuple[float, ...]] | None
    path: dict[str, Any]
    longer: dict[str, Any]
    copies: int
    long_images: int

    @property
    def name(self) -> str:
        """Network and noise."""
        return f"{self.network}, {self.noise['kind']}"


@dataclass(frozen=True, slots=True)
class Method:
    """A way to several values of each image.

    Attributes:
        label: with all that changes its values, as the key of its results.
        run: estimates of a chunk, the orders of each image.
    """

    label: str
    run: Callable[[Work], Sequence[tuple[Result, ...]]]


@dataclass(frozen=True, slots=True)
class Found:
    """What a method says of an image, by order; a single value where it has no order.

    Attributes:
        value, lower, upper, std_error: of the estimates.
        notes: how many of them come with a remark.
        highest: the highest loss that it met.
        cost: gradients, or forward passes where it takes none.
    """

    value: list[float]
    lower: list[float | None]
    upper: list[float | None]
    std_error: list[float | None]
    notes: int
    highest: float
    cost: int

    @classmethod
    def of(cls, estimates: Sequence[Result]) -> Found:
        """From the estimates of one image."""
        columns: dict[str, Any] = {
            name: [_short(getattr(one, name)) for one in estimates] for name in ("value", "lower", "upper", "std_error")
        }
        highest = estimates[0].value if estimates[0].loss is None or estimates[0].loss.highest is None else estimates[0].loss.highest
        cost = estimates[0].backwards or estimates[0].forwards - 1
        return cls(**columns, notes=sum(bool(one.note) for one in estimates), highest=float(f"{highest:.7g}"), cost=cost)


@dataclass
class Results:
    """The results in a file: by case, method, seed and image.

    Attributes:
        path: the file.
        bench: where the networks are.
        seed: of the noise.
    """

    path: Path
    bench: Bench
    seed: int
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            self._known = json.loads(self.path.read_text())

    def of(self, case: Case, method: Method, images: int) -> list[Found]:
        """The first images by a method; those that are missing are computed and written, a pass full of them at a time."""
        known = self._known.setdefault(f"{case.name}; {method.label}; seed {self.seed}", {})
        missing = [i for i in range(images) if str(i) not in known]
        while missing:
            network, labels = loaded(self.bench, case.network)
            engine, noise = engine_of(case, network, self.seed)
            shape = shape_of(network.x)
            block, missing = _split(missing, engine.steady(engine.gradient_rows(shape, 1)))
            x = network.x[block]
            work = Work([str(i) for i in block], x, labels[block], noise, CleanPass.of(engine, x), engine)
            started = time.process_time()
            found = method.run(work)
            spent = time.process_time() - started
            known |= {str(i): asdict(Found.of(estimates)) for i, estimates in zip(block, found, strict=True)}
            self._write()
            self.bench.say(f"{case.name}, {method.label}: {block[0]} to {block[-1]}, {spent:.0f} s")
        return [Found(**known[str(i)]) for i in range(images)]

    def forget(self, name: str) -> None:
        """Drop the results of an estimator with any options."""
        self._known = {key: known for key, known in self._known.items() if name not in key.split(";")[1].split()}
        self._write()

    def keep(self, name: str, numbers: dict[str, float]) -> None:
        """Keep something else beside the images' results."""
        self._known[name] = numbers
        self._write()

    def kept(self, name: str) -> dict[str, float] | None:
        """What :meth:`keep` got under this name."""
        return self._known.get(name)

    def have(self, case: Case, method: Method) -> list[Found]:
        """The results of the first images that there are."""
        known = self._known.get(f"{case.name}; {method.label}; seed {self.seed}", {})
        count = next(i for i in range(len(known) + 1) if str(i) not in known)
        return [Found(**known[str(i)]) for i in range(count)]

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self.path.with_suffix(".new")
        other.write_text(json.dumps(self._known, separators=(",", ":")))
        other.replace(self.path)


def engine_of(case: Case, network: Network, seed: int) -> tuple[Engine, Any]:
    """The engine under the case's noise, and its level."""
    (noise,) = build([NoiseSpec.model_validate(case.noise)], Path())
    source = noise.source(seed, network.model.device, network.model.dtype)
    return Engine(network.model, {noise.label: source}, network.classes), noise.levels[0]


@cache
def loaded(bench: Bench, name: str) -> tuple[Network, Tensor]:
    """A network and the labels of its images."""
    assert bench.shared is not None
    network = load(bench, name, MOST)
    data = bench.shared / "data" / f"{card(bench, name)['dataset']}.npz"
    samples = open_dataset(NpzSpec(kind="npz", path=str(data), limit=MOST), base_dir=data.parent, trust=False)
    return network, torch.tensor([samples[i].label for i in range(len(samples))], device=network.x.device)


def by_estimator(name: str, **options: Any) -> Method:
    """A registered estimator with these options."""
    chosen = registry.load(name).model_validate(options)

    def run(work: Work) -> Sequence[tuple[Result, ...]]:
        return [one if isinstance(one, tuple) else (one,) for one in chosen.estimate(work)]

    return Method(" ".join([name, *(f"{key}={value}" for key, value in options.items())]), run)


def by_publication(m: int, leapfrogs: int, lengths: Sequence[float], orders: Sequence[float] = ORDERS) -> Method:
    """The published sampler in the whole box, beyond [0, 1] as well: the same distribution as that of the other methods.

    Args:
        m, leapfrogs: temperatures, and steps at each; every order has a run with all of them.
        lengths: of the trajectories at each of the orders.
        orders: q.
    """

    def run(work: Work) -> Sequence[tuple[Result, ...]]:
        loss = LossField(work, work.labels)
        by_order = []
        for q, length in zip(orders, lengths, strict=True):
            streams = Streams(work, f"published {q!r}", 1, 1 + m, m)
            one = published_path(
                loss.pixel_slopes,
                work.x - work.level,
                work.x + work.level,
                q,
                Published(m, leapfrogs, length),
                streams.normals,
                streams.thresholds,
            )
            by_order.append(list(zip(one.log_z.exp().tolist(), one.highest.exp().tolist(), strict=True)))
        most = [max(highest for _, highest in of_image) for of_image in zip(*by_order, strict=True)]
        passes = 1 + m * leapfrogs
        return [
            tuple(Result(value, flips_to=None, forwards=passes, backwards=passes, loss=LossNorm(0, highest)) for value, _ in of_image)
            for of_image, highest in zip(zip(*by_order, strict=True), most, strict=True)
        ]

    return Method(f"published m={m} L={leapfrogs} lengths={list(lengths)}", run)


def _split(indices: list[int], count: int) -> tuple[list[int], list[int]]:
    return indices[:count], indices[count:]


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")
