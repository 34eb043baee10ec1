"""The noise of a camera: what was measured, with intervals, and which kind of noise fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from robaudit.camera.curve import Curve, CurvePoint, LinearCamera
from robaudit.camera.fits import Fit
from robaudit.camera.moments import Measured
from robaudit.camera.pairs import Remark
from robaudit.camera.verdict import Candidate
from robaudit.estimates import Estimate
from robaudit.records import Record, published


@dataclass(frozen=True, slots=True)
class LagCorrelation(Record):
    """The correlation of the noise of two pixels of a channel.

    Attributes:
        down, across: their distance in pixels.
        correlation: of their noise.
    """

    down: int
    across: int
    correlation: Estimate


@dataclass(frozen=True)
class CameraNoise(Record):
    """The temporal noise of a camera at one setting.

    Standard deviations and variances are of pixels in [0, 1], as the model gets them.

    Attributes:
        name: of the scene; of all of them, "camera".
        scenes: their names.
        shots: that were read.
        pairs: of neighbouring shots that were used.
        channels, height, width: of a shot, prepared as the spec says.
        bits: of a pixel: 8 or 16.
        sigma: the standard deviation over all channels.
        by_channel: the standard deviation of each channel.
        curve: the variance by brightness.
        linear: photons and read noise of a linear camera; None where the variance does not rise
            with brightness.
        neighbours: the correlation of neighbouring pixels.
        between_channels: the correlation of the channels at a pixel, for each pair of them.
        length: the correlation length in pixels, before rounding, where the nearest kind is
            gaussian_correlated; else None.
        kurtosis: the excess kurtosis of the noise; 0: normal.
        fixed_pattern: the standard deviation of what is the same in all shots and varies from pixel
            to pixel, texture of the flattest blocks included.
        defective: the share of pixels that differ from all around them in every shot; None where
            there are no flat parts to tell.
        stuck: the share of pixels whose value never changes; None where a live one might not.
        remarks: what was left out or removed.
        candidates: the kinds of noise, the most likely first.
        fits: whether a kind of noise fits.
        fit: the simplest kind of the most likely ones.
        variance_curve: the variance at any brightness.
        measured: the pixels and sums behind the numbers, for the noise itself and for figures.
    """

    name: str
    scenes: tuple[str, ...]
    shots: int
    pairs: int
    channels: int
    height: int
    width: int
    bits: int
    sigma: Estimate
    by_channel: tuple[Estimate, ...]
    curve: tuple[CurvePoint, ...]
    linear: LinearCamera | None
    neighbours: tuple[LagCorrelation, ...]
    between_channels: tuple[Estimate, ...]
    length: Estimate | None
    kurtosis: Estimate
    fixed_pattern: Estimate
    defective: Estimate | None
    stuck: Estimate | None
    remarks: tuple[Remark, ...]
    candidates: tuple[Candidate, ...]
    fits: bool
    fit: Annotated[Fit, Field(exclude=True)]
    variance_curve: Annotated[Curve, Field(exclude=True)]
    measured: Annotated[Sequence[Measured], Field(exclude=True)]

    @property
    @published(after="fits")
    def nearest(self) -> str:
        """The kind of :attr:`fit`: the one that fits or, if none does, is nearest."""
        return self.fit.kind

    @property
    def step(self) -> float:
        """The smallest difference of two pixels."""
        return float(1 / (2**self.bits - 1))
