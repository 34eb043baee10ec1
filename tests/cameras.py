"""Simulated cameras: from a scene of linear light to the shots that a user would have.

Every part is a field of :class:`Camera` and off by default, so a test switches on what it is about.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

Floats = NDArray[np.float64]
Shot = NDArray[np.uint8] | NDArray[np.uint16]
Place = tuple[int, int]
"""Row and column."""
Suffix = Literal["png", "tiff", "jpeg", "npy", "npz"]

SHADOW = 0.1
"""Light where something walks through the scene."""
_GAINS = 0
_OFFSETS = 1
"""Streams of a camera's patterns."""
_OF_GREEN = np.array([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]]) / 4
_OF_RED_OR_BLUE = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 4


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Camera:
    """The parts of a camera, in the order that light and numbers pass them.

        light   = exposure of the shot * scene, moved or partly covered in some shots
        sampled through a Bayer pattern, if there is one
        signal  = clip((N + read_noise v) / photons, 0, full_well),  N ~ Poisson(light photons)
        signal  = (1 + prnu a) signal + dsnu b,  a and b normal, the same in all shots; defects
        demosaiced, encoded, other noise added, blurred
        value   = round(m clip(value, 0, 1)),  m = 2^bits - 1;  JPEG

    With photons, read noise and bits alone this is the noise `sensor`. A Bayer pattern samples
    before the photons are counted, so every photosite counts its own.

    Attributes:
        photons: electrons of a white pixel; None: light without noise.
        read_noise: standard deviation, in electrons.
        full_well: where the signal saturates, in units of white.
        prnu: standard deviation of the gain of photosites, relative.
        dsnu: standard deviation of the offset of photosites, in units of white.
        pattern_seed: of these two maps.
        hot: photosites that always give a full well.
        dead: photosites that always give 0.
        bayer: an RGGB pattern with bilinear demosaicing; the scene has three channels.
        encoding: from light to values: none, the power 1/2.2, or the curve of sRGB.
        noise: a standard noise added to encoded values, independent of the photons.
        sigma: its standard deviation, one or by channel; of speckle relative to the value.
        length: of correlated noise, in pixels: the correlation is exp(-r^2 / (2 length^2)).
        shared: the standard noise is the same in all channels.
        blur: standard deviation of a Gaussian filter on encoded values, in pixels.
        bits: of the values.
        jpeg: quality; chroma is subsampled as Pillow does by default.
        exposure: factor of the light by the number of the shot; 1 for later shots.
        moved: by the number of the shot, how far the scene moves right and down, in pixels.
        covered: by the number of the shot, where something stands before the scene.
    """

    photons: float | None = None
    read_noise: float = 0.0
    full_well: float = 1.0
    prnu: float = 0.0
    dsnu: float = 0.0
    pattern_seed: int = 0
    hot: tuple[Place, ...] = ()
    dead: tuple[Place, ...] = ()
    bayer: bool = False
    encoding: Literal["linear", "gamma", "srgb"] = "linear"
    noise: Literal["gaussian", "laplace", "speckle", "correlated"] | None = None
    sigma: float | tuple[float, ...] = 0.0
    length: float = 1.0
    shared: bool = False
    blur: float = 0.0
    bits: Literal[8, 16] = 8
    jpeg: int | None = None
    exposure: tuple[float, ...] = ()
    moved: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    covered: Mapping[int, Box] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.photons is None and self.read_noise:
            raise ValueError("read noise is in electrons: it needs photons")
        if self.jpeg is not None and self.bits != 8:
            raise ValueError("JPEG has 8 bits")

    @property
    def largest(self) -> int:
        """The largest value, 2^bits - 1."""
        return (1 << self.bits) - 1

    def shot(self, scene: Floats, number: int, seed: int) -> Shot:
        """One shot; its noise depends on its number and the seed.

        Args:
            scene: light in [0, 1], (height, width, 3) or (height, width).
            number: of the shot, from 0.
            seed: of the series.

        Returns:
            Values, of the shape of the scene.
        """
        random = np.random.default_rng([seed, number])
        values = self._quantised(self._developed(self._light(scene, number), random))
        return values if self.jpeg is None else _decoded(_jpeg(values, self.jpeg))

    def noiseless(self, scene: Floats) -> Shot:
        """What the camera makes of the scene without noise: no photons, no other noise, exposure 1,
        nothing moved; with the patterns and the defects."""
        values = self._quantised(self._developed(scene, None))
        return values if self.jpeg is None else _decoded(_jpeg(values, self.jpeg))

    def write(
        self, folder: Path, scene: Floats, shots: int, seed: int, suffix: Suffix = "png"
    ) -> list[Path]:
        """Write a series of shots: a file each, or one stack `shots.npy` or `shots.npz` (array
        `images`), whose shots are (number, height, width, channels) or (number, height, width).

        Raises:
            ValueError: the format cannot hold such values.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if suffix in ("npy", "npz"):
            return [self._write_stack(folder / f"shots.{suffix}", scene, shots, seed)]
        if suffix == "jpeg" and self.jpeg is None:
            raise ValueError("a JPEG file needs the quality of the camera")
        if self.bits == 16 and scene.ndim == 3:
            raise ValueError("Pillow writes no 16-bit colour: use npy or npz")
        paths = [folder / f"{number:04d}.{suffix}" for number in range(shots)]
        for number, path in enumerate(paths):
            if suffix == "jpeg" and self.jpeg is not None:
                random = np.random.default_rng([seed, number])
                values = self._quantised(self._developed(self._light(scene, number), random))
                path.write_bytes(_jpeg(values, self.jpeg))
            else:
                Image.fromarray(self.shot(scene, number, seed)).save(path)
        return paths

    def _write_stack(self, path: Path, scene: Floats, shots: int, seed: int) -> Path:
        """All shots in one array."""
        stack = np.stack([self.shot(scene, number, seed) for number in range(shots)])
        if path.suffix == ".npy":
            np.save(path, stack)
        else:
            np.savez(path, images=stack)
        return path

    def _light(self, scene: Floats, number: int) -> Floats:
        """The light of one shot."""
        light = scene
        if number in self.moved:
            right, down = self.moved[number]
            far = (down, right) + (0.0,) * (scene.ndim - 2)
            light = ndimage.shift(light, far, order=1, mode="nearest")
        if number in self.covered:
            box = self.covered[number]
            light = light.copy()
            light[box.top : box.top + box.height, box.left : box.left + box.width] = SHADOW
        factor = self.exposure[number] if number < len(self.exposure) else 1.0
        return light * factor

    def _developed(self, light: Floats, random: Generator | None) -> Floats:
        """From light to values before they are rounded; without noise if ``random`` is None."""
        signal = self._with_patterns(self._read(_mosaic(light) if self.bayer else light, random))
        colours = _demosaiced(signal) if self.bayer else signal
        values = _encoded(colours, self.encoding)
        if random is not None:
            values = self._with_noise(values, random)
        if self.blur:
            far = (self.blur, self.blur) + (0.0,) * (values.ndim - 2)
            values = ndimage.gaussian_filter(values, far, mode="mirror")
        return values

    def _read(self, light: Floats, random: Generator | None) -> Floats:
        """Photons counted and read, in units of white."""
        signal = light
        if self.photons is not None and random is not None:
            electrons = random.poisson(light * self.photons).astype(np.float64)
            if self.read_noise:
                electrons += random.normal(0.0, self.read_noise, light.shape)
            signal = electrons / self.photons
        return np.clip(signal, 0.0, self.full_well)

    def _with_patterns(self, signal: Floats) -> Floats:
        """What is the same in all shots: gains, offsets, defects."""
        if self.prnu:
            signal = signal * self.gain(signal.shape)
        if self.dsnu:
            signal = signal + self.offset(signal.shape)
        if self.hot or self.dead:
            signal = signal.copy()
            for row, column in self.hot:
                signal[row, column] = self.full_well
            for row, column in self.dead:
                signal[row, column] = 0.0
        return signal

    def gain(self, shape: tuple[int, ...]) -> Floats:
        """The gains of photosites, around 1."""
        return 1.0 + self.prnu * _pattern(shape, self.pattern_seed, _GAINS)

    def offset(self, shape: tuple[int, ...]) -> Floats:
        """The offsets of photosites, in units of white."""
        return self.dsnu * _pattern(shape, self.pattern_seed, _OFFSETS)

    def _with_noise(self, values: Floats, random: Generator) -> Floats:
        """The standard noise, added."""
        if self.noise is None:
            return values
        sigma: Floats = np.asarray(self.sigma, dtype=np.float64)
        shape = values.shape
        if self.shared and values.ndim == 3:
            shape = (*values.shape[:2], 1)
        if self.noise == "laplace":
            return values + random.laplace(0.0, np.sqrt(0.5), shape) * sigma
        normal = random.standard_normal(shape)
        if self.noise == "speckle":
            return values + values * normal * sigma
        if self.noise == "correlated":
            rows = _root(values.shape[0], self.length)
            columns = _root(values.shape[1], self.length)
            # Kh^1/2 Z Kw^1/2 of every channel: the covariance is the product of both.
            normal = np.einsum("ij,jk...,kl->il...", rows, normal, columns, optimize=True)
        return values + normal * sigma

    def _quantised(self, values: Floats) -> Shot:
        """Whole numbers of this many bits."""
        steps = np.rint(np.clip(values, 0.0, 1.0) * self.largest)
        return steps.astype(np.uint8) if self.bits == 8 else steps.astype(np.uint16)


def drift(shots: int, change: float) -> tuple[float, ...]:
    """Exposures that change linearly, by this share from the first to the last shot, around 1."""
    return tuple(float(factor) for factor in np.linspace(1 - change / 2, 1 + change / 2, shots))


def flicker(shots: int, deviation: float, seed: int) -> tuple[float, ...]:
    """Independent exposures of this standard deviation around 1."""
    factors = np.random.default_rng([seed, shots]).normal(1.0, deviation, shots)
    return tuple(float(factor) for factor in factors)


def _mosaic(light: Floats) -> Floats:
    """The samples of an RGGB pattern (height, width) of light (height, width, 3)."""
    plane = light[..., 1].copy()
    plane[0::2, 0::2] = light[0::2, 0::2, 0]
    plane[1::2, 1::2] = light[1::2, 1::2, 2]
    return plane


def _demosaiced(plane: Floats) -> Floats:
    """Three channels (height, width, 3): a sample where there is one, else the mean of the nearest
    samples of the colour. The edge is mirrored, which keeps the pattern."""
    red = np.zeros_like(plane)
    blue = np.zeros_like(plane)
    red[0::2, 0::2] = plane[0::2, 0::2]
    blue[1::2, 1::2] = plane[1::2, 1::2]
    green = plane - red - blue
    kernels = (_OF_RED_OR_BLUE, _OF_GREEN, _OF_RED_OR_BLUE)
    channels = [
        ndimage.convolve(samples, kernel, mode="mirror")
        for samples, kernel in zip((red, green, blue), kernels, strict=True)
    ]
    return np.stack(channels, axis=2)


def _encoded(light: Floats, encoding: Literal["linear", "gamma", "srgb"]) -> Floats:
    """Values of light."""
    if encoding == "linear":
        return light
    within: Floats = np.clip(light, 0.0, 1.0)
    if encoding == "srgb":
        return to_srgb(within)
    powers: Floats = np.power(within, 1 / 2.2)
    return powers


def to_srgb(light: Floats) -> Floats:
    """The curve of sRGB (IEC 61966-2-1)."""
    curved: Floats = 1.055 * np.power(np.maximum(light, 0.0031308), 1 / 2.4) - 0.055
    encoded: Floats = np.where(light <= 0.0031308, 12.92 * light, curved)
    return encoded


def from_srgb(values: Floats) -> Floats:
    """Its inverse."""
    curved: Floats = np.power((np.maximum(values, 0.04045) + 0.055) / 1.055, 2.4)
    light: Floats = np.where(values <= 0.04045, values / 12.92, curved)
    return light


@lru_cache(maxsize=8)
def _pattern(shape: tuple[int, ...], seed: int, stream: int) -> Floats:
    """Standard normal values, the same for all shots."""
    pattern: Floats = np.random.default_rng([seed, stream]).standard_normal(shape)
    return pattern


@lru_cache(maxsize=8)
def _root(side: int, length: float) -> Floats:
    """The symmetric root of the correlation matrix of a line of pixels."""
    place = np.arange(side)
    correlation = np.exp(-0.5 * ((place[:, None] - place) / length) ** 2)
    values, vectors = np.linalg.eigh(correlation)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _jpeg(values: Shot, quality: int) -> bytes:
    """A JPEG file."""
    file = io.BytesIO()
    Image.fromarray(values).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _decoded(file: bytes) -> NDArray[np.uint8]:
    """The values of an image file."""
    values: NDArray[Any] = np.asarray(Image.open(io.BytesIO(file)))
    return values.astype(np.uint8)
