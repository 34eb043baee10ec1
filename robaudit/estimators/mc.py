"""`mc`: which fraction of noisy copies keeps the predicted class?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field

from robaudit.estimators import sizes
from robaudit.estimators.base import P_ROBUST, Estimate, Estimator, Need, Quantity
from robaudit.estimators.votes import flip_by_votes
from robaudit.estimators.work import Work
from robaudit.numerics.intervals import clopper_pearson


class MonteCarlo(Estimator):
    """p = (noisy copies classified as the clean image) / samples, with the exact binomial (Clopper-Pearson) interval.

    Unbiased for any model, without gradients; its standard error is at most 1 / (2 sqrt(samples)). Counts every class's votes,
    so the accuracy under noise comes with it. Prefer it wherever it can be afforded; everything else is judged against it.

    Args:
        samples: noisy copies of each image.

    Source: spec 1, estimator 1 (Han et al., p_mc).
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits"})
    summary: ClassVar[str] = "fraction of noisy copies that keep the predicted class"
    prefer: ClassVar[str] = "the reference: unbiased for any model, with an exact interval; costs `samples` forward passes"
    source: ClassVar[str] = "Han et al., p_mc"
    interval: ClassVar[str] = "clopper-pearson"

    samples: int = Field(10_000, ge=1, le=10**8, description="noisy copies of each image")

    def passes(self, classes: int) -> tuple[int, int]:
        """One clean pass and one for each draw."""
        return 1 + self.samples, 0

    def held(self, classes: int, values: int) -> int:
        """The votes."""
        return sizes.RECORD + sizes.votes(classes, self.samples)

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Count the votes of each image's noisy copies."""
        counts = self.votes(work)
        predicted = work.clean.predicted.tolist()
        kept = [row[t] for row, t in zip(counts, predicted, strict=True)]
        lower, upper = clopper_pearson(kept, [self.samples] * len(kept))
        return [self._estimate(*values) for values in zip(counts, predicted, lower.tolist(), upper.tolist(), strict=True)]

    def votes(self, work: Work) -> list[list[int]]:
        """Votes by class for each image, and last the copies whose logits were not finite."""
        bins = work.classes + 1
        votes = torch.zeros(len(work.x) * bins, dtype=torch.int64, device=work.x.device)
        for batch, logits in work.engine.noisy_logits(work.x, work.ids, work.sigma, self.samples):
            winner = torch.where(logits.isfinite().all(1), logits.argmax(1), work.classes)
            votes.index_add_(0, batch.image * bins + winner, torch.ones_like(winner))
        counts: list[list[int]] = votes.view(-1, bins).tolist()
        return counts

    def _estimate(self, counts: list[int], predicted: int, lower: float, upper: float) -> Estimate:
        votes, broken = counts[:-1], counts[-1]
        p = votes[predicted] / self.samples
        forwards, backwards = self.passes(len(votes))
        return Estimate(
            value=p,
            lower=lower,
            upper=upper,
            std_error=math.sqrt(p * (1 - p) / (self.samples - 1)) if self.samples > 1 else None,
            flips_to=flip_by_votes(votes, predicted),
            forwards=forwards,
            backwards=backwards,
            interval=self.interval,
            note=f"{broken} noisy copies gave non-finite logits, counted as flips" if broken else "",
            votes=tuple(votes),
            details={"not_finite": broken} if broken else None,
        )
