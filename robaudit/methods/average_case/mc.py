"""`mc`: the fraction of noisy copies that keep the predicted class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.votes import count_votes, flip_by_votes
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.results import MOST_STORED_DRAWS, Result, Votes
from robaudit.runs.rows import bits_as_text, bits_of_votes
from robaudit.spec.fields import SAMPLES_ARE_DRAWS


class MonteCarlo(Estimator):
    """p = (noisy copies classified as the clean image) / draws, with the exact binomial
    (Clopper-Pearson) interval.

    Unbiased for any model, without gradients; its standard error is at most 1 / (2 sqrt(draws)).
    It counts every class's votes, which also gives the accuracy under noise. Prefer it whenever you
    can afford it: it is the reference for all other estimators. A run takes the copies in rounds,
    so that it can be read, and stopped, long before all of them are taken.

    Source: Han et al., Average-case robustness, section 3.1 (p_mc).
    """

    quantity = P_ROBUST
    needs = Need.LEVEL
    interval = Interval(IntervalKind.CLOPPER_PEARSON)
    summary = "fraction of noisy copies that keep the predicted class"
    prefer = (
        "the reference: unbiased for any model, with an exact interval; costs `draws` "
        "forward passes"
    )
    source = "Han et al., p_mc"

    renamed = SAMPLES_ARE_DRAWS
    draws: int = Field(1000, ge=1, le=10**8, description="noisy copies of each image")

    @property
    def most_draws(self) -> int:
        """``draws``."""
        return self.draws

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and a pass per draw."""
        return 1 + self.draws, 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Count the votes of each image's noisy copies."""
        return self.further(batch, None, self.draws)

    def further(
        self, batch: ImageBatch, earlier: Sequence[Result] | None, draws: int
    ) -> Sequence[Result]:
        """Add the votes of the copies that are new."""
        if not batch.noise.random:
            return results_of_one_copy(batch)
        predicted: list[int] = batch.predicted.tolist()
        images = len(predicted)
        votes_so_far = [result.votes for result in earlier or () if result.votes is not None]
        start = votes_so_far[0].draws if votes_so_far else 0
        # Whether each draw kept the class: with these bits `compare` pairs the draws of two runs.
        bits: Tensor | None = None
        if draws <= MOST_STORED_DRAWS:
            bits = torch.empty((images, draws - start), dtype=torch.bool, device=batch.x.device)
        new_counts = count_votes(batch, range(images), start, draws - start, bits)
        counts: list[list[int]] = new_counts.tolist()
        if votes_so_far:
            counts = _added(counts, votes_so_far)
            if bits is not None:
                bits = torch.cat([_bits_so_far(votes_so_far, predicted, start), bits.cpu()], dim=1)
        return self._results(counts, predicted, draws, bits)

    def _results(
        self, counts: Sequence[Sequence[int]], predicted: Sequence[int], n: int, bits: Tensor | None
    ) -> list[Result]:
        """The results from ``n`` copies of each image.

        Args:
            counts: copies by class, and last the copies with non-finite logits (classes + 1), of
                each image.
            predicted: the class of each clean image.
            n: number of copies.
            bits: whether each draw kept the class (images, n), bool; None: not recorded.
        """
        images = len(predicted)
        kept = [votes[target] for votes, target in zip(counts, predicted, strict=True)]
        lower, upper = (ends.tolist() for ends in clopper_pearson(kept, [n] * images))
        texts: Iterable[str | None] = [None] * images
        if bits is not None:
            texts = bits_as_text(bits)
        rows = zip(counts, predicted, kept, lower, upper, texts, strict=True)
        results = []
        for votes, target, kept_votes, low, high, text in rows:
            result = _result(
                votes,
                target,
                low,
                high,
                _standard_error(kept_votes, n),
                interval=self.interval,
                # Equal bits need no text: the count says them all.
                bits=text if 0 < kept_votes < n else None,
            )
            results.append(result)
        return results


def _added(counts: Sequence[Sequence[int]], earlier: Sequence[Votes]) -> list[list[int]]:
    """The copies by class, and last those with non-finite logits, with the earlier votes."""
    before = np.array([[*votes.counts, votes.lost] for votes in earlier], dtype=np.int64)
    total: list[list[int]] = (before + np.array(counts, dtype=np.int64)).tolist()
    return total


def _bits_so_far(earlier: Sequence[Votes], predicted: Sequence[int], draws: int) -> Tensor:
    """Whether each earlier draw kept the class (images, draws), bool."""
    rows = []
    for votes, target in zip(earlier, predicted, strict=True):
        bits = bits_of_votes(votes, target)
        if bits is None or len(bits) != draws:
            raise ValueError("the earlier results do not say which draws kept the class")
        rows.append(bits)
    return torch.from_numpy(np.stack(rows))


def results_of_one_copy(batch: ImageBatch) -> list[Result]:
    """The results from one copy of each image, for deterministic noise.

    p is 0 or 1, and exactly known.
    """
    images = range(len(batch.x))
    counts: list[list[int]] = count_votes(batch, images, 0, 1).tolist()
    exact = Interval(IntervalKind.EXACT)
    results = []
    for votes, target in zip(counts, batch.predicted.tolist(), strict=True):
        p = float(votes[target])
        results.append(_result(votes, target, p, p, 0.0, interval=exact))
    return results


def _standard_error(kept: int, draws: int) -> float | None:
    """sqrt(p (1 - p) / (n - 1)), from the unbiased estimate of the variance of a vote; None for a
    single draw."""
    if draws == 1:
        return None
    return math.sqrt(kept / draws * (1 - kept / draws) / (draws - 1))


def _result(
    counts: Sequence[int],
    predicted: int,
    lower: float,
    upper: float,
    error: float | None,
    *,
    interval: Interval,
    bits: str | None = None,
) -> Result:
    """The result of an image.

    Args:
        counts: copies by class, and last the copies with non-finite logits (classes + 1).
        predicted: the class of the clean image.
        lower, upper, error: interval and standard error of the share that keeps this class.
        interval: how the interval was made.
        bits: whether each draw kept the class, as text.
    """
    votes = tuple(counts[:-1])
    broken = counts[-1]
    n = sum(counts)
    note = ""
    if broken:
        note = f"{broken} noisy copies gave non-finite logits, counted as flips"
    return Result(
        value=votes[predicted] / n,
        lower=lower,
        upper=upper,
        std_error=error,
        flips_to=flip_by_votes(votes, predicted),
        forwards=1 + n,
        interval=interval,
        note=note,
        votes=Votes(votes, broken, bits=bits),
    )
