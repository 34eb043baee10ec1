"""What a simulated camera's noise is: closed forms where there are any, else many shots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.cameras import Camera, Floats
from tests.scenes import flat

Seen = Callable[[Floats], Floats]
"""From a shot, scaled to [0, 1], to what a model sees of it: resized, cropped."""
Lag = tuple[int, int]
LAGS: tuple[Lag, ...] = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0))
"""Rows and columns between two pixels."""

_BLOCK = 16
_FEWEST = 16
"""Blocks, so that the standard error of their mean is known to a fifth."""
_MOST = 400
_MARGIN = 16
"""Pixels at the edge that are left out: demosaicing and filters mirror it. A multiple of 16, so
that whole blocks of a JPEG are left out."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number for each channel and its standard error, which is 0 for a closed form."""

    value: Floats
    error: Floats


@dataclass(frozen=True, slots=True)
class Correlation:
    """Correlations of the noise in one shot of a flat scene.

    Attributes:
        lags: between pixels at each lag, by channel.
        channels: between the channels of a pixel, (channels, channels).
        channels_error: standard errors of these.
    """

    lags: Mapping[Lag, Value]
    channels: Floats
    channels_error: Floats


def still(camera: Camera) -> Camera:
    """The camera without drift, flicker, motion and passers-by."""
    return replace(camera, exposure=(), moved={}, covered={})


def defective(camera: Camera, scene: Floats) -> NDArray[np.bool_]:
    """The pixels (height, width) that stuck photosites change, also through demosaicing."""
    healthy = replace(camera, hot=(), dead=(), jpeg=None)
    with_defects = replace(camera, jpeg=None)
    changed = healthy.noiseless(scene) != with_defects.noiseless(scene)
    found: NDArray[np.bool_] = changed.any(axis=2) if changed.ndim == 3 else changed
    for row, column in (*camera.hot, *camera.dead):
        # a hot photosite in white light changes nothing, and is stuck all the same
        found[row, column] = True
    return found


def deviation(
    camera: Camera,
    scene: Floats,
    *,
    seed: int = 0,
    relative: float = 2e-3,
    seen: Seen | None = None,
) -> Value:
    """The standard deviation of the noise by channel: the root of the mean variance of all pixels
    but defective ones.

    Args:
        camera: measured without drift and motion.
        scene: light.
        seed: of the shots.
        relative: the standard error aimed at, where it is not a closed form.
        seen: what a model sees of a shot; defective pixels are not left out then.
    """
    if seen is None:
        variance = closed_variance(camera, scene)
        if variance is not None:
            mean = _by_channel(variance, ~defective(camera, scene))
            return Value(np.sqrt(mean), np.zeros_like(mean))
    good = ~defective(camera, scene) if seen is None else None
    found: list[Floats] = []
    for block in _blocks(still(camera), scene, seed, seen):
        found.append(_by_channel(block.var(axis=0, ddof=1), good))
        mean, error = _mean(np.stack(found))
        # The relative error of a root is half that of the variance.
        if len(found) >= _FEWEST and np.all(error <= 2 * relative * mean):
            break
    root = np.sqrt(mean)
    halves = np.divide(error, 2 * root, out=np.zeros_like(root), where=root > 0)
    return Value(root, halves)


def closed_variance(camera: Camera, scene: Floats) -> Floats | None:
    """The variance of every value, of the shape of the scene; None where there is no closed form.

    gain^2 (x / photons + (read_noise / photons)^2) + of the other noise + 1 / (12 m^2),  if nothing
    is demosaiced, encoded, blurred or compressed, no value comes near black or white, and rounding
    is uniform.
    """
    if camera.bayer or camera.blur or camera.jpeg is not None or camera.encoding != "linear":
        return None
    gain = camera.gain(scene.shape) if camera.prnu else np.ones_like(scene)
    counted = np.zeros_like(scene)
    smooth = np.zeros_like(scene)
    if camera.photons is not None:
        counted = gain**2 * scene / camera.photons
        smooth = gain**2 * (camera.read_noise / camera.photons) ** 2
    if camera.noise == "speckle":
        smooth = smooth + np.square(camera.sigma) * (scene**2 + counted + smooth)
    elif camera.noise is not None:
        smooth = smooth + np.square(camera.sigma)
    if not _is_inside(camera, scene, counted, smooth):
        return None
    if not _rounds_uniformly(camera, counted, smooth):
        return None
    return counted + smooth + 1 / (12 * camera.largest**2)


def _is_inside(camera: Camera, scene: Floats, counted: Floats, smooth: Floats) -> bool:
    """Whether values are at least five standard deviations from black and from white."""
    far = 5 * np.sqrt(counted + smooth)
    # A count alone is never below 0, so nothing of it is clipped there.
    below = far if smooth.any() else np.zeros_like(far)
    pattern = 5 * camera.dsnu + 5 * camera.prnu * scene
    top = min(camera.full_well, 1.0)
    return bool(np.all(scene - below - pattern >= 0) and np.all(scene + far + pattern <= top))


def _rounds_uniformly(camera: Camera, counted: Floats, smooth: Floats) -> bool:
    """Whether the error of rounding has the variance 1/12 of a step: the noise is at least half a
    step, and values between steps are taken, or steps are too small to matter."""
    total = np.sqrt(counted + smooth) * camera.largest
    if np.all(total >= 50):
        return True
    fine_counts = camera.photons is not None and camera.photons >= 4 * camera.largest
    spread = np.sqrt(smooth) * camera.largest
    if camera.photons is None or fine_counts:
        return bool(np.all(total >= 0.5))
    return bool(np.all(spread >= 0.5))


def curve(
    camera: Camera, levels: tuple[float, ...], *, grey: bool = False, seed: int = 0
) -> tuple[Floats, Floats]:
    """The photon transfer curve on flat scenes: mean value in [0, 1] and variance, (levels,
    channels) each."""
    means = []
    variances = []
    for level in levels:
        scene = flat(64, 64, level, grey=grey)
        shots = next(_blocks(still(camera), scene, seed, None))
        means.append(_by_channel(shots.mean(axis=0), None))
        variances.append(deviation(camera, scene, seed=seed).value ** 2)
    return np.stack(means), np.stack(variances)


def correlation(
    camera: Camera,
    level: float | tuple[float, ...] = 0.4,
    *,
    grey: bool = False,
    blocks: int = 24,
    seed: int = 0,
) -> Correlation:
    """Correlations on a flat scene of this brightness, from 16 shots a block.

    Noise after demosaicing has another variance at every other pixel; the correlation is the mean
    covariance over the mean variance.
    """
    scene = flat(96, 96, level, grey=grey)
    at_lags: dict[Lag, list[Floats]] = {lag: [] for lag in LAGS}
    between: list[Floats] = []
    for _, shots in zip(range(blocks), _blocks(still(camera), scene, seed, None), strict=False):
        inner = shots[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
        noise = inner - inner.mean(axis=0)  # (shots, height, width, channels)
        variance = np.mean(noise**2, axis=(0, 1, 2))
        for lag in LAGS:
            at_lags[lag].append(_at_lag(noise, lag) / variance)
        together = np.einsum("nhwc,nhwd->cd", noise, noise) / (noise.size / noise.shape[3])
        between.append(together / np.sqrt(np.outer(variance, variance)))
    channels, error = _mean(np.stack(between))
    lags = {lag: Value(*_mean(np.stack(found))) for lag, found in at_lags.items()}
    return Correlation(lags, channels, error)


def excess_kurtosis(
    camera: Camera,
    level: float | tuple[float, ...] = 0.4,
    *,
    grey: bool = False,
    blocks: int = 24,
    seed: int = 0,
) -> Value:
    """Fourth cumulant over squared variance of the noise on a flat scene, by channel; 0 if normal.

    The cumulants of a difference of two shots are twice those of one for even orders, so its excess
    kurtosis is half as large; no mean needs to be known.
    """
    scene = flat(96, 96, level, grey=grey)
    found = []
    for _, shots in zip(range(blocks), _blocks(still(camera), scene, seed, None), strict=False):
        inner = shots[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
        difference = inner[0::2] - inner[1::2]
        second = np.mean(difference**2, axis=(0, 1, 2))
        fourth = np.mean(difference**4, axis=(0, 1, 2))
        found.append(2 * (fourth / second**2 - 3))
    return Value(*_mean(np.stack(found)))


def _blocks(camera: Camera, scene: Floats, seed: int, seen: Seen | None) -> Iterator[Floats]:
    """Blocks of shots (shots, height, width, channels), scaled to [0, 1]."""
    for block in range(_MOST):
        numbers = range(block * _BLOCK, (block + 1) * _BLOCK)
        shots = [camera.shot(scene, number, seed) / camera.largest for number in numbers]
        if seen is not None:
            shots = [seen(shot) for shot in shots]
        stack = np.stack(shots)
        yield stack if stack.ndim == 4 else stack[..., None]


def _at_lag(noise: Floats, lag: Lag) -> Floats:
    """The mean product of the noise of pixels at a lag, by channel."""
    down, right = lag
    height, width = noise.shape[1:3]
    first = noise[:, : height - down, : width - right]
    second = noise[:, down:, right:]
    product: Floats = np.mean(first * second, axis=(0, 1, 2))
    return product


def _by_channel(values: Floats, good: NDArray[np.bool_] | None) -> Floats:
    """The mean over good pixels (height, width), by channel."""
    pixels = values if values.ndim == 3 else values[..., None]
    chosen = pixels.reshape(-1, pixels.shape[2]) if good is None else pixels[good]
    mean: Floats = chosen.mean(axis=0)
    return mean


def _mean(found: Floats) -> tuple[Floats, Floats]:
    """The mean of blocks and its standard error."""
    error: Floats = np.full(found.shape[1:], np.inf)
    if len(found) > 1:
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return found.mean(axis=0), error
