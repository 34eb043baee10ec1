"""How often an interval of any look misses, over many audits whose votes are drawn at the truth.

The copies of an image are independent, so their votes are those of a coin with its probability. The
images of the networks are real, with the probabilities that long audits found; the analyses are
those of an audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robaudit.auditing.rounds import draws_of_rounds
from robaudit.gates.decide import decide
from robaudit.gates.sources import parsed
from robaudit.numerics.intervals import clopper_pearson
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.runs.table import ResultTable
from tests.research.verdict.looks import STATISTICS, Errors, errors, schedule
from tests.research.verdict.pairs import MOST, Pair, Truth, long_audit, whole_audit

Bounds = tuple[float, float]


def of_these_images(pair: Pair, cache: Path, seeds: int) -> list[Errors]:
    """All looks at the same images."""
    run = long_audit(pair, cache)
    rows = list(run.rows)
    truth = Truth.of(run)
    seen = [_looks(run, rows, seed, population=False) for seed in range(seeds)]
    truths = (truth.mean, truth.worst_class)
    return [
        errors(f"{pair.name}: {statistic}", [bounds[k] for bounds in seen], truths[k])
        for k, statistic in enumerate(STATISTICS)
    ]


def of_the_population(pair: Pair, cache: Path, seeds: int, images: int) -> Errors:
    """All looks at random subsets of the whole data set, with the mean of all of it as the
    truth."""
    run = whole_audit(pair, cache)
    rows = list(run.rows)
    truth = float(np.mean([row.value for row in rows]))
    seen = []
    for seed in range(seeds):
        chosen = np.random.default_rng([seed, 1]).choice(len(rows), images, replace=False)
        seen.append(_looks(run, [rows[i] for i in chosen], seed, population=True)[0])
    return errors(f"{pair.name}, {images} of all: mean, population", seen, truth)


def _looks(run: Run, rows: Sequence[Row], seed: int, *, population: bool) -> list[list[Bounds]]:
    """The bounds of each statistic at each look of an audit."""
    rng = np.random.default_rng(seed)
    p = np.array([row.value for row in rows])
    kept = np.zeros(len(rows), dtype=np.int64)
    draws = 0
    until = schedule()
    gates = parsed([f"{statistic} >= 0.5" for statistic in STATISTICS], "gates")
    bounds: list[list[Bounds]] = [[] for _ in STATISTICS]
    for look in draws_of_rounds(MOST):
        kept += rng.binomial(look - draws, p)
        draws = look
        table = ResultTable.from_rows(_rows(rows, kept, draws))
        drawn = replace(run, rows=()).with_columns(table)
        for k, decision in enumerate(decide(drawn, gates, population=population, schedule=until)):
            assert decision.estimate.bounds is not None
            bounds[k].append(decision.estimate.bounds)
    return bounds


def _rows(rows: Sequence[Row], kept: NDArray[np.int64], draws: int) -> list[Row]:
    """The rows of an audit with these votes for the predicted class."""
    lower, upper = (ends.tolist() for ends in clopper_pearson(kept, np.full(len(kept), draws)))
    drawn = []
    for row, count, low, high in zip(rows, kept.tolist(), lower, upper, strict=True):
        assert row.votes is not None
        counts = [0] * len(row.votes.counts)
        counts[row.predicted - 1] = draws - count
        counts[row.predicted] = count
        votes = Votes(tuple(counts))
        drawn.append(replace(row, value=count / draws, lower=low, upper=high, votes=votes))
    return drawn
