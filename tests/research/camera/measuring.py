"""The one place where the study measures a series of shots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import robaudit
from robaudit.camera.measure import measure as measure_camera
from robaudit.camera.moments import channel_pairs
from robaudit.camera.result import CameraNoise
from robaudit.errors import DataError
from robaudit.estimates import Estimate
from robaudit.spec.model import ImageOptions
from tests.research.camera.cases import NONE

REFUSED = "refused"
"""The verdict on shots of which no two differ in noise alone."""
_MEASURED = 1
"""The place of the measured level between half and twice of it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement says.

    Attributes:
        intervals: 95 % intervals by the names of :func:`~tests.research.camera.cases.truths`.
        verdict: the noise that fits, `none`, or `refused`.
        nearest: the noise that is nearest if none fits.
        curve: points of the photon transfer curve of the first channel: brightness, and the
            interval of the variance.
    """

    intervals: Mapping[str, tuple[float, float]]
    verdict: str
    nearest: str = ""
    curve: Sequence[tuple[float, float, float]] = ()


Measure = Callable[[Path], Measured]


def measure(path: Path) -> Measured:
    """A series of shots, measured as they are."""
    try:
        (noise,) = measure_camera(path, ImageOptions(kind="images").of_photos())
    except DataError:
        return Measured({}, REFUSED)
    intervals = {
        name: (_short(found.bounds[0]), _short(found.bounds[1]))
        for name, found in _estimates(noise)
        if found.bounds is not None
    }
    curve = [
        (_short(point.brightness), _short(bounds[0]), _short(bounds[1]))
        for point in noise.curve
        if point.channel == 0 and (bounds := point.variance.bounds) is not None
    ]
    return Measured(intervals, noise.nearest if noise.fits else NONE, noise.nearest, curve)


def _estimates(noise: CameraNoise) -> Iterator[tuple[str, Estimate]]:
    """Everything that has an interval, by the names of the truths."""
    for channel, sigma in enumerate(noise.by_channel):
        yield f"sigma[{channel}]", sigma
    yield "kurtosis", noise.kurtosis
    for lag in noise.neighbours:
        yield f"correlation({lag.down},{lag.across})", lag.correlation
    for pair, between in zip(channel_pairs(noise.channels), noise.between_channels, strict=True):
        yield f"between[{pair[0]},{pair[1]}]", between
    if noise.linear is not None:
        yield "photons", noise.linear.photons
        yield "read_noise", noise.linear.read_noise
    if noise.length is not None:
        yield "length", noise.length
    yield "fixed_pattern", noise.fixed_pattern
    if noise.defective is not None:
        yield "defects", noise.defective


def _short(value: float) -> float:
    """Seven digits, which the files of the study can hold."""
    return float(f"{value:.7g}")


def noises(shots: Path, file: Path) -> dict[str, dict[str, Any]]:
    """The noises of a spec, at the measured level: `frames`, and the nearest kind by its name, with
    `, which does not fit` if that is so.

    Args:
        shots: a folder of shots.
        file: the YAML file to write; the frames are beside it.
    """
    measured = robaudit.measure_noise(shots, out=file)
    (noise,) = measured.noises
    (fit_noise, *_) = _entries(noise)
    found = {fit_noise["kind"] + ("" if noise.fits else ", which does not fit"): fit_noise}
    for entry in measured.noise:
        if entry["kind"] == "frames":
            found["frames"] = entry
    return {name: _at_measured_level(entry) for name, entry in found.items()}


def _entries(noise: CameraNoise) -> list[dict[str, Any]]:
    """The entry of the nearest kind."""
    from robaudit.camera.noise_file import entries

    return entries(noise, noise.name, None)


def _at_measured_level(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A noise with the measured level alone."""
    level = {
        key: [value[_MEASURED if len(value) > 1 else 0]]
        for key, value in entry.items()
        if key in ("sigma", "photons", "level")
    }
    return {**entry, **level}
