"""Part `ray`: the workers of a Ray cluster beside the local engine, what a row costs whoever writes them, and how its memory grows."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn

from robaudit import AuditSpec
from robaudit.auditing.loop import Workers, compute_missing, task_names
from robaudit.auditing.prepare import OpenedAudit, Request
from robaudit.auditing.run import audit, prepared
from robaudit.progress import Listener
from robaudit.store.folder import RunFolder
from robaudit.system import keep_freed_memory
from tests.benchmarks.child import STATUS
from tests.benchmarks.networks import Bench, card, script
from tests.benchmarks.report import Section, Table, number, target
from tests.benchmarks.script import ROOT, interpreter, told

NETWORK = "cifar10_resnet20"
LOCAL, RAY = "local", "ray"
ONE, TWO = "this process, 2 threads", "2 Ray workers of one thread"
SHARES = (0.01, 0.1, 0.5, 1.0)
AIM = 0.9
"""Of the speed of the local engine."""
FLAT = 20.0
"""MiB that a process may grow, for SQLite's cache and the blocks that the C library keeps."""
LEVELS = 20


def measure(bench: Bench) -> Section:
    """Processes of their own: one for the speeds, in which the engines take turns, and one for each case of the others."""
    speed: dict[str, Any] = {} if bench.shared is None else _child(bench, what="speed", quick=bench.quick)
    free = {name: _child(bench, what="free", engine=name, quick=bench.quick) for name in (LOCAL, RAY)}
    grown = {name: _child(bench, what="growth", engine=name, quick=bench.quick) for name in (LOCAL, RAY)}
    return section(speed, free, grown)


def section(speed: Mapping[str, Any], free: Mapping[str, Mapping[str, float]], grown: Mapping[str, Mapping[str, float]]) -> Section:
    """The report of what the processes said."""
    tables, targets = list[Table](), list[list[str]]()
    if speed:
        wall, busy, best = (_each(speed[what], middle) for what, middle in (("wall", median), ("busy", median), ("wall", min)))
        rows = []
        for name in wall:
            values = (1 / best[name], best[ONE] / best[name], 1 / wall[name], wall[ONE] / wall[name], busy[name], busy[ONE] / busy[name])
            rows.append([name, *map(number, values)])
        head = ["who computes", "images/s, best", "of local", "median", "of local", "CPU s an image", "images a CPU s, of local"]
        tables.append(Table(head, rows, f"**{NETWORK}, logit_gaussian 64 at sigma 0.1**"))
        targets.append(target("local / 2 Ray workers, images/s, best of each", 1 / AIM, best[TWO] / best[ONE]))
        targets.append(target("the same, CPU time of all processes", 1 / AIM, busy[TWO] / busy[ONE]))
    rows = [[name, *(number(found[key]) for key in ("images/s", "driver", "all"))] for name, found in free.items()]
    tables.append(
        Table(["engine", "images/s", "driver, us", "all processes, us"], rows, "**A model that costs nothing**, 8 x 8 pixels, a row each")
    )
    rows = [[name, *(number(found[f"{share:.0%}"]) for share in SHARES), number(found["written"])] for name, found in grown.items()]
    count = next(iter(grown.values()))["rows"]
    tables.append(
        Table(["driver", *(f"at {share:.0%}" for share in SHARES), "at the end"], rows, f"**MiB while {count:,.0f} rows come in**")
    )
    most = max(found["100%"] - found["10%"] for found in grown.values())
    targets.append(target("growth of the driver from 10 % to 100 % of the rows", FLAT, max(0.0, most), " MiB"))
    rates = [f"{name} {number(found['rows'] / found['seconds'])}" for name, found in grown.items()]
    return Section(
        title="Workers of a Ray cluster (cpu)",
        reading="Start of cluster and workers not counted. First table: rounds in which the engines take turns. Second:"
        " best of three, with one worker; microseconds of CPU for each image, of the process that writes the rows and of all together."
        " Third: resident memory of that process; at the end: outputs written.",
        tables=tables,
        targets=targets,
        notes=[
            "Ray's own processes and the workers share the cores with the driver, and with anything else the machine does.",
            f"The audits of the third table, start and outputs included, rows/s: {', '.join(rates)}.",
        ],
        raw={"speed": dict(speed), "free": dict(free), "grown": dict(grown)},
    )


def _each(times: Mapping[str, Sequence[float]], middle: Callable[[Sequence[float]], float]) -> dict[str, float]:
    return {name: middle(some) for name, some in times.items()}


def spec_of(
    data: Path, count: int, engine: str, estimator: Mapping[str, Any], sigmas: Sequence[float], model: Mapping[str, Any]
) -> AuditSpec:
    """An audit of the first images of a file by one engine; :func:`on` changes how many workers there are."""
    run = {"device": "cpu"} if engine == LOCAL else {"device": "cpu", "engine": "ray", "workers": 1}
    document = {
        "model": dict(model),
        "dataset": {"kind": "npz", "path": str(data), "limit": count},
        "noise": {"sigma": list(sigmas)},
        "estimators": [dict(estimator)],
        "run": run,
    }
    return AuditSpec.model_validate(document).located(data.parent, "bench")


def on(spec: AuditSpec, workers: int) -> AuditSpec:
    """The same with so many Ray workers."""
    return spec.model_copy(update={"run": spec.run.model_copy(update={"workers": workers})})


@contextmanager
def opened(spec: AuditSpec, network: nn.Module | None = None) -> Iterator[tuple[OpenedAudit, Workers]]:
    """The audit, with its workers at hand."""
    with prepared(Request(spec, model=network), Listener()) as found:
        yield found


def spent(audit: OpenedAudit, workers: Workers) -> tuple[float, float, float]:
    """Seconds in which everything is computed and written, and seconds of CPU: of this process, and of it and all it has started."""
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "run")
        folder.create()
        with folder.open_state(None) as state:
            state.begin(audit.data, task_names(audit.tasks))
            started, own, others = time.perf_counter(), time.process_time(), _descendants()
            compute_missing(state, audit.data, audit.tasks, workers, Listener())
            wall, own = time.perf_counter() - started, time.process_time() - own
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
    assert bench.shared is not None
    about = card(bench, NETWORK)
    model = {"path": str(script(bench, NETWORK)), "mean": about["mean"], "std": about["std"]}
    data = bench.shared / "data" / f"{about['dataset']}.npz"
    local, ray = (spec_of(data, images, engine, {"logit_gaussian": {"samples": 64}}, [0.1], model) for engine in (LOCAL, RAY))
    _cluster(3)
    wall: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    with ExitStack() as stack:
        jobs = {
            name: stack.enter_context(opened(spec))
            for name, spec in ((ONE, local), (TWO, on(ray, 2)), ("1 Ray worker of one thread", on(ray, 1)))
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
        spec = spec_of(path, count, engine, {"softmax": {}}, [0.1], {"path": "in-memory"})
        with opened(spec, _tiny()) as job:
            wall, own, together = map(min, zip(*(spent(*job) for _ in range(1 if quick else 3)), strict=True))
        return {"images/s": count / wall, "driver": 1e6 * own / count, "all": 1e6 * together / count}


class _Memory(Listener):
    """Reads the resident memory at certain shares of the images."""

    def __init__(self) -> None:
        self.total, self.done, self.found = 1, 0, dict[str, float]()

    def begin(self, total: int, done: int) -> None:
        self.total, self.done = total, done

    def advance(self, samples: int) -> None:
        self.done += samples
        for share in SHARES:
            if self.done >= share * self.total:
                self.found.setdefault(f"{share:.0%}", resident())


def resident() -> float:
    """MiB of this process in main memory."""
    return int(next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def _growth(engine: str, *, quick: bool) -> dict[str, float]:
    """The memory of a whole audit of many rows."""
    count = 500 if quick else 50_000
    memory = _Memory()
    with tempfile.TemporaryDirectory() as name:
        path = _synthetic(Path(name), count)
        _cluster(2)
        sigmas = [round(0.01 * (1 + number), 2) for number in range(LEVELS)]
        spec = spec_of(path, count, engine, {"softmax": {}}, sigmas, {"path": "in-memory"})
        started = time.perf_counter()
        audit(spec, out=Path(name) / "run", model=_tiny(), listener=memory)
        return {**memory.found, "written": resident(), "rows": float(count * LEVELS), "seconds": time.perf_counter() - started}


def _cluster(cpus: int) -> None:
    """A cluster of this machine that says it has so many CPUs: the workers of the contenders are open at the same time."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def _child(bench: Bench, **case: Any) -> dict[str, Any]:
    environment = {"GOMP_SPINCOUNT": "2000", **os.environ}  # as the command line sets it
    done = subprocess.run(interpreter("ray", bench, **case), capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode:
        raise RuntimeError(f"{case}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bench.say(f"  {', '.join(f'{key} {value}' for key, value in case.items())}: {found}")
    return found


def main() -> None:
    """Read the case as JSON from the first argument, print what was found as JSON."""
    bench, case = told(sys.argv[1])
    keep_freed_memory()
    what, quick = case.pop("what"), case["quick"]
    print(json.dumps(_speed(bench, quick=quick) if what == "speed" else {"free": _free, "growth": _growth}[what](**case)))


if __name__ == "__main__":
    main()
