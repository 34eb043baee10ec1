"""`mc`: the fraction of noisy copies that keep the predicted class, with a fixed or adaptive number
of draws.

Adaptive stopping uses only an image's own counts after fixed numbers of draws: its row depends on
no other image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.votes import FIRST, Counts, count_votes, flip_by_votes, in_rounds
from robaudit.numerics.intervals import clopper_pearson
from robaudit.numerics.sequences import Floats, Prior, confidence_sequence, deciding_sequence
from robaudit.quantities import P_ROBUST, Interval, IntervalKind
from robaudit.results import MOST_STORED_DRAWS, Result, Votes
from robaudit.runs.rows import bits_as_text
from robaudit.spec.fields import SAMPLES_ARE_DRAWS

_HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors
# With a tolerance the prior learns from .24 p (1 - p) / tolerance^2 draws, about a tenth of those
# that the tolerance takes, but never from more than a tenth of max_draws.
_LEARNING_SHARE = 0.24
_LEARNING_SHARE_OF_MOST = 0.1
# Mean draws of an image with `decide: 0.9` and max_draws 100,000: 936 on ResNet20 at sigma .05
# (docs/research/average_case.md, "Adaptive mc").
_USUAL_TO_DECIDE = 1000
# p (1 - p) = .09 at p = .9, times 1.7^2: at equal draws a confidence sequence is about 1.7 times as
# wide as an interval at a fixed number.
_USUAL_FOR_TOLERANCE = 0.26


class MonteCarlo(Estimator):
    """p = (noisy copies classified as the clean image) / draws, with the exact binomial
    (Clopper-Pearson) interval.

    Unbiased for any model, without gradients; its standard error is at most 1 / (2 sqrt(draws)).
    It counts every class's votes, which also gives the accuracy under noise. Prefer it whenever you
    can afford it: it is the reference for all other estimators.

    With ``tolerance`` or ``decide`` each image is analysed after 16, 24, 32, ... draws (an eighth
    more each time). It stops once its interval is no wider than 2 x 1.96 times the tolerance, or
    lies wholly above or below the probability to decide, whichever comes first. A row that reached
    the tolerance without a decision, or ``max_draws`` without either, says "undecided". The images
    still open share full batches. The interval is then a confidence sequence
    (:func:`robaudit.numerics.sequences.confidence_sequence`): it covers 95 % at all analyses
    together, and is 1.5 to 1.8 times as wide as Clopper-Pearson at the same draws. The share of an
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
        draws = self.draws if rule is None else usual_draws(rule)
        return 1 + draws, 0

    def estimate(self, batch: ImageBatch) -> Sequence[Result]:
        """Count the votes of each image's noisy copies."""
        if not batch.noise.random:
            return results_of_one_copy(batch)
        rule = self._rule
        if rule is None:
            return self._fixed_number(batch)

        def count(images: Sequence[int], start: int, draws: int) -> Counts:
            """Copies by class among some draws of these images."""
            counts: Counts = count_votes(batch, images, start, draws).cpu().numpy()
            return counts

        return draw_until_stopped(rule, batch.predicted.tolist(), count)

    def _fixed_number(self, batch: ImageBatch) -> list[Result]:
        """The results from ``draws`` copies of each image."""
        predicted: list[int] = batch.predicted.tolist()
        images = len(predicted)
        n = self.draws
        # Whether each draw kept the class: with these bits `compare` pairs the draws of two runs.
        bits: Tensor | None = None
        if n <= MOST_STORED_DRAWS:
            bits = torch.empty((images, n), dtype=torch.bool, device=batch.x.device)
        counts: list[list[int]] = count_votes(batch, range(images), 0, n, bits).tolist()
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

    @property
    def _rule(self) -> StoppingRule | None:
        if self.tolerance is None and self.decide is None:
            return None
        return StoppingRule(self.tolerance, self.decide, self.max_draws)


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
    note: str = "",
    bits: str | None = None,
) -> Result:
    """The result of an image.

    Args:
        counts: copies by class, and last the copies with non-finite logits (classes + 1).
        predicted: the class of the clean image.
        lower, upper, error: interval and standard error of the share that keeps this class.
        interval: how the interval was made.
        note: of the stopping rule.
        bits: whether each draw kept the class, as text.
    """
    votes = tuple(counts[:-1])
    broken = counts[-1]
    n = sum(counts)
    notes = [note]
    if broken:
        notes.append(f"{broken} noisy copies gave non-finite logits, counted as flips")
    return Result(
        value=votes[predicted] / n,
        lower=lower,
        upper=upper,
        std_error=error,
        flips_to=flip_by_votes(votes, predicted),
        forwards=1 + n,
        interval=interval,
        note="; ".join(filter(None, notes)),
        votes=Votes(votes, broken, bits=bits),
    )


@dataclass(frozen=True, slots=True)
class StoppingRule:
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
        # Without a tolerance no interval is narrow enough.
        width = -1.0 if self.tolerance is None else 2 * _HALF_WIDTH * self.tolerance
        return upper - lower <= width

    def decided(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Whether the interval lies wholly on one side (the threshold itself counts as above)."""
        # Comparisons with NaN are false: without a threshold nothing is decided.
        threshold = np.nan if self.decide is None else self.decide
        return (lower >= threshold) | (upper < threshold)

    def remark(self, lower: float, upper: float) -> str:
        """The row's note if the rule was not met."""
        ends = np.asarray(lower), np.asarray(upper)
        if self.decide is None:
            return "" if self.narrow(*ends) else "undecided: the tolerance was not reached"
        return "" if self.decided(*ends) else f"undecided: the interval contains {self.decide:g}"


class _ConfidenceSequences:
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

    def __init__(self, images: int, rule: StoppingRule) -> None:
        self._rule = rule
        # the counts in each image's prior (images,)
        self._kept = np.zeros(images)
        self._lost = np.zeros(images)
        # A wide tolerance may need no learning: then Jeffreys' prior serves from the first draw.
        self._ready = np.full(images, self._learned(0.0, 0.0, FIRST / 2))

    def intervals(
        self, images: NDArray[np.int64], kept: Floats, lost: Floats
    ) -> tuple[Floats, Floats]:
        """The current intervals of some images.

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
        ends_learning = ~ready & self._learned(kept, lost, kept + lost)
        learners = images[ends_learning]
        self._kept[learners] = kept[ends_learning]
        self._lost[learners] = lost[ends_learning]
        self._ready[learners] = True
        prior_kept = self._kept[images]
        prior_lost = self._lost[images]
        # the Jeffreys posterior of the first draws, Beta(1/2 + kept, 1/2 + lost)
        prior = Prior((1.0,), (0.5 + prior_kept,), (0.5 + prior_lost,))
        # The draws in the prior must not count again in the martingale.
        counted_kept = np.where(ready, kept - prior_kept, 0.0)
        counted_lost = np.where(ready, lost - prior_lost, 0.0)
        lower, upper = confidence_sequence(counted_kept, counted_lost, prior=prior)
        share = kept / (kept + lost)
        return np.minimum(lower, share), np.maximum(upper, share)

    def _learned(
        self, kept: Floats | float, lost: Floats | float, draws: Floats | float
    ) -> NDArray[np.bool_]:
        """Whether the prior has its tenth of the draws, or a tenth of the most draws."""
        tolerance = self._rule.tolerance or np.inf
        total = np.add(kept, lost)
        # p (1 - p) with Laplace's rule for p, (kept + 1) / (draws + 2): never 0
        variance = np.add(kept, 1.0) * np.add(lost, 1.0) / (total + 2.0) ** 2
        by_tolerance = _LEARNING_SHARE * variance / tolerance**2
        by_most = _LEARNING_SHARE_OF_MOST * self._rule.most
        learned: NDArray[np.bool_] = np.asarray(draws >= np.minimum(by_tolerance, by_most))
        return learned


def draw_until_stopped(
    rule: StoppingRule, predicted: Sequence[int], count: Callable[[Sequence[int], int, int], Counts]
) -> list[Result]:
    """Draw until every image meets the rule.

    Args:
        rule: when an image stops.
        predicted: class of each clean image (n,).
        count: as in :func:`in_rounds`.

    Returns:
        The result of each image, in order.
    """
    sequences = _ConfidenceSequences(len(predicted), rule)
    target = np.asarray(predicted, dtype=np.int64)

    def results_so_far(images: NDArray[np.int64], votes: Counts, draws: int) -> list[Result | None]:
        """The result of each image that stops now; None for the others."""
        kept = votes[np.arange(len(images)), target[images]].astype(np.float64)
        lower, upper = sequences.intervals(images, kept, draws - kept)
        met = rule.narrow(lower, upper) | rule.decided(lower, upper)
        stop = met | (draws >= rule.most)
        columns = (stop, votes, target[images], lower, upper)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [_stopped(rule, *row) if stops else None for stops, *row in rows]

    return in_rounds(len(predicted), rule.most, count, results_so_far)


def _stopped(
    rule: StoppingRule, counts: Sequence[int], predicted: int, lower: float, upper: float
) -> Result:
    """The result of an image that stops, with the interval of its confidence sequence."""
    n = sum(counts)
    # The mean of the Jeffreys posterior: shares of 0 and 1 get a positive error, too.
    p = (counts[predicted] + 0.5) / (n + 1)
    error = math.sqrt(p * (1 - p) / (n + 1))
    return _result(
        counts,
        predicted,
        lower,
        upper,
        error,
        interval=Interval(IntervalKind.CONFIDENCE_SEQUENCE),
        note=rule.remark(lower, upper),
    )


def usual_draws(rule: StoppingRule) -> int:
    """The typical number of draws, for planning.

    For a decision it is the mean over a network's images, for a tolerance the number at p = .9.
    """
    draws = rule.most
    if rule.decide is not None:
        draws = min(draws, _USUAL_TO_DECIDE)
    if rule.tolerance is not None:
        draws = min(draws, int(_USUAL_FOR_TOLERANCE / rule.tolerance**2))
    return max(FIRST, draws)
