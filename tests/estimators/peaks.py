"""How much memory does an estimator take at its peak for so many images? Run as a process of its own: cases as JSON on standard input."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from robaudit.cli.process import keep_freed_memory
from robaudit.estimators import registry
from robaudit.estimators.base import Estimator
from robaudit.estimators.engine import Engine
from robaudit.estimators.work import CleanPass, Work
from robaudit.models import from_module
from robaudit.noise import GaussianNoise

SIGMA = 1.0  # so large that all classes compete: nothing is left out of the normal CDF
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Repeated:
    """Noise that costs nothing to draw: the same 16 draws for every image."""

    kind = "gaussian"
    gram = staticmethod(GaussianNoise.gram)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._z = torch.randn((16, *shape), generator=torch.Generator().manual_seed(0))

    def blocks(self, sample_id: str, draws: int, shape: tuple[int, ...], start: int = 0) -> Iterator[Tensor]:
        """Draws in blocks of 16 at most."""
        for first in range(0, draws, 16):
            yield self._z[: draws - first]

    frames = blocks


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A linear network behind an average over patches: next to no memory of its own, and all classes alike."""
    torch.manual_seed(0)
    side = min(8, shape[1])
    return nn.Sequential(nn.AvgPool2d(shape[1] // side), nn.Flatten(), nn.Linear(shape[0] * side * side, classes))


def peak_of(prepare: Callable[[], Callable[[], object]]) -> int:
    """Bytes that what ``prepare`` returns takes at its peak beyond those held before, in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        work = prepare()
        trim()
        CLEAR.write_text("5")
        before = _status("VmRSS")
        kept = work()
        os.write(writer, str(_status("VmHWM") - before).encode())
        del kept
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    _, code = os.waitpid(pid, 0)
    if code:
        raise RuntimeError(f"the measured process ended with {code}")
    return int(found)


def least_peak_of(prepare: Callable[[], Callable[[], object]], times: int) -> int:
    """The least of some measurements: the system adds a MB or three now and then, and never takes one."""
    return min(peak_of(prepare) for _ in range(times))


def trim() -> None:
    """Give freed blocks back, so that using them again is seen."""
    ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:"))


def ready(estimator: Estimator, shape: tuple[int, ...], classes: int, images: int) -> Callable[[], object]:
    """An estimate of so many images; they share their pixels, which are the loop's to hold."""
    model = from_module(network(shape, classes))
    engine = Engine(model, Repeated(shape), classes)
    x = torch.rand(1, *shape, generator=torch.Generator().manual_seed(1)).expand(images, *shape)
    clean = CleanPass.of(engine, x, gradients=estimator.linearises_clean)
    work = Work([str(i) for i in range(images)], x, torch.zeros(images, dtype=torch.int64), SIGMA, clean, engine)
    return lambda: (estimator.estimate(work), work)


def main() -> None:
    """Print the peaks of every case, in bytes: lists, one entry for each number of images."""
    keep_freed_memory()
    found = []
    for case in json.load(sys.stdin):
        estimator = registry.load(case["name"]).model_validate(case["options"])
        prepare = partial(ready, estimator, tuple(case["shape"]), int(case["classes"]))
        prepare(2)()
        trim()
        found.append([least_peak_of(partial(prepare, images), case["times"]) for images in case["images"]])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
