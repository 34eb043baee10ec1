"""When has an image had enough noisy copies, and what is known of it then?

Nothing but an image's own counts, at looks after fixed numbers of draws, decides: its row depends on no other image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.numerics.sequences import Floats, Prior, confidence_sequence, deciding_sequence

FIRST = 16
"""Draws at the first look."""

_STEP, _GROWTH = 8, 8
_HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors
_LEARN = 0.24  # of pq / tolerance^2 draws: about a tenth of those that the tolerance takes
_LEARN_MOST = 0.1  # of max_samples
_USUAL_TO_DECIDE, _USUAL_FOR_TOLERANCE = 1000, 0.26

Counts = NDArray[np.int64]


def next_look(draws: int, most: int) -> int:
    """Draws at the look after this one: an eighth more, in steps of 8 (a stop comes late by a sixteenth on average)."""
    return min(most, draws + max(_STEP, draws // _GROWTH // _STEP * _STEP) if draws else FIRST)


@dataclass(frozen=True, slots=True)
class Rule:
    """When an image stops.

    Attributes:
        tolerance: standard error: stop when the 95 % sequence is no wider than 2 x 1.96 of it; None: never for that.
        decide: probability: stop when the sequence lies wholly on one side of it; None: never for that.
        most: draws at which it ends anyway.
    """

    tolerance: float | None
    decide: float | None
    most: int

    def narrow(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Whether the tolerance is reached."""
        enough = -1.0 if self.tolerance is None else 2 * _HALF_WIDTH * self.tolerance
        return upper - lower <= enough

    def decided(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """Whether the interval lies wholly on one side (the threshold itself counts as above)."""
        threshold = np.nan if self.decide is None else self.decide
        return (lower >= threshold) | (upper < threshold)

    def remark(self, lower: float, upper: float) -> str:
        """What the row says when it could not do what was asked."""
        ends = np.asarray(lower), np.asarray(upper)
        if self.decide is None:
            return "" if self.narrow(*ends) else "undecided: the tolerance was not reached"
        return "" if self.decided(*ends) else f"undecided: the interval straddles {self.decide:g}"


class Sequences:
    """The confidence sequences of a chunk's images.

    To decide, :func:`robaudit.numerics.sequences.deciding_sequence` uses all draws. For a tolerance the number of draws is known
    beforehand but for p (1 - p), and the first tenth of them is spent on the prior: their Jeffreys posterior. The sequence then uses
    the draws after them, and is [0, 1] before. That prior is fixed when those draws begin, so the martingale starts at 1 there, and
    Ville's inequality holds as ever; it takes seven tenths of the draws that Jeffreys' prior on all of them takes. The interval is
    stretched to the value over all draws, should it not hold it.

    Args:
        images: how many.
        rule: when they stop.
    """

    def __init__(self, images: int, rule: Rule) -> None:
        self._rule = rule
        self._kept, self._lost = np.zeros(images), np.zeros(images)  # what the prior has learned from
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
        self._kept[begin], self._lost[begin], self._ready[begin] = kept[first], lost[first], True
        kept0, lost0 = self._kept[images], self._lost[images]
        prior = Prior((1.0,), (0.5 + kept0,), (0.5 + lost0,))
        lower, upper = confidence_sequence(np.where(ready, kept - kept0, 0.0), np.where(ready, lost - lost0, 0.0), prior=prior)
        share = kept / (kept + lost)
        return np.minimum(lower, share), np.maximum(upper, share)

    def _learned(self, kept: Floats | float, lost: Floats | float, draws: Floats | float) -> NDArray[np.bool_]:
        """Whether the prior has had its tenth, or a tenth of the most draws."""
        tolerance = self._rule.tolerance or np.inf
        total = np.add(kept, lost)
        variance = np.add(kept, 1.0) * np.add(lost, 1.0) / (total + 2.0) ** 2
        found: NDArray[np.bool_] = np.asarray(draws >= np.minimum(_LEARN * variance / tolerance**2, _LEARN_MOST * self._rule.most))
        return found


@dataclass(frozen=True, slots=True)
class Stopped:
    """An image that needs no more draws.

    Attributes:
        counts: its copies by class, and last those whose logits were not finite.
        lower, upper: its 95 % confidence sequence.
        note: what it could not do.
    """

    counts: Sequence[int]
    lower: float
    upper: float
    note: str


def sample(rule: Rule, predicted: Sequence[int], count: Callable[[Sequence[int], int, int], Counts]) -> list[Stopped]:
    """Draw in rounds, each for the images that are still open.

    Args:
        rule: when an image stops.
        predicted: class of each clean image (n,).
        count: (images, start, draws) -> copies by class (images, classes + 1), of so many draws from number ``start`` on.

    Returns:
        One for each image, in order.
    """
    found: dict[int, Stopped] = {}
    sequences, target = Sequences(len(predicted), rule), np.asarray(predicted, dtype=np.int64)
    images, draws, votes = np.arange(len(predicted)), 0, np.zeros((len(predicted), 1), dtype=np.int64)
    while len(images):
        look = next_look(draws, rule.most)
        votes = votes + count(images.tolist(), draws, look - draws)
        draws = look
        kept = votes[np.arange(len(images)), target[images]].astype(np.float64)
        lower, upper = sequences.look(images, kept, draws - kept)
        stop = rule.narrow(lower, upper) | rule.decided(lower, upper) | (draws >= rule.most)
        for row in np.flatnonzero(stop).tolist():
            ends = float(lower[row]), float(upper[row])
            found[int(images[row])] = Stopped(votes[row].tolist(), *ends, rule.remark(*ends))
        images, votes = images[~stop], votes[~stop]
    return [found[b] for b in range(len(predicted))]


def usual_draws(rule: Rule) -> int:
    """About what an image takes, for planning: to decide, the mean over the images of a network; for a tolerance, at p = .9."""
    to_decide = rule.most if rule.decide is None else _USUAL_TO_DECIDE
    for_tolerance = rule.most if rule.tolerance is None else int(_USUAL_FOR_TOLERANCE / rule.tolerance**2)
    return max(FIRST, min(rule.most, to_decide, for_tolerance))
