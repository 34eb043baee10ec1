"""The cameras and scenes of the study, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tests import scenes
from tests.camera_truth import correlation, defective, deviation, excess_kurtosis
from tests.cameras import Box, Camera, Floats, drift, flicker

SIDE = 96
EXPOSURE = 0.85
"""Of every scene, so that the noise of its brightest parts does not reach white."""
_SCENES: Mapping[str, Callable[[], Floats]] = {
    "flat": partial(scenes.flat, SIDE, SIDE),
    "steps": partial(scenes.steps, SIDE, SIDE),
    "gradient": partial(scenes.gradient, SIDE, SIDE),
    "texture": partial(scenes.texture, SIDE, SIDE),
}
SCENES = tuple(_SCENES)
FLAT = "flat"
"""One brightness: how the noise grows with it cannot be told."""
NONE = "none"
"""The verdict that no noise fits."""

Disturb = Callable[[Camera, int], Camera]
"""What happens to a camera while it takes this many shots."""


@dataclass(frozen=True, slots=True)
class Case:
    """A camera of the study.

    Attributes:
        camera: without what happens between the shots.
        right: the noise that fits, or none.
        disturbed: what happens between the shots.
        fewest: shots that it takes to find that out.
    """

    camera: Camera
    right: str
    disturbed: Disturb = lambda camera, _: camera
    fewest: int = 2


def scene_of(name: str) -> Floats:
    """The light of a scene."""
    return EXPOSURE * _SCENES[name]()


def _drifting(camera: Camera, shots: int) -> Camera:
    return replace(camera, exposure=drift(shots, 0.05))


def _flickering(camera: Camera, shots: int) -> Camera:
    return replace(camera, exposure=flicker(shots, 0.02, seed=1))


def _knocked(camera: Camera, shots: int) -> Camera:
    return replace(camera, moved={shots // 2: (1.5, 0.5)})


def _crossed(camera: Camera, shots: int) -> Camera:
    return replace(camera, covered={shots // 2: Box(30, 20, 40, 15)})


_SENSOR = Camera(photons=1500, read_noise=4.0)
_PHONE = Camera(photons=1500, read_noise=4.0, bayer=True, encoding="srgb", jpeg=95)
_DEFECTS = ((11, 7), (50, 63), (80, 24))

CASES: Mapping[str, Case] = {
    "gaussian": Case(Camera(noise="gaussian", sigma=0.005), "gaussian"),
    "gaussian, 16 bits": Case(Camera(noise="gaussian", sigma=0.005, bits=16), "gaussian"),
    "gaussian by channel": Case(
        Camera(noise="gaussian", sigma=(0.0025, 0.005, 0.004)), "gaussian_scaled"
    ),
    "correlated": Case(Camera(noise="correlated", sigma=0.005, length=1.2), "gaussian_correlated"),
    "correlated, shared": Case(
        Camera(noise="correlated", sigma=0.005, length=0.8, shared=True), "gaussian_correlated"
    ),
    "laplace": Case(Camera(noise="laplace", sigma=0.005), "laplace"),
    "speckle": Case(Camera(noise="speckle", sigma=0.04, bits=16), "speckle"),
    "poisson": Case(Camera(photons=1500), "poisson"),
    "sensor": Case(_SENSOR, "sensor"),
    "sensor, 16 bits": Case(replace(_SENSOR, bits=16), "sensor"),
    "sensor, drift": Case(_SENSOR, "sensor", _drifting),
    "sensor, flicker": Case(_SENSOR, "sensor", _flickering),
    "sensor, one shot moved": Case(_SENSOR, "sensor", _knocked, fewest=8),
    "sensor, somebody passes": Case(_SENSOR, "sensor", _crossed, fewest=8),
    "sensor, patterns and defects": Case(
        replace(_SENSOR, prnu=0.02, dsnu=0.005, hot=_DEFECTS[:2], dead=_DEFECTS[2:]), "sensor"
    ),
    "raw, demosaiced": Case(replace(_SENSOR, bayer=True), NONE),
    "phone, JPEG 95": Case(_PHONE, NONE),
    "phone, JPEG 75": Case(replace(_PHONE, jpeg=75), NONE),
    "phone, JPEG 50": Case(replace(_PHONE, jpeg=50), NONE),
}
"""Noises so weak that nothing is clipped, in the darkest or the brightest parts of a scene."""


def truths(case: Case, scene_name: str) -> dict[str, float]:
    """What is known of a camera before a scene, by the names that a measurement uses.

    `sigma[c]`, `kurtosis[c]`, `correlation(rows,columns)[c]` of channel c, `between[c,d]` of two
    channels, `defects` (the share of pixels); and of a camera without further processing `photons`,
    `read_noise`, `length`, `prnu`, `dsnu` (electrons).
    """
    camera = case.camera
    scene = scene_of(scene_name)
    found = _by_channel("sigma", deviation(camera, scene).value)
    found["defects"] = float(defective(camera, scene).mean())
    if scene_name == FLAT:
        found |= _of_neighbours(camera)
    unprocessed = not camera.bayer and camera.encoding == "linear" and camera.jpeg is None
    if unprocessed and camera.photons is not None:
        found["photons"] = camera.photons
        found["read_noise"] = camera.read_noise
        found["prnu"] = float(camera.gain(scene.shape).std())
        found["dsnu"] = float(camera.offset(scene.shape).std()) * camera.photons
    if camera.noise == "correlated":
        found["length"] = camera.length
    return found


def _of_neighbours(camera: Camera) -> dict[str, float]:
    """Correlations and tails, which are known on a flat scene."""
    found = _by_channel("kurtosis", excess_kurtosis(camera).value)
    correlations = correlation(camera)
    for (down, right), value in correlations.lags.items():
        found |= _by_channel(f"correlation({down},{right})", value.value)
    channels = len(correlations.channels)
    for first in range(channels):
        for second in range(first + 1, channels):
            found[f"between[{first},{second}]"] = float(correlations.channels[first, second])
    return found


def _by_channel(name: str, values: Floats) -> dict[str, float]:
    return {f"{name}[{channel}]": float(value) for channel, value in enumerate(values)}
