"""A reference estimator of the tests' own, as a third party would write one: it stands in where the
family average_case is taken away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
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
from robaudit.runs.rows import bits_as_text, bits_of_votes


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
    def most_draws(self) -> int:
        """The copies."""
        return self.draws

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, and one for each copy."""
        return 1 + self.draws, 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Count the votes."""
        return self.further(batch, None, self.draws)

    def further(
        self, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        """Count the votes of the copies that are new."""
        predicted = batch.predicted.tolist()
        draws = draws if batch.noise.random else 1
        so_far = [result.votes for result in earlier or () if result.votes is not None]
        start = so_far[0].draws if so_far else 0
        same = torch.empty((len(predicted), draws - start), dtype=torch.bool, device=batch.x.device)
        votes = count_votes(batch, range(len(predicted)), start, draws - start, same)
        if so_far:
            votes += torch.tensor([[*before.counts, before.lost] for before in so_far])
            bits = [bits_of_votes(*pair) for pair in zip(so_far, predicted, strict=True)]
            assert all(known is not None for known in bits)
            same = torch.cat([torch.from_numpy(np.stack(bits)), same], dim=1)  # type: ignore[arg-type]
        texts = bits_as_text(same) if draws <= MOST_STORED_DRAWS else [None] * len(predicted)
        return [
            self._result(row, label, draws, bits, random=batch.noise.random)
            for row, label, bits in zip(votes.tolist(), predicted, texts, strict=True)
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
