"""Radii by every attack, image by image, kept in a file so that nothing is computed twice."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robaudit.numerics.rowwise import lengths
from tests.benchmarks.networks import Bench
from tests.benchmarks.radius.libraries import Norm
from tests.benchmarks.radius.passes import Attacked, Counted, attacked, classes


class Method(Protocol):
    """An attack."""

    @property
    def label(self) -> str:
        """With all that changes its values, as the key of its results."""
        ...

    def run(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The points that it found (n, channels, height, width)."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What an attack found.

    Attributes:
        radius: of each image; infinite where the point given back is no flip or outside [0, 1].
        gradients, forwards: an image, on average.
        seconds: of all images.
    """

    radius: list[float]
    gradients: float
    forwards: float
    seconds: float


@dataclass
class Results:
    """The results in a file, by network, norm, number of images and attack."""

    path: Path
    bench: Bench
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            self._known = json.loads(self.path.read_text())

    def of(self, network: str, norm: Norm, method: Method, images: int) -> Found:
        """What the attack finds on the first images; computed and written where it is missing."""
        name = _name(network, norm, method, images)
        if name not in self._known:
            found = measured(attacked(self.bench, network, images), norm, method.run)
            if self.path.exists():
                self._known |= json.loads(self.path.read_text())
            self._known[name] = asdict(found)
            self._write()
            middle = sorted(found.radius)[len(found.radius) // 2]
            self.bench.say(f"{name}: {middle:.5g}, {found.gradients:.0f} gradients, {found.seconds:.0f} s")
        return Found(**self._known[name])

    def have(self, network: str, norm: Norm, method: Method, images: int) -> Found | None:
        """The same, or None where it is missing."""
        known = self._known.get(_name(network, norm, method, images))
        return None if known is None else Found(**known)

    def forget(self, label: str) -> None:
        """Drop the results of the attacks whose label begins so."""
        self._known = {key: known for key, known in self._known.items() if not key.split("; ")[-1].startswith(label)}
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self.path.with_suffix(".new")
        other.write_text(json.dumps(self._known, separators=(",", ":")))
        other.replace(self.path)


def measured(images: Attacked, norm: Norm, run: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> Found:
    """Run an attack, count its passes, and judge its points by plain forward passes."""
    counted = Counted(images.model)
    torch.manual_seed(0)  # of the libraries; robaudit's own attack takes its randomness from its caller
    started = time.process_time()
    points = run(counted, images.x.clone(), images.y.clone()).detach()
    seconds = time.process_time() - started
    n = len(images.x)
    return Found(radii(images, norm, points), counted.gradients / n, counted.forwards / n, round(seconds, 2))


def radii(images: Attacked, norm: Norm, points: Tensor) -> list[float]:
    """The norm of what was added to each image; infinite where that is no flip."""
    added = points.double() - images.x.double()
    size = lengths(added) if norm == "l2" else added.flatten(1).abs().amax(1)
    flips = (classes(images.model, points) != images.y) & ((points >= 0) & (points <= 1)).flatten(1).all(1)
    return [float(f"{r:.8g}") if flip else math.inf for r, flip in zip(size.tolist(), flips.tolist(), strict=True)]


def _name(network: str, norm: Norm, method: Method, images: int) -> str:
    return f"{network}; {norm}; {images}; {method.label}"
