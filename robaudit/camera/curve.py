"""Variance by brightness: the photon transfer curve, and the line of a linear camera.

    variance = a + b x,   photons = 1 / b,   read noise^2 = (a - step^2 / 12) / b^2

for pixels x in [0, 1] (1: white), b > 0, and the step of the converter.

Source: EMVA Standard 1288, release 4.0 linear, section 2.2 (photon transfer method).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import Floats
from robaudit.camera.sums import Sums, Totals, estimate
from robaudit.estimates import Estimate
from robaudit.records import Record

_FEWEST = 400  # values of a point: their variance is known to 7 %
_NEAR = 0.5  # of the width of a bin
_LEAST = 1e-12  # variance: far below a step of 16 bits


@dataclass(frozen=True, slots=True)
class CurvePoint(Record):
    """A point of the curve.

    Attributes:
        channel: from 0.
        brightness: the mean of its values.
        variance: of the noise.
        share: of the channel's values.
    """

    channel: int
    brightness: float
    variance: Estimate
    share: float


@dataclass(frozen=True)
class Curve:
    """The variance between measured points: linear between neighbours, constant beyond the ends.

    Attributes:
        brightness: of the points of each channel, ascending.
        variances: of the points of each channel.
    """

    brightness: tuple[Floats, ...]
    variances: tuple[Floats, ...]

    def variance(self, brightness: NDArray[np.floating]) -> NDArray[np.float32]:
        """The variance at brightnesses (n, channels, ...), of the same shape; above 0."""
        result = np.empty(brightness.shape, dtype=np.float32)
        for channel, (x, y) in enumerate(zip(self.brightness, self.variances, strict=True)):
            result[:, channel] = np.interp(brightness[:, channel], x, y)
        return np.maximum(result, np.float32(_LEAST))


def free_curve(sums: Sums) -> Curve:
    """The curve through the points of each channel."""
    point = _points(sums.total)
    count = _of_points(sums.total, "bin_count", point)[0]  # (channels, points)
    brightness = _of_points(sums.total, "bin_brightness", point)[0]
    variance = _of_points(sums.total, "bin_variance", point)[0]
    # Padding has no values.
    chosen = [np.flatnonzero(values) for values in count]
    return Curve(
        tuple(brightness[c, places] / count[c, places] for c, places in enumerate(chosen)),
        tuple(variance[c, places] / count[c, places] for c, places in enumerate(chosen)),
    )


def _points(totals: Totals) -> NDArray[np.float64]:
    """Which bins make which point of the curve, 1 or 0: (channels, bins, points).

    A point has values enough. Noise spreads a step of a chart over two bins when it is at their
    common edge, and by its tails, which vary more than the rest: they make one point.
    """
    count = totals["bin_count"][0]
    total = totals["bin_brightness"][0]
    channels, bins = count.shape
    member = np.zeros((channels, bins, bins))
    for channel in range(channels):
        points: list[list[int]] = []
        for bin_ in np.flatnonzero(count[channel]):
            last = points[-1] if points else []
            if last and _is_one_point(count[channel], total[channel], last, int(bin_)):
                last.append(int(bin_))
            else:
                points.append([int(bin_)])
        if len(points) > 1 and count[channel, points[-1]].sum() < _FEWEST:
            rest = points.pop()
            points[-1] += rest
        for place, members in enumerate(points):
            member[channel, members, place] = 1.0
    return member


def _is_one_point(count: Floats, total: Floats, members: list[int], bin_: int) -> bool:
    """Whether the next bin belongs to the bins of a point: these have too few values, or both lie
    at their common edge."""
    if count[members].sum() < _FEWEST:
        return True
    mean = total[members].sum() / count[members].sum()
    return bool(total[bin_] / count[bin_] - mean < _NEAR / len(count))


def _of_points(totals: Totals, name: str, member: NDArray[np.float64]) -> Floats:
    """Sums over the bins of each point, (replicates, channels, points)."""
    summed: Floats = np.einsum("rcb,cbp->rcp", totals[name], member)
    return summed


def curve_points(sums: Sums) -> list[CurvePoint]:
    """The points of the curve with their intervals, by channel and brightness."""
    member = _points(sums.total)
    count = _of_points(sums.total, "bin_count", member)[0]
    brightness = _of_points(sums.total, "bin_brightness", member)[0]

    def variance(totals: Totals) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            of_points = _of_points(totals, "bin_variance", member)
            ratio: Floats = of_points / _of_points(totals, "bin_count", member)
        return ratio

    values = sums.value(variance)
    halves = sums.half_widths(variance)
    points = []
    for channel, place in zip(*np.nonzero(count >= _FEWEST), strict=True):
        value = float(values[channel, place])
        half = float(halves[channel, place])
        points.append(
            CurvePoint(
                int(channel),
                float(brightness[channel, place] / count[channel, place]),
                estimate(value, (max(value - half, 0.0), value + half)),
                float(count[channel, place] / count[channel].sum()),
            )
        )
    return points


def line(totals: Totals) -> Floats:
    """Intercept a and slope b of the variance over brightness, (replicates, 2); NaN where a scene
    has a single brightness.

    With the brightness A of other pixels as an instrument: the sums of w (v - a - b s) and of w A
    (v - a - b s) are 0.

    Source: instrumental variables for errors in regressors; Fuller (1987), Measurement Error
        Models, section 1.4.
    """
    w, w_a, w_s, w_a_s, w_v, w_a_v = np.moveaxis(totals["line"], -1, 0)
    determinant = w * w_a_s - w_a * w_s
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (w * w_a_v - w_a * w_v) / determinant
        intercept = (w_v - slope * w_s) / w
    return np.stack([intercept, slope], axis=-1)


@dataclass(frozen=True, slots=True)
class LinearCamera(Record):
    """The photon transfer line in the units of EMVA 1288.

    Attributes:
        photons: electrons of a white pixel; infinite without shot noise.
        read_noise: temporal dark noise in electrons, without that of the converter's steps.
    """

    photons: Estimate
    read_noise: Estimate


def linear_camera(sums: Sums, step: float) -> LinearCamera | None:
    """Photons and read noise; None where the slope of the line cannot be told from 0.

    Args:
        sums: with ``line``.
        step: of the converter.
    """
    slope = sums.value(line)[1]
    half = sums.half_widths(line)[1]
    if not math.isfinite(half) or slope - half <= 0:
        return None
    photons = estimate(float(1 / slope), (float(1 / (slope + half)), float(1 / (slope - half))))

    def squared(totals: Totals) -> Floats:
        a, b = np.moveaxis(line(totals), -1, 0)
        read: Floats = ((a - step**2 / 12) / np.square(b))[..., None]
        return read

    (read,) = sums.estimates(squared)
    ends = (math.sqrt(max(read.lower or 0.0, 0.0)), math.sqrt(max(read.upper or 0.0, 0.0)))
    return LinearCamera(photons, estimate(math.sqrt(max(read.value, 0.0)), ends))
