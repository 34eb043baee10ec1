"""A reference estimator of the tests' own, as a third party would write one: it stands in where the
family average_case is taken away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import Field

from robaudit import (
    P_ROBUST,
    Estimator,
    ImageBatch,
    Interval,
    IntervalKind,
    Need,
    Result,
    Votes,
    clopper_pearson,
)
from robaudit.engine.votes import count_votes, flip_by_votes
from robaudit.results import MOST_STORED_DRAWS
from robaudit.runs.rows import bits_as_text


class StandIn(Estimator):
    """The share of noisy copies that keep the class, with the exact binomial interval."""

    quantity = P_ROBUST
    needs = Need.LEVEL
    interval = Interval(IntervalKind.CLOPPER_PEARSON)
    summary = "share of noisy copies that keep the class"
    prefer = "where there is nothing else"
    source = "Clopper and Pearson 1934"

    draws: int = Field(1000, ge=1, description="noisy copies of each image")

    @property
    def fixed_draws(self) -> int:
        """The copies."""
        return self.draws

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, and one for each copy."""
        return 1 + self.draws, 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Count the votes."""
        predicted = batch.predicted.tolist()
        draws = self.draws if batch.noise.random else 1
        same = torch.empty((len(predicted), draws), dtype=torch.bool, device=batch.x.device)
        votes = count_votes(batch, range(len(predicted)), 0, draws, same).tolist()
        texts = bits_as_text(same) if draws <= MOST_STORED_DRAWS else [None] * len(predicted)
        return [
            self._result(row, label, draws, bits, random=batch.noise.random)
            for row, label, bits in zip(votes, predicted, texts, strict=True)
        ]

    def _result(
        self, row: Sequence[int], label: int, draws: int, bits: str | None, *, random: bool
    ) -> Result:
        counts = tuple(row[:-1])
        lost = row[-1]
        same = counts[label]
        value = same / draws
        lower, upper = clopper_pearson(same, draws) if random else (value, value)
        return Result(
            value,
            lower=float(lower),
            upper=float(upper),
            std_error=math.sqrt(value * (1 - value) / (draws - 1)) if draws > 1 else None,
            flips_to=flip_by_votes(counts, label),
            forwards=1 + draws,
            interval=self.interval if random else Interval(IntervalKind.EXACT),
            votes=Votes(counts, lost, bits=bits if 0 < same < draws else None),
        )
