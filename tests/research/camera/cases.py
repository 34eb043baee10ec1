"""The cameras and scenes of the study, and what is true of them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robaudit.camera.measure import measure
from robaudit.camera.moments import LAGS, channel_pairs
from robaudit.spec.model import ImageOptions
from tests import scenes
from tests.camera_truth import closed_variance, defective, deviation, still
from tests.cameras import Box, Camera, Floats, drift, flicker

HEIGHT = 128
WIDTH = 160
EXPOSURE = 0.85
"""Of every scene, so that the noise of its brightest parts does not reach white."""
_TINT = np.array([1.0, 0.93, 0.87])
"""Of the light: channels of the same values would be rounded alike, and share what that adds."""
_SCENES: Mapping[str, Callable[[int, int], Floats]] = {
    "flat": scenes.flat,
    "steps": scenes.steps,
    "gradient": scenes.gradient,
    "texture": scenes.texture,
}
SCENES = tuple(_SCENES)
FLAT = "flat"
"""One brightness: how the noise grows with it cannot be told."""
NONE = "none"
"""The verdict that no noise fits."""
_REFERENCE = 400
"""Shots from which the truth is taken where there is no closed form."""
_KNOWN: dict[tuple[str, str], dict[str, float]] = {}
"""What many shots have told, by the camera and the scene."""

Disturb = Callable[[Camera, int], Camera]
"""What happens to a camera while it takes this many shots."""


@dataclass(frozen=True, slots=True)
class Case:
    """A camera of the study.

    Attributes:
        camera: without what happens between the shots.
        right: the noises that fit, or none.
        disturbed: what happens between the shots.
        fewest: shots that it takes to find that out.
    """

    camera: Camera
    right: tuple[str, ...]
    disturbed: Disturb = lambda camera, _: camera
    fewest: int = 2


def scene_of(name: str, height: int = HEIGHT, width: int = WIDTH) -> Floats:
    """The light of a scene."""
    return EXPOSURE * _TINT * _SCENES[name](height, width)


def _drifting(camera: Camera, shots: int) -> Camera:
    return replace(camera, exposure=drift(shots, 0.05))


def _flickering(camera: Camera, shots: int) -> Camera:
    return replace(camera, exposure=flicker(shots, 0.02, seed=1))


def _knocked(camera: Camera, shots: int) -> Camera:
    return replace(camera, moved={shots // 2: (1.5, 0.5)})


def _crossed(camera: Camera, shots: int) -> Camera:
    return replace(camera, covered={shots // 2: Box(30, 20, 40, 15)})


_SENSOR = Camera(photons=10_000, read_noise=36.0)
_LITTLE_READ_NOISE = Camera(photons=1500, read_noise=4.0)
_PHONE = Camera(photons=1500, read_noise=4.0, bayer=True, encoding="srgb", jpeg=95)
_DEFECTS = ((11, 7), (50, 63), (80, 24))
_IS_SENSOR = ("sensor",)
_IS_CORRELATED = ("gaussian_correlated",)
_IS_NONE = (NONE,)

CASES: Mapping[str, Case] = {
    "gaussian": Case(Camera(noise="gaussian", sigma=0.005), ("gaussian",)),
    "gaussian, 16 bits": Case(Camera(noise="gaussian", sigma=0.005, bits=16), ("gaussian",)),
    "gaussian, half a step": Case(Camera(noise="gaussian", sigma=0.002), ("gaussian",)),
    "gaussian by channel": Case(
        Camera(noise="gaussian", sigma=(0.0025, 0.005, 0.004)), ("gaussian_scaled",)
    ),
    "correlated": Case(Camera(noise="correlated", sigma=0.005, length=1.2), _IS_CORRELATED),
    "correlated, shared": Case(
        Camera(noise="correlated", sigma=0.005, length=0.8, shared=True), _IS_CORRELATED
    ),
    "laplace": Case(Camera(noise="laplace", sigma=0.005), ("laplace",)),
    "speckle": Case(Camera(noise="speckle", sigma=0.04, bits=16), ("speckle",)),
    "poisson": Case(Camera(photons=1500), ("poisson",)),
    "sensor": Case(_SENSOR, _IS_SENSOR),
    "sensor, 16 bits": Case(replace(_SENSOR, bits=16), _IS_SENSOR),
    # The darkest parts alone tell it from photons without read noise.
    "sensor, little read noise": Case(_LITTLE_READ_NOISE, ("poisson", "sensor")),
    "sensor, drift": Case(_SENSOR, _IS_SENSOR, _drifting),
    "sensor, flicker": Case(_SENSOR, _IS_SENSOR, _flickering),
    "sensor, one shot moved": Case(_SENSOR, _IS_SENSOR, _knocked, fewest=8),
    "sensor, somebody passes": Case(_SENSOR, _IS_SENSOR, _crossed, fewest=8),
    "sensor, patterns and defects": Case(
        replace(_SENSOR, prnu=0.01, dsnu=0.001, hot=_DEFECTS[:2], dead=_DEFECTS[2:]), _IS_SENSOR
    ),
    "raw, demosaiced": Case(replace(_LITTLE_READ_NOISE, bayer=True), _IS_NONE),
    "phone, JPEG 95": Case(_PHONE, _IS_NONE),
    "phone, JPEG 75": Case(replace(_PHONE, jpeg=75), _IS_NONE),
    "phone, JPEG 50": Case(replace(_PHONE, jpeg=50), _IS_NONE),
}
"""Noises so weak that nothing is clipped, in the darkest or the brightest parts of a scene."""


def truths(case: Case, scene_name: str) -> dict[str, float]:
    """What is known of a camera before a scene, by the names that a measurement uses.

    `sigma[c]` of channel c, `kurtosis`, `correlation(rows,columns)`, `between[c,d]` of two
    channels, `defects` (the share of pixels); and of a camera without further processing `photons`,
    `read_noise`, `length`, and on a flat scene `fixed_pattern`.
    """
    camera = case.camera
    scene = scene_of(scene_name)
    found = {"defects": float(defective(camera, scene).mean())}
    if _is_processed(camera):
        return found | _reference(camera, scene_name)
    variance = _variance(camera, scene)
    if variance is None:
        found |= _by_channel("sigma", deviation(camera, scene).value)
    else:
        good = ~defective(camera, scene)
        found |= _by_channel("sigma", np.sqrt(variance[good].mean(0)))
    if camera.photons is not None:
        found["photons"] = camera.photons
        found["read_noise"] = camera.read_noise
    if camera.noise == "correlated":
        found["length"] = camera.length
    if variance is None:
        return found
    found["kurtosis"] = float((_fourth_cumulant(camera, scene) / variance**2).mean())
    of_length = 1 - 1 / (12 * camera.largest**2) / float(variance.mean())
    for down, across in LAGS:
        is_correlated = camera.noise == "correlated"
        apart = (down**2 + across**2) / (2 * camera.length**2)
        rho = of_length * math.exp(-apart) if is_correlated else 0.0
        found[f"correlation({down},{across})"] = rho
    for first, second in channel_pairs(scene.shape[2]):
        found[f"between[{first},{second}]"] = 0.0
    if camera.shared:
        # Channels of similar values are rounded alike, more or less.
        many = _reference(camera, scene_name)
        found |= {name: value for name, value in many.items() if name.startswith("between")}
    if scene_name == FLAT:
        level = float(np.square(scene).mean())
        found["fixed_pattern"] = math.hypot(camera.dsnu, camera.prnu * math.sqrt(level))
    return found


def curve_truth(case: Case, brightness: float, channel: int) -> float | None:
    """The variance at a brightness; None where there is no closed form."""
    camera = still(case.camera)
    if _is_processed(camera) or camera.prnu or camera.dsnu:
        return None
    at = np.full((1, 1, 3), brightness)
    variance = closed_variance(camera, at)
    return None if variance is None else float(variance[0, 0, channel])


def _variance(camera: Camera, scene: Floats) -> Floats | None:
    """The variance of every value; None where there is no closed form.

    Noise that is added is the same everywhere: the darkest parts are 4.4 standard deviations from
    black, where what is cut off does not count.
    """
    is_added = camera.photons is None and camera.noise != "speckle"
    return closed_variance(camera, np.full_like(scene, 0.5) if is_added else scene)


def _is_processed(camera: Camera) -> bool:
    """Whether more than rounding follows the noise."""
    return camera.bayer or camera.encoding != "linear" or camera.jpeg is not None


def _fourth_cumulant(camera: Camera, scene: Floats) -> Floats:
    """Of the noise of every value; that of a Poisson variable is its mean."""
    cumulant = np.full_like(scene, -1 / (120 * camera.largest**4))
    if camera.photons is not None:
        cumulant = cumulant + scene / camera.photons**3
    if camera.noise == "laplace":
        cumulant = cumulant + 3 * np.asarray(camera.sigma) ** 4
    return cumulant


def _reference(camera: Camera, scene_name: str) -> dict[str, float]:
    """Deviation and correlations of a processed camera, from many shots.

    The kurtosis is what the measurement says of all of them: it is relative to the mean variance at
    a brightness, and has no meaning of its own where the variance depends on more.
    """
    key = (repr(camera), scene_name)
    if key not in _KNOWN:
        _KNOWN[key] = _from_shots(camera, scene_of(scene_name))
    return _KNOWN[key]


def _from_shots(camera: Camera, scene: Floats) -> dict[str, float]:
    """See :func:`_reference`."""
    seed = 10**6
    channels = scene.shape[2]
    square = np.zeros((channels, channels))
    products = dict.fromkeys(LAGS, 0.0)
    for number in range(0, _REFERENCE, 2):
        pair = [camera.shot(scene, number + place, seed) / camera.largest for place in range(2)]
        noise = (pair[0] - pair[1]) / math.sqrt(2)
        square += np.einsum("hwc,hwd->cd", noise, noise) / noise[..., 0].size
        for down, across in LAGS:
            height, width = noise.shape[:2]
            first = noise[: height - down, : width - across]
            products[down, across] += float((first * noise[down:, across:]).mean())
    square /= _REFERENCE // 2
    found = _by_channel("sigma", np.sqrt(np.diag(square)))
    mean = float(np.diag(square).mean())
    for (down, across), total in products.items():
        found[f"correlation({down},{across})"] = total / (_REFERENCE // 2) / mean
    for one, other in channel_pairs(channels):
        both = math.sqrt(square[one, one] * square[other, other])
        found[f"between[{one},{other}]"] = float(square[one, other]) / both
    with tempfile.TemporaryDirectory() as folder:
        (path,) = camera.write(Path(folder), scene, _REFERENCE, seed, "npy")
        (noise_,) = measure(path, ImageOptions(kind="images").of_photos())
    found["kurtosis"] = noise_.kurtosis.value
    return found


def _by_channel(name: str, values: Floats) -> dict[str, float]:
    return {f"{name}[{channel}]": float(value) for channel, value in enumerate(values)}
