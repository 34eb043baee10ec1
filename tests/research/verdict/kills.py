"""`robaudit estimate` killed at random moments, and its folder read each time."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from robaudit.runs.folder import OUTPUTS
from tests.research.benchmarks.report import Table
from tests.specs import write

_NO_RESULTS = "has no results yet"
"""What `show` says of a run that has begun and has nothing on disk."""

_EARLIEST = 0.3
"""When the first kills come, of the time of the audit: before, Python is still importing."""
_COMPLETED = 10
"""Killed runs that are completed and compared in the end, where each kill has a folder of its
own."""


@dataclass(slots=True)
class Killed:
    """What was found after kills.

    Attributes:
        name: fresh folders, or the same folder again and again.
        kills: number of kills; of commands that ended first, none.
        unborn: number of kills before run.json was there.
        empty: number of reads that found a run without results.
        reads: number of reads, of running and of killed runs.
        completed: number of runs that were completed and compared.
        errors: the reads, runs and outputs that were not as they should be.
    """

    name: str
    kills: int = 0
    unborn: int = 0
    empty: int = 0
    reads: int = 0
    completed: int = 0
    errors: list[str] = field(default_factory=list)

    def row(self) -> list[str]:
        """The row of the table."""
        numbers = (self.kills, self.unborn, self.reads, self.empty, self.completed)
        return [self.name, *map(str, numbers), str(len(self.errors))]


HEADERS = (
    "folders",
    "kills",
    "before run.json",
    "reads",
    "of no results yet",
    "complete in the end",
    "errors",
)


def command(*arguments: str) -> list[str]:
    """The command line of robaudit."""
    return [sys.executable, "-m", "robaudit", *arguments]


def kills(spec: Mapping[str, Any], folder: Path, times: int, *, again: bool) -> Killed:
    """Kill the audit of a spec, each time at a random moment, and read its folder.

    Args:
        spec: of an audit that takes seconds, as a document.
        folder: an empty folder.
        times: number of reads.
        again: continue the same folder until it is complete, then begin another; else begin
            another one each time, and complete some of them in the end.
    """
    path = write(folder, dict(spec))
    whole = folder / "whole"
    started = time.perf_counter()
    subprocess.run(_estimate(path, whole), capture_output=True, check=True)
    longest = time.perf_counter() - started
    moments = random.Random(0)
    found = Killed("one, continued until it is complete" if again else "a new one each time")
    places = (folder / f"run{number}" for number in count())
    place = next(places)
    unfinished = []
    while found.reads < times:
        seconds = longest * moments.uniform(_EARLIEST, 1.0)
        code = _killed(_estimate(path, place), seconds, place, found)
        if code is None:
            found.kills += 1
            _read_after(place, found)
        elif code == 0:
            _compare(place, whole, found)
        else:
            found.errors.append(f"estimate: exit code {code}")
        if code is None and again:
            continue
        if code is None:
            unfinished.append(place)
        place = next(places)
    if again:
        unfinished.append(place)
    for killed in unfinished[:_COMPLETED]:
        _complete(path, killed, whole, found)
    return found


def _estimate(spec: Path, place: Path) -> list[str]:
    """The command of an audit."""
    return command("estimate", str(spec), "--out", str(place), "--quiet")


def _killed(arguments: Sequence[str], seconds: float, place: Path, found: Killed) -> int | None:
    """Start a command and kill it after so many seconds, every other time after a read.

    Returns:
        Its exit code if it ended before; None if it was killed.
    """
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            # Half of the time, so that the other kills come without a reader.
            if found.kills % 2 and (place / "run.json").exists():
                _read(place, found)
            process.kill()
    return None if process.returncode == -signal.SIGKILL else process.returncode


def _read_after(place: Path, found: Killed) -> None:
    """Read a killed run."""
    if (place / "run.json").exists():
        _read(place, found)
    else:
        found.unborn += 1


def _read(place: Path, found: Killed) -> None:
    """Read a run with `show`."""
    done = subprocess.run(command("show", str(place)), capture_output=True, text=True, check=False)
    found.reads += 1
    if _NO_RESULTS in done.stderr:
        found.empty += 1
    elif done.returncode:
        found.errors.append(f"show: exit code {done.returncode}: {done.stderr.strip()[-300:]}")


def _complete(spec: Path, place: Path, whole: Path, found: Killed) -> None:
    """Complete a run that was killed, and compare it with the one that was not."""
    done = subprocess.run(_estimate(spec, place), capture_output=True, text=True, check=False)
    if done.returncode:
        found.errors.append(f"estimate: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    else:
        _compare(place, whole, found)


def _compare(place: Path, whole: Path, found: Killed) -> None:
    """Compare the outputs with those of a run that was not killed, byte by byte."""
    found.completed += 1
    for name in OUTPUTS:
        if (place / name).read_bytes() != (whole / name).read_bytes():
            found.errors.append(f"{place.name}/{name} differs")


def table(found: Sequence[Killed]) -> Table:
    """Fresh and continued folders."""
    return Table(HEADERS, [each.row() for each in found], "**Killed at random, and read**")
