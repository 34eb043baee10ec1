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

_FEWEST = 400  # values of a bin: their variance is known to 7 %
_LEAST = 1e-12  # variance: far below a step of 16 bits


@dataclass(frozen=True, slots=True)
class CurvePoint(Record):
    """A point of the curve.

    Attributes:
        channel: from 0.
        brightness: the mean of the bin.
        variance: of the noise.
        share: of the channel's values in this bin.
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
    """The curve through the means of the bins that have values enough."""
    count = sums.total["bin_count"][0]  # (channels, bins)
    brightness = []
    variances = []
    for channel, values in enumerate(count):
        enough = values >= min(_FEWEST, values.max())
        brightness.append(sums.total["bin_brightness"][0, channel, enough] / values[enough])
        variances.append(sums.total["bin_variance"][0, channel, enough] / values[enough])
    return Curve(tuple(brightness), tuple(variances))


def curve_points(sums: Sums) -> list[CurvePoint]:
    """The points of the curve with their intervals, by channel and brightness."""
    count = sums.total["bin_count"][0]

    def variance(totals: Totals) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Floats = totals["bin_variance"] / totals["bin_count"]
        return ratio

    values = sums.value(variance)
    halves = sums.half_widths(variance)
    points = []
    for channel, bin_ in zip(*np.nonzero(count >= _FEWEST), strict=True):
        value = float(values[channel, bin_])
        half = float(halves[channel, bin_])
        points.append(
            CurvePoint(
                int(channel),
                float(sums.total["bin_brightness"][0, channel, bin_] / count[channel, bin_]),
                estimate(value, (max(value - half, 0.0), value + half)),
                float(count[channel, bin_] / count[channel].sum()),
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
