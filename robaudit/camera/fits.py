"""The kinds of noise that a camera's may be, each fitted to the sums of its shots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import Floats
from robaudit.camera.curve import line
from robaudit.camera.moments import LAGS, channel_pairs
from robaudit.camera.sums import Totals
from robaudit.levels import LevelName

CORRELATED = "gaussian_correlated"
_SHARED = 0.5  # correlation of channels from which they rather share their noise than not
_SHORTEST = 0.25  # pixels: neighbours have a correlation of 3e-4
_LONGEST = 16.0
_GOLDEN = (math.sqrt(5) - 1) / 2
_HALVINGS = 40  # of the search for the length: to 1e-8 of it
_NEARLY_ONE = 0.999  # a correlation: of 1, two values have no density
_LEAST_UNROUNDED = 0.5  # below, rounding is not independent noise
_DIGITS = 4  # significant digits of a level in a spec


@dataclass(frozen=True)
class Fit:
    """A kind of noise with the level and the options that fit best.

    Attributes:
        kind: its registered name.
        level_name: the name of its level.
        level: that was measured.
        options: of the kind, as in a spec.
        parameters: the number of fitted numbers.
        intercept, slope, square: the variance at brightness x is intercept + slope x + square x^2.
        scale: factors of the standard deviation by channel.
        length: correlation length in pixels; 0: none.
        unrounded: the share of the variance that neighbours may have in common: not that of
            rounding.
        between: correlation of the channels at the same pixel.
        is_laplace: whether the noise has a Laplace distribution; else it is nearly normal.
        quantises: whether the kind itself clips and rounds.
    """

    kind: str
    level_name: LevelName
    level: float
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 1
    intercept: float = 0.0
    slope: float = 0.0
    square: float = 0.0
    scale: tuple[float, ...] = (1.0,)
    length: float = 0.0
    unrounded: float = 1.0
    between: float = 0.0
    is_laplace: bool = False
    quantises: bool = False

    def variance(self, brightness: NDArray[np.floating]) -> NDArray[np.floating]:
        """The variance at brightnesses (n, channels, ...), of the same shape."""
        of_brightness = self.intercept + brightness * (self.slope + self.square * brightness)
        factors = np.square(np.array(self.scale, dtype=np.float32))
        shape = (1, -1) + (1,) * (brightness.ndim - 2)
        scaled: NDArray[np.floating] = of_brightness * factors.reshape(shape)
        return scaled

    def correlation(self, down: int, across: int) -> float:
        """The correlation of values of a channel at a distance."""
        return self.unrounded * correlation(self.length, down, across)

    @property
    def excess_kurtosis(self) -> float:
        """Of the noise of a value."""
        return 3.0 if self.is_laplace else 0.0


def correlation(length: float, down: int, across: int) -> float:
    """exp(-r^2 / (2 length^2)), the correlation of ``gaussian_correlated``; 0 without a length."""
    if length == 0:
        return 0.0
    return math.exp(-(down**2 + across**2) / (2 * length**2))


def rounded(value: float) -> float:
    """A number with four significant digits, as a person writes it."""
    return float(f"{value:.{_DIGITS}g}")


def _mean_variance(totals: Totals) -> float:
    """Over all values."""
    return float(totals["square"].sum() / totals["count"].sum())


def _gaussian(totals: Totals) -> Fit:
    variance = _mean_variance(totals)
    return Fit("gaussian", LevelName.SIGMA, math.sqrt(variance), intercept=variance)


def _laplace(totals: Totals) -> Fit:
    variance = _mean_variance(totals)
    sigma = math.sqrt(variance)
    return Fit("laplace", LevelName.SIGMA, sigma, intercept=variance, is_laplace=True)


def _scaled(totals: Totals) -> Fit | None:
    of_channels = totals["square"][0] / totals["count"][0]
    channels = len(of_channels)
    if channels == 1:
        return None
    variance = float(of_channels.mean())
    scale = tuple(float(factor) for factor in np.sqrt(of_channels / variance))
    return Fit(
        "gaussian_scaled",
        LevelName.SIGMA,
        math.sqrt(variance),
        {"scale": [rounded(factor) for factor in scale]},
        parameters=channels,
        intercept=variance,
        scale=scale,
    )


def _correlated(totals: Totals, step: float) -> Fit:
    variance = _mean_variance(totals)
    length = float(lengths(totals, step)[0, 0])
    is_shared = between_correlation(totals) >= _SHARED
    options: dict[str, Any] = {"length": rounded(length)}
    if is_shared:
        options["channels"] = "shared"
    unrounded = float(_unrounded(totals, step)[0])
    return Fit(
        CORRELATED,
        LevelName.SIGMA,
        math.sqrt(variance),
        options,
        parameters=2,
        intercept=variance,
        length=length,
        unrounded=unrounded,
        # Of noise that is the same in all channels, each of which is rounded by itself.
        between=min(unrounded, _NEARLY_ONE) if is_shared else 0.0,
    )


def lengths(totals: Totals, step: float) -> Floats:
    """The length in pixels of ``gaussian_correlated``, (replicates, 1): that of the noise before
    the converter rounds it, which adds step^2 / 12 to the variance and nothing to neighbours.

    It maximises the likelihood of pairs of neighbours, summed over ``LAGS``.

    Source: Varin, Reid and Firth (2011), Statistica Sinica 21 (pairwise likelihood).
    """
    measured = lag_correlations(totals)
    is_measured = np.isfinite(measured[0])
    measured = measured[:, is_measured]
    apart = np.array([down**2 + across**2 for down, across in LAGS], dtype=float)[is_measured]
    unrounded = _unrounded(totals, step)[:, None]

    def score(logarithm: Floats) -> Floats:
        rho = unrounded * np.exp(-apart / (2 * np.exp(2 * logarithm)[:, None]))
        rest = 1 - rho**2
        sum_: Floats = (-0.5 * np.log(rest) - (1 - rho * measured) / rest).sum(1)
        return sum_

    # Golden-section search, for all replicates at once.
    low = np.full(len(measured), math.log(_SHORTEST))
    high = np.full(len(measured), math.log(_LONGEST))
    for _ in range(_HALVINGS):
        width = (high - low) * _GOLDEN
        left = high - width
        right = low + width
        is_left = score(left) > score(right)
        high = np.where(is_left, right, high)
        low = np.where(is_left, low, left)
    found: Floats = np.exp((low + high) / 2)[:, None]
    return found


def _unrounded(totals: Totals, step: float) -> Floats:
    """The share of the variance that is not of the converter's steps, (replicates,)."""
    variance = totals["square"].sum(-1) / totals["count"].sum(-1)
    share: Floats = np.clip(1 - step**2 / 12 / variance, _LEAST_UNROUNDED, None)
    return share


def _speckle(totals: Totals) -> Fit | None:
    signal = float(totals["signal"].sum())
    # Weights of 1: the variance of white times the mean square of the brightness.
    total = float(totals["plain_line"][0, 4])
    if signal <= 0 or total <= 0:
        return None
    square = total / signal
    return Fit("speckle", LevelName.SIGMA, math.sqrt(square), square=square)


def _poisson(totals: Totals) -> Fit | None:
    brightness, variance = totals["plain_line"][0, [2, 4]]
    if variance <= 0 or brightness <= 0:
        return None
    slope = float(variance / brightness)
    return Fit("poisson", LevelName.PHOTONS, 1 / slope, slope=slope)


def _sensor(totals: Totals, step: float) -> Fit | None:
    intercept, slope = (float(number) for number in line(totals)[0])
    if not math.isfinite(slope) or slope <= 0:
        return None
    read_noise = math.sqrt(max(intercept - step**2 / 12, 0.0)) / slope
    bits = round(math.log2(1 / step + 1))
    return Fit(
        "sensor",
        LevelName.PHOTONS,
        1 / slope,
        {"read_noise": rounded(read_noise), "bits": bits},
        parameters=2,
        intercept=max(intercept, step**2 / 12),
        slope=slope,
        quantises=True,
    )


def fits_of(totals: Totals, step: float) -> list[Fit]:
    """Every kind that can be fitted, by the number of its parameters.

    Args:
        totals: the sums, one replicate.
        step: of the converter.
    """
    fits = (
        _gaussian(totals),
        _laplace(totals),
        _poisson(totals),
        _speckle(totals),
        _sensor(totals, step),
        _correlated(totals, step),
        _scaled(totals),
    )
    return [fit for fit in fits if fit is not None]


def lag_correlations(totals: Totals) -> Floats:
    """The correlation at each distance of ``LAGS``, (replicates, lags); NaN where no two values of
    a block are so far apart."""
    with np.errstate(invalid="ignore", divide="ignore"):
        products = totals["lag_product"] / totals["lag_count"]
        variance = totals["square"].sum(-1) / totals["count"].sum(-1)
        correlations: Floats = products / variance[:, None]
    return correlations


def between_correlations(totals: Totals) -> Floats:
    """The correlation of each pair of channels at the same pixel, (replicates, pairs); 0 where a
    channel has no noise."""
    between = totals["between"]
    channels = between.shape[-1]
    found = []
    for a, b in channel_pairs(channels):
        product = between[:, a, a] * between[:, b, b]
        # With a denominator of 1, no noise gives 0.
        found.append(between[:, a, b] / np.sqrt(np.where(product > 0, product, 1.0)))
    return np.stack(found, axis=-1) if found else np.zeros((len(between), 0))


def between_correlation(totals: Totals) -> float:
    """The mean correlation of the channels; 0 for a single one."""
    found = between_correlations(totals)[0]
    return float(found.mean()) if len(found) else 0.0
