"""Which kind of noise fits: by the likelihood of differences that no fit has seen, and by a test of
what the fit says of brightness, neighbours, channels and tails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import Floats
from robaudit.camera.curve import CurvePoint
from robaudit.camera.fits import (
    Fit,
    between_correlations,
    fits_of,
    lag_correlations,
)
from robaudit.camera.moments import LAGS, Measured, channel_pairs
from robaudit.camera.sums import Sums, Totals, estimate
from robaudit.estimates import Estimate
from robaudit.records import Record

_MOST_VALUES = 2**20  # that the likelihood is computed of: its differences are known to 1e-3
_SEED = 1
# Nats a value by which a kind must be better than a simpler one: those of a standard deviation
# that is 3 % off, or of neighbours with a correlation of .045. Networks do not see less.
_WORTHWHILE = 1e-3
_STANDARD_ERRORS = 2.0
_SCORED_LAGS = ((0, 1), (1, 0), (0, 2), (2, 0))
# What a fit may miss. An interval that is wholly beyond it is a misfit.
DEVIATION = 0.1
"""Relative error of the standard deviation at a brightness."""
CORRELATION = 0.1
"""Error of a correlation."""
KURTOSIS = 1.0
"""Error of the excess kurtosis: a third of the way from the normal to the Laplace distribution."""
_SMALLEST_SHARE = 0.02  # of the values: what a misfit at a brightness must concern
_COARSE = 0.5  # steps of the converter: a smaller standard deviation has the tails of rounding


class Aspect(StrEnum):
    """What a fit may miss."""

    BRIGHTNESS = "brightness"
    """The standard deviation at a brightness."""
    NEIGHBOURS = "neighbours"
    """The correlation of neighbouring pixels."""
    CHANNELS = "channels"
    """The correlation of the channels at a pixel."""
    TAILS = "tails"
    """The excess kurtosis."""


@dataclass(frozen=True, slots=True)
class Misfit(Record):
    """Where a fit misses the noise by more than it may; the worst place of an aspect.

    Attributes:
        aspect: what is missed.
        place: the brightness, or the distance of neighbours; None for tails and channels.
        channel: from 0; None where channels are taken together.
        measured: the standard deviation, the correlation or the excess kurtosis.
        fitted: the same by the fit.
    """

    aspect: Aspect
    place: float | None
    channel: int | None
    measured: Estimate
    fitted: float


@dataclass(frozen=True, slots=True)
class Candidate(Record):
    """A kind of noise in the comparison.

    Attributes:
        kind: its registered name.
        score: the mean logarithm of the density of held-out differences, in nats a value; less the
            best one's.
        error: the standard error of that difference.
        misfits: what it misses; empty: it fits.
    """

    kind: str
    score: float
    error: float
    misfits: tuple[Misfit, ...]


@dataclass(frozen=True)
class Verdict:
    """Which kind of noise fits.

    Attributes:
        candidates: all kinds that could be fitted, the best score first.
        nearest: the simplest of those that are as likely as the best, fitted to everything.
        fits: whether it misses nothing; if not, no kind fits.
    """

    candidates: tuple[Candidate, ...]
    nearest: Fit
    fits: bool


def verdict(
    scenes: Sequence[Measured], sums: Sums, points: Sequence[CurvePoint], step: float
) -> Verdict:
    """The kind of noise that fits.

    Args:
        scenes: the scenes whose noise it is.
        sums: all of theirs.
        points: the curve of all of them.
        step: of the converter.
    """
    trained = {fit.kind: fit for fit in fits_of(sums.part(_even_groups(scenes)), step)}
    fits = [fit for fit in fits_of(sums.total, step) if fit.kind in trained]
    held_out = _HeldOut.of(scenes)
    scores = [held_out.scores(trained[fit.kind], step) for fit in fits]
    means = [float(score.mean()) for score in scores]
    best = int(np.argmax(means))
    candidates = []
    for fit, score in zip(fits, scores, strict=True):
        difference = score - scores[best]
        error = float(difference.std(ddof=1) / math.sqrt(len(difference)))
        misfits = tuple(_misfits(fit, sums, points, step))
        candidates.append(Candidate(fit.kind, float(difference.mean()), error, misfits))
    # The kinds are in the order of their parameters, so that the first good one is the simplest.
    near = [place for place, candidate in enumerate(candidates) if _as_good(candidate)]
    # Of kinds that are as likely, one that fits is better than one that does not.
    fitting = [place for place in near if not candidates[place].misfits]
    chosen = (fitting or near)[0]
    ordered = sorted(candidates, key=lambda candidate: -candidate.score)
    return Verdict(tuple(ordered), fits[chosen], bool(fitting))


def _as_good(candidate: Candidate) -> bool:
    """Whether a kind is as likely as the best, as far as it matters or can be told."""
    return -candidate.score <= max(_WORTHWHILE, _STANDARD_ERRORS * candidate.error)


def _even_groups(scenes: Sequence[Measured]) -> Floats:
    """The groups of blocks that kinds are fitted to, as a mask: the even ones of each scene."""
    masks = [np.arange(scene.sums.groups) % 2 == 0 for scene in scenes]
    return np.concatenate(masks).astype(float)


@dataclass(frozen=True)
class _HeldOut:
    """Blocks of pairs that no kind was fitted to.

    Attributes:
        noise: (cells, channels, side, side).
        brightness: of the same shape.
    """

    noise: tuple[NDArray[np.float32], ...]
    brightness: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, scenes: Sequence[Measured]) -> _HeldOut:
        """A random choice from the odd groups of each scene."""
        noise = []
        brightness = []
        for found in scenes:
            scene = found.scene
            is_held_out = (found.group % 2 == 1) & scene.used
            # A scene of a single group has no other.
            cells = np.argwhere(is_held_out if is_held_out.any() else scene.used)
            most = max(1, _MOST_VALUES // len(scenes) // scene.noise[0, 0].size)
            chosen = np.random.default_rng(_SEED).permutation(len(cells))[:most]
            pair, block = cells[np.sort(chosen)].T
            noise.append(scene.noise[pair, block])
            brightness.append(found.pixel_brightness(block))
        return cls(tuple(noise), tuple(brightness))

    def scores(self, fit: Fit, step: float) -> Floats:
        """The composite likelihood of each cell: the mean logarithm of the density of two values,
        over neighbours in both directions and over channels, in nats a value.

        Source: Varin, Reid and Firth (2011), Statistica Sinica 21 (pairwise likelihood).
        """
        scores = []
        for noise, brightness in zip(self.noise, self.brightness, strict=True):
            # The converter's steps are in every noise, and as much is added to it.
            of_steps = step**2 / 12
            rounded = np.maximum(fit.variance(brightness), of_steps)
            deviation = np.sqrt(rounded + of_steps).astype(np.float32)
            standard = _between_steps(noise, step) / deviation
            log_deviation = np.log(deviation)
            kept = float(rounded.mean() / (rounded.mean() + of_steps))
            kinds = list(_pairs_scored(fit, standard, log_deviation, kept))
            scores.append(np.mean(kinds, axis=0) / 2)
        return np.concatenate(scores)


def _between_steps(noise: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    """Noise of two shots with uniform noise of one step added to each shot.

    Differences of pixels are whole steps, and often 0. There the density of a Laplace variable has
    a peak, which would speak for it wherever the noise is hardly larger than a step.

    Source: Theis, van den Oord and Bethge (2016), ICLR, section 3.1 (uniform dequantisation).
    """
    random = np.random.default_rng(_SEED)
    added = random.random(noise.shape, dtype=np.float32)
    added -= random.random(noise.shape, dtype=np.float32)
    dithered: NDArray[np.float32] = noise + np.float32(step / math.sqrt(2)) * added
    return dithered


def _pairs_scored(
    fit: Fit, standard: NDArray[np.float32], log_deviation: NDArray[np.float32], kept: float
) -> Iterator[Floats]:
    """The mean logarithm of the density of two values in each cell, for each kind of pair; ``kept``
    is the share of the variance that can be correlated."""
    side = standard.shape[-1]
    for down, across in _SCORED_LAGS:
        first = (..., slice(down, None), slice(across, None))
        second = (..., slice(None, side - down), slice(None, side - across))
        rho = kept * fit.correlation(down, across)
        density = _log_density(fit, standard[first], standard[second], rho)
        density -= log_deviation[first] + log_deviation[second]
        yield density.reshape(len(density), -1).mean(1, dtype=np.float64)
    for a, b in channel_pairs(standard.shape[1]):
        density = _log_density(fit, standard[:, a], standard[:, b], kept * fit.between)
        density -= log_deviation[:, a] + log_deviation[:, b]
        yield density.reshape(len(density), -1).mean(1, dtype=np.float64)


def _log_density(
    fit: Fit, first: NDArray[np.float32], second: NDArray[np.float32], rho: float
) -> NDArray[np.float32]:
    """The logarithm of the density of two standardised differences over sqrt 2."""
    if fit.is_laplace:
        return laplace_difference(first) + laplace_difference(second)
    rest = 1 - rho**2
    form = np.square(first) + np.square(second) - 2 * rho * first * second
    density: NDArray[np.float32] = -form / (2 * rest) - math.log(2 * math.pi * math.sqrt(rest))
    return density


def laplace_difference(standard: NDArray[np.floating]) -> NDArray[np.floating]:
    """The logarithm of the density of (e - e') / sqrt 2, for Laplace variables of variance 1.

    With the scale b = 1 / sqrt 2, e - e' has the density (1 + |d| / b) exp(-|d| / b) / (4 b).
    """
    size = 2 * np.abs(standard)  # |d| / b
    density: NDArray[np.floating] = np.log1p(size) - size - math.log(2.0)
    return density


def _misfits(fit: Fit, sums: Sums, points: Sequence[CurvePoint], step: float) -> Iterator[Misfit]:
    """The worst place of every aspect that a fit misses."""
    aspects = (
        _at_brightness(fit, points, sums.total["count"].shape[-1]),
        _of_neighbours(fit, sums),
        _of_channels(fit, sums),
        _of_tails(fit, sums, step),
    )
    for found in aspects:
        if found:
            yield max(found, key=lambda miss: abs(miss.measured.value - miss.fitted))


def _at_brightness(fit: Fit, points: Sequence[CurvePoint], channels: int) -> list[Misfit]:
    """Where the standard deviation is off by more than it may be."""
    found = []
    for point in points:
        at = np.full((1, channels, 1), point.brightness)
        fitted = math.sqrt(float(fit.variance(at)[0, point.channel, 0]))
        bounds = point.variance.bounds or (0.0, math.inf)
        lower, upper = map(math.sqrt, bounds)
        below = upper < (1 - DEVIATION) * fitted
        above = lower > (1 + DEVIATION) * fitted
        if point.share >= _SMALLEST_SHARE and (below or above):
            deviation = estimate(math.sqrt(point.variance.value), (lower, upper))
            found.append(
                Misfit(Aspect.BRIGHTNESS, point.brightness, point.channel, deviation, fitted)
            )
    return found


def _of_neighbours(fit: Fit, sums: Sums) -> list[Misfit]:
    """Distances at which the correlation is off by more than it may be."""
    found = []
    for (down, across), measured in zip(LAGS, sums.estimates(lag_correlations), strict=True):
        fitted = fit.correlation(down, across)
        if _is_beyond(measured, fitted, CORRELATION):
            distance = math.hypot(down, across)
            found.append(Misfit(Aspect.NEIGHBOURS, distance, None, measured, fitted))
    return found


def _of_channels(fit: Fit, sums: Sums) -> list[Misfit]:
    """Pairs of channels whose correlation is off by more than it may be."""
    return [
        Misfit(Aspect.CHANNELS, None, None, measured, fit.between)
        for measured in sums.estimates(between_correlations)
        if _is_beyond(measured, fit.between, CORRELATION)
    ]


def _of_tails(fit: Fit, sums: Sums, step: float) -> list[Misfit]:
    """Whether the tails are lighter or heavier than they may be."""
    variance = float(sums.total["square"].sum() / sums.total["count"].sum())
    if math.sqrt(variance) < _COARSE * step:
        return []
    measured = excess_kurtosis(sums)
    if not _is_beyond(measured, fit.excess_kurtosis, KURTOSIS):
        return []
    return [Misfit(Aspect.TAILS, None, None, measured, fit.excess_kurtosis)]


def _is_beyond(measured: Estimate, fitted: float, tolerance: float) -> bool:
    """Whether all of an interval is further from the fit than it may be."""
    if measured.bounds is None or not math.isfinite(measured.value):
        return False
    lower, upper = measured.bounds
    return lower > fitted + tolerance or upper < fitted - tolerance


def excess_kurtosis(sums: Sums) -> Estimate:
    """Of the noise of a shot: twice that of the difference of two.

    Of the sum of two independent variables of the same distribution, variance and fourth cumulant
    are twice as large, so that their ratio is half as large. Fourth moments of few values are
    skewed, which an interval that is symmetrical in the logarithm follows.
    """
    (ratio,) = sums.positive(_standard_fourth)
    bounds = ratio.bounds
    excess = None if bounds is None else (2 * (bounds[0] - 3), 2 * (bounds[1] - 3))
    return estimate(2 * (ratio.value - 3), excess)


def _standard_fourth(totals: Totals) -> Floats:
    """The fourth moment of the standardised differences, (replicates, 1)."""
    mean_square = totals["second"] / totals["number"]
    mean_fourth = totals["fourth"] / totals["number"]
    ratio: Floats = (mean_fourth / np.square(mean_square))[..., None]
    return ratio
