"""What do the classes that noisy copies go to say: the likeliest flip, and the share that stays, with antithetic copies counted right?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.estimators.base import Estimate
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import Interval, IntervalKind


def flip_by_votes(votes: Sequence[int], predicted: int) -> int | None:
    """The other class with the most votes (the first of several), None where no copy flipped."""
    others = [(-count, c) for c, count in enumerate(votes) if c != predicted and count]
    return min(others)[1] if others else None


@dataclass(frozen=True, slots=True)
class Votes:
    """What the antithetic copies of an image were classified as.

    Attributes:
        by_class: copies by class.
        draws: copies in all.
        kept: share that kept the class of the clean image.
        worth: how many independent copies they are worth: draws / (1 + rho), rho > 0 the correlation of a pair's two indicators,
            draws / 2 where all agree.
    """

    by_class: tuple[int, ...]
    draws: int
    kept: float
    worth: float

    @classmethod
    def of(cls, winners: Tensor, predicted: int, classes: int) -> Votes:
        """Count them.

        Args:
            winners: winning class of each draw (draws,), -1 where the logits were not finite; pairs in turn.
            predicted: class of the clean image.
            classes: number of classes.
        """
        kept = (winners == predicted).double()
        n, p = len(kept), float(kept.mean())
        variance = p * (1 - p)
        rho = float(((kept[0::2] - p) * (kept[1::2] - p)).mean()) / variance if variance else 1.0
        by_class = torch.bincount(winners[winners >= 0], minlength=classes).tolist()
        return cls(tuple(by_class), n, p, n / (1 + max(0.0, rho)))

    @property
    def not_finite(self) -> int:
        """Copies whose logits were not finite."""
        return self.draws - sum(self.by_class)


def mc_instead(votes: Votes, predicted: int, shape: Mapping[str, float]) -> Estimate:
    """The votes of the same passes, for an image whose margins are not normal; the interval is that of as many independent draws as
    they are worth.

    Args:
        votes: of the noisy copies.
        predicted: class of the clean image.
        shape: skewness and kurtosis of the deciding margin.
    """
    n, p = votes.draws, votes.kept
    lower, upper = clopper_pearson([p * votes.worth], [votes.worth])
    return Estimate(
        value=p,
        lower=float(lower[0]),
        upper=float(upper[0]),
        std_error=math.sqrt(max(p * (1 - p), 1 / (4 * n)) / votes.worth),
        flips_to=flip_by_votes(votes.by_class, predicted),
        forwards=1 + n,
        backwards=0,
        interval=Interval(IntervalKind.CLOPPER_PEARSON),
        note=f"margins are not normal (skewness {shape['skewness']:.2f}, kurtosis {shape['kurtosis']:.2f}): decided by votes",
        votes=votes.by_class,
        details=shape,
        worth=round(votes.worth, 3),
        not_finite=votes.not_finite,
    )
