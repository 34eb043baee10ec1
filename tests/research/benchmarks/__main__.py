"""The benchmarks: how fast, how exact and how lean is robaudit, beside the published method?

Run on a quiet machine: `python -m tests.research.benchmarks` (about 30 minutes on 2 cores) or
`--quick` (at most 2). Writes benchmarks.md, benchmarks.json and the picture into `--out` (default
docs/research/; a quick run writes only where --out says). Nothing asserts a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from robaudit.auditing.environment import pick_device
from robaudit.system import keep_freed_memory
from tests.research.benchmarks import (
    accuracy,
    cdf,
    engine,
    imagenet,
    kinds,
    memory,
    ray,
    rmse,
    scaling,
    start,
    versus,
)
from tests.research.benchmarks.machine import exact_products, machine
from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import ORDER, Section, write
from tests.shared import SHARED

PARTS: dict[str, Callable[[Bench], Section]] = {
    "published": versus.measure,
    "accuracy": accuracy.measure,
    "engine": engine.measure,
    "rmse": rmse.measure,
    "noise": kinds.measure_speed,
    "kinds": kinds.measure,
    "scaling": scaling.measure,
    "memory": memory.measure,
    "start": start.measure,
    "ray": ray.measure,
    "imagenet": imagenet.measure,
    "cdf": cdf.measure,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts asked for, one after the other, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"parts, separated by commas: {', '.join(PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats, small cases")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="torch's threads; default: as many as it takes")
    parser.add_argument(
        "--out",
        type=Path,
        help="where the report goes; default: docs/research/, and nowhere for --quick",
    )
    given = parser.parse_args(arguments)
    unknown = set(given.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if not SHARED.is_dir():
        parser.error(f"{SHARED} is not there; it has the networks and images that are measured")
    if given.threads:
        torch.set_num_threads(given.threads)
    keep_freed_memory()
    out = given.out or (
        None if given.quick else Path(__file__).resolve().parents[3] / "docs" / "research"
    )
    device = pick_device(given.device, "--device")
    exact_products(device)
    bench = Bench(device, quick=given.quick, out=out, say=_say)
    started = time.perf_counter()
    for part in sorted(given.only.split(","), key=ORDER.index):
        _run(part, bench)
    _say(
        f"{time.perf_counter() - started:.0f} s in all"
        + (f"; see {out.name}/benchmarks.md" if out else "")
    )


def _run(part: str, bench: Bench) -> None:
    if part == "ray" and find_spec("ray") is None:
        _say("ray: left out, Ray is not installed (pip install 'robaudit[ray]')")
        return
    _say(f"{part} ...")
    started = time.perf_counter()
    if bench.out is not None:
        bench.out.mkdir(parents=True, exist_ok=True)
    section = replace(PARTS[part](bench), machine=machine(bench.device), quick=bench.quick)
    if bench.out is not None:
        write(bench.out, {f"{part}-{bench.device.type}": section})
    else:
        print(section.markdown())
    _say(f"{part}: {time.perf_counter() - started:.0f} s")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
