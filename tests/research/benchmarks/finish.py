"""The end of a run, by hand: write the outputs of 100,000 rows that a state has, and summarise
them.

Run on a quiet machine: `python -m tests.research.benchmarks.finish FOLDER [ROWS]`. The folder gets
the state, unless it has one.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from robaudit.auditing.outputs import finish
from robaudit.engine.registry import Task, build
from robaudit.levels import LevelName, NoiseLevel
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import Votes
from robaudit.runs.folder import RunFolder
from robaudit.runs.rows import Row
from robaudit.runs.state import NAME, Flush, State
from robaudit.spec.model import EstimatorSpec
from robaudit.stats.summary import summary_of
from tests.infos import changed, run_info

if TYPE_CHECKING:
    from robaudit.datasets.dataset import Dataset

ROWS = 100_000
CLASSES = 10
DRAWS = 1000
LEVELS = tuple(NoiseLevel("gaussian", level, LevelName("sigma")) for level in (0.05, 0.1, 0.2, 0.3))
_A_FLUSH = 1000  # samples
_MIB = 1024  # KiB


@dataclass(frozen=True)
class Ids:
    """A data set of which only the ids matter."""

    number: int
    where: str = "made-up"
    class_names: None = None

    def __len__(self) -> int:
        return self.number

    def sample_id(self, index: int) -> str:
        """Five digits and a suffix, as of a file."""
        return f"images/{index:05}.png"


def made_up(sample_id: str, at: NoiseLevel, numbers: random.Random) -> Row:
    """A row of mc with votes for three of the classes."""
    label = numbers.randrange(CLASSES)
    kept = numbers.randint(DRAWS // 2, DRAWS)
    counts = [0] * CLASSES
    counts[label] = kept
    counts[(label + 1) % CLASSES] = DRAWS - kept
    p = kept / DRAWS
    return Row(
        sample_id=sample_id,
        label=label,
        predicted=label,
        correct=True,
        **at.document(),
        estimator="mc",
        quantity="p_robust",
        value=p,
        lower=p - 0.4 * (1 - p) - 1e-3 * numbers.random(),
        upper=min(1.0, p + 1e-3 * numbers.random()),
        std_error=(p * (1 - p) / DRAWS) ** 0.5,
        flips_to=(label + 1) % CLASSES,
        forwards=DRAWS + 1,
        interval=Interval(IntervalKind.CLOPPER_PEARSON),
        votes=Votes(tuple(counts)),
    )


def make_state(folder: Path, rows: int) -> None:
    """The state of a run that lacks only its outputs."""
    folder.mkdir(parents=True)
    ids = Ids(rows // len(LEVELS))
    numbers = random.Random(0)
    with State.create(folder / NAME, lambda: None) as state:
        for first in range(0, len(ids), _A_FLUSH):
            names = [
                ids.sample_id(place) for place in range(first, min(first + _A_FLUSH, len(ids)))
            ]
            flushed = [made_up(name, at, numbers) for name in names for at in LEVELS]
            state.write(Flush(rows=flushed, digests=dict.fromkeys(names, "0" * 64)))


def main() -> None:
    """Finish the run in the folder, and say how long it took."""
    path = Path(sys.argv[1])
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS
    if not path.exists():
        make_state(path, rows)
    ((_, estimator),) = build([EstimatorSpec(name="mc")]).items()
    tasks = [Task(estimator, "mc", at) for at in LEVELS]
    folder = RunFolder(path)
    info = changed(run_info(), status="running", data={"where": "made-up"})
    with State(path / NAME) as state:
        state.begin(
            cast("Dataset", Ids(rows // len(LEVELS))),
            [name for task in tasks for name in task.names],
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        run = finish(folder, info, state.results(), state.skips(), tasks, state.seconds())
    finished = time.perf_counter()
    groups = summary_of(run)
    summarised = time.perf_counter()
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / _MIB
    seconds = finished - started
    print(
        f"finish: {seconds:.2f} s, {rows / seconds:,.0f} rows/s; summary of {len(groups)} "
        f"results: {summarised - finished:.2f} s"
    )
    print(f"peak: {extra:.0f} MiB more than before")


if __name__ == "__main__":
    main()
