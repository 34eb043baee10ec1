"""Which settings can a plan choose from, and what do they cost and err by? Laws whose constants the pilot measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robaudit.planning.trials import Floats

_ROUND, _FIRST, _MOST = 16, 32, 1024  # logit_gaussian with a tolerance


@dataclass(frozen=True, slots=True)
class Law:
    """Time and error of an estimator at one noise level, by its draws n.

    Seconds of an image are fixed + each * n; the mean squared error of an image's value is systematic + spread / n.

    Attributes:
        fixed, each: seconds.
        spread: variance of one image's value, times n, averaged over images.
        systematic: mean squared error that no draws remove.
        bias: mean error that no draws remove.
        between: variance of the true values over the images.
    """

    fixed: float
    each: float
    spread: float
    systematic: float
    bias: float
    between: float

    def seconds(self, n: float) -> float:
        """Of one image."""
        return self.fixed + self.each * n

    def squared_error(self, n: float) -> float:
        """Of one image's value, on average."""
        return self.systematic + (self.spread / n if n else 0.0)

    def squared_error_of_mean(self, n: float, images: int) -> float:
        """Of the mean over so many images, as an estimate for all images of this kind: choice of images, noise and bias."""
        return (self.between + (self.spread / n if n else 0.0)) / images + self.bias**2


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a family.

    Attributes:
        n: draws of an image; by which the law speaks (0: none).
        options: of the estimator, for the spec.
    """

    n: float
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """An estimator whose draws can be chosen.

    Attributes:
        name: the estimator.
        kind: what the table calls it.
        laws: by noise level.
        settings: from cheap to dear.
        errors: mean squared error by setting and noise level, where it is not the law's; passes likewise.
    """

    name: str
    kind: str
    laws: Mapping[float, Law]
    settings: Sequence[Setting]
    exact: Mapping[tuple[int, float], tuple[float, float]] | None = None

    def passes(self, index: int, sigma: float) -> float:
        """Draws of an image, on average."""
        return self.settings[index].n if self.exact is None else self.exact[index, sigma][0]

    def seconds(self, index: int) -> float:
        """Of one image, at all noise levels. With a tolerance every round fits and judges anew what a fixed number of draws does once."""
        total = 0.0
        for sigma, law in self.laws.items():
            n = self.passes(index, sigma)
            rounds = 0.0 if self.exact is None else max(0.0, n - _FIRST) / _ROUND
            total += law.seconds(n) + rounds * law.fixed
        return total

    def error(self, index: int) -> float:
        """RMSE of an image's value, at the worst noise level."""
        return math.sqrt(max(self._squared(index, sigma) for sigma in self.laws))

    def error_of_mean(self, index: int, images: int) -> float:
        """Standard error of the mean over so many images, at the worst noise level."""
        return math.sqrt(max(law.squared_error_of_mean(self.passes(index, sigma), images) for sigma, law in self.laws.items()))

    def noise_of_mean(self, index: int, images: int) -> float:
        """The part of :meth:`error_of_mean` that is not the choice of images, at the worst noise level."""
        return math.sqrt(
            max(
                (self._squared(index, sigma) - law.systematic) / images + law.bias**2  # of these very images
                for sigma, law in self.laws.items()
            )
        )

    def _squared(self, index: int, sigma: float) -> float:
        return self.laws[sigma].squared_error(self.settings[index].n) if self.exact is None else self.exact[index, sigma][1]


def doubling(name: str, laws: Mapping[float, Law], first: int, most: int, step: int) -> Family:
    """A family with ``samples`` n = first ... most, about 2^(1/4) apart, each a multiple of ``step``."""
    numbers = sorted(
        {min(most, max(first, round(first * 2 ** (i / 4) / step) * step)) for i in range(4 * math.ceil(math.log2(most / first)) + 1)}
    )
    return Family(name, name, laws, [Setting(n, {"samples": n}) for n in numbers])


def fixed(name: str, kind: str, laws: Mapping[float, Law], options: Mapping[str, Any]) -> Family:
    """An estimator as the spec has it."""
    return Family(name, kind, laws, [Setting(0, options)])


def by_tolerance(laws: Mapping[float, Law], spreads: Mapping[float, Floats], honesty: Mapping[float, float]) -> Family:
    """``logit_gaussian`` with a tolerance and ``allocate: mean``: each image draws what its own spread asks for.

    An image stops when stated variance / n <= tolerance^2 / 100, and its stated variance is spread / n: so n = 10 sqrt(spread) / tolerance,
    in rounds of 16 from 32 to 1,024, and its squared error is honesty * spread / n.

    Args:
        laws: of the estimator, for its time and its systematic error.
        spreads: stated variance times draws, by noise level (images,).
        honesty: true variance / stated variance, by noise level.
    """
    tolerances = sorted({float(f"{0.1 / 2 ** (i / 4):.2g}") for i in range(27)}, reverse=True)
    exact: dict[tuple[int, float], tuple[float, float]] = {}
    for i, tolerance in enumerate(tolerances):
        for sigma, law in laws.items():
            spread = np.maximum(spreads[sigma], 0.0)
            n = np.clip(np.ceil(10 * np.sqrt(spread) / tolerance / _ROUND) * _ROUND, _FIRST, _MOST)
            exact[i, sigma] = float(n.mean()), law.systematic + honesty[sigma] * float((spread / n).mean())
    settings = [Setting(0, {"tolerance": tolerance, "allocate": "mean"}) for tolerance in tolerances]
    return Family("logit_gaussian", "logit_gaussian, by tolerance", laws, settings, exact)
