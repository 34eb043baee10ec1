"""What do a few images say of one noise level: two runs of logit_gaussian, and votes?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robaudit.auditing import Ready
from robaudit.datasets.select import Selected, random_subset
from robaudit.errors import RobauditError
from robaudit.estimators.base import Estimator
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.planning.trials import Floats, Trial

DRAWS, LONG = 32, 128
FEW = 4
"""Images of the smallest trial."""
_MOST_WIDE = 1024
_DEAR = 0.02  # seconds of an image with 32 passes


@dataclass(frozen=True, slots=True)
class Level:
    """The reference of one noise level.

    Attributes:
        a, b: two independent runs of logit_gaussian with 32 draws.
        slow: one with 128 draws of the first quarter of the images.
        votes: Monte Carlo with 32 draws.
        mc_slow: Monte Carlo with 128 draws of the first quarter; None where passes take so long that nothing else counts.
        wide: Monte Carlo with 32 draws of more images: how unsure images are differs more from image to image than anything else.
    """

    a: Trial
    b: Trial
    slow: Trial
    votes: Trial
    mc_slow: Trial | None
    wide: Trial

    @property
    def value(self) -> Floats:
        """The mean of the two runs (images,)."""
        return (self.a.values + self.b.values) / 2

    @property
    def noise(self) -> float:
        """Mean variance of one run of logit_gaussian."""
        return float(np.mean((self.a.values - self.b.values) ** 2)) / 2

    @property
    def scale(self) -> float:
        """How much more unsure the wide images are than the few: by p (1 - p), within a factor of three."""
        few = self.value.clip(0, 1)
        here = float(np.mean(few * (1 - few)))
        return float(np.clip(self.flips / here, 1 / 3, 3)) if here > 1 / (2 * DRAWS * len(few)) else 1.0

    @property
    def flips(self) -> float:
        """Mean p (1 - p) of the wide images; where no draw flipped, as if one had."""
        draws = DRAWS * len(self.wide.values)
        return max(binomial(self.wide.values, DRAWS) * DRAWS, 1 / draws)

    @property
    def between(self) -> float:
        """Variance of p over the wide images."""
        return max(0.0, float(np.var(self.wide.values, ddof=1)) - binomial(self.wide.values, DRAWS))


def measure_level(ready: Ready, try_: Callable[..., Trial], images: Selected, sigma: float, seconds: float) -> Level:
    """Run them.

    Args:
        ready: the audit.
        try_: runs an estimator on images at a noise level, with the noise of a stream.
        images: the few.
        sigma: the noise level.
        seconds: for the votes on more images.

    Raises:
        RobauditError: fewer than two of the images are usable.
    """

    def run(estimator: Estimator, stream: str, on: Selected = images) -> Trial:
        return try_(on, estimator, sigma, stream)

    some, votes = quarter(images), run(MonteCarlo(samples=DRAWS), "votes")
    refuse_too_few(ready, len(votes.values))
    more = int(max(len(images), min(_MOST_WIDE, seconds / max(1e-6, votes.seconds))))
    return Level(
        wide=run(MonteCarlo(samples=DRAWS), "wide", few(ready, more)),
        a=run(LogitGaussian(samples=DRAWS), "a"),
        b=run(LogitGaussian(samples=DRAWS), "b"),
        slow=run(LogitGaussian(samples=LONG), "slow", some),
        votes=votes,
        mc_slow=run(MonteCarlo(samples=LONG), "slow", some) if votes.seconds < _DEAR else None,
    )


def refuse_too_few(ready: Ready, images: int) -> None:
    """One image does not say how much images differ.

    Raises:
        RobauditError: there are fewer than two.
    """
    if images < 2:
        raise RobauditError(ready.samples.where, f"a plan needs 2 usable images, and there is {images or 'none'}", "give it more")


def few(ready: Ready, count: int) -> Selected:
    """So many random images, drawn with the run's seed; those of a smaller number are among those of a larger one."""
    return Selected(ready.samples, random_subset(len(ready.samples), min(count, len(ready.samples)), ready.spec.run.seed))


def quarter(images: Selected) -> Selected:
    """The first quarter of them, four at least if there are."""
    return Selected(images, range(max(min(FEW, len(images)), len(images) // 4)))


def mc_times(level: Level) -> tuple[float, float]:
    """Seconds of a draw and of an image, for Monte Carlo."""
    if level.mc_slow is None:
        each = level.votes.seconds / (DRAWS + 1)
        return each, each
    return times(level.votes.seconds, level.mc_slow.seconds, DRAWS, LONG)


def times(short: float, long: float, few: int, many: int) -> tuple[float, float]:
    """Seconds of a draw and of an image, from two sizes; neither below zero."""
    each = max(0.0, (long - short) / (many - few), 0.2 * long / many)
    return each, max(0.0, short - each * few)


def binomial(shares: Floats, draws: int) -> float:
    """Mean variance of shares of so many draws, without bias."""
    return float(np.mean(shares * (1 - shares))) / max(1, draws - 1)
