"""The rounds of an audit: a few copies of every image first, then more.

After each round all images have equally many copies, so a run that ends early rests on all of its
images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from robaudit.engine.registry import Task
from robaudit.numerics.image_intervals import ROW_CONFIDENCE
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.looks import confidence_of_each
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.results import Result
from robaudit.runs.rows import Row, decided

# A single copy of each image is the best audit where there are many images and little time: the
# mean over images owes more to their number. The next rounds double what is there, so that the
# last, whose votes the others only repeat, is half of the work.
_FIRST = 1
_SECOND = 8


def draws_of_rounds(most: int) -> tuple[int, ...]:
    """The copies of each image after each round: 1, 8, 16, 32, ... up to ``most``.

    The last round adds at least an eighth: one of few copies would cost more reading than passes,
    and looks that are nearly the same take long to compute (:mod:`robaudit.numerics.looks`).
    """
    draws = [_FIRST]
    following = _SECOND
    while 9 * following <= 8 * most:
        draws.append(following)
        following *= 2
    return (*draws, most) if most > _FIRST else (most,)


def looks_of(most: int) -> tuple[int, ...]:
    """The rounds that share the error of an image that may stop after any of them: all but that of
    the first copy.

    A single copy decides nothing, unless the flag is within half a percent of 0 or 1, and hardly
    takes any of the error. Without it, eight equal copies of 1,000 decide on which side of 0.5 an
    image lies, with it only sixteen.
    """
    return draws_of_rounds(most)[1:] or (most,)


@dataclass(frozen=True, slots=True)
class Round:
    """A round of an audit.

    Attributes:
        draws: the copies of each image after it; 0: no estimator takes copies in rounds.
        share: of the images that have the results of all other estimators after it.
    """

    draws: int
    share: float

    def reaches(self, position: int, samples: int) -> bool:
        """Whether the turn of the sample at a position has come, for estimators that compute an
        image at once."""
        return position < math.ceil(self.share * samples)


@dataclass(frozen=True, slots=True)
class Work:
    """A task for the images of a chunk.

    Attributes:
        task: the task.
        start: the copies of each image behind its result so far.
        draws: the copies behind the result to compute; None for a task without rounds.
        flag: an image whose interval lies on one side of this takes no more copies; None: all
            images take all copies.
    """

    task: Task
    start: int = 0
    draws: int | None = None
    flag: float | None = None

    def cost(self, classes: int) -> int:
        """The approximate cost of one image, in forward passes."""
        return self.task.cost(classes) if self.draws is None else self.draws - self.start

    def open_draws(self, row: Row) -> int | None:
        """The copies behind a result of this work that more copies will replace; None: it is
        final."""
        most = self.task.estimator.most_draws
        # Noise that does not vary takes a single copy, and its result is exact.
        is_exact = row.interval.kind is IntervalKind.EXACT
        if self.draws is None or most is None or self.draws >= most or is_exact:
            return None
        if self.flag is not None and decided(row, self.flag):
            return None
        return self.draws

    def at_look(self, results: Sequence[Result], predicted: Sequence[int]) -> Sequence[Result]:
        """The results with intervals that hold at all rounds together, where images may stop after
        any of them; as they are where none may.

        Each is the Clopper-Pearson interval at the confidence of one of several looks
        (:func:`robaudit.numerics.looks.confidence_of_each`).

        Args:
            results: of the images of a chunk.
            predicted: their predicted classes.
        """
        estimator = self.task.estimator
        most = estimator.most_draws
        may_stop = self.flag is not None and estimator.quantity == P_ROBUST
        if not may_stop or self.draws is None or most is None:
            return results
        each = confidence_of_each(ROW_CONFIDENCE, looks_of(most))
        counted = [
            (place, result.votes)
            for place, result in enumerate(results)
            if result.votes is not None and result.interval.kind is IntervalKind.CLOPPER_PEARSON
        ]
        draws = [votes.draws for _, votes in counted]
        kept = [votes.for_class(predicted[place]) for place, votes in counted]
        lower, upper = (ends.tolist() for ends in clopper_pearson(kept, draws, each))
        changed = list(results)
        for (place, _), n, k, low, high in zip(counted, draws, kept, lower, upper, strict=True):
            # The mean of the Jeffreys posterior: shares of 0 and 1 get a positive error, too.
            p = (k + 0.5) / (n + 1)
            changed[place] = replace(
                results[place],
                lower=low,
                upper=high,
                std_error=math.sqrt(p * (1 - p) / (n + 1)),
                interval=Interval(IntervalKind.CONFIDENCE_SEQUENCE),
            )
        return changed


def rounds_of(tasks: Iterable[Task], *, others_first: bool = False) -> tuple[Round, ...]:
    """The rounds of an audit with these tasks.

    Args:
        tasks: of the audit.
        others_first: whether estimators that compute an image at once do so in the first round.
    """
    most = max((task.estimator.most_draws or 0 for task in tasks), default=0)
    if not most:
        return (Round(0, 1.0),)
    return tuple(
        Round(draws, 1.0 if others_first else draws / most) for draws in draws_of_rounds(most)
    )


def work_of(
    tasks: Sequence[Task],
    missing: Mapping[int, int],
    this_round: Round,
    *,
    turn: bool,
    flag: float | None,
) -> tuple[Work, ...]:
    """What a sample lacks in a round.

    Args:
        tasks: of the audit.
        missing: the tasks, by index, whose final result it lacks, each with its copies so far.
        this_round: the round.
        turn: whether its turn has come for tasks without rounds.
        flag: see :class:`Work`.
    """
    work = []
    for index, start in missing.items():
        task = tasks[index]
        most = task.estimator.most_draws
        if most is None:
            if turn:
                work.append(Work(task))
            continue
        draws = min(most, this_round.draws)
        if draws > start:
            work.append(Work(task, start, draws, flag))
    return tuple(work)
