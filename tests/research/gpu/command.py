"""The command line of robaudit in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.research.gpu.installed import ROOT
from tests.research.gpu.part import Part
from tests.specs import save_npz, write

_POLL = 0.05


def at_once(commands: Sequence[Sequence[str]], folder: Path, most: float) -> list[float]:
    """Run ``robaudit ARGUMENTS`` for each of these at the same time; seconds of each process.

    Args:
        commands: the arguments.
        folder: the working folder.
        most: seconds after which all are killed.

    Raises:
        RuntimeError: a process failed, or took too long.
    """
    paths = (str(ROOT), os.environ.get("PYTHONPATH"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    started = time.perf_counter()
    processes = list[subprocess.Popen[bytes]]()
    logs = list[Path]()
    try:
        for number, arguments in enumerate(commands):
            log = folder / f"output-{number}.txt"
            logs.append(log)
            with log.open("wb") as output:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "robaudit", *arguments],
                        cwd=folder,
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        return _ended(processes, logs, started, most)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ended(
    processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], started: float, most: float
) -> list[float]:
    """Wait for all processes; seconds of each."""
    seconds: dict[int, float] = {}
    while len(seconds) < len(processes):
        for number, process in enumerate(processes):
            code = process.poll()
            if number in seconds or code is None:
                continue
            seconds[number] = time.perf_counter() - started
            if code:
                said = logs[number].read_text(errors="replace").strip()
                raise RuntimeError(f"robaudit ended with {code}: {said[-600:]}")
        if time.perf_counter() - started > most:
            raise RuntimeError(f"robaudit was still running after {most:.0f} s")
        time.sleep(_POLL)
    return [seconds[number] for number in range(len(processes))]


def estimate(spec: Path, out: str, part: Part, *more: str) -> list[str]:
    """The arguments of an audit on the part's device."""
    device = "cuda" if part.on_card else "cpu"
    return ["estimate", str(spec), "--out", out, "--device", device, "--trust", "-q", *more]


def spec(folder: Path, part: Part, images: int, draws: int, name: str = "audit") -> Path:
    """A spec of `mc` on ResNet18 with random weights, and random images for it; the file."""
    size = 8 if part.tiny else 32
    data = save_npz(folder / f"{name}.npz", count=images, shape=(3, size, size))
    document: Mapping[str, Any] = {
        "model": {
            "architecture": "tests.research.gpu.networks:resnet18",
            "architecture_options": {"tiny": part.tiny},
        },
        "dataset": {"kind": "npz", "path": data.name, "layout": "nchw"},
        "noise": {"sigma": [0.1]},
        "estimators": [{"mc": {"draws": draws}}],
    }
    return write(folder, document, f"{name}.yaml")
