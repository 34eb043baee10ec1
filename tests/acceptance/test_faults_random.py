"""Killed at random moments: real runs, each time with all that belongs to the process, go on until they end with the right bytes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import results, temporaries
from tests.hostile.client import ROOT
from tests.shared import SHARED, document
from tests.specs import digits, write
from tests.states import flushes

KILLS, MOST_KILLS_OF_A_RUN, SEED = 100, 15, 2024
LATEST = 1.5  # seconds from a sign of life to the kill
SECONDS = 120.0
ESTIMATORS = [{"mc": {"samples": 1000}}, {"logit_gaussian": {"samples": 160}}, {"mmse": {"samples": 16}}]


def spec_document() -> dict[str, Any]:
    """Some seconds of work: a real network where there is one."""
    sections: dict[str, Any] = {"estimators": ESTIMATORS, "noise": {"sigma": [0.05, 0.1]}}
    if SHARED.is_dir():
        return document("cifar10_cnn_a_mix", limit=16, **sections)
    return digits(limit=300, **sections)


def start(folder: Path, out: str) -> subprocess.Popen[str]:
    """``robaudit estimate`` as the leader of a process group."""
    command = [sys.executable, "-m", "robaudit", "estimate", "spec.yaml", "--out", out, "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def let_end(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, "")


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def until(process: subprocess.Popen[str], happens: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for something, or for the end of the process."""
    deadline = time.monotonic() + seconds
    while not happens() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)


WHEN: dict[str, Callable[[Path], Callable[[], object]]] = {
    "any": lambda _: lambda: False,
    "writing": lambda run: lambda: size(run / "state.db-journal"),
    "ending": lambda run: lambda: any(run.glob(".s*.tmp")),
}


def attempt(run: Path, draw: random.Random) -> tuple[int, str, bool]:
    """Start the command, kill it at a random moment after the first flush is there; exit code, what it said, and whether it lived."""
    said = size(run / "log.txt")
    process = start(run.parent, run.name)
    try:
        until(process, lambda: flushes(run) and size(run / "log.txt") > said)
        moment = draw.choice(("any", "any", "any", "writing", "writing", "writing", "ending"))
        until(process, WHEN[moment](run), SECONDS if moment == "ending" else draw.uniform(0, LATEST))
        if moment != "any":
            time.sleep(draw.choice((0, 0.0005, 0.002)))
        alive = process.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
    return process.returncode, err, alive


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    write(tmp_path, spec_document())
    let_end(start(tmp_path, "whole"))
    expected = results(tmp_path / "whole")
    draw, began = random.Random(SEED), time.monotonic()
    hits: Counter[str] = Counter()
    runs = 0
    while hits.total() < KILLS:
        run = tmp_path / f"run-{runs}"
        runs += 1
        for _ in range(MOST_KILLS_OF_A_RUN):
            code, err, alive = attempt(run, draw)
            if code == 0:
                break
            assert alive, err
            assert (code, err) == (-signal.SIGKILL, "")
            hits[where(run)] += 1
        else:
            let_end(start(tmp_path, run.name))
        assert results(run) == expected
        assert temporaries(run) == []
    print(f"{hits.total()} kills of {runs} runs in {time.monotonic() - began:.0f} s: {dict(hits)}")  # noqa: T201
    assert len(hits) >= 3, "not always at the same place"


def where(run: Path) -> str:
    """What the process was doing when it died."""
    if size(run / "state.db-journal"):
        return "in a transaction"
    if temporaries(run):
        return "while an output was written"
    return "between outputs" if (run / "samples.csv").exists() or (run / "samples.json").exists() else "while a step was computed"
