"""What are the rows of some images and tasks, computed as a run computes them, but kept in memory?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robaudit.assembly import make_pace
from robaudit.auditing import Ready
from robaudit.datasets.base import Dataset
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.ledger import Ledger
from robaudit.loop import Loop, OnError
from robaudit.parts import KeptParts, Skip
from robaudit.progress import Listener
from robaudit.rows import Row


@dataclass(frozen=True, slots=True)
class Computed:
    """What came out.

    Attributes:
        rows: by (sample id, sigma, label).
        seconds: by (label, sigma), the clean pass and what a task shares with one before it not included.
        skipped: samples that could not be used.
    """

    rows: Mapping[tuple[str, float, str], Row]
    seconds: Mapping[tuple[str, float], float]
    skipped: tuple[Skip, ...]


def compute(
    ready: Ready, engine: Engine, samples: Dataset, tasks: Sequence[Task], ears: Listener, *, on_error: OnError = "stop"
) -> Computed:
    """Compute every task of every sample.

    Args:
        ready: the parts of the audit that the spec asks for.
        engine: its engine, or one with noise of its own.
        samples: which images.
        tasks: estimators and noise levels; their labels differ.
        ears: hears the progress.
        on_error: at an unusable sample: stop, or leave it out.

    Raises:
        SampleError: a sample cannot be used.
        KeyboardInterrupt: the listener asked to stop.
    """
    parts, ledger = KeptParts(), Ledger(samples, tasks)
    pace = make_pace(ready.spec, engine, tasks, ready.image, ready.check.warnings)
    Loop(parts, samples, engine, ledger, pace, on_error, ears, ready.workers).run()
    rows = {row.key: row for record in parts.records for row in record.rows}
    spent = {(task.chosen.label, task.sigma): ledger.seconds.get(f"{task.chosen.label}@{task.sigma!r}", 0.0) for task in tasks}
    skipped = tuple(skip for record in parts.records for skip in record.skipped)
    gone = {skip.sample_id for skip in skipped}
    return Computed({key: row for key, row in rows.items() if row.sample_id not in gone}, spent, skipped)
