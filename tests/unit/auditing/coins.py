"""Images that keep their class with a known probability, through the rounds of an audit with a
flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.auditing.rounds import Work, draws_of_rounds
from robaudit.engine.registry import Task
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import Result, Votes
from robaudit.runs.rows import decided
from tests.unit.engine.tools import build

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coins:
    """Images after the last round.

    Attributes:
        lower, upper: the interval of each image (images,).
        draws: the copies of each image (images,).
        held: whether all intervals of an image, one for each round, held p (images,).
    """

    lower: Floats
    upper: Floats
    draws: NDArray[np.int64]
    held: NDArray[np.bool_]


def flagged_coins(p: float, flag: float, most: int, images: int, seed: Sequence[int]) -> Coins:
    """Take copies of images in the rounds of ``mc`` with ``most`` draws, until each is decided."""
    generator = np.random.default_rng(seed)
    task = Task(build("mc", draws=most), "mc")
    kept = np.zeros(images, dtype=np.int64)
    held = np.ones(images, dtype=np.bool_)
    taken = np.zeros(images, dtype=np.int64)
    ends = np.zeros((2, images))
    open_images = np.arange(images)
    before = 0
    for draws in draws_of_rounds(most):
        kept[open_images] += generator.binomial(draws - before, p, len(open_images))
        taken[open_images] = draws
        votes = [Votes((int(k), int(draws - k))) for k in kept[open_images]]
        work = Work(task, before, draws, flag)
        looked = work.at_look([counted(one) for one in votes], [0] * len(votes))
        ends[0, open_images] = [one.lower for one in looked]
        ends[1, open_images] = [one.upper for one in looked]
        held[open_images] &= (ends[0, open_images] <= p) & (p <= ends[1, open_images])
        open_images = open_images[[not decided(one, flag) for one in looked]]
        before = draws
    return Coins(ends[0], ends[1], taken, held)


def counted(votes: Votes) -> Result:
    """A result of `mc`, with no ends yet."""
    return Result(
        value=votes.counts[0] / votes.draws,
        forwards=1 + votes.draws,
        interval=Interval(IntervalKind.CLOPPER_PEARSON),
        votes=votes,
    )
