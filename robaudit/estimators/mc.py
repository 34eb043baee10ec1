"""`mc`: which fraction of noisy copies keeps the predicted class?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field

from robaudit.estimators import adaptive, sizes
from robaudit.estimators.base import P_ROBUST, Estimate, Estimator, Need, Quantity
from robaudit.estimators.votes import flip_by_votes
from robaudit.estimators.work import Work
from robaudit.kept import MOST, packed
from robaudit.numerics.intervals import clopper_pearson


class MonteCarlo(Estimator):
    """p = (noisy copies classified as the clean image) / samples, with the exact binomial (Clopper-Pearson) interval.

    Unbiased for any model, without gradients; its standard error is at most 1 / (2 sqrt(samples)). Counts every class's votes,
    so the accuracy under noise comes with it. Prefer it wherever it can be afforded; everything else is judged against it.

    With ``tolerance`` or ``decide`` each image is looked at after 16, 24, 32, ... draws (an eighth more each time) and stops when it
    has enough; the images still open share full batches. Its interval is then a confidence sequence
    (:func:`robaudit.numerics.sequences.confidence_sequence`): 95 % however often one looks, at the price of a width 1.5 to 1.8 times
    that of Clopper-Pearson at the same draws. The share of an image that stopped early leans to the side where it stopped, by less
    than its interval says, and a mean over such images leans with it (by .01 on ResNet20 at sigma .05): take fixed ``samples`` for
    means. A tolerance saves draws only where most images are near 0 or 1.

    Args:
        samples: noisy copies of each image, without a tolerance and a decision.
        tolerance: stop an image when its interval is no wider than 2 x 1.96 of this standard error.
        decide: stop an image when its interval lies wholly above or below this probability. With a tolerance, too: at whichever
            is first; a row that has come to the tolerance without a decision says so.
        max_samples: the end of it; an image still open says "undecided".

    Source: spec 1, estimator 1 (Han et al., p_mc); the sequence: Robbins 1970, Howard et al. 2021.
    """

    quantity: ClassVar[Quantity] = P_ROBUST
    needs: ClassVar[frozenset[Need]] = frozenset({"logits"})
    summary: ClassVar[str] = "fraction of noisy copies that keep the predicted class"
    prefer: ClassVar[str] = "the reference: unbiased for any model, with an exact interval; costs `samples` forward passes"
    source: ClassVar[str] = "Han et al., p_mc"
    interval: ClassVar[str] = "clopper-pearson"

    samples: int = Field(10_000, ge=1, le=10**8, description="noisy copies of each image")
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="standard error at which an image stops, instead of a fixed number of copies"
    )
    decide: float | None = Field(
        None, gt=0, lt=1, description="probability: an image stops when its interval lies on one side of it, instead of a fixed number"
    )
    max_samples: int = Field(
        100_000, ge=adaptive.FIRST, le=10**8, description="with a tolerance or a decision: the most copies of an image"
    )

    def passes(self, classes: int) -> tuple[int, int]:
        """One clean pass and one for each draw; with a tolerance or a decision about what is usual (:func:`adaptive.usual_draws`)."""
        rule = self._rule
        return 1 + (self.samples if rule is None else adaptive.usual_draws(rule)), 0

    def with_draws(self, draws: int) -> Self | None:
        """See the base class."""
        return self._redrawn(draws, "tolerance", "decide", "max_samples")

    def held(self, classes: int, values: int) -> int:
        """The votes, and which draws they came from; with a tolerance or a decision a copy of the image while it is open."""
        rule = self._rule
        if rule is not None:
            return sizes.RECORD + sizes.votes(classes, rule.most) + 6 * values
        return sizes.RECORD + sizes.votes(classes, self.samples) + (2 * self.samples if self.samples <= MOST else 0)

    def estimate(self, work: Work) -> Sequence[Estimate]:
        """Count the votes of each image's noisy copies."""
        predicted: list[int] = work.clean.predicted.tolist()
        rule = self._rule
        if rule is not None:
            stopped = adaptive.sample(rule, predicted, lambda *part: count_votes(work, *part).cpu().numpy())
            return [self._adaptive(*row) for row in zip(stopped, predicted, strict=True)]
        bits = torch.empty((len(predicted), self.samples), dtype=torch.bool, device=work.x.device) if self.samples <= MOST else None
        counts: list[list[int]] = count_votes(work, range(len(predicted)), 0, self.samples, bits).tolist()
        kept = [row[t] for row, t in zip(counts, predicted, strict=True)]
        lower, upper = clopper_pearson(kept, [self.samples] * len(kept))
        texts = (
            [None] * len(kept) if bits is None else [t if 0 < k < self.samples else None for k, t in zip(kept, packed(bits), strict=True)]
        )
        return [self._fixed(*values) for values in zip(counts, predicted, lower.tolist(), upper.tolist(), texts, strict=True)]

    @property
    def _rule(self) -> adaptive.Rule | None:
        if self.tolerance is None and self.decide is None:
            return None
        return adaptive.Rule(self.tolerance, self.decide, self.max_samples)

    def _fixed(self, counts: list[int], predicted: int, lower: float, upper: float, kept: str | None) -> Estimate:
        p, n = counts[predicted] / self.samples, self.samples
        error = math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else None
        return replace(_estimate(counts, predicted, lower, upper, error, interval=self.interval), kept=kept)

    @staticmethod
    def _adaptive(stopped: adaptive.Stopped, predicted: int) -> Estimate:
        n = sum(stopped.counts)
        p = (stopped.counts[predicted] + 0.5) / (n + 1)  # 0 and 1 have an error, too
        error = math.sqrt(p * (1 - p) / (n + 1))
        return _estimate(
            stopped.counts,
            predicted,
            stopped.lower,
            stopped.upper,
            error,
            interval=adaptive.LABEL,
            note=stopped.note,
            details={"samples": n},
        )


def count_votes(work: Work, images: Sequence[int], start: int, draws: int, kept: torch.Tensor | None = None) -> torch.Tensor:
    """Votes of noisy copies by class, and last the copies whose logits were not finite.

    Args:
        work: the chunk.
        images: indices into it, in order (n,).
        start: number of the first draw.
        draws: how many of each image.
        kept: gets, for all images, whether each draw kept the class of the clean image (n, draws), bool.

    Returns:
        (n, classes + 1), int64.
    """
    bins = work.classes + 1
    everything = len(images) == len(work.x)
    x = work.x if everything and not start else work.x[list(images)]
    ids = [work.ids[b] for b in images]
    votes = torch.zeros(len(x) * bins, dtype=torch.int64, device=x.device)
    for batch, logits in work.engine.noisy_logits(x, ids, work.sigma, draws, start=start):
        winner = torch.where(logits.isfinite().all(1), logits.argmax(1), work.classes)
        votes.index_add_(0, batch.image * bins + winner, torch.ones_like(winner))
        if kept is not None:
            kept[batch.image, batch.draw] = winner == work.clean.predicted[batch.image]
    return votes.view(-1, bins)


def _estimate(
    counts: Sequence[int],
    predicted: int,
    lower: float,
    upper: float,
    error: float | None,
    *,
    interval: str,
    note: str = "",
    details: dict[str, float] | None = None,
) -> Estimate:
    votes, broken = tuple(counts[:-1]), counts[-1]
    n = sum(counts)
    lost = f"{broken} noisy copies gave non-finite logits, counted as flips" if broken else ""
    return Estimate(
        value=votes[predicted] / n,
        lower=lower,
        upper=upper,
        std_error=error,
        flips_to=flip_by_votes(votes, predicted),
        forwards=1 + n,
        backwards=0,
        interval=interval,
        note="; ".join(filter(None, [note, lost])),
        votes=votes,
        details={**(details or {}), **({"not_finite": broken} if broken else {})} or None,
    )
