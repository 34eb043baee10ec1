"""How soon the program answers: help, mistakes on the command line and in a spec, and runs and
specs that are fine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from tests.research.benchmarks.networks import Bench
from tests.research.benchmarks.report import Section, Table, number, target

NOTHING = "python -c pass"
AIM = 0.3
FIRST = ("robaudit --help", "a misspelt command", "a misspelt option")
CASES: dict[str, list[str]] = {
    "robaudit --help": ["--help"],
    "a misspelt command": ["estimat"],
    "a misspelt option": ["estimate", "spec.yaml", "--gatee", "mean >= 0.9"],
    "robaudit estimate --help": ["estimate", "--help"],
    "a spec that is not there": ["estimate", "spek.yaml"],
    "a misspelt key": ["estimate", "key.yaml"],
    "an unknown estimator": ["estimate", "name.yaml"],
    "a run that is not there": ["show", "run"],
    "a gate that is none": ["gate", "run", "--gate", "men >= 0.9"],
    "an option of an estimator (imports torch)": ["estimate", "option.yaml"],
}
_SPEC = "model: {path: m.pt}\ndataset: {kind: digits}\nnoise: {sigma: 0.1}\nestimators: [%s]\n"


def seconds(command: Sequence[str], folder: Path) -> float:
    """Wall time of a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - started


def measure(bench: Bench) -> Section:
    """Start every case in turn, a few times."""
    times: dict[str, list[float]] = {name: [] for name in (NOTHING, *CASES)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        specs = {"spec": "mc", "name": "mcc", "option": "{mc: {sample: 5}}", "key": "mc]\nmodl: [1"}
        for stem, text in specs.items():
            (folder / f"{stem}.yaml").write_text(_SPEC % text)
        spec = str(files("robaudit.demo") / "ordinary.yaml")
        seconds(
            [
                sys.executable,
                "-m",
                "robaudit",
                "estimate",
                spec,
                "--limit",
                "2",
                "--out",
                "run",
                "--quiet",
            ],
            folder,
        )
        for _ in range(2 if bench.quick else 11):
            times[NOTHING].append(seconds([sys.executable, "-c", "pass"], folder))
            for case, arguments in CASES.items():
                times[case].append(seconds([sys.executable, "-m", "robaudit", *arguments], folder))
    medians = {case: statistics.median(every) for case, every in times.items()}
    bench.say("  " + ", ".join(f"{case}: {number(value)} s" for case, value in medians.items()))
    return section(medians)


def section(times: dict[str, float]) -> Section:
    """The report of the medians."""
    nothing = times[NOTHING]
    return Section(
        title="How soon the program answers (cpu)",
        reading="Median wall time of the process, and its ratio to that of an empty Python "
        "program.",
        tables=[
            Table(
                ["case", "seconds", "ratio"],
                [[case, number(value), number(value / nothing)] for case, value in times.items()],
            )
        ],
        targets=[target(case, AIM, times[case], " s") for case in FIRST],
        raw=dict(times),
    )
