"""What is left to compute, and in which chunks of images?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from robaudit.registry import Chosen

_CHUNK_VALUES, _CHUNK_IMAGES, _FIT_BYTES = 2**25, 64, 2**29


@dataclass(frozen=True, slots=True)
class Task:
    """One estimator at one noise level."""

    sigma: float
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Chunk:
    """Images (data set indices) that lack the same tasks."""

    indices: tuple[int, ...]
    tasks: tuple[Task, ...]


def tasks_of(sigmas: Sequence[float], estimators: Sequence[Chosen]) -> tuple[Task, ...]:
    """Every estimator at every noise level, noise levels outermost: the order of a sample's rows."""
    return tuple(Task(sigma, chosen) for sigma in sigmas for chosen in estimators)


def chunks(ids: Sequence[str], tasks: Sequence[Task], done: Mapping[str, Set[tuple[float, str]]], size: int) -> Iterator[Chunk]:
    """Consecutive images with the same missing tasks, at most ``size`` at a time; images that lack nothing are left out."""
    current: list[int] = []
    missing: tuple[Task, ...] = ()
    for i, sample_id in enumerate(ids):
        have = done.get(sample_id, frozenset())
        wanted = tuple(task for task in tasks if (task.sigma, task.chosen.label) not in have)
        if current and (wanted != missing or len(current) == size):
            yield Chunk(tuple(current), missing)
            current = []
        if wanted:
            current, missing = [*current, i], wanted
    if current:
        yield Chunk(tuple(current), missing)


def chunk_size(tasks: Sequence[Task], classes: int, shape: Sequence[int]) -> int:
    """Images in a chunk: a fixed rule of the spec and the shapes (1 to 64 images; about 2^25 pixels through the
    network, which is 10,000 passes at 3 x 32 x 32; 512 MB of gradients)."""
    costs = [task.chosen.estimator.passes(classes) for task in tasks]
    passes = sum(forwards + 2 * backwards for forwards, backwards in costs)
    by_passes = _CHUNK_VALUES // (max(1, passes) * math.prod(shape))
    held = max((t.chosen.estimator.differentiated(classes) for t in tasks if "gradients" in t.chosen.estimator.needs), default=0)
    by_memory = _FIT_BYTES // (8 * held * math.prod(shape) * 4) if held else _CHUNK_IMAGES
    return max(1, min(_CHUNK_IMAGES, by_passes, by_memory))
