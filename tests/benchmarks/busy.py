"""How much longer does a run take beside four busy processes, with threads that sleep soon and with OpenMP's own spinning?

Run by hand, on two cores: `taskset -c 0,1 python -m tests.benchmarks.busy [--limit IMAGES] [--rounds N]`. The settings take turns, so on
a machine that is not quiet trust the ratios. A run that takes 20 times its quiet time is ended and counts as that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from importlib.resources import files

from robaudit.cgroups import cores

SETTINGS = {"robaudit": None, "OpenMP's own (300,000 spins)": "300000", "no spinning": "0"}
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


def main() -> None:
    """Print the medians, and what the fair share of the cores would allow."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.busy", description=__doc__)
    parser.add_argument("--limit", type=int, default=200, help="images (default: all 200)")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    quiet: dict[str, list[float]] = {name: [] for name in SETTINGS}
    busy: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(given.rounds):
        for name, spins in SETTINGS.items():
            quiet[name].append(seconds(spins, given.limit, 0))
            busy[name].append(seconds(spins, given.limit, LOOPS, LONGEST * quiet[name][-1]))
            print(f"{name}: quiet {quiet[name][-1]:.1f} s, beside {LOOPS} loops {busy[name][-1]:.1f} s", flush=True)
    fair = (LOOPS + cores()) / cores()
    print(f"| setting | quiet, s | beside {LOOPS} busy loops, s | ratio | of the fair share ({fair:.1f} x quiet) |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in SETTINGS:
        alone, beside = statistics.median(quiet[name]), statistics.median(busy[name])
        print(f"| {name} | {alone:.1f} | {beside:.1f} | {beside / alone:.1f} | {beside / alone / fair:.1f} |")


if __name__ == "__main__":
    main()
