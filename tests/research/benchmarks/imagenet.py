"""Part `imagenet`: what an image of ImageNet costs here, and the arithmetic of docs/scale.md for
GPUs of a stated speed."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from robaudit.datasets import open_dataset
from robaudit.datasets.image_folder import ImagesSpec
from robaudit.engine import registry
from robaudit.engine.estimator import Estimator
from robaudit.engine.passes import Engine
from robaudit.models import from_module
from tests.levels import gaussian_process
from tests.research.benchmarks.networks import Bench, Network, estimator
from tests.research.benchmarks.report import Section, Table, number

IMAGES = 50_000
CLASSES = 1000
SIGMAS = 3
PER_SECOND = 1900.0
"""Forward passes of ResNet-50 a second that the tables assume of a GPU; docs/scale.md says why."""
GPUS = (1, 64)
BACKWARD = 2
"""A backward pass in forward passes, as :meth:`robaudit.engine.registry.Task.cost` counts it."""
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "softmax": ("softmax", {}),
    "logit_gaussian 64": ("logit_gaussian", {"draws": 64}),
    "taylor": ("taylor", {}),
    "mmse 10": ("mmse", {"draws": 10}),
    "mc 1,000": ("mc", {"draws": 1000}),
    "mc 10,000 (published)": ("mc", {"draws": 10000}),
    "certified_radius": ("certified_radius", {}),
}
_SHAPE = (3, 224, 224)


def passes(name: str, sigmas: int = SIGMAS, classes: int = CLASSES) -> tuple[int, int]:
    """Forward and backward passes of an image at so many levels, from the estimator's own count;
    the clean pass is shared."""
    kind, options = CASES[name]
    forwards, backwards = registry.load(kind).model_validate(options).passes(classes)
    return 1 + sigmas * (forwards - 1), sigmas * backwards


def hours(name: str, gpus: int, per_second: float = PER_SECOND) -> float:
    """Hours of so many GPUs if nothing but their passes takes time."""
    forwards, backwards = passes(name)
    return IMAGES * (forwards + BACKWARD * backwards) / per_second / gpus / 3600


def measure(bench: Bench) -> Section:
    """Best of a few repeats of each, on one thread and on as many as torch takes."""
    repeats, batch = (1, 2) if bench.quick else (5, 8)
    threads = torch.get_num_threads()
    found: dict[str, float] = {}
    try:
        for many in dict.fromkeys((1, threads)):
            torch.set_num_threads(many)
            found |= {
                f"{what}, threads {many}": value
                for what, value in _passes(bench, repeats, batch).items()
            }
        torch.set_num_threads(1)
        found |= _reading(repeats)
        found |= _integral(4 if bench.quick else 32, repeats)
    finally:
        torch.set_num_threads(threads)
    for name, value in found.items():
        bench.say(f"  {name}: {number(value)}")
    return section(found)


def section(found: Mapping[str, float]) -> Section:
    """The report of what was measured, with the arithmetic."""
    rows = []
    for name in CASES:
        forwards, backwards = passes(name)
        each = forwards + BACKWARD * backwards
        times = [_hours(hours(name, gpus)) for gpus in GPUS]
        rows.append(
            [
                name,
                f"{forwards:,}",
                f"{backwards:,}",
                f"{each:,}",
                number(IMAGES * each),
                *times,
                number(PER_SECOND / each),
            ]
        )
    head = [
        "estimator",
        "forward",
        "backward",
        "equivalents",
        "in all",
        *(f"{n} GPU{'s' * (n > 1)}" for n in GPUS),
        "images/s of a GPU",
    ]
    return Section(
        title="An audit of ImageNet (cpu, and arithmetic)",
        reading=(
            f"First table: measured here, best of 5. Second: passes of {IMAGES:,} images, "
            f"{CLASSES:,} classes and {SIGMAS} sigmas by the"
            f" estimators' own count (a backward pass counted as {BACKWARD} forward passes), and "
            "the time of GPUs that do"
            f" {PER_SECOND:,.0f} a second and nothing else. What else there is: "
            "[scale.md](../scale.md)."
        ),
        tables=[
            Table(["what", "measured"], [[name, number(value)] for name, value in found.items()]),
            Table(head, rows),
        ],
        notes=[
            "ResNet-50 of torchvision with random weights, fp32, 3 x 224 x 224; a JPEG of 500 x "
            "375 pixels, ImageNet's usual size.",
            "`logit_gaussian` beside its passes: its time less that of `mc` with as many draws, "
            "for an image and a level, on a linear model"
            " of 1,000 classes, whose passes cost hardly anything. One thread; on CUDA this, "
            "too, is done by the device.",
        ],
        raw=dict(found),
    )


def _hours(value: float) -> str:
    return f"{number(value)} h" if value >= 1 else f"{number(60 * value)} min"


def _best(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _passes(bench: Bench, repeats: int, batch: int) -> dict[str, float]:
    """Passes a second of ResNet-50."""
    from torchvision.models import resnet50

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = resnet50(weights=None).eval().requires_grad_(False)
    model = from_module(network, device=bench.device)
    x = torch.rand(batch, *_SHAPE, generator=torch.Generator().manual_seed(1)).to(bench.device)

    def gradients() -> None:
        inputs = x.clone().requires_grad_()
        torch.autograd.grad(model(inputs)[:, 0].sum(), inputs)

    with torch.inference_mode():
        forward = _best(lambda: model(x), repeats)
    both = _best(gradients, max(1, repeats // 2))
    return {
        "ResNet-50, forward passes/s": batch / forward,
        "ResNet-50, forward and backward/s": batch / both,
    }


def _reading(repeats: int) -> dict[str, float]:
    """Milliseconds for a JPEG."""
    small = np.random.default_rng(0).integers(0, 256, (125, 167, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "n01440764").mkdir()
        for index in range(8):
            picture.save(folder / "n01440764" / f"{index}.jpg", quality=92)
        size = (folder / "n01440764" / "0.jpg").stat().st_size
        data = open_dataset(
            ImagesSpec(kind="images", path=str(folder), resize=256, crop=224),
            base_dir=folder,
            trust=False,
        )
        read = _best(lambda: [data[index] for index in range(8)], repeats) / 8
    return {
        "JPEG, bytes of the file": size,
        "JPEG read, resized, cropped, ms of a core": 1e3 * read,
    }


def _estimated(network: Network, engine: Engine, work: Estimator) -> object:
    return work.estimate(network.batch(0.5, engine))


def _integral(images: int, repeats: int) -> dict[str, float]:
    """Milliseconds of `logit_gaussian` for an image and a level, beside its passes, where one class
    clearly wins and where all compete."""
    found = {}
    for name, spread in (("one class clearly wins", 2.0), ("all classes compete", 0.0)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            last = nn.Linear(192, CLASSES).requires_grad_(False)
            # grey has logits of this spread; noise one of .07
            nn.init.normal_(last.bias, std=spread).sub_(last.weight.sum(1) / 2)
            network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), last).eval()
        model = from_module(network)
        x = torch.rand(images, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        engine = Engine(model, gaussian_process(0, model.device, model.dtype), CLASSES)
        bare = estimator("mc", draws=64)
        whole = estimator("logit_gaussian", draws=64)
        bench = Network("linear", model, x, CLASSES)
        estimated = partial(_estimated, bench, engine)
        both = [
            (
                _best(partial(estimated, whole), 1),
                _best(partial(estimated, bare), 1),
            )
            for _ in range(max(1, repeats // 2))
        ]
        found[f"logit_gaussian 64 beside its passes, {name}, ms of a core"] = (
            1e3 * statistics.median(a - b for a, b in both) / images
        )
    return found
