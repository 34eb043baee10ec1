"""The published method as its authors run it: in a process of its own, with the C library's own
memory settings.

As a program it answers JSON lines of the form {"way": "mmse", "images": 50, "draws": 5} with the
values.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from tests.research.benchmarks import published
from tests.research.benchmarks.machine import exact_products
from tests.research.benchmarks.networks import Bench, load, research_resnet20

ROOT = Path(__file__).resolve().parents[3]


class Script:
    """A running script; :meth:`ask` waits for its values."""

    def __init__(self, request: IO[str], answers: IO[str]) -> None:
        self._ask = request
        self._answers = answers

    def ask(self, way: str, images: int, sigma: float, samples: int = 0) -> list[float]:
        """Values of the published way for the first images."""
        print(
            json.dumps({"way": way, "images": images, "sigma": sigma, "draws": samples}),
            file=self._ask,
            flush=True,
        )
        values: list[float] = json.loads(self._answers.readline())
        return values


def values(f: published.Logits, x: Tensor, way: str, sigma: float, samples: int) -> list[float]:
    """mc, taylor or mmse."""
    if way == "taylor":
        return published.taylor(f, x, sigma)
    return (published.monte_carlo if way == "mc" else published.mmse)(f, x, sigma, samples)


def interpreter(module: str, bench: Bench, **more: Any) -> list[str]:
    """The command of a module of ours in a process of its own, told the same as this one."""
    given = {"device": str(bench.device), "threads": torch.get_num_threads(), **more}
    return [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        f"tests.research.benchmarks.{module}",
        json.dumps(given),
    ]


def told(text: str) -> tuple[Bench, dict[str, Any]]:
    """The other end of :func:`interpreter`."""
    given = json.loads(text)
    torch.set_num_threads(given.pop("threads"))
    device = torch.device(given.pop("device"))
    exact_products(device)
    return Bench(device), given


@contextmanager
def script(bench: Bench, images: int) -> Iterator[Script]:
    """Start the script with so many images at hand; it ends with the block."""
    with subprocess.Popen(
        interpreter("script", bench, images=images),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Script(process.stdin, process.stdout)
        process.stdin.close()


def main() -> None:
    """Answer until the input ends."""
    bench, given = told(sys.argv[1])
    x = load(bench, "cifar10_resnet20", given["images"]).x
    f = research_resnet20(bench)
    for line in sys.stdin:
        asked = json.loads(line)
        print(
            json.dumps(
                values(f, x[: asked["images"]], asked["way"], asked["sigma"], asked["samples"])
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
