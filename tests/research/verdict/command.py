"""Seconds of `robaudit estimate --gate`, from the start of its process to its exit code."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robaudit.gates.decide import EXIT_CODES
from robaudit.stats.reading import read_run
from tests.research.benchmarks.report import Table, number, target
from tests.research.verdict.gates import MEAN
from tests.research.verdict.kills import command
from tests.research.verdict.pairs import Pair, truth_of
from tests.specs import write

AIM = 300.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A command with a gate on the mean.

    Attributes:
        pair: network and noise.
        gate: its condition.
        code: exit code: 0 passed, 1 failed, 4 undecided.
        wanted: the exit code of the right verdict.
        passes: forward passes.
        how_far: the copies of each image.
        seconds: of the process.
    """

    pair: str
    gate: str
    code: int
    wanted: int
    passes: int
    how_far: str
    seconds: float

    def row(self) -> list[str]:
        """The row of the table."""
        code = f"{self.code}" if self.code == self.wanted else f"**{self.code}**"
        return [
            self.pair,
            f"`{self.gate}`",
            code,
            self.how_far,
            f"{self.passes:,}",
            number(self.seconds),
        ]


HEADERS = ("network, noise", "gate", "exit code", "after", "passes", "s")


def timed(pair: Pair, cache: Path) -> list[Timed]:
    """A gate that should pass and one that should fail.

    The processes take as many threads as torch wants: this one's own limit is not theirs.
    """
    environment = {key: text for key, text in os.environ.items() if key != "OMP_NUM_THREADS"}
    truth = truth_of(pair, cache).mean
    found = []
    for wanted, distance in ((0, -MEAN.distance), (1, MEAN.distance)):
        gate = f"mean >= {truth + distance:.3f}"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            spec = write(folder, pair.document())
            words = command("estimate", str(spec), "--out", str(folder / "run"), "--gate", gate)
            started = time.perf_counter()
            done = subprocess.run(words, env=environment, capture_output=True, check=False)
            seconds = time.perf_counter() - started
            if done.returncode not in EXIT_CODES.values():
                raise RuntimeError(done.stderr.decode())
            info = read_run(folder / "run").info
        passes = info.totals.forwards
        found.append(Timed(pair.name, gate, done.returncode, wanted, passes, info.how_far, seconds))
    return found


def table(found: Sequence[Timed]) -> Table:
    """All commands."""
    rows = [each.row() for each in found]
    return Table(HEADERS, rows, "**From the command to its exit code**")


def targets(found: Sequence[Timed]) -> list[list[str]]:
    """The aim."""
    slowest = max(each.seconds for each in found)
    return [target("the command, mean .02 from the truth", AIM, slowest, " s")]
