"""What is known of each image of a group, and what would be known with more draws?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robaudit.numerics.intervals import clopper_pearson

Floats = NDArray[np.float64]
TAIL = 0.025
"""Chance that a row's 95 % interval misses on one given side."""


@dataclass(frozen=True, slots=True)
class Images:
    """Values and 95 % intervals of images.

    Attributes:
        values, lowers, uppers: (n,); ends may be infinite.
        low, high: the range of possible values.
        unknown: further images of which nothing is known but the range.
        draws: votes of each image, where all have as many and their values are shares of them; else None.
        adaptive: some stopped by themselves, and lean.
        repeats: as many times as many images (like these) are imagined.
    """

    values: Floats
    lowers: Floats
    uppers: Floats
    low: float
    high: float
    unknown: int = 0
    draws: int | None = None
    adaptive: bool = False
    repeats: float = 1.0

    @property
    def size(self) -> int:
        """All images, those of which nothing is known included."""
        return len(self.values) + self.unknown

    @property
    def tail(self) -> float:
        """Chance that the interval of an image misses on one given side, at most; sequences promise both sides together only."""
        return 2 * TAIL if self.adaptive else TAIL

    @property
    def all_lowers(self) -> Floats:
        """Lower ends of all images, those of which nothing is known included."""
        return np.append(self.lowers, np.full(self.unknown, self.low))

    @property
    def all_uppers(self) -> Floats:
        """Upper ends of all images."""
        return np.append(self.uppers, np.full(self.unknown, self.high))

    def chosen(self, places: NDArray[np.int64], unknown: int) -> Images:
        """Some of the images, and so many of which nothing is known."""
        return replace(self, values=self.values[places], lowers=self.lowers[places], uppers=self.uppers[places], unknown=unknown)

    def turned(self) -> Images:
        """The images with all signs changed: where lower is better, higher is then."""
        return replace(self, values=-self.values, lowers=-self.uppers, uppers=-self.lowers, low=-self.high, high=-self.low, draws=None)

    def with_draws(self, factor: float) -> Images:
        """The images as they would be with ``factor`` times as many draws and the same values.

        Shares of votes: Clopper-Pearson of as many; others: each end nearer by 1/sqrt(factor).
        """
        if factor == 1.0:
            return self
        if self.draws is None:
            near = factor**-0.5
            return replace(
                self, lowers=self.values - (self.values - self.lowers) * near, uppers=self.values + (self.uppers - self.values) * near
            )
        shares, which = np.unique(self.values, return_inverse=True)
        lowers, uppers = clopper_pearson(shares * self.draws * factor, np.full_like(shares, self.draws * factor))
        return replace(self, lowers=lowers[which], uppers=uppers[which], draws=round(self.draws * factor))

    def with_images(self, factor: float) -> Images:
        """As many times as many images, like these."""
        return replace(self, repeats=factor)


def normal_scale(confidence: float) -> float:
    """How much wider than at 95 % a normal error's interval is."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2.0) / ndtri(0.975))
