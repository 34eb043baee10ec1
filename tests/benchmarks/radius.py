"""Image by image: radius_attack's search against the best of FMN, DDN and ALMA with 300 steps, on shared networks and on some made here.

Run by hand: `python -m tests.benchmarks.radius --libraries FOLDER [--networks a,b]`. The library is installed for this alone, without its
dependencies: `pip install --no-deps --target FOLDER adv-lib==0.2.8 gitpython gitdb smmap requests tqdm`. Networks that are made are kept in
the temporary folder. Every point that an attack gives back is judged by a plain forward pass. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robaudit.models import LogitModel, from_module
from robaudit.numerics.minimal_norm import Logits, Search, Slopes, shared_flips
from robaudit.numerics.norm_steps import Norm
from robaudit.numerics.rowwise import lengths
from tests.benchmarks.machine import in_words, machine
from tests.benchmarks.made import RECIPES, made
from tests.benchmarks.networks import Bench, card, load
from tests.benchmarks.report import Table
from tests.shared import MODELS, SHARED

NORMS: tuple[Norm, ...] = ("l2", "linf")
RIVALS: dict[str, dict[str, dict[str, Any]]] = {
    "l2": {
        "fmn": {"norm": 2, "steps": 300},
        "ddn": {"steps": 300, "levels": None},
        "alma": {"distance": "l2", "num_steps": 300},
    },
    "linf": {"fmn": {"norm": math.inf, "steps": 300}},
}
_AIM = 1.05
_READ, _ROWS = 600, 64


@dataclass(frozen=True, slots=True)
class Attacked:
    """A network, and the first test images that it classifies correctly.

    Attributes:
        model: pixels to logits.
        x: the images (n, channels, height, width).
        y: their classes (n,).
    """

    model: LogitModel
    x: Tensor
    y: Tensor


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.radius", description=__doc__)
    parser.add_argument("--networks", default=",".join([*RECIPES, *MODELS]), help="names, separated by commas (default: all)")
    parser.add_argument("--images", type=int, default=100, help="of each network, 40 of cifar10_resnet20 at most (default 100)")
    parser.add_argument("--libraries", type=Path, help="the folder that adv-lib was installed into, where it is not on the path")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.libraries is not None:
        sys.path.append(str(given.libraries))
    sys.modules.setdefault("visdom", _no_plots())
    bench = Bench(torch.device("cpu"), shared=SHARED)
    rows = []
    for name in given.networks.split(","):
        rows += compared(name, attacked(bench, name, min(given.images, 40) if name == "cifar10_resnet20" else given.images))
        print(*rows[-2:], sep="\n", flush=True)
    headers = ["network, norm", "images", "farther than 1.05 times", "largest ratio", "median", "best of theirs", "gradients"]
    print(in_words(machine(bench.device), quick=False), Table(headers, rows).markdown(), sep="\n\n")


def _no_plots() -> ModuleType:
    """In the place of the server for plots that adv-lib imports and does not use."""
    module = ModuleType("visdom")
    module.Visdom = object  # type: ignore[attr-defined]
    return module


def attacked(bench: Bench, name: str, images: int) -> Attacked:
    """A shared network or one of ours, with the first test images of which it is right."""
    if name in RECIPES:
        model, data = from_module(made(name, SHARED, Path(tempfile.gettempdir()) / "robaudit-radius")), f"{RECIPES[name].data}_test"
    else:
        model, data = load(bench, name, 1).model, card(bench, name)["dataset"]
    with np.load(SHARED / "data" / f"{data}.npz") as file:
        x, y = torch.from_numpy(file["images"][:_READ]).float() / 255, torch.from_numpy(file["labels"][:_READ])
    right = (_classes(model, x) == y).nonzero()[:images, 0]
    return Attacked(model, x[right], y[right])


def compared(name: str, images: Attacked) -> list[list[str]]:
    """A line for each norm."""
    searches = [Search(norm, clipped=True) for norm in NORMS]
    found = shared_flips(*passes(images.model, images.y), images.x, images.y, searches, Seeded(images.x))
    lines = []
    for norm, one in zip(NORMS, found, strict=True):
        best = [min(each) for each in zip(*(radii(images, norm, _rival(images, *rival)) for rival in RIVALS[norm].items()), strict=True)]
        mine = radii(images, norm, one.pixels)
        ratios = [a / b for a, b in zip(mine, best, strict=True)]
        beaten, gradients = sum(ratio > _AIM for ratio in ratios), fmean(one.gradients.tolist())
        values = f"{max(ratios):.2f}", f"{median(mine):.5g}", f"{median(best):.5g}", f"{gradients:.0f}"
        lines.append([f"{name}, {norm}", str(len(mine)), str(beaten), *values])
    return lines


def _rival(images: Attacked, name: str, options: dict[str, Any]) -> Tensor:
    torch.manual_seed(0)
    found: Tensor = getattr(import_module("adv_lib.attacks"), name)(images.model, images.x.clone(), images.y.clone(), **options)
    return found.detach()


def radii(images: Attacked, norm: str, points: Tensor) -> list[float]:
    """The norm of what was added to each image; infinite where the point is no flip or outside [0, 1]."""
    added = points.double() - images.x.double()
    size = lengths(added) if norm == "l2" else added.flatten(1).abs().amax(1)
    flips = (_classes(images.model, points) != images.y) & ((points >= 0) & (points <= 1)).flatten(1).all(1)
    return [r if flip else math.inf for r, flip in zip(size.tolist(), flips.tolist(), strict=True)]


def _classes(model: LogitModel, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([model(part).argmax(1) for part in x.split(100)]).clone()


@dataclass(frozen=True, slots=True)
class Seeded:
    """Uniform variables of every image from its own place in the list."""

    x: Tensor

    def __call__(self, restart: int) -> Tensor:
        """(images, *shape)."""
        shape = self.x.shape[1:]
        return torch.stack([torch.rand(shape, generator=torch.Generator().manual_seed(10_000 * i + restart)) for i in range(len(self.x))])


def passes(model: LogitModel, y: Tensor) -> tuple[Logits, Slopes]:
    """The model's passes, with and without gradients."""

    def logits(_: Tensor, pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(part) for part in pixels.split(_ROWS)]).clone()

    def slopes(image: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(*(all_.split(_ROWS) for all_ in (pixels, y[image], other)), strict=True)
        found = [_differentiated(model, *part) for part in parts]
        return torch.cat([z for z, _ in found]), torch.cat([w for _, w in found])

    return logits, slopes


def _differentiated(model: LogitModel, pixels: Tensor, own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    points = pixels.clone().requires_grad_(True)
    z = model(points)
    (w,) = torch.autograd.grad((z.gather(1, other[:, None]) - z.gather(1, own[:, None])).sum(), points)
    return z.detach(), w


if __name__ == "__main__":
    main()
