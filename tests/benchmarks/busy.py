"""Times of a run beside four busy processes, with threads that sleep soon and with OpenMP's own spinning."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.resources import files

from robaudit.system import cores
from tests.benchmarks.networks import Bench
from tests.benchmarks.report import Section, Table, number, target

OPENMP = "OpenMP's own (300,000 spins)"
SETTINGS = {"robaudit": None, OPENMP: "300000", "no spinning": "0"}
LOOPS, LONGEST = 4, 20.0


def seconds(spins: str | None, limit: int, loops: int, longest: float | None = None) -> float:
    """Time of one run of the demo's first network beside so many busy loops."""
    environment = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")}
    if spins is not None:
        environment["GOMP_SPINCOUNT"] = spins
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for _ in range(loops):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        spec = str(files("robaudit.demo") / "ordinary.yaml")
        command = [sys.executable, "-m", "robaudit", "estimate", spec, "--limit", str(limit), "--out", f"{folder}/run", "--quiet"]
        started = time.perf_counter()
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=longest)
        return time.perf_counter() - started


def measure(bench: Bench) -> Section:
    """Run every setting in turn, alone and beside the loops."""
    limit, rounds = (8, 1) if bench.quick else (200, 3)
    quiet: dict[str, list[float]] = {name: [] for name in SETTINGS}
    busy: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(rounds):
        for name, spins in SETTINGS.items():
            quiet[name].append(seconds(spins, limit, 0))
            busy[name].append(seconds(spins, limit, LOOPS, LONGEST * quiet[name][-1]))
            bench.say(f"  {name}: alone {quiet[name][-1]:.1f} s, beside {LOOPS} loops {busy[name][-1]:.1f} s")
    times = {name: (statistics.median(quiet[name]), statistics.median(busy[name])) for name in SETTINGS}
    return section(times, f"Seconds of `robaudit estimate` on {limit} images of the demo's first network")


def section(times: Mapping[str, tuple[float, float]], what: str, notes: Sequence[str] = ()) -> Section:
    """The report of times alone and beside the loops."""
    fair = (LOOPS + cores()) / cores()
    own, beside = times["robaudit"]
    return Section(
        title="Busy machines (cpu)",
        reading=f"{what}, alone and beside {LOOPS} processes that never wait; `share`: relative to what a fair share of the cores allows, "
        f"{fair:.1f} times the time alone.",
        tables=[
            Table(
                ["threads that wait", "alone", "beside", "ratio", "share"],
                [
                    [name, number(alone), number(busy), number(busy / alone), number(busy / alone / fair)]
                    for name, (alone, busy) in times.items()
                ],
            )
        ],
        targets=[
            target("beside / alone / fair share", 3.0, beside / own / fair),
            target("alone, robaudit / OpenMP's own", 1.05, own / times[OPENMP][0]),
        ],
        notes=[*notes, f"A run that takes {LONGEST:.0f} times as long as alone is stopped and counts as that long."],
        raw={"alone": {name: alone for name, (alone, _) in times.items()}, "beside": {name: busy for name, (_, busy) in times.items()}},
    )
