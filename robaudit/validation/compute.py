"""The rows of some images and tasks, computed as a run computes them, with the state in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robaudit.auditing import Ready
from robaudit.datasets.base import Dataset
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task
from robaudit.loop import OnError, names_of
from robaudit.progress import Listener
from robaudit.rows import Row
from robaudit.store.state import Skip, State


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
    with State() as state:
        state.begin(samples, names_of(tasks))
        ready.work_off(state, samples, ears, engine=engine, tasks=tasks, on_error=on_error)
        seconds = state.seconds()
        spent = {(task.chosen.label, task.sigma): seconds.get(f"{task.chosen.label}@{task.sigma!r}", 0.0) for task in tasks}
        return Computed({row.key: row for sample in state.results() for row in sample.rows}, spent, tuple(state.skips()))
