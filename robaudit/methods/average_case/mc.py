"""`mc`: the fraction of noisy copies that keep the predicted class, with a fixed or adaptive number
of draws.

Adaptive stopping looks only at an image's own counts after fixed numbers of draws: its row depends
on no other image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.votes import FIRST, Counts, count_votes, flip_by_votes, in_rounds
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.sequences import Floats, Prior, confidence_sequence, deciding_sequence
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.results import MOST_STORED_DRAWS, Result, Votes
from robaudit.runs.rows import packed
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

_HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors
_LEARN = 0.24  # of pq / tolerance^2 draws: about a tenth of the draws that the tolerance takes
_LEARN_MOST = 0.1  # of max_draws
_USUAL_TO_DECIDE = 1000
_USUAL_FOR_TOLERANCE = 0.26


class MonteCarlo(Estimator):
    """p = (noisy copies classified as the clean image) / draws, with the exact binomial
    (Clopper-Pearson) interval.

    Unbiased for any model, without gradients; its standard error is at most 1 / (2 sqrt(draws)).
    It counts every class's votes, which also gives the accuracy under noise. Prefer it whenever you
    can afford it: it is the reference for all other estimators.

    With ``tolerance`` or ``decide`` each image is looked at after 16, 24, 32, ... draws (an eighth
    more each time). It stops once its interval is no wider than 2 x 1.96 times the tolerance, or
    lies wholly above or below the probability to decide, whichever comes first. A row that reached
    the tolerance without a decision, or ``max_draws`` without either, says "undecided". The
    images still open share full batches. The interval is then a confidence sequence
    (:func:`robaudit.numerics.sequences.confidence_sequence`): 95 % however often you look, at the
    price of being 1.5 to 1.8 times as wide as Clopper-Pearson at the same draws. The share of an
    image that stopped early is biased to the side where it stopped, by less than its interval says,
    and so is a mean over these images (by .01 on ResNet20 at sigma .05): take fixed ``draws`` for
    means. A tolerance saves draws only where most images are near 0 or 1.

    Source: Han et al., Average-case robustness, section 3.1 (p_mc); the sequence: Robbins 1970,
    Howard et al. 2021.
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
    tolerance: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="standard error at which an image stops, instead of a fixed number of copies",
    )
    decide: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="probability: an image stops when its interval lies on one side of it, "
        "instead of a fixed number",
    )
    max_draws: int = Field(
        100_000,
        ge=FIRST,
        le=10**8,
        description="with a tolerance or a decision: the most copies of an image",
    )

    @property
    def fixed_draws(self) -> int | None:
        """``draws``, unless images stop adaptively."""
        return self.draws if self._rule is None else None

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass and a pass per draw; with a tolerance or a decision a typical number
        (:func:`usual_draws`)."""
        rule = self._rule
        return 1 + (self.draws if rule is None else usual_draws(rule)), 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Count the votes of each image's noisy copies."""
        if not batch.noise.random:
            return looked_once(batch)
        predicted: list[int] = batch.predicted.tolist()
        if (rule := self._rule) is not None:
            return sample(rule, predicted, lambda *part: count_votes(batch, *part).cpu().numpy())
        n = self.draws
        stored = self.draws <= MOST_STORED_DRAWS
        bits = (
            torch.empty((len(predicted), n), dtype=torch.bool, device=batch.x.device)
            if stored
            else None
        )
        counts: list[list[int]] = count_votes(batch, range(len(predicted)), 0, n, bits).tolist()
        kept = [row[t] for row, t in zip(counts, predicted, strict=True)]
        errors = [math.sqrt(k / n * (1 - k / n) / (n - 1)) if n > 1 else None for k in kept]
        lower, upper = (ends.tolist() for ends in clopper_pearson(kept, [n] * len(kept)))
        texts = (
            [None] * len(kept)
            if bits is None
            else [t if 0 < k < n else None for k, t in zip(kept, packed(bits), strict=True)]
        )
        return [
            _result(*row, interval=self.interval, bits=text)
            for *row, text in zip(counts, predicted, lower, upper, errors, texts, strict=True)
        ]

    @property
    def _rule(self) -> Rule | None:
        if self.tolerance is None and self.decide is None:
            return None
        return Rule(self.tolerance, self.decide, self.max_draws)


def looked_once(batch: ImageBatch) -> list[Result]:
    """Results from one copy of each image, for deterministic noise: p is 0 or 1, and exactly
    known."""
    counts: list[list[int]] = count_votes(batch, range(len(batch.x)), 0, 1).tolist()
    exact = Interval(IntervalKind.EXACT)
    return [
        _result(row, target, float(row[target]), float(row[target]), 0.0, interval=exact)
        for row, target in zip(counts, batch.predicted.tolist(), strict=True)
    ]


def _result(
    counts: Sequence[int],
    predicted: int,
    lower: float,
    upper: float,
    error: float | None,
    *,
    interval: Interval,
    note: str = "",
    bits: str | None = None,
) -> Result:
    votes = tuple(counts[:-1])
    broken = counts[-1]
    n = sum(counts)
    lost = f"{broken} noisy copies gave non-finite logits, counted as flips" if broken else ""
    return Result(
        value=votes[predicted] / n,
        lower=lower,
        upper=upper,
        std_error=error,
        flips_to=flip_by_votes(votes, predicted),
        forwards=1 + n,
        interval=interval,
        note="; ".join(filter(None, [note, lost])),
        votes=Votes(votes, broken, bits=bits),
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """When an image stops.

    Attributes:
        tolerance: standard error: stop once the 95 % sequence is no wider than 2 x 1.96 times it;
            None: ignored.
        decide: probability: stop once the sequence lies wholly on one side of it; None: ignored.
        most: draws at which the image stops anyway.
    """

    tolerance: float | None
    decide: float | None
    most: int

    def narrow(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Whether the interval has reached the tolerance."""
        width = -1.0 if self.tolerance is None else 2 * _HALF_WIDTH * self.tolerance
        return upper - lower <= width

    def decided(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Whether the interval lies wholly on one side (the threshold itself counts as above)."""
        threshold = np.nan if self.decide is None else self.decide
        return (lower >= threshold) | (upper < threshold)

    def remark(self, lower: float, upper: float) -> str:
        """The row's note if the rule was not met."""
        ends = np.asarray(lower), np.asarray(upper)
        if self.decide is None:
            return "" if self.narrow(*ends) else "undecided: the tolerance was not reached"
        return "" if self.decided(*ends) else f"undecided: the interval contains {self.decide:g}"


class Sequences:
    """The confidence sequences of a chunk's images.

    For a decision, :func:`robaudit.numerics.sequences.deciding_sequence` uses all draws. For a
    tolerance the number of draws is known in advance up to p (1 - p), and the first tenth of them
    is spent on the prior: their Jeffreys posterior. The sequence then uses the draws that follow,
    and is [0, 1] before. The prior is fixed before those draws, so the martingale starts at 1
    there, and Ville's inequality holds; this takes seven tenths of the draws that Jeffreys' prior
    needs on all of them. If the interval does not contain the share over all draws, it is extended
    to it.

    Args:
        images: number of images.
        rule: when they stop.
    """

    def __init__(self, images: int, rule: Rule) -> None:
        self._rule = rule
        # counts that the prior has learned from
        self._kept = np.zeros(images)
        self._lost = np.zeros(images)
        self._ready = np.full(images, self._learned(0.0, 0.0, FIRST / 2))

    def look(self, images: NDArray[np.int64], kept: Floats, lost: Floats) -> tuple[Floats, Floats]:
        """The intervals of some images now.

        Args:
            images: their indices (n,).
            kept: copies with the class of the clean image so far (n,).
            lost: the other copies (n,).

        Returns:
            (lower, upper), float64 (n,).
        """
        if self._rule.decide is not None:
            return deciding_sequence(kept, lost, self._rule.decide)
        ready = self._ready[images]
        first = ~ready & self._learned(kept, lost, kept + lost)
        begin = images[first]
        self._kept[begin] = kept[first]
        self._lost[begin] = lost[first]
        self._ready[begin] = True
        kept0 = self._kept[images]
        lost0 = self._lost[images]
        prior = Prior((1.0,), (0.5 + kept0,), (0.5 + lost0,))
        lower, upper = confidence_sequence(
            np.where(ready, kept - kept0, 0.0), np.where(ready, lost - lost0, 0.0), prior=prior
        )
        share = kept / (kept + lost)
        return np.minimum(lower, share), np.maximum(upper, share)

    def _learned(
        self, kept: Floats | float, lost: Floats | float, draws: Floats | float
    ) -> NDArray[np.bool_]:
        """Whether the prior has its tenth of the draws, or a tenth of the most draws."""
        tolerance = self._rule.tolerance or np.inf
        total = np.add(kept, lost)
        variance = np.add(kept, 1.0) * np.add(lost, 1.0) / (total + 2.0) ** 2
        learned: NDArray[np.bool_] = np.asarray(
            draws >= np.minimum(_LEARN * variance / tolerance**2, _LEARN_MOST * self._rule.most)
        )
        return learned


def sample(
    rule: Rule, predicted: Sequence[int], count: Callable[[Sequence[int], int, int], Counts]
) -> list[Result]:
    """Draw until every image meets the rule.

    Args:
        rule: when an image stops.
        predicted: class of each clean image (n,).
        count: as in :func:`in_rounds`.

    Returns:
        The result of each image, in order.
    """
    sequences = Sequences(len(predicted), rule)
    target = np.asarray(predicted, dtype=np.int64)

    def look(images: NDArray[np.int64], votes: Counts, draws: int) -> list[Result | None]:
        kept = votes[np.arange(len(images)), target[images]].astype(np.float64)
        lower, upper = sequences.look(images, kept, draws - kept)
        stop = rule.narrow(lower, upper) | rule.decided(lower, upper) | (draws >= rule.most)
        rows = zip(
            stop.tolist(),
            votes.tolist(),
            target[images].tolist(),
            lower.tolist(),
            upper.tolist(),
            strict=True,
        )
        return [_stopped(rule, *row) if done else None for done, *row in rows]

    return in_rounds(len(predicted), rule.most, count, look)


def _stopped(
    rule: Rule, counts: Sequence[int], predicted: int, lower: float, upper: float
) -> Result:
    n = sum(counts)
    p = (counts[predicted] + 0.5) / (n + 1)  # 0 and 1 have an error, too
    error = math.sqrt(p * (1 - p) / (n + 1))
    interval = Interval(IntervalKind.CONFIDENCE_SEQUENCE)
    return _result(
        counts, predicted, lower, upper, error, interval=interval, note=rule.remark(lower, upper)
    )


def usual_draws(rule: Rule) -> int:
    """The typical number of draws, for planning: for a decision, the mean over a network's images;
    for a tolerance, at p = .9."""
    to_decide = rule.most if rule.decide is None else _USUAL_TO_DECIDE
    for_tolerance = (
        rule.most if rule.tolerance is None else int(_USUAL_FOR_TOLERANCE / rule.tolerance**2)
    )
    return max(FIRST, min(rule.most, to_decide, for_tolerance))
