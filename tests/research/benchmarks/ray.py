"""Part `ray`: the workers of a Ray cluster beside the local engine, and what a row costs whoever
writes them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn

from robaudit import AuditSpec
from robaudit.auditing.audit import prepared
from robaudit.auditing.main_loop import Workers, compute_missing, task_names
from robaudit.auditing.prepare import CheckedAudit, Request
from robaudit.progress import Listener
from robaudit.runs.folder import RunFolder
from robaudit.system import keep_freed_memory
from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import Section, Table, number, target
from tests.research.benchmarks.script import ROOT, interpreter, told
from tests.shared import SHARED, document
from tests.specs import located

NETWORK = "cifar10_resnet20"
LOCAL = "local"
RAY = "ray"
ONE = "this process, 2 threads"
TWO = "2 Ray workers of one thread"
AIM = 0.9
"""Of the speed of the local engine."""


def measure(bench: Bench) -> Section:
    """Processes of their own: one for the speeds, in which the engines take turns, and one for each
    case of the others."""
    speed = _child(bench, what="speed", quick=bench.quick)
    free = {
        name: _child(bench, what="free", engine=name, quick=bench.quick) for name in (LOCAL, RAY)
    }
    return section(speed, free)


def section(speed: Mapping[str, Any], free: Mapping[str, Mapping[str, float]]) -> Section:
    """The report of what the processes said."""
    wall, busy, best = (
        _each(speed[what], middle)
        for what, middle in (("wall", median), ("busy", median), ("wall", min))
    )
    rows = []
    for name in wall:
        values = (
            1 / best[name],
            best[ONE] / best[name],
            1 / wall[name],
            wall[ONE] / wall[name],
            busy[name],
            busy[ONE] / busy[name],
        )
        rows.append([name, *map(number, values)])
    head = [
        "who computes",
        "images/s, best",
        "of local",
        "median",
        "of local",
        "CPU s an image",
        "images a CPU s, of local",
    ]
    alone = [
        [name, *(number(found[key]) for key in ("images/s", "driver", "all"))]
        for name, found in free.items()
    ]
    nothing = "**A model that costs nothing**, 8 x 8 pixels, a row each"
    return Section(
        title="Workers of a Ray cluster (cpu)",
        reading="Start of cluster and workers not counted. First table: rounds in which the "
        "engines take turns. Second:"
        " best of three, with one worker; microseconds of CPU for each image, of the process "
        "that writes the rows and of all together.",
        tables=[
            Table(head, rows, f"**{NETWORK}, logit_gaussian 64 at sigma 0.1**"),
            Table(["engine", "images/s", "driver, us", "all processes, us"], alone, nothing),
        ],
        targets=[
            target("local / 2 Ray workers, images/s, best of each", 1 / AIM, best[TWO] / best[ONE]),
            target("the same, CPU time of all processes", 1 / AIM, busy[TWO] / busy[ONE]),
        ],
        notes=[
            "Ray's own processes and the workers share the cores with the driver, and with "
            "anything else the machine does."
        ],
        raw={"speed": dict(speed), "free": dict(free)},
    )


def _each(
    times: Mapping[str, Sequence[float]], middle: Callable[[Sequence[float]], float]
) -> dict[str, float]:
    return {name: middle(some) for name, some in times.items()}


def spec_of(given: Mapping[str, Any], workers: int, estimator: Mapping[str, Any]) -> AuditSpec:
    """An audit of a model and data by so many Ray workers, or by the local engine if there are
    none."""
    run = {"device": "cpu"} | ({"engine": "ray", "workers": workers} if workers else {})
    whole = {**given, "noise": {"sigma": [0.1]}, "estimators": [dict(estimator)], "run": run}
    return located(whole, SHARED, "bench")


def opened(
    spec: AuditSpec, network: nn.Module | None = None
) -> AbstractContextManager[tuple[CheckedAudit, Workers]]:
    """The audit, with its workers at hand."""
    return prepared(Request(spec, model=network), Listener())


def spent(audit: CheckedAudit, workers: Workers) -> tuple[float, float, float]:
    """Seconds in which everything is computed and written, and seconds of CPU: of this process, and
    of it and all it has started."""
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "run")
        folder.create()
        with folder.open_state(None) as state:
            state.begin(audit.data, task_names(audit.tasks))
            started = time.perf_counter()
            own = time.process_time()
            others = _descendants()
            compute_missing(state, audit.data, audit.tasks, workers, Listener())
            wall = time.perf_counter() - started
            own = time.process_time() - own
            return wall, own, own + _descendants() - others


def _descendants() -> float:
    """Seconds of CPU of the processes that this one has started, Ray's included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _speed(bench: Bench, *, quick: bool) -> dict[str, dict[str, list[float]]]:
    """Seconds an image of a real network, each engine in turn; all are open meanwhile."""
    images, rounds = (24, 1) if quick else (160, 5)
    given = document(NETWORK, limit=images)
    _cluster(3)
    wall: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    with ExitStack() as stack:
        jobs = {
            name: stack.enter_context(
                opened(spec_of(given, workers, {"logit_gaussian": {"draws": 64}}))
            )
            for name, workers in ((ONE, 0), (TWO, 2), ("1 Ray worker of one thread", 1))
        }
        for turn in range(rounds + 1):
            for name in list(jobs)[:: -1 if turn % 2 else 1]:
                seconds, _, together = spent(*jobs[name])
                if turn or quick:  # the first round warms up
                    wall.setdefault(name, []).append(seconds / images)
                    busy.setdefault(name, []).append(together / images)
    return {"wall": wall, "busy": busy}


def _synthetic(folder: Path, count: int) -> Path:
    """Random images of 8 x 8 pixels in a file."""
    path = folder / "images.npz"
    images = np.random.default_rng(0).integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(count) % 10)
    return path


def _tiny() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()


def _free(engine: str, *, quick: bool) -> dict[str, float]:
    """What is left of an audit where the model costs nothing."""
    count = 1000 if quick else 20000
    with tempfile.TemporaryDirectory() as name:
        path = _synthetic(Path(name), count)
        _cluster(2)
        given = {
            "model": {"path": "in-memory"},
            "dataset": {"kind": "npz", "path": str(path), "limit": count},
        }
        spec = spec_of(given, int(engine == RAY), {"softmax": {}})
        with opened(spec, _tiny()) as job:
            wall, own, together = map(
                min, zip(*(spent(*job) for _ in range(1 if quick else 3)), strict=True)
            )
        return {
            "images/s": count / wall,
            "driver": 1e6 * own / count,
            "all": 1e6 * together / count,
        }


def _cluster(cpus: int) -> None:
    """A cluster of this machine that says it has so many CPUs: the workers of the contenders are
    open at the same time."""
    import ray

    if not ray.is_initialized():
        ray.init(
            num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )


def _child(bench: Bench, **case: Any) -> dict[str, Any]:
    environment = {"GOMP_SPINCOUNT": "2000", **os.environ}  # as the command line sets it
    done = subprocess.run(
        interpreter("ray", bench, **case),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"{case}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bench.say(f"  {', '.join(f'{key} {value}' for key, value in case.items())}: {found}")
    return found


def main() -> None:
    """Read the case as JSON from the first argument, print what was found as JSON."""
    bench, case = told(sys.argv[1])
    keep_freed_memory()
    what = case.pop("what")
    quick = case["quick"]
    print(json.dumps(_speed(bench, quick=quick) if what == "speed" else _free(**case)))


if __name__ == "__main__":
    main()
