"""Image by image: radius_attack against the best of FMN, DDN and ALMA with 300 steps, on shared
networks and on some trained here.

Run by hand: `python -m tests.research.benchmarks.radius --libraries FOLDER [--networks a,b]`. The
library is installed for this alone, without its dependencies: `pip install --no-deps --target
FOLDER adv-lib==0.2.8 gitpython gitdb smmap requests tqdm`. Networks and audits are kept in
build/radius. Every point that an attack gives back is judged by a plain forward pass. Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import math
import sys
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from robaudit.models import LogitModel, Source, load_model
from robaudit.spec.model import ModelSpec
from tests.research.benchmarks.machine import in_words, machine
from tests.research.benchmarks.report import Table
from tests.research.papers.item import Session, Training, correct, values
from tests.shared import MODELS, SHARED, document

RIVALS: dict[str, dict[str, dict[str, Any]]] = {
    "l2": {
        "fmn": {"norm": 2, "steps": 300},
        "ddn": {"steps": 300, "levels": None},
        "alma": {"distance": "l2", "num_steps": 300},
    },
    "linf": {"fmn": {"norm": math.inf, "steps": 300}},
}
DENSE = {
    "architecture": "robaudit:mlp",
    "architecture_options": {"sizes": [784, 256, 256, 256, 256, 10]},
}
DEEP = {"architecture": "robaudit:mlp", "architecture_options": {"sizes": [784, *[64] * 8, 10]}}
TRAINED = {
    "mnist_dense": Training("mnist", DENSE, "cross_entropy", 60_000, 10),
    "mnist_deep": Training("mnist", DEEP, "cross_entropy", 60_000, 4),
    "fashion_dense": Training("fashion_mnist", DENSE, "cross_entropy", 60_000, 10),
    "fashion_dense_adv": Training(
        "fashion_mnist", DENSE, {"pgd": {"eps": 0.05, "steps": 5}}, 60_000, 2
    ),
}
"""Networks of kinds that the shared ones do not cover."""
_AIM = 1.05


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.benchmarks.radius", description=__doc__
    )
    parser.add_argument(
        "--networks",
        default=",".join([*TRAINED, *MODELS]),
        help="names, separated by commas (default: all)",
    )
    parser.add_argument(
        "--images",
        type=int,
        default=100,
        help="of each network, 40 of cifar10_resnet20 at most (default 100)",
    )
    parser.add_argument(
        "--libraries",
        type=Path,
        help="the folder that adv-lib was installed into, where it is not on the path",
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.libraries is not None:
        sys.path.append(str(given.libraries))
    # a server for plots that adv-lib imports and does not use
    visdom = sys.modules.setdefault("visdom", ModuleType("visdom"))
    visdom.Visdom = object  # type: ignore[attr-defined]
    build = Path(__file__).resolve().parents[3] / "build" / "radius"
    rows = []
    for name in given.networks.split(","):
        rows += compared(
            Session(build, build),
            name,
            min(given.images, 40) if name == "cifar10_resnet20" else given.images,
        )
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
    print(
        in_words(machine(torch.device("cpu")), quick=False),
        Table(headers, rows).markdown(),
        sep="\n\n",
    )


def compared(session: Session, name: str, images: int) -> list[list[str]]:
    """A line for each norm, of those of the first images that the network classifies correctly."""
    network: str | Path = name
    if name in TRAINED:
        network = session.trained(name, TRAINED[name], seed=0)
    run = session.run(
        name, network, images, [{"radius_attack": {"norm": list(RIVALS), "clip": True}}]
    )
    used = torch.from_numpy(correct(run))
    model, x, y = opened(network, images)
    x = x[used]
    y = y[used]
    lines = []
    for norm, rivals in RIVALS.items():
        best = (
            torch.stack(
                [radii(model, x, y, norm, points(model, x, y, *rival)) for rival in rivals.items()]
            )
            .amin(0)
            .tolist()
        )
        mine = values(run, f"radius_attack:norm={norm}")[used.numpy()].tolist()
        ratios = [a / b for a, b in zip(mine, best, strict=True)]
        gradients = fmean(row.backwards for row in run.rows)
        cells = (
            f"{max(ratios):.2f}",
            f"{median(mine):.5g}",
            f"{median(best):.5g}",
            f"{gradients:.0f}",
        )
        lines.append(
            [f"{name}, {norm}", str(len(mine)), str(sum(ratio > _AIM for ratio in ratios)), *cells]
        )
    return lines


def opened(network: str | Path, images: int) -> tuple[LogitModel, Tensor, Tensor]:
    """A network with its first test images in [0, 1] and their classes."""
    if isinstance(network, Path):
        spec = yaml.safe_load((network / "audit.yaml").read_text())
        section = {**spec["model"], "path": str(network / "model.safetensors")}
        data = Path(spec["dataset"]["path"])
    else:
        spec = document(network)
        section = spec["model"]
        data = SHARED / "data" / spec["dataset"]["path"]
    model = load_model(Source(ModelSpec(**section)))
    with np.load(data) as file:
        return (
            model,
            torch.from_numpy(file["images"][:images]).float() / 255,
            torch.from_numpy(file["labels"][:images]),
        )


def points(model: LogitModel, x: Tensor, y: Tensor, attack: str, options: dict[str, Any]) -> Tensor:
    """What an attack of adv-lib finds."""
    torch.manual_seed(0)
    found: Tensor = getattr(import_module("adv_lib.attacks"), attack)(
        model, x.clone(), y.clone(), **options
    )
    return found.detach()


def radii(model: LogitModel, x: Tensor, y: Tensor, norm: str, points: Tensor) -> Tensor:
    """The norm of what was added to each image; infinite where the point is no flip or outside [0,
    1]."""
    added = (points.double() - x.double()).flatten(1)
    with torch.inference_mode():
        flips = torch.cat([model(part).argmax(1) for part in points.split(100)]) != y
    inside = ((points >= 0) & (points <= 1)).flatten(1).all(1)
    return torch.where(
        flips & inside, added.norm(dim=1) if norm == "l2" else added.abs().amax(1), math.inf
    )


if __name__ == "__main__":
    main()
