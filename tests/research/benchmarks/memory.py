"""Part `memory`: the peak memory of each estimator, beside that of the published method."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.script import ROOT, interpreter

SIZES: dict[str, dict[str, int]] = {
    "mc": {"draws": 256},
    "logit_gaussian": {"draws": 64},
    "taylor": {},
    "mmse": {"draws": 10},
}
SMALL = "cifar10_resnet20"
LARGE = "resnet18, 1,000 classes, 224 x 224"
IMAGES = {SMALL: 16, LARGE: 2}
SIGMA = 0.1
FEW = 10
MORE = 20
ALL = 1000


def measure(bench: Bench) -> Section:
    """A process for each case; the published Jacobian of 1,000 classes is extrapolated."""
    raw: dict[str, dict[str, float]] = {}
    rows = []
    for network in (SMALL,) if bench.quick else (SMALL, LARGE):
        loaded = _peak(bench, network, way="nothing")
        found = raw[network] = {"loaded": loaded}
        rows.append([network, "loaded, nothing run", number(loaded), "-", "-"])
        for name in ("mc", "mmse") if bench.quick else SIZES:
            found[name] = _peak(bench, network, way="ours", name=name)
            theirs = ["-", "-"]
            how = ""
            if name != "logit_gaussian":
                plain, how = _published(bench, network, name)
                found[f"published {name}"] = plain
                theirs = [
                    number(plain - loaded),
                    number((plain - loaded) / max(1.0, found[name] - loaded)),
                ]
            rows.append(
                [
                    network,
                    " ".join([name, *map(str, SIZES[name].values())]) + how,
                    number(found[name] - loaded),
                    *theirs,
                ]
            )
            bench.say(f"  {network}: {', '.join(rows[-1][1:])}")
    most = max((raw.get(LARGE, {}).get(name, 0.0) for name in ("taylor", "mmse")), default=0.0)
    where = "CUDA's allocator" if bench.device.type == "cuda" else "resident memory"
    return Section(
        title=f"Peak memory ({bench.device.type})",
        reading=(
            f"Peak MiB of {where}, each in its own process. First row of a network: a process "
            "that has only loaded it; other rows:"
            " what an estimator needs beyond that; `ratio`: published / ours."
        ),
        tables=[Table(["network", "estimator", "ours", "published way", "ratio"], rows)],
        targets=[
            target(
                "whole process, taylor and mmse, 1,000 classes at 3 x 224 x 224", 4096, most, " MiB"
            )
        ]
        if most
        else [],
        notes=[
            f"{IMAGES[SMALL]} images of CIFAR-10 ResNet20, {IMAGES[LARGE]} of the resnet18 "
            "(random weights, last biases spread so that few"
            " classes compete), one chunk. Ours keeps freed memory as the command line does; the "
            "published way runs as a plain script.",
            f"(extrapolated), published way only: the Jacobians of {FEW} and of {MORE} classes, "
            f"and a line through both to {ALL:,}.",
        ],
        raw=raw,
    )


def _published(bench: Bench, network: str, name: str) -> tuple[float, str]:
    if network == SMALL or name == "mc":
        return _peak(bench, network, way="published", name=name), ""
    few, more = (_peak(bench, network, way="published", name=name, classes=c) for c in (FEW, MORE))
    return more + (more - few) / (MORE - FEW) * (ALL - MORE), " (extrapolated)"


def _peak(bench: Bench, network: str, *, way: str, name: str = "", **options: int) -> float:
    case: dict[str, Any] = {
        "network": network,
        "images": IMAGES[network],
        "sigma": SIGMA,
        "way": way,
        "name": name,
    }
    command = interpreter("child", bench, **case, options={**SIZES.get(name, {}), **options})
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(
            f"memory of {way} {name} on {network}: {done.stderr.strip().splitlines()[-1:]}"
        )
    return float(done.stdout)
