"""Image by image: radius_attack's search against the best of FMN, DDN and ALMA with 300 steps, on shared networks and on some made here.

Run by hand: `python -m tests.benchmarks.radius.against --libraries FOLDER [--networks a,b]` (the folder: see the package's main module).
Networks that are made are kept in the temporary folder. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch

from robaudit.models import from_module
from robaudit.numerics.minimal_norm import Search, shared_flips
from tests.benchmarks.machine import in_words, machine
from tests.benchmarks.networks import Bench
from tests.benchmarks.radius.libraries import NORMS, Foreign, Norm, find
from tests.benchmarks.radius.made import RECIPES, made
from tests.benchmarks.radius.ours import Seeded, passes
from tests.benchmarks.radius.passes import Attacked, attacked, classes
from tests.benchmarks.radius.results import measured, radii
from tests.benchmarks.report import Table
from tests.shared import MODELS, SHARED

_AIM = 1.05
_READ = 600


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.radius.against", description=__doc__)
    parser.add_argument("--networks", default=",".join([*RECIPES, *MODELS]), help="names, separated by commas (default: all)")
    parser.add_argument("--images", type=int, default=100, help="of each network, 40 of cifar10_resnet20 at most (default 100)")
    parser.add_argument("--libraries", type=Path, help="the folder that adv-lib was installed into, where it is not on the path")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    find(given.libraries)
    bench = Bench(torch.device("cpu"), shared=SHARED)
    rows = []
    for name in given.networks.split(","):
        images = _images(bench, name, min(given.images, 40) if name == "cifar10_resnet20" else given.images)
        rows += _compared(name, images)
        print(*rows[-2:], sep="\n", flush=True)
    headers = [
        "network, norm",
        "images",
        "farther than 1.05 times",
        "largest ratio",
        "median",
        "best of theirs",
        "gradients",
    ]
    print(in_words(machine(bench.device), quick=False), Table(headers, rows).markdown(), sep="\n\n")


def rivals(norm: Norm) -> list[Foreign]:
    """The attacks to compare with."""
    order = 2 if norm == "l2" else float("inf")
    found = [Foreign("adv_lib", "fmn", {"norm": order, "steps": 300})]
    if norm == "l2":
        found.append(Foreign("adv_lib", "ddn", {"steps": 300, "levels": None}))
        found.append(Foreign("adv_lib", "alma", {"distance": "l2", "num_steps": 300}))
    return found


def _images(bench: Bench, name: str, images: int) -> Attacked:
    """A network with the first test images of which it is right."""
    if name not in RECIPES:
        return attacked(bench, name, images)
    model = from_module(made(name, SHARED, Path(tempfile.gettempdir()) / "robaudit-radius"))
    data = np.load(SHARED / "data" / f"{RECIPES[name].data}_test.npz")
    x, y = torch.from_numpy(data["images"][:_READ]).float() / 255, torch.from_numpy(data["labels"][:_READ])
    right = (classes(model, x) == y).nonzero()[:images, 0]
    return Attacked(model, x[right], y[right])


def _compared(name: str, images: Attacked) -> list[list[str]]:
    """A line for each norm."""
    searches = [Search(norm, clipped=True) for norm in NORMS]
    found = shared_flips(*passes(images.model, images.y), images.x, images.y, searches, Seeded(images.x))
    lines = []
    for norm, one in zip(NORMS, found, strict=True):
        best = [min(radius) for radius in zip(*(measured(images, norm, rival.run).radius for rival in rivals(norm)), strict=True)]
        mine = radii(images, norm, one.pixels)
        ratios = [a / b for a, b in zip(mine, best, strict=True)]
        beaten, gradients = sum(ratio > _AIM for ratio in ratios), fmean(one.gradients.tolist())
        values = f"{max(ratios):.2f}", f"{median(mine):.5g}", f"{median(best):.5g}", f"{gradients:.0f}"
        lines.append([f"{name}, {norm}", str(len(mine)), str(beaten), *values])
    return lines


if __name__ == "__main__":
    main()
