"""Part `scaling`: the cost of an image against classes, image size and number of images."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

import robaudit
from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import Section, Table, number
from tests.research.benchmarks.timing import timed

SIGMA = 0.05
ESTIMATORS: dict[str, dict[str, Any]] = {
    "logit_gaussian 64": {"logit_gaussian": {"draws": 64}},
    "mc 256": {"mc": {"draws": 256}},
    "taylor": {"taylor": {}},
    "mmse 5": {"mmse": {"draws": 5, "pairs": False}},
}


def synthetic(classes: int, seed: int = 0) -> nn.Module:
    """A small convolutional network with random weights for images of any size; biases spread so
    that few classes compete."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for inside, outside in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.ReLU()]
        last = nn.Linear(64, classes)
        nn.init.normal_(last.bias, std=0.1)
        nn.init.normal_(last.weight, std=1.0)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).eval()


def measure(bench: Bench) -> Section:
    """Three axes, one varied at a time from 10 classes, 32 pixels, 16 images."""
    few = 4 if bench.quick else 16
    classes = (10, 100) if bench.quick else (10, 100, 1000)
    sizes = (32, 64) if bench.quick else (32, 64, 128, 224)
    counts = (10, 100) if bench.quick else (10, 100, 1000)
    raw: dict[str, dict[str, float]] = {}
    axes = {
        "classes": {f"{c:,} classes": (c, 32, few) for c in classes},
        "image size": {f"{s} x {s}": (10, s, few) for s in sizes},
        "number of images": {f"{n:,} images": (10, 32, n) for n in counts},
    }
    tables = [_table(bench, axis, cases, raw) for axis, cases in axes.items()]
    return Section(
        title=f"How the cost grows ({bench.device.type})",
        reading=(
            "Milliseconds per image of a small random CNN (3 strided convolutions). Classes and "
            "image size: clean pass and estimator;"
            " number of images: the whole audit, checks and files included, with its fixed part "
            "spread over the images."
        ),
        tables=tables,
        notes=[
            "From 34 classes on, `taylor` and `mmse` differentiate only 8 to 32 of them, so "
            "their cost grows no further with the classes."
        ],
        raw=raw,
    )


def _table(
    bench: Bench,
    axis: str,
    cases: dict[str, tuple[int, int, int]],
    raw: dict[str, dict[str, float]],
) -> Table:
    rows = []
    for name, options in ESTIMATORS.items():
        cells = [name]
        for case, (classes, size, count) in cases.items():
            images = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1))
            audit = partial(
                robaudit.audit,
                synthetic(classes),
                images,
                sigma=[SIGMA],
                estimators=[options],
                progress=False,
            )
            run, wall = timed(partial(audit, device=str(bench.device)), bench.device)
            each = (
                1e3
                * (wall if axis == "number of images" else sum(run.info.seconds.values()))
                / count
            )
            raw.setdefault(case, {})[name] = each
            cells.append(number(each))
        bench.say(f"  {axis}: {', '.join(cells)}")
        rows.append(cells)
    return Table([axis, *cases], rows)
