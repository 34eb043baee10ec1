"""Scenes before a simulated camera: linear light in [0, 1], (height, width, 3) or (height,
width)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from tests.cameras import Floats, from_srgb

DARKEST = 0.03
BRIGHTEST = 0.97
"""The ends of scenes in which nothing is clipped."""
Photo = Literal["china", "flower"]


def flat(
    height: int, width: int, level: float | tuple[float, ...] = 0.4, *, grey: bool = False
) -> Floats:
    """One brightness everywhere, or one for each channel."""
    shape = (height, width) if grey else (height, width, 3)
    return np.full(shape, level, dtype=np.float64)


def steps(height: int, width: int, count: int = 12, *, grey: bool = False) -> Floats:
    """A chart of grey columns, from dark to bright."""
    levels = np.linspace(DARKEST, BRIGHTEST, count)
    of_column = levels[np.arange(width) * count // width]
    return _with_channels(np.tile(of_column, (height, 1)), grey)


def gradient(height: int, width: int, *, grey: bool = False) -> Floats:
    """A plane: dark in one corner and bright in the opposite one."""
    down = np.linspace(0.0, 0.5, height)[:, None]
    across = np.linspace(0.0, 0.5, width)
    return _with_channels(DARKEST + (BRIGHTEST - DARKEST) * (down + across), grey)


def texture(
    height: int,
    width: int,
    photo: Photo = "china",
    *,
    grey: bool = False,
    clipped: bool = False,
) -> Floats:
    """A photograph, its middle cut to the shape and resized.

    Args:
        height, width: of the scene.
        photo: one of the two photographs of scikit-learn.
        grey: one channel, the mean of three.
        clipped: with parts that are black and parts that are white; else nothing is.
    """
    colours = _photo(photo)
    rows, columns = colours.shape[:2]
    scale = min(rows / height, columns / width)
    tall = round(height * scale)
    wide = round(width * scale)
    top = (rows - tall) // 2
    left = (columns - wide) // 2
    cut = colours[top : top + tall, left : left + wide]
    channels = [_resized(cut[..., channel], height, width) for channel in range(3)]
    light = np.clip(np.stack(channels, axis=2), 0.0, 1.0)
    light = np.clip(1.8 * light - 0.1, 0.0, 1.0) if clipped else _within(light)
    return light.mean(axis=2) if grey else light


def _within(light: Floats) -> Floats:
    """Light between the darkest and the brightest of a scene in which nothing is clipped."""
    return DARKEST + (BRIGHTEST - DARKEST) * light


def _resized(channel: Floats, height: int, width: int) -> Floats:
    """One channel of this shape."""
    image = Image.fromarray(channel.astype(np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)


def _with_channels(light: Floats, grey: bool) -> Floats:
    """The same light in three channels, or in one."""
    return light if grey else np.repeat(light[..., None], 3, axis=2)


@lru_cache(maxsize=2)
def _photo(photo: Photo) -> Floats:
    """A photograph in linear light."""
    return from_srgb(load_sample_image(f"{photo}.jpg") / 255.0)
