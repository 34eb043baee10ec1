"""From shots to the noise of a camera: read, pair, sum, fit, judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from robaudit.camera.blocks import Floats, read_stack
from robaudit.camera.curve import (
    CurvePoint,
    curve_points,
    free_curve,
    linear_camera,
)
from robaudit.camera.fits import CORRELATED, between_correlations, lag_correlations, lengths
from robaudit.camera.moments import BINS, LAGS, Measured, measured, with_curve
from robaudit.camera.pairs import still_scene
from robaudit.camera.pattern import defects, fixed_pattern, stuck
from robaudit.camera.result import CameraNoise, LagCorrelation
from robaudit.camera.shots import find_scenes
from robaudit.camera.sums import Sums, Totals, joined, merged
from robaudit.camera.verdict import DEVIATION, excess_kurtosis, verdict
from robaudit.estimates import Estimate
from robaudit.progress import Listener
from robaudit.spec.model import ImageOptions

_ALL = "camera"
"""The name of the noise of all scenes together."""
_LEAST_SHARE = 0.02  # of a scene's values: a brightness by which scenes are compared


def measure(
    frames: Path, options: ImageOptions, listener: Listener | None = None
) -> tuple[CameraNoise, ...]:
    """The noise of a camera, from shots of one or several still scenes.

    Scenes whose noise is the same at the same brightness are measured together. Where it differs,
    as with two gains, each scene has a noise of its own.

    Args:
        frames: a folder of shots, a folder of such folders, or a .npy or .npz stack.
        options: how the shots are prepared.
        listener: is told what is being done.

    Returns:
        One noise, or one for each scene.

    Raises:
        DataError: there are no shots, or none that differ in noise alone.
        SampleError: a shot cannot be read.
    """
    listener = listener or Listener()
    found = []
    for scene in find_scenes(frames, options):
        stack = read_stack(scene, partial(_say_reading, listener, scene.name))
        listener.doing(f"{scene.name}: the noise of {len(scene.shots)} shots")
        found.append(measured(still_scene(stack)))
    if len(found) > 1 and _agree(found):
        return (_noise_of(_ALL, found),)
    return tuple(_noise_of(scene.scene.stack.name, [scene]) for scene in found)


def _say_reading(listener: Listener, name: str, done: int, total: int) -> None:
    """Say which shot has been read."""
    listener.doing(f"{name}: shot {done} of {total}")


def _agree(scenes: Sequence[Measured]) -> bool:
    """Whether scenes have the same channels and bits, and where they have the same brightness the
    same noise, as far as can be told."""
    stacks = [scene.scene.stack for scene in scenes]
    if len({(stack.grid.shape[0], stack.bits) for stack in stacks}) > 1:
        return False
    curves = [{_place(point): point for point in curve_points(scene.sums)} for scene in scenes]
    return not any(
        _differ(curve[place], other[place])
        for number, curve in enumerate(curves)
        for other in curves[:number]
        for place in curve.keys() & other.keys()
    )


def _place(point: CurvePoint) -> tuple[int, int]:
    """The channel, and the bin of the brightness."""
    return point.channel, int(point.brightness * BINS)


def _differ(first: CurvePoint, second: CurvePoint) -> bool:
    """Whether two standard deviations differ by more than those of one kind of noise may."""
    if min(first.share, second.share) < _LEAST_SHARE:
        return False
    return _is_above(first, second) or _is_above(second, first)


def _is_above(first: CurvePoint, second: CurvePoint) -> bool:
    """Whether the first standard deviation is certainly larger by more than it may be."""
    lower = first.variance.lower or 0.0
    upper = second.variance.upper or math.inf
    return lower > (1 + DEVIATION) ** 2 * upper


def _noise_of(name: str, scenes: Sequence[Measured]) -> CameraNoise:
    """The noise of scenes with one and the same noise."""
    plain = joined([scene.sums for scene in scenes])
    curve = free_curve(plain)
    sums = merged(plain, joined([with_curve(scene, curve) for scene in scenes]))
    points = curve_points(sums)
    stack = scenes[0].scene.stack
    (sigma,) = sums.positive(_deviation)
    decided = verdict(scenes, sums, points, stack.step)
    channels, height, width = stack.grid.shape
    return CameraNoise(
        name=name,
        scenes=tuple(scene.scene.stack.name for scene in scenes),
        shots=sum(len(scene.scene.stack.shots) for scene in scenes),
        pairs=sum(len(scene.scene.pairs) for scene in scenes),
        channels=channels,
        height=height,
        width=width,
        bits=stack.bits,
        sigma=sigma,
        by_channel=tuple(sums.positive(_deviations)),
        curve=tuple(points),
        linear=linear_camera(sums, stack.step),
        neighbours=_neighbours(sums),
        between_channels=tuple(sums.estimates(between_correlations)),
        length=_length(sums, stack.step) if decided.nearest.kind == CORRELATED else None,
        kurtosis=excess_kurtosis(sums),
        fixed_pattern=fixed_pattern(scenes),
        defective=defects(scenes, sigma.value),
        stuck=stuck(scenes, _least_deviation(points)),
        remarks=tuple(remark for scene in scenes for remark in scene.scene.remarks),
        candidates=decided.candidates,
        fits=decided.fits,
        fit=decided.nearest,
        variance_curve=curve,
        measured=scenes,
    )


def _least_deviation(points: Sequence[CurvePoint]) -> float:
    """The standard deviation at the brightness where it is smallest."""
    return math.sqrt(min((point.variance.value for point in points), default=0.0))


def _deviation(totals: Totals) -> Floats:
    """The standard deviation over all values, (replicates, 1)."""
    variance = totals["square"].sum(-1) / totals["count"].sum(-1)
    deviation: Floats = variance[:, None] ** 0.5
    return deviation


def _deviations(totals: Totals) -> Floats:
    """The standard deviation of each channel, (replicates, channels)."""
    deviations: Floats = (totals["square"] / totals["count"]) ** 0.5
    return deviations


def _length(sums: Sums, step: float) -> Estimate:
    """The length of correlated noise."""
    (length,) = sums.positive(partial(lengths, step=step))
    return length


def _neighbours(sums: Sums) -> tuple[LagCorrelation, ...]:
    """The correlation at every distance."""
    found = sums.estimates(lag_correlations)
    return tuple(
        LagCorrelation(down, across, correlation)
        for (down, across), correlation in zip(LAGS, found, strict=True)
    )
